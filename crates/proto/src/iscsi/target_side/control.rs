//! Requests of the full feature phase that are not commands: NOP-Out, text, logout, and what is refused; for task management
//! see `manage`.
//!
//! Task management (RFC 7143 §11.5, §11.6): a function is answered once what it aborted has ended, here and in other sessions.

use alloc::vec::Vec;

use super::{
    IMMEDIATE_TASKS, IscsiBackend, Sessions,
    full_feature::FullFeature,
    link::{Admission, Flow, Link},
    respond::{Managed, Task, TextExchange},
};
use crate::{
    Ending, Endings, Instant, Violation, Wait, WaitOutcome,
    iscsi::{
        negotiate::Negotiation,
        pdu::{
            Bhs, LogoutRequest, LogoutResponse, NopIn, NopOut, Snack, TaskManagement, TaskManagementResponse, TaskTag,
            TextRequest, TextResponse, TransferTag,
            control::{function, function_response, logout_reason, logout_response, reject_reason},
            is_before,
        },
        text::{self, pairs},
    },
    scsi,
};

/// TTT of a text exchange that goes on; there is one at a time.
const TEXT_TTT: TransferTag = TransferTag(1);

impl FullFeature {
    /// Deals with a complete request and its data.
    pub(super) fn control<B: IscsiBackend>(
        &mut self,
        now: Instant,
        bhs: &Bhs,
        data: &[u8],
        link: &mut Link,
        backend: &mut B,
    ) -> Result<Flow, Violation> {
        match bhs.opcode() {
            NopOut::OPCODE => nop_out(bhs, data, link)?,
            TextRequest::OPCODE => self.text_request(bhs, data, link, backend)?,
            TaskManagement::OPCODE => return self.task_management(now, bhs, link, backend),
            LogoutRequest::OPCODE => return self.logout(bhs, link),
            // RFC 7143 §11.16: at error recovery level 0 a SNACK is rejected.
            Snack::OPCODE => link.reject(reject_reason::SNACK_REJECT, bhs),
            _ => link.reject(reject_reason::COMMAND_NOT_SUPPORTED, bhs),
        }
        Ok(Flow::GoOn)
    }

    fn text_request<B: IscsiBackend>(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        link: &mut Link,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let request = TextRequest::parse(bhs);
        if link.admit(request.immediate, request.cmd_sn)? == Admission::Ignore {
            return Ok(());
        }
        let continues = request.ttt != TransferTag::RESERVED;
        let known = self.text.open == Some(request.itt) && request.ttt == TEXT_TTT;
        if request.itt == TaskTag::RESERVED || request.last && request.continued || continues && !known {
            link.reject(reject_reason::INVALID_PDU_FIELD, bhs);
            return Ok(());
        }
        if !continues {
            // RFC 7143 §11.10.4: a request that begins anew resets what was open.
            self.text = TextExchange::default();
        }
        if self.text.text_in.push(data).is_err() {
            self.text = TextExchange::default();
            link.reject(reject_reason::NEGOTIATION_RESET, bhs);
            return Ok(());
        }
        if !request.continued && self.text.text_out.is_empty() && !self.take_text(link, backend) {
            self.text = TextExchange::default();
            link.reject(reject_reason::PROTOCOL_ERROR, bhs);
            return Ok(());
        }
        self.text_response(&request, link);
        Ok(())
    }

    fn text_response(&mut self, request: &TextRequest, link: &mut Link) {
        let (segment, continued) = if request.continued {
            (Vec::new(), false)
        } else {
            self.text.text_out.next_segment(link.agreed.max_send_segment_len as usize)
        };
        let last = request.last && !continued;
        self.text.open = (!last).then_some(request.itt);
        let response = TextResponse {
            last,
            continued,
            lun: request.lun,
            itt: request.itt,
            ttt: if last { TransferTag::RESERVED } else { TEXT_TTT },
            stat_sn: link.take_stat_sn(),
            exp_cmd_sn: link.exp_cmd_sn,
            max_cmd_sn: link.max_cmd_sn(),
        };
        link.bytes(response.encode(), &segment);
    }

    /// Answers a complete text; false where it is none.
    fn take_text<B: IscsiBackend>(&mut self, link: &mut Link, backend: &mut B) -> bool {
        let text = self.text.text_in.take();
        let Ok(pairs) = pairs(&text) else { return false };
        for (key, value) in pairs {
            match key {
                "SendTargets" => self.send_targets(value, backend),
                _ if Negotiation::redeclare(&mut link.agreed, key, value) => {}
                // RFC 7143 §6.2: whatever else is known may not be negotiated now; what is not known is answered so.
                _ if text::find(key).is_some() => self.text.text_out.put(key, "Reject"),
                _ if value == "NotUnderstood" => {}
                _ => self.text.text_out.put(key, "NotUnderstood"),
            }
        }
        true
    }

    /// SendTargets (RFC 7143 §C): `All` in a discovery session, a name, or nothing for the session's own target.
    fn send_targets<B: IscsiBackend>(&mut self, value: &str, backend: &mut B) {
        let own = self.session.as_ref().map(|session| session.target.as_str());
        let wanted = match (value, own) {
            ("All", None) => None,
            ("", Some(own)) => Some(own),
            ("All", Some(_)) | ("", None) => return self.text.text_out.put("SendTargets", "Reject"),
            (name, _) => Some(name),
        };
        for target in backend.targets(&self.initiator) {
            if wanted.is_none_or(|wanted| wanted == target.name) {
                self.text.text_out.put("TargetName", &target.name);
                for portal in &target.portals {
                    self.text.text_out.put("TargetAddress", portal);
                }
            }
        }
    }

    fn logout(&mut self, bhs: &Bhs, link: &mut Link) -> Result<Flow, Violation> {
        let request = LogoutRequest::parse(bhs);
        if link.admit(request.immediate, request.cmd_sn)? == Admission::Ignore {
            return Ok(Flow::GoOn);
        }
        // RFC 7143 §11.15.1
        let response = match request.reason {
            logout_reason::CLOSE_SESSION => logout_response::CLOSED,
            logout_reason::CLOSE_CONNECTION if request.cid == self.cid => logout_response::CLOSED,
            logout_reason::CLOSE_CONNECTION => logout_response::CID_NOT_FOUND,
            logout_reason::RECOVER_CONNECTION => logout_response::RECOVERY_NOT_SUPPORTED,
            _ => {
                link.reject(reject_reason::INVALID_PDU_FIELD, bhs);
                return Ok(Flow::GoOn);
            }
        };
        let pdu = LogoutResponse {
            last: true,
            response,
            itt: request.itt,
            stat_sn: link.take_stat_sn(),
            exp_cmd_sn: link.exp_cmd_sn,
            max_cmd_sn: link.max_cmd_sn(),
            time2wait: link.agreed.time2wait_s,
            time2retain: link.agreed.time2retain_s,
        };
        link.header(&pdu.encode());
        Ok(if response == logout_response::CLOSED { Flow::Close } else { Flow::GoOn })
    }
}

fn nop_out(bhs: &Bhs, data: &[u8], link: &mut Link) -> Result<(), Violation> {
    let request = NopOut::parse(bhs);
    if link.admit(request.immediate, request.cmd_sn)? == Admission::Ignore {
        return Ok(());
    }
    // RFC 7143 §11.18: without an ITT it answers our NOP-In, or only brings its ExpStatSN.
    if request.itt == TaskTag::RESERVED {
        return Ok(());
    }
    let echo = data.get(..link.agreed.max_send_segment_len as usize).unwrap_or(data);
    let response = NopIn {
        last: true,
        lun: request.lun,
        itt: request.itt,
        ttt: TransferTag::RESERVED,
        stat_sn: link.take_stat_sn(),
        exp_cmd_sn: link.exp_cmd_sn,
        max_cmd_sn: link.max_cmd_sn(),
    };
    link.bytes(response.encode(), echo);
    Ok(())
}

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
