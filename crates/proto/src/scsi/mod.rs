//! The SCSI device server and the initiator's command builders (SAM-5, SPC-5, SBC-4), independent of the transport.
//!
//! A transport creates one [`Device`] for all sessions of a target, and one [`Nexus`] per session. It passes every
//! command to [`Nexus::command`] and executes the returned [`Next`]. The target's side has one file per family of
//! commands. One table (`opcodes`) maps commands to handlers and states which bits of the CDB may be set.

pub mod access;
mod call;
mod cdb;
pub mod device;
pub mod initiator;
mod inquiry;
mod lun;
mod medium;
mod mode;
pub mod nexus;
mod opcodes;
mod port_groups;
mod provisioning;
mod reserve;
pub mod sense;
pub(crate) mod target;
mod unit;

pub use self::access::AccessState;
pub use self::device::{Ports, Transport};
pub use self::opcodes::describe_cdb;
pub use device::{Device, Identity, LogicalUnit, Provisioning};
pub use lun::{decode_lun, encode_lun};
pub use nexus::{Nexus, TaskManagement, TaskManagementResponse};
pub use sense::{Sense, status};
pub use target::ScsiBackend;

use alloc::vec::Vec;

use self::lun::LunView;
use crate::{Endings, Payload, UnitId, UnitOp};

/// A command as a transport passes it on.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The eight bytes of the LUN field, big endian.
    pub lun: u64,
    pub cdb: &'a [u8],
    /// Length of the data that the initiator announces to send, in bytes.
    pub data_out_len: u32,
    /// Size of the initiator's buffer for data, in bytes.
    pub data_in_len: u32,
}

/// The transport's next step for a command.
#[derive(Debug)]
pub enum Next {
    /// Send data-in, then status, at once.
    Respond(Response),
    /// Send the response when the commands of other nexuses that this one aborted have ended. Their connections must be
    /// notified.
    RespondAfter(Endings, Response),
    /// Start `op` on `unit`, then call [`Nexus::medium_done`]. If the backend returns `NeedData`, collect
    /// `op.data_len()` bytes of data-out, which is never more than the command's `data_out_len`.
    Medium { unit: UnitId, op: UnitOp, after: AfterMedium },
    /// Collect this many bytes of data-out, which is never more than the command's `data_out_len`. Then call
    /// [`Nexus::parameters`] with the same command.
    Parameters { len: u32 },
}

/// How to end a command after its medium operation. It is small and `Copy`; the transport keeps it meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterMedium {
    /// The data read are sent to the initiator (not for VERIFY).
    pub(crate) returns_data: bool,
    pub(crate) descriptor_sense: bool,
    pub(crate) writes: bool,
    /// See [`Response::data_out_len`].
    pub(crate) data_out_len: u32,
}

impl AfterMedium {
    pub(crate) fn new(view: &LunView) -> Self {
        Self { returns_data: false, descriptor_sense: view.mode.descriptor_sense, writes: false, data_out_len: 0 }
    }
}

/// Data for the initiator, truncated to the allocation length of the CDB.
#[derive(Debug)]
pub enum DataIn {
    None,
    Inline(Vec<u8>),
    Payload(Payload),
}

impl DataIn {
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Inline(bytes) => bytes.len(),
            Self::Payload(payload) => payload.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The response to a command. The transport computes residuals by comparing `data.len()` and `data_out_len` with what
/// the initiator announced.
#[derive(Debug)]
pub struct Response {
    pub status: u8,
    pub sense: Option<Sense>,
    pub data: DataIn,
    /// Bytes of data-out that the CDB requires, which may be more or fewer than the initiator sent.
    pub data_out_len: u32,
}

impl Response {
    pub(crate) fn status(status: u8) -> Self {
        Self { status, sense: None, data: DataIn::None, data_out_len: 0 }
    }

    pub(crate) fn good() -> Self {
        Self::status(status::GOOD)
    }

    /// GOOD after a parameter list of `len` bytes.
    pub(crate) fn accepted(len: usize) -> Self {
        Self { data_out_len: len as u32, ..Self::good() }
    }

    pub(crate) fn check(sense: Sense) -> Self {
        Self { status: status::CHECK_CONDITION, sense: Some(sense), data: DataIn::None, data_out_len: 0 }
    }

    /// GOOD with data, truncated to the allocation length.
    pub(crate) fn data(mut bytes: Vec<u8>, allocation_len: u32) -> Self {
        bytes.truncate(allocation_len as usize);
        Self { status: status::GOOD, sense: None, data: DataIn::Inline(bytes), data_out_len: 0 }
    }
}
