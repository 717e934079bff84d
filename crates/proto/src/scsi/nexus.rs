//! One I_T nexus: what a session knows of its device, and the way of a command through it.

use alloc::{
    rc::Rc,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};
use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    AfterMedium, Command, DataIn, Next, Response,
    call::{Call, Fault},
    cdb::Cdb,
    device::{Device, ModeState, NexusId, Provisioning},
    opcodes::{self, Entry},
    sense::{Sense, status},
};
use crate::{Backend, Payload, Shared, UnitError, UnitId};

/// The two ends of a nexus.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Name of the SCSI initiator port, for iSCSI `iqn…,i,0x<ISID>` (RFC 7143 §4.4).
    pub initiator: String,
    /// Name of the SCSI target port, for iSCSI `iqn…,t,0x<portal group tag>`.
    pub target: String,
    pub relative_target_port: u16,
}

/// Task management functions of SAM-5 §7 that reach the device server. The transport aborts the tasks themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagement {
    AbortTask,
    AbortTaskSet,
    ClearTaskSet,
    LogicalUnitReset,
    /// TARGET WARM RESET and TARGET COLD RESET.
    TargetReset,
    /// ACA is not supported.
    ClearAca,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagementResponse {
    Complete,
    NoLun,
    Unsupported,
}

/// One I_T nexus of a [`Device`].
pub struct Nexus {
    pub(crate) device: Rc<dyn Shared<Device>>,
    pub(crate) id: NexusId,
    pub(crate) ports: Ports,
    epoch: Arc<AtomicU64>,
    seen_epoch: u64,
    views: Vec<LunView>,
}

/// What a nexus caches of a logical unit, so that reads and writes take no lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LunView {
    pub(crate) lun: u16,
    pub(crate) unit: UnitId,
    pub(crate) blocks: u64,
    pub(crate) block_size: u32,
    pub(crate) max_io_blocks: u32,
    pub(crate) read_only: bool,
    pub(crate) provisioning: Provisioning,
    pub(crate) mode: ModeState,
    attention: bool,
}

impl Nexus {
    /// Begins a session on `device`.
    pub fn new(device: Rc<dyn Shared<Device>>, ports: Ports) -> Self {
        let mut joined = None;
        device.with(&mut |device| joined = Some((device.join(), device.epoch())));
        let (id, epoch) = joined.expect("Shared::with calls its argument");
        Self { device, id, ports, epoch, seen_epoch: 0, views: Vec::new() }
    }

    /// Calls `use_it` with the device locked.
    pub(crate) fn with_device<R>(&self, use_it: impl FnOnce(&mut Device) -> R) -> R {
        let mut use_it = Some(use_it);
        let mut result = None;
        self.device.with(&mut |device| result = use_it.take().map(|use_it| use_it(device)));
        result.expect("Shared::with calls its argument once")
    }

    /// Begins a command.
    pub fn command(&mut self, command: &Command<'_>, backend: &dyn Backend) -> Next {
        self.dispatch(command, backend, |entry, call| (entry.run)(call))
    }

    /// Goes on with a command once the data-out asked for with [`Next::Parameters`] are there.
    pub fn parameters(&mut self, command: &Command<'_>, data: &[u8], backend: &dyn Backend) -> Next {
        self.dispatch(command, backend, |entry, call| match entry.parameters {
            Some(parameters) => parameters(call, data),
            None => Err(Fault::Check(Sense::INVALID_OPCODE)),
        })
    }

    fn dispatch(
        &mut self,
        command: &Command<'_>,
        backend: &dyn Backend,
        run: impl FnOnce(&Entry, &mut Call<'_>) -> Result<Next, Fault>,
    ) -> Next {
        self.refresh(backend);
        let view = decode_lun(command.lun).and_then(|lun| self.view(lun)).copied();
        let descriptor_sense = view.is_some_and(|view| view.mode.descriptor_sense);
        let mut call = Call { nexus: self, cdb: Cdb(command.cdb), view, data_out_len: command.data_out_len, backend };
        let result = opcodes::find(command.cdb).and_then(|entry| {
            call.admit(entry)?;
            run(entry, &mut call)
        });
        match result {
            Ok(next) => next,
            Err(Fault::Status(status)) => Next::Respond(Response::status(status)),
            Err(Fault::Check(mut sense)) => {
                sense.descriptor = descriptor_sense;
                Next::Respond(Response::check(sense))
            }
        }
    }

    /// Ends a command whose medium operation is done.
    #[allow(clippy::unused_self, reason = "part of the seam: what a command's end does to the nexus")]
    pub fn medium_done(&mut self, after: AfterMedium, result: Result<Option<Payload>, UnitError>) -> Response {
        let mut response = match result {
            Ok(data) => Response {
                data: data.filter(|_| after.returns_data).map_or(DataIn::None, DataIn::Payload),
                ..Response::status(after.good)
            },
            Err(UnitError::Busy) => Response::status(status::BUSY),
            Err(UnitError::Aborted) => Response::status(status::TASK_ABORTED),
            Err(error) => {
                let mut sense = sense_of(error, after.writes);
                sense.descriptor = after.descriptor_sense;
                Response::check(sense)
            }
        };
        response.data_out_len = after.data_out_len;
        response
    }

    /// Does what a task management function means for the device; the transport aborts the tasks.
    pub fn task_management(&mut self, function: TaskManagement, lun: u64) -> TaskManagementResponse {
        match function {
            TaskManagement::ClearAca => TaskManagementResponse::Unsupported,
            TaskManagement::TargetReset => TaskManagementResponse::Complete,
            _ => match decode_lun(lun).and_then(|lun| self.with_device(|device| device.lun(lun).map(|_| ()))) {
                Some(()) => TaskManagementResponse::Complete,
                None => TaskManagementResponse::NoLun,
            },
        }
    }

    /// The session ended.
    pub fn lost(&mut self) {
        let id = self.id;
        self.with_device(|device| device.leave(id));
    }

    fn view(&self, lun: u16) -> Option<&LunView> {
        let at = self.views.binary_search_by_key(&lun, |view| view.lun).ok()?;
        self.views.get(at)
    }

    /// Fills the cache again where the device changed since.
    fn refresh(&mut self, backend: &dyn Backend) {
        let epoch = self.epoch.load(Ordering::Acquire);
        if epoch == self.seen_epoch {
            return;
        }
        self.seen_epoch = epoch;
        let id = self.id;
        self.views = self.with_device(|device| {
            let views = device.luns.iter().filter_map(|unit| {
                let geometry = backend.geometry(unit.config.unit)?;
                let block_size = geometry.block_size.max(1);
                Some(LunView {
                    lun: unit.config.lun,
                    unit: unit.config.unit,
                    blocks: geometry.size_bytes / u64::from(block_size),
                    block_size,
                    max_io_blocks: (geometry.max_io_bytes / block_size).max(1),
                    read_only: geometry.read_only,
                    provisioning: unit.config.provisioning,
                    mode: unit.mode,
                    attention: device.has_attention(id, unit.config.lun),
                })
            });
            views.collect()
        });
    }
}

impl LunView {
    pub(crate) fn has_attention(&self) -> bool {
        self.attention
    }
}

impl fmt::Debug for Nexus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nexus").field("id", &self.id).field("ports", &self.ports).finish_non_exhaustive()
    }
}

/// The number behind a LUN field of one level: peripheral device, flat space or extended flat addressing (SAM-5 §4.7).
pub fn decode_lun(field: u64) -> Option<u16> {
    let [first, second, third, fourth, rest @ ..] = field.to_be_bytes();
    if rest != [0; 4] {
        return None;
    }
    match first {
        0 if (third, fourth) == (0, 0) => Some(second.into()),
        0x40..=0x7f if (third, fourth) == (0, 0) => Some(u16::from_be_bytes([first & 0x3f, second])),
        0xd2 if second == 0 => Some(u16::from_be_bytes([third, fourth])),
        _ => None,
    }
}

/// The LUN field of a number; the inverse of `decode_lun`.
pub fn encode_lun(lun: u16) -> u64 {
    match lun {
        0..=0xff => u64::from(lun) << 48,
        0x100..=0x3fff => u64::from(lun | 0x4000) << 48,
        _ => 0xd200 << 48 | u64::from(lun) << 32,
    }
}

fn sense_of(error: UnitError, writes: bool) -> Sense {
    match error {
        UnitError::NoUnit => Sense::LOGICAL_UNIT_NOT_SUPPORTED,
        UnitError::OutOfRange => Sense::LBA_OUT_OF_RANGE,
        UnitError::ReadOnly => Sense::WRITE_PROTECTED,
        UnitError::Miscompare(at) => Sense::MISCOMPARE.with_information(at.into()),
        UnitError::NoSpace => Sense::SPACE_ALLOCATION_FAILED,
        UnitError::Medium if writes => Sense::MEDIUM_ERROR_WRITE,
        UnitError::Medium => Sense::MEDIUM_ERROR_READ,
        UnitError::Busy | UnitError::Aborted => Sense::INTERNAL_TARGET_FAILURE,
    }
}

impl Ports {
    pub fn new(initiator: &str, target: &str, relative_target_port: u16) -> Self {
        Self { initiator: initiator.to_string(), target: target.to_string(), relative_target_port }
    }
}
