//! One I_T nexus: a session's view of its device.

use alloc::{rc::Rc, sync::Arc, vec::Vec};
use core::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{
    AfterMedium, DataIn, Response,
    device::{Audience, Device, NexusId, Ports, Purge},
    lun::{LunView, decode_lun},
    sense::{Sense, status},
};
use crate::{Backend, Ending, Endings, Origin, Payload, Shared, UnitError};

/// Task management functions of SAM-5 §7 that affect the device server. The transport aborts the tasks themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagement {
    AbortTask,
    AbortTaskSet,
    ClearTaskSet,
    LogicalUnitReset,
    /// Resets this nexus on all logical units.
    NexusReset,
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
    /// Too many functions are waiting, or the aborted tasks do not end.
    Failed,
}

/// One I_T nexus of a [`Device`].
pub struct Nexus {
    device: Rc<dyn Shared<Device>>,
    pub(crate) id: NexusId,
    pub(crate) ports: Ports,
    /// The origin against whose limit the nexus's registrations count, also after the session.
    pub(crate) origin: Origin,
    has_purged: Arc<AtomicBool>,
    epoch: Arc<AtomicU64>,
    seen_epoch: u64,
    /// Sorted by LUN.
    views: Vec<LunView>,
}

impl Nexus {
    /// Starts a session on `device`.
    pub fn new(device: Rc<dyn Shared<Device>>, ports: Ports, origin: Origin) -> Self {
        let ((id, has_purged), epoch) = with(&*device, |device| (device.join(ports.clone()), device.epoch()));
        Self { device, id, ports, origin, has_purged, epoch, seen_epoch: 0, views: Vec::new() }
    }

    pub(crate) fn with_device<R>(&self, use_it: impl FnOnce(&mut Device) -> R) -> R {
        with(&*self.device, use_it)
    }

    /// Ends a command whose medium operation is complete.
    #[allow(clippy::unused_self, reason = "a session's command ends where it began")]
    pub fn medium_done(&mut self, after: AfterMedium, result: Result<Option<Payload>, UnitError>) -> Response {
        let mut response = match result {
            Ok(data) => Response {
                data: data.filter(|_| after.returns_data).map_or(DataIn::None, DataIn::Payload),
                ..Response::good()
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

    /// Whether another nexus ended commands of this one. Check this before doing anything for the initiator; if true,
    /// call `end_purged`.
    #[inline]
    pub fn is_purged(&self) -> bool {
        self.has_purged.load(Ordering::Relaxed)
    }

    /// Ends the tasks that another nexus asked to end. `abort` aborts the tasks on the given LUN, keeps the `Ending`
    /// for operations that continue, and returns whether there were any tasks. They end without status, because TAS of
    /// the Control mode page is 0 (SAM-5 §5.6, §7.4).
    pub fn end_purged(&mut self, mut abort: impl FnMut(&dyn Fn(u64) -> bool, &Ending) -> bool) {
        // Clear the flag first: a purge that comes meanwhile sets it again.
        self.has_purged.store(false, Ordering::Relaxed);
        let id = self.id;
        for (Purge { lun, is_told }, ending) in self.with_device(|device| device.take_purged(id)) {
            let had_any = abort(&|task| decode_lun(task) == Some(lun), &ending);
            if had_any && is_told {
                self.with_device(|device| device.attention(lun, Sense::COMMANDS_CLEARED_BY_OTHER, Audience::Only(id)));
            }
        }
    }

    /// The answer to a task management function that is not executed, and affects nothing; `None` if it is.
    pub(super) fn refusal(&self, function: TaskManagement, lun: Option<u16>) -> Option<TaskManagementResponse> {
        match function {
            TaskManagement::ClearAca => Some(TaskManagementResponse::Unsupported),
            TaskManagement::TargetReset | TaskManagement::NexusReset => None,
            TaskManagement::AbortTask
            | TaskManagement::AbortTaskSet
            | TaskManagement::ClearTaskSet
            | TaskManagement::LogicalUnitReset => {
                let is_there = lun.is_some_and(|lun| self.with_device(|device| device.lun(lun).is_some()));
                (!is_there).then_some(TaskManagementResponse::NoLun)
            }
        }
    }

    /// Applies a task management function to the device; the transport aborts the tasks of this nexus. The function
    /// must be answered when the commands of other nexuses, which are added to `endings`, have ended too (SAM-5 §7.1).
    pub fn task_management(
        &mut self,
        function: TaskManagement,
        lun: u64,
        endings: &mut Endings,
    ) -> TaskManagementResponse {
        let (lun, id) = (decode_lun(lun), self.id);
        if let Some(refused) = self.refusal(function, lun) {
            return refused;
        }
        self.with_device(|device| {
            let known = lun.filter(|lun| device.lun(*lun).is_some());
            match (function, known) {
                (TaskManagement::TargetReset, _) => {
                    let luns: Vec<u16> = device.luns.iter().map(|unit| unit.config.lun).collect();
                    for lun in luns {
                        device.reset(lun);
                        endings.append(device.purge(Purge { lun, is_told: false }, Audience::Others(id)));
                    }
                }
                (TaskManagement::NexusReset, _) => device.reset_nexus(id),
                (TaskManagement::LogicalUnitReset, Some(lun)) => {
                    device.reset(lun);
                    endings.append(device.purge(Purge { lun, is_told: false }, Audience::Others(id)));
                }
                (TaskManagement::ClearTaskSet, Some(lun)) => {
                    endings.append(device.purge(Purge { lun, is_told: true }, Audience::Others(id)));
                }
                (TaskManagement::AbortTask | TaskManagement::AbortTaskSet | TaskManagement::ClearAca, _)
                | (_, None) => {}
            }
        });
        TaskManagementResponse::Complete
    }

    /// Ends the session.
    pub fn lost(&mut self) {
        let id = self.id;
        self.with_device(|device| device.leave(id));
    }

    pub(super) fn view(&self, lun: u16) -> Option<&LunView> {
        let at = self.views.binary_search_by_key(&lun, |view| view.lun).ok()?;
        self.views.get(at)
    }

    /// Refreshes the cache if the device has changed.
    pub(super) fn refresh(&mut self, backend: &dyn Backend) {
        let epoch = self.epoch.load(Ordering::Acquire);
        if epoch != self.seen_epoch {
            self.seen_epoch = epoch;
            self.views = self.with_device(|device| LunView::all(device, self.id, backend));
        }
    }
}

impl fmt::Debug for Nexus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nexus").field("id", &self.id).field("ports", &self.ports).finish_non_exhaustive()
    }
}

/// Calls `use_it` with the device locked.
fn with<R>(device: &dyn Shared<Device>, use_it: impl FnOnce(&mut Device) -> R) -> R {
    let mut use_it = Some(use_it);
    let mut result = None;
    device.with(&mut |device| {
        if let Some(use_it) = use_it.take() {
            result = Some(use_it(device));
        }
    });
    result.expect("Shared::with calls its argument")
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
