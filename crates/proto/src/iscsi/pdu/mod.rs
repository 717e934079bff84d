//! PDUs (RFC 7143 §11): typed headers, splitting a byte stream into PDUs, and sending PDUs with padding and digests.
//! Also the serial number arithmetic of CmdSN and StatSN (RFC 7143 §4.2.2, RFC 1982).

use crate::{
    Payload, Transmit,
    wire::digest::{Crc32c, crc32c},
};

pub mod bhs;
pub mod control;
pub mod framer;

pub use self::bhs::{DataIn, DataOut, R2t};
pub use self::bhs::{ScsiCommand, ScsiResponse};
pub use self::control::{LoginRequest, LoginResponse, LogoutRequest, LogoutResponse};
pub use self::control::{TextRequest, TextResponse};
pub use bhs::{BHS_LEN, Bhs, ConnectionId, SessionHandle, TaskTag, TransferTag};
pub use control::{AsyncMessage, NopIn, NopOut, Reject, Snack, TaskManagement, TaskManagementResponse};
pub use framer::{Fragment, Framer};

/// Bytes of padding after a data segment of `len` bytes, to a multiple of four (RFC 7143 §11.1).
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// The digests with which PDUs are sent on a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sender {
    pub header_digest: bool,
    pub data_digest: bool,
}

impl Sender {
    /// Sends a PDU without data.
    #[allow(clippy::inline_always)] // saves 17 instructions per write; `inline` alone is not reliable.
    #[inline(always)]
    pub fn header(self, transmit: &mut Transmit, bhs: &Bhs) {
        transmit.put(&bhs.0);
        if self.header_digest {
            transmit.put(&crc32c(&bhs.0).to_le_bytes());
        }
    }

    /// Sends a PDU and copies its data.
    pub fn bytes(self, transmit: &mut Transmit, mut bhs: Bhs, data: &[u8]) {
        bhs.set_data_len(data.len());
        self.header(transmit, &bhs);
        if data.is_empty() {
            return;
        }
        transmit.put(data);
        if self.data_digest {
            let mut crc = Crc32c::default();
            crc.update(data);
            digest(transmit, data.len(), crc);
        } else {
            pad(transmit, data.len());
        }
    }

    /// Sends a PDU and refers to its data in place. With a data digest the data are copied.
    pub fn payload(self, transmit: &mut Transmit, mut bhs: Bhs, payload: Payload) {
        bhs.set_data_len(payload.len());
        self.header(transmit, &bhs);
        if payload.is_empty() {
            return;
        }
        let len = payload.len();
        if self.data_digest {
            let mut crc = Crc32c::default();
            transmit.copy(&payload, |piece| crc.update(piece));
            digest(transmit, len, crc);
        } else {
            transmit.payload(payload);
            pad(transmit, len);
        }
    }
}

/// Sends padding, and the digest over data and padding (RFC 7143 §13.1).
fn digest(transmit: &mut Transmit, len: usize, mut crc: Crc32c) {
    crc.update(pad(transmit, len));
    transmit.put(&crc.finish().to_le_bytes());
}

/// Sends and returns the padding after `len` bytes of data.
#[inline]
fn pad(transmit: &mut Transmit, len: usize) -> &'static [u8] {
    let padding = &[0; 3][..padding(len)];
    if !padding.is_empty() {
        transmit.put(padding);
    }
    padding
}

/// Whether `left` comes before `right` in serial number arithmetic.
pub(super) fn is_before(left: u32, right: u32) -> bool {
    left.wrapping_sub(right).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use super::BHS_LEN;
    use super::*;
    use crate::HeapRegion;

    #[test]
    fn data_digest_is_over_what_is_sent_though_the_volume_is_written_to_meanwhile() {
        let region = HeapRegion::new(4096);
        let mut transmit = Transmit::default();
        let payload = Payload::new(region, 0, 4096);
        Sender { header_digest: false, data_digest: true }.payload(&mut transmit, Bhs([0; BHS_LEN]), payload.clone());
        payload.copy_in(0, &[7; 4096]);
        let sent = transmit.take_bytes();
        let (data, digest) = sent[BHS_LEN..].split_at(4096);
        assert_eq!(crc32c(data).to_le_bytes(), digest);
    }
}
