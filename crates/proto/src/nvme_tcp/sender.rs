//! Puts PDUs into the transmit queue: headers inline, data by name.

use super::pdu::{
    COMMAND_LEN, COMMON_LEN, Common, Digests, Fault, IC_LEN, IcReq, IcResp, R2t, SHORT_LEN, TERM_DATA_MAX, TransferTag,
    flags, kind,
};
use crate::{
    Payload, Transmit,
    nvme::{CommandId, Cqe, Sqe, fabrics::Data},
    wire::digest::{Crc32c, crc32c},
};

#[derive(Debug, Default)]
pub(super) struct Sender {
    pub(super) tx: Transmit,
    digests: Digests,
    /// Data begin at a multiple of this many bytes; the peer's wish.
    alignment: u8,
}

impl Sender {
    /// The handshake is done; `alignment` is HPDA or CPDA: dwords, 0's based, at most 31.
    pub(super) fn open(&mut self, digests: Digests, alignment: u8) {
        self.digests = digests;
        self.alignment = (alignment + 1) * 4;
    }

    pub(super) fn ic_req(&mut self, req: &IcReq) {
        let mut header = plain::<IC_LEN>(kind::IC_REQ, IC_LEN);
        header[8..10].copy_from_slice(&req.format_version.to_le_bytes());
        header[10] = req.host_alignment;
        header[11] = req.digests.bits();
        header[12..16].copy_from_slice(&req.max_r2t.to_le_bytes());
        self.tx.put(&header);
    }

    pub(super) fn ic_resp(&mut self, resp: &IcResp) {
        let mut header = plain::<IC_LEN>(kind::IC_RESP, IC_LEN);
        header[8..10].copy_from_slice(&resp.format_version.to_le_bytes());
        header[10] = resp.controller_alignment;
        header[11] = resp.digests.bits();
        header[12..16].copy_from_slice(&resp.max_h2c_data.to_le_bytes());
        self.tx.put(&header);
    }

    /// Says why the connection ends: H2CTermReq or C2HTermReq with the header at fault.
    pub(super) fn term_req(&mut self, kind: u8, fault: &Fault, offending: &[u8]) {
        let offending = &offending[..offending.len().min(TERM_DATA_MAX)];
        let mut header = plain::<SHORT_LEN>(kind, SHORT_LEN + offending.len());
        header[8..10].copy_from_slice(&(fault.status as u16).to_le_bytes());
        header[10..14].copy_from_slice(&fault.information.to_le_bytes());
        self.tx.put(&header);
        self.tx.put(offending);
    }

    #[inline]
    pub(super) fn command(&mut self, sqe: &Sqe, data: Data<'_>) {
        let mut header = [0; COMMAND_LEN];
        header[COMMON_LEN..].copy_from_slice(&sqe.0);
        self.pdu(kind::COMMAND, 0, header, data);
    }

    #[inline]
    pub(super) fn response(&mut self, cqe: &Cqe) {
        let mut header = [0; SHORT_LEN];
        header[COMMON_LEN..].copy_from_slice(&cqe.encode());
        self.pdu(kind::RESPONSE, 0, header, Data::None);
    }

    pub(super) fn r2t(&mut self, r2t: R2t) {
        let header = transfer(r2t.cid, r2t.ttag, r2t.offset, r2t.len);
        self.pdu(kind::R2T, 0, header, Data::None);
    }

    #[inline]
    pub(super) fn h2c_data(&mut self, cid: CommandId, ttag: TransferTag, offset: u32, is_last: bool, data: Payload) {
        let header = transfer(cid, ttag, offset, data.len() as u32);
        self.pdu(kind::H2C_DATA, u8::from(is_last) * flags::LAST, header, Data::Payload(data));
    }

    /// All data of a read in one PDU.
    #[inline]
    pub(super) fn c2h_data(&mut self, cid: CommandId, is_success: bool, data: Data<'_>) {
        let header = transfer(cid, TransferTag::default(), 0, data.len() as u32);
        self.pdu(kind::C2H_DATA, flags::LAST | (u8::from(is_success) * flags::SUCCESS), header, data);
    }

    /// A PDU with the digests that were negotiated; the common header is filled in here.
    #[inline]
    fn pdu<const LEN: usize>(&mut self, kind: u8, mut flags: u8, mut header: [u8; LEN], data: Data<'_>) {
        let header_bytes = LEN + self.digests.header_bytes();
        let data_len = data.len();
        let (data_offset, len) = if data_len == 0 {
            (0, header_bytes)
        } else {
            let at = header_bytes.next_multiple_of(usize::from(self.alignment));
            flags |= u8::from(self.digests.data) * flags::DATA_DIGEST;
            (at, at + data_len + self.digests.data_bytes())
        };
        flags |= u8::from(self.digests.header) * flags::HEADER_DIGEST;
        let common = Common { kind, flags, header_len: LEN as u8, data_offset: data_offset as u8, len: len as u32 };
        header[..COMMON_LEN].copy_from_slice(&common.encode());
        self.tx.put(&header);
        if self.digests.header {
            self.tx.put(&crc32c(&header).to_le_bytes());
        }
        if data_len == 0 {
            return;
        }
        self.tx.zeros(data_offset - header_bytes);
        match data {
            Data::None => {}
            data if self.digests.data => self.with_digest(&data),
            Data::Payload(payload) => self.tx.payload(payload),
            Data::Bytes(bytes) => self.tx.put(bytes),
        }
    }

    /// Data and the digest over them.
    fn with_digest(&mut self, data: &Data<'_>) {
        let mut crc = Crc32c::default();
        match data {
            Data::None => {}
            Data::Payload(payload) => self.tx.copy(payload, |piece| crc.update(piece)),
            Data::Bytes(bytes) => {
                self.tx.put(bytes);
                crc.update(bytes);
            }
        }
        self.tx.put(&crc.finish().to_le_bytes());
    }
}

/// A header without digests, with its common part.
fn plain<const LEN: usize>(kind: u8, len: usize) -> [u8; LEN] {
    let mut header = [0; LEN];
    let common = Common { kind, flags: 0, header_len: LEN as u8, data_offset: 0, len: len as u32 };
    header[..COMMON_LEN].copy_from_slice(&common.encode());
    header
}

#[inline]
fn transfer(cid: CommandId, ttag: TransferTag, offset: u32, len: u32) -> [u8; SHORT_LEN] {
    let mut header = [0; SHORT_LEN];
    header[8..10].copy_from_slice(&cid.0.to_le_bytes());
    header[10..12].copy_from_slice(&ttag.0.to_le_bytes());
    header[12..16].copy_from_slice(&offset.to_le_bytes());
    header[16..20].copy_from_slice(&len.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HeapRegion;

    #[test]
    fn data_digest_is_over_what_is_sent_though_the_volume_is_written_to_meanwhile() {
        let mut sender = Sender::default();
        sender.open(Digests { header: false, data: true }, 0);
        let payload = Payload::new(HeapRegion::new(4096), 0, 4096);
        sender.pdu(kind::C2H_DATA, flags::LAST, [0; SHORT_LEN], Data::Payload(payload.clone()));
        payload.copy_in(0, &[7; 4096]);
        let sent = sender.tx.take_bytes();
        let (data, digest) = sent[SHORT_LEN..].split_at(4096);
        assert_eq!(crc32c(data).to_le_bytes(), digest);
    }
}
