//! A command outstanding that is not an I/O, and the data that came for it so far.

use alloc::vec::Vec;

use crate::{
    Violation,
    nvme::{CommandId, Cqe, Status, fabrics::host::Answer},
    nvme_tcp::pdu::{DataHeader, Fault, Fes},
};

pub(super) struct Exchange {
    cid: CommandId,
    /// Bytes that the controller gives.
    reads: u32,
    data: Vec<u8>,
    /// A data digest was wrong.
    is_spoilt: bool,
    /// The data PDU under way completes the command.
    succeeds: bool,
}

impl Exchange {
    pub(super) fn new(cid: CommandId, reads: u32) -> Self {
        Self { cid, reads, data: Vec::new(), is_spoilt: false, succeeds: false }
    }

    pub(super) fn cid(&self) -> CommandId {
        self.cid
    }

    /// NVMe/TCP transport 1.1 §3.6.2.9.
    pub(super) fn on_header(&mut self, data: &DataHeader, data_len: u32) -> Result<(), Fault> {
        if self.reads == 0 {
            return Err(NO_READ);
        }
        if data.len != data_len || data_len == 0 {
            return Err(Fault::field(16, "NVMe/TCP: DATAL is not the length of the PDU's data"));
        }
        let received = self.data.len() as u32;
        if data.offset != received || data_len > self.reads - received {
            return Err(Fault::out_of_range("NVMe/TCP: C2HData outside what the command asked for, or out of order"));
        }
        if data.is_success && !(data.is_last && data_len == self.reads - received) {
            return Err(Fault::field(1, "NVMe/TCP: SUCCESS on a PDU that is not the last"));
        }
        // The success is told by the last PDU's end, once its digest was checked.
        self.succeeds = data.is_success;
        Ok(())
    }

    pub(super) fn on_data(&mut self, piece: &[u8]) {
        self.data.extend_from_slice(piece);
    }

    /// A completion where the data said so.
    pub(super) fn on_data_end(&mut self, digest_ok: bool) -> Option<Cqe> {
        self.is_spoilt |= !digest_ok;
        self.succeeds.then_some(Cqe { result: 0, sq_head: 0, cid: self.cid, status: Status::SUCCESS })
    }

    pub(super) fn answer(self, mut cqe: Cqe) -> Result<Answer, Violation> {
        if self.is_spoilt {
            cqe.status = Status::TRANSIENT_TRANSPORT_ERROR;
        } else if cqe.status.is_success() && self.data.len() < self.reads as usize {
            return Err(Violation::misbehaved("NVMe/TCP: a command succeeded without all of its data"));
        }
        Ok(Answer { cqe, data: self.data })
    }
}

pub(super) const NO_READ: Fault =
    Fault { status: Fes::InvalidHeaderField, information: 8, rule: "NVMe/TCP: C2HData for no read outstanding" };

pub(super) const NO_COMMAND: Fault =
    Fault { status: Fes::InvalidHeaderField, information: 20, rule: "NVMe/TCP: a response to no command outstanding" };
