//! Requests of the full feature phase that are not commands: NOP-Out, text, task management, logout, and what is refused.

use alloc::vec::Vec;

use super::{
    IscsiBackend,
    full_feature::FullFeature,
    link::{Admission, Link},
    tasks::Task,
};
use crate::{
    Violation,
    iscsi::{
        keys,
        negotiate::Negotiation,
        pdu::{
            Bhs, LogoutRequest, LogoutResponse, NopIn, NopOut, RESERVED_TAG, Snack, TaskManagement,
            TaskManagementResponse, TextRequest, TextResponse,
            control::{function, function_response, reject_reason},
            login::{logout_reason, logout_response},
        },
        serial::is_before,
        text::{TextIn, TextOut, pairs},
    },
    scsi,
};

/// TTT of a text exchange that goes on; there is one at a time.
const TEXT_TTT: u32 = 1;

/// A text exchange that takes more than one request.
#[derive(Debug, Default)]
pub(super) struct TextExchange {
    /// ITT of the exchange, where one is open.
    open: Option<u32>,
    text_in: TextIn,
    text_out: TextOut,
}

/// Whether the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    GoOn,
    Close,
}

impl FullFeature {
    /// Deals with a complete request and its data.
    pub(super) fn control<B: IscsiBackend>(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        link: &mut Link,
        backend: &mut B,
    ) -> Result<Flow, Violation> {
        match bhs.opcode() {
            NopOut::OPCODE => nop_out(bhs, data, link)?,
            TextRequest::OPCODE => self.text_request(bhs, data, link, backend)?,
            TaskManagement::OPCODE => return self.task_management(bhs, link, backend),
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
        let continues = request.ttt != RESERVED_TAG;
        let known = self.text.open == Some(request.itt) && request.ttt == TEXT_TTT;
        if request.itt == RESERVED_TAG || request.last && request.continued || continues && !known {
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
            ttt: if last { RESERVED_TAG } else { TEXT_TTT },
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
                _ if keys::find(key).is_some() => self.text.text_out.put(key, "Reject"),
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

    fn task_management<B: IscsiBackend>(
        &mut self,
        bhs: &Bhs,
        link: &mut Link,
        backend: &mut B,
    ) -> Result<Flow, Violation> {
        let request = TaskManagement::parse(bhs);
        if link.admit(request.immediate, request.cmd_sn)? == Admission::Ignore {
            return Ok(Flow::GoOn);
        }
        let response = self.manage(&request, link, backend);
        let pdu = TaskManagementResponse {
            last: true,
            response,
            itt: request.itt,
            stat_sn: link.take_stat_sn(),
            exp_cmd_sn: link.exp_cmd_sn,
            max_cmd_sn: link.max_cmd_sn(),
        };
        link.header(&pdu.encode());
        // RFC 7143 §11.5.1: TARGET COLD RESET closes every connection to the target, this one too.
        let cold = request.function == function::TARGET_COLD_RESET && response == function_response::COMPLETE;
        if let (true, Some(session)) = (cold, &self.session) {
            session.grant.sessions.with(&mut super::Sessions::end_all);
            return Ok(Flow::Close);
        }
        Ok(Flow::GoOn)
    }

    /// Does a task management function (RFC 7143 §11.5.1) and gives the response to it (§11.6.1).
    fn manage<B: IscsiBackend>(&mut self, request: &TaskManagement, link: &mut Link, backend: &mut B) -> u8 {
        let lun = request.lun;
        match request.function {
            function::ABORT_TASK => match self.tasks.find(request.referenced_itt) {
                Some(id) => {
                    self.abort(id, link, backend);
                    self.tell_device(scsi::TaskManagement::AbortTask, lun)
                }
                // A task that is done, or that never came: within the window it counts as aborted (RFC 7143 §11.6.1).
                None if !is_before(request.ref_cmd_sn, link.exp_cmd_sn) => function_response::COMPLETE,
                None => function_response::NO_TASK,
            },
            function::ABORT_TASK_SET => {
                self.abort_where(|task| task.lun == lun, link, backend);
                self.tell_device(scsi::TaskManagement::AbortTaskSet, lun)
            }
            function::CLEAR_TASK_SET => {
                self.abort_where(|task| task.lun == lun, link, backend);
                self.tell_device(scsi::TaskManagement::ClearTaskSet, lun)
            }
            function::LOGICAL_UNIT_RESET => {
                self.abort_where(|task| task.lun == lun, link, backend);
                self.tell_device(scsi::TaskManagement::LogicalUnitReset, lun)
            }
            function::TARGET_WARM_RESET | function::TARGET_COLD_RESET => {
                self.abort_where(|_| true, link, backend);
                self.tell_device(scsi::TaskManagement::TargetReset, lun)
            }
            function::CLEAR_ACA => self.tell_device(scsi::TaskManagement::ClearAca, lun),
            function::TASK_REASSIGN => function_response::REASSIGN_NOT_SUPPORTED,
            function::QUERY_TASK => match self.tasks.find(request.referenced_itt) {
                Some(_) => function_response::SUCCEEDED,
                None => function_response::COMPLETE,
            },
            function::QUERY_TASK_SET => match self.tasks.next_where(0, |task| task.lun == lun) {
                Some(_) => function_response::SUCCEEDED,
                None => function_response::COMPLETE,
            },
            function::I_T_NEXUS_RESET => {
                self.abort_where(|_| true, link, backend);
                function_response::COMPLETE
            }
            function::QUERY_ASYNCHRONOUS_EVENT => function_response::NOT_SUPPORTED,
            _ => function_response::REJECTED,
        }
    }

    fn tell_device(&mut self, function: scsi::TaskManagement, lun: u64) -> u8 {
        let Some(session) = &mut self.session else { return function_response::REJECTED };
        match session.nexus.task_management(function, lun) {
            scsi::TaskManagementResponse::Complete => function_response::COMPLETE,
            scsi::TaskManagementResponse::NoLun => function_response::NO_LUN,
            scsi::TaskManagementResponse::Unsupported => function_response::NOT_SUPPORTED,
        }
    }

    /// Aborts every task that `wanted` accepts.
    pub(super) fn abort_where<B: IscsiBackend>(
        &mut self,
        wanted: impl Fn(&Task) -> bool,
        link: &mut Link,
        backend: &mut B,
    ) {
        let mut from = 0;
        while let Some(id) = self.tasks.next_where(from, &wanted) {
            self.abort(id, link, backend);
            from = id + 1;
        }
    }
}

fn nop_out(bhs: &Bhs, data: &[u8], link: &mut Link) -> Result<(), Violation> {
    let request = NopOut::parse(bhs);
    if link.admit(request.immediate, request.cmd_sn)? == Admission::Ignore {
        return Ok(());
    }
    // RFC 7143 §11.18: without an ITT it answers our NOP-In, or only brings its ExpStatSN.
    if request.itt == RESERVED_TAG {
        return Ok(());
    }
    let echo = data.get(..link.agreed.max_send_segment_len as usize).unwrap_or(data);
    let response = NopIn {
        last: true,
        lun: request.lun,
        itt: request.itt,
        ttt: RESERVED_TAG,
        stat_sn: link.take_stat_sn(),
        exp_cmd_sn: link.exp_cmd_sn,
        max_cmd_sn: link.max_cmd_sn(),
    };
    link.bytes(response.encode(), echo);
    Ok(())
}
