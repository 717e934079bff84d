//! Task management (RFC 7143 §11.5, §11.6): a function is answered once what it aborted has ended, here and in other sessions.

use super::{
    IMMEDIATE_TASKS, IscsiBackend, Sessions,
    full_feature::FullFeature,
    link::{Admission, Flow, Link},
    tasks::Task,
    wait::Managed,
};
use crate::{
    Ending, Endings, Instant, Violation, Wait, WaitOutcome,
    iscsi::{
        pdu::{
            Bhs, TaskManagement, TaskManagementResponse, TaskTag,
            control::{function, function_response},
        },
        serial::is_before,
    },
    scsi,
};

/// Functions that wait at a time; more are rejected.
const MANAGED_MAX: usize = IMMEDIATE_TASKS as usize;

impl FullFeature {
    pub(super) fn task_management<B: IscsiBackend>(
        &mut self,
        now: Instant,
        bhs: &Bhs,
        link: &mut Link,
        backend: &mut B,
    ) -> Result<Flow, Violation> {
        let request = TaskManagement::parse(bhs);
        if link.admit(request.immediate, request.cmd_sn)? == Admission::Ignore {
            return Ok(Flow::GoOn);
        }
        let mut endings = Endings::default();
        let response = if self.managed.len() < MANAGED_MAX {
            self.manage(&request, &mut endings, link, backend)
        } else {
            function_response::REJECTED
        };
        if response != function_response::COMPLETE {
            respond(request.itt, response, link);
            return Ok(Flow::GoOn);
        }
        let closes = request.function == function::TARGET_COLD_RESET;
        let wait = Wait::begin(now, endings, || backend.notify_others());
        self.managed.push(Managed { wait, itt: request.itt, closes });
        Ok(self.answer_ended(now, link))
    }

    /// Answers what waited for the end of other commands, where that came or takes too long.
    pub(super) fn answer_ended(&mut self, now: Instant, link: &mut Link) -> Flow {
        self.awaits = false;
        let mut from = 0;
        while let Some(id) = self.tasks.next_where(from, |task| task.scsi.work.is_awaiting()) {
            self.answer_awaited(now, id, link);
            from = id + 1;
        }
        let mut flow = Flow::GoOn;
        let mut at = 0;
        while let Some(managed) = self.managed.get_mut(at) {
            let response = match managed.wait.outcome(now) {
                WaitOutcome::Waits => {
                    self.awaits = true;
                    at += 1;
                    continue;
                }
                WaitOutcome::Ended => function_response::COMPLETE,
                WaitOutcome::TooLong => function_response::REJECTED,
            };
            let Managed { itt, closes, .. } = self.managed.remove(at);
            respond(itt, response, link);
            if let (true, function_response::COMPLETE, Some(session)) = (closes, response, &self.session) {
                session.grant.sessions.with(&mut Sessions::end_all);
                flow = Flow::Close;
            }
        }
        flow
    }

    /// Does a task management function (RFC 7143 §11.5.1) and gives the response to it (§11.6.1).
    /// `endings` gets what it aborts.
    fn manage<B: IscsiBackend>(
        &mut self,
        request: &TaskManagement,
        endings: &mut Endings,
        link: &mut Link,
        backend: &mut B,
    ) -> u8 {
        let (lun, own) = (request.lun, Ending::default());
        endings.add(&own);
        match request.function {
            function::ABORT_TASK => match self.tasks.find(request.referenced_itt) {
                Some(id) => {
                    self.abort(id, Some(&own), link, backend);
                    self.tell_device(scsi::TaskManagement::AbortTask, lun, endings)
                }
                // A task that is done, or that never came: within the window it counts as aborted (RFC 7143 §11.6.1).
                None if !is_before(request.ref_cmd_sn, link.exp_cmd_sn) => function_response::COMPLETE,
                None => function_response::NO_TASK,
            },
            function::ABORT_TASK_SET => {
                self.abort_where(|task| task.scsi.lun == lun, Some(&own), link, backend);
                self.tell_device(scsi::TaskManagement::AbortTaskSet, lun, endings)
            }
            function::CLEAR_TASK_SET => {
                self.abort_where(|task| task.scsi.lun == lun, Some(&own), link, backend);
                self.tell_device(scsi::TaskManagement::ClearTaskSet, lun, endings)
            }
            function::LOGICAL_UNIT_RESET => {
                self.abort_where(|task| task.scsi.lun == lun, Some(&own), link, backend);
                self.tell_device(scsi::TaskManagement::LogicalUnitReset, lun, endings)
            }
            function::TARGET_WARM_RESET | function::TARGET_COLD_RESET => {
                self.abort_where(|_| true, Some(&own), link, backend);
                self.tell_device(scsi::TaskManagement::TargetReset, lun, endings)
            }
            function::CLEAR_ACA => self.tell_device(scsi::TaskManagement::ClearAca, lun, endings),
            function::TASK_REASSIGN => function_response::REASSIGN_NOT_SUPPORTED,
            function::QUERY_TASK => match self.tasks.find(request.referenced_itt) {
                Some(_) => function_response::SUCCEEDED,
                None => function_response::COMPLETE,
            },
            function::QUERY_TASK_SET => match self.tasks.next_where(0, |task| task.scsi.lun == lun) {
                Some(_) => function_response::SUCCEEDED,
                None => function_response::COMPLETE,
            },
            function::I_T_NEXUS_RESET => {
                self.abort_where(|_| true, Some(&own), link, backend);
                self.tell_device(scsi::TaskManagement::NexusReset, lun, endings)
            }
            function::QUERY_ASYNCHRONOUS_EVENT => function_response::NOT_SUPPORTED,
            _ => function_response::REJECTED,
        }
    }

    fn tell_device(&mut self, function: scsi::TaskManagement, lun: u64, endings: &mut Endings) -> u8 {
        let Some(session) = &mut self.session else { return function_response::REJECTED };
        match session.nexus.task_management(function, lun, endings) {
            scsi::TaskManagementResponse::Complete => function_response::COMPLETE,
            scsi::TaskManagementResponse::NoLun => function_response::NO_LUN,
            scsi::TaskManagementResponse::Unsupported => function_response::NOT_SUPPORTED,
        }
    }

    /// Aborts every task that `wanted` accepts; what goes on of them keeps `ending`.
    pub(super) fn abort_where<B: IscsiBackend>(
        &mut self,
        wanted: impl Fn(&Task) -> bool,
        ending: Option<&Ending>,
        link: &mut Link,
        backend: &mut B,
    ) {
        let mut from = 0;
        while let Some(id) = self.tasks.next_where(from, &wanted) {
            self.abort(id, ending, link, backend);
            from = id + 1;
        }
    }
}

fn respond(itt: TaskTag, response: u8, link: &mut Link) {
    let pdu = TaskManagementResponse {
        last: true,
        response,
        itt,
        stat_sn: link.take_stat_sn(),
        exp_cmd_sn: link.exp_cmd_sn,
        max_cmd_sn: link.max_cmd_sn(),
    };
    link.header(&pdu.encode());
}
