//! Puts PDUs into a `Transmit`, with padding and the digests in force.

use super::{Bhs, padding};
use crate::{
    Payload, Transmit,
    wire::digest::{Crc32c, crc32c},
};

/// How PDUs are sent on a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sender {
    pub header_digest: bool,
    pub data_digest: bool,
}

impl Sender {
    /// A PDU without data.
    pub fn header(self, transmit: &mut Transmit, bhs: &Bhs) {
        transmit.put(&bhs.0);
        if self.header_digest {
            transmit.put(&crc32c(&bhs.0).to_le_bytes());
        }
    }

    /// A PDU whose data are copied.
    pub fn bytes(self, transmit: &mut Transmit, mut bhs: Bhs, data: &[u8]) {
        bhs.set_data_len(data.len());
        self.header(transmit, &bhs);
        if data.is_empty() {
            return;
        }
        transmit.put(data);
        let mut crc = Crc32c::default();
        if self.data_digest {
            crc.update(data);
        }
        self.finish(transmit, data.len(), crc);
    }

    /// A PDU whose data are sent from where they lie, or copied where a digest is over them.
    pub fn payload(self, transmit: &mut Transmit, mut bhs: Bhs, payload: Payload) {
        bhs.set_data_len(payload.len());
        self.header(transmit, &bhs);
        if payload.is_empty() {
            return;
        }
        let len = payload.len();
        let mut crc = Crc32c::default();
        if self.data_digest {
            transmit.copy(&payload, |piece| crc.update(piece));
        } else {
            transmit.payload(payload);
        }
        self.finish(transmit, len, crc);
    }

    /// Padding, and the digest over data and padding (RFC 7143 §13.1).
    fn finish(self, transmit: &mut Transmit, len: usize, mut crc: Crc32c) {
        let padding = &[0; 3][..padding(len)];
        if !padding.is_empty() {
            transmit.put(padding);
        }
        if self.data_digest {
            crc.update(padding);
            transmit.put(&crc.finish().to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeapRegion, iscsi::pdu::BHS_LEN};

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
