//! Requests of the full feature phase other than commands: NOP-Out, text, logout, task management; and what is
//! rejected.

use alloc::vec::Vec;

use super::{
    IscsiBackend, Sessions,
    full_feature::FullFeature,
    link::{Admission, Flow, Link},
    respond::{Function, TextExchange, respond_to_function},
};
use crate::{
    Instant, Violation,
    iscsi::{
        negotiate::Negotiation,
        pdu::{
            Bhs, LogoutRequest, LogoutResponse, NopIn, NopOut, Snack, TaskManagement, TaskTag, TextRequest,
            TextResponse, TransferTag,
            control::{function, function_response, logout_reason, logout_response, reject_reason},
            is_before,
        },
        text::{self, pairs},
    },
    scsi,
};

/// TTT of a text exchange that continues. There is one at a time.
const TEXT_TTT: TransferTag = TransferTag(1);

impl FullFeature {
    /// Processes a complete request and its data.
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
            // RFC 7143 §11.10.4: a request that starts a new exchange resets an open one.
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

    /// Answers a complete text; false if it is malformed.
    fn take_text<B: IscsiBackend>(&mut self, link: &mut Link, backend: &mut B) -> bool {
        let text = self.text.text_in.take();
        let Ok(pairs) = pairs(&text) else { return false };
        for (key, value) in pairs {
            match key {
                "SendTargets" => self.send_targets(value, backend),
                _ if Negotiation::redeclare(&mut link.agreed, key, value) => {}
                // RFC 7143 §6.2: other known keys may not be negotiated now. Unknown keys get NotUnderstood.
                _ if text::find(key).is_some() => self.text.text_out.put(key, "Reject"),
                _ if value == "NotUnderstood" => {}
                _ => self.text.text_out.put(key, "NotUnderstood"),
            }
        }
        true
    }

    /// SendTargets (RFC 7143 §C): `All` in a discovery session, a name, or an empty value for the session's own target.
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
        // RFC 7143 §11.15.1.
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
    // RFC 7143 §11.18: without an ITT it answers our NOP-In, or only carries an ExpStatSN.
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

impl FullFeature {
    /// Executes a task management function (RFC 7143 §11.5.1).
    fn task_management<B: IscsiBackend>(
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
        let Some(session) = &mut self.session else {
            respond_to_function(link, request.itt, function_response::REJECTED);
            return Ok(Flow::GoOn);
        };
        let (manager, lun) = (&mut session.manager, request.lun);
        let referenced = manager.tasks.find(request.referenced_itt);
        let is_there =
            |is_there| Err(if is_there { function_response::SUCCEEDED } else { function_response::COMPLETE });
        // The function of the device, or an immediate response (§11.6.1).
        let function = match request.function {
            function::ABORT_TASK if referenced.is_some() => Ok(scsi::TaskManagement::AbortTask),
            // A task that has not arrived counts as aborted if it may still come before this request. Otherwise it has
            // ended, or never was.
            function::ABORT_TASK
                if !is_before(request.ref_cmd_sn, link.exp_cmd_sn) && is_before(request.ref_cmd_sn, request.cmd_sn) =>
            {
                Err(function_response::COMPLETE)
            }
            function::ABORT_TASK => Err(function_response::NO_TASK),
            function::ABORT_TASK_SET => Ok(scsi::TaskManagement::AbortTaskSet),
            function::CLEAR_TASK_SET => Ok(scsi::TaskManagement::ClearTaskSet),
            function::LOGICAL_UNIT_RESET => Ok(scsi::TaskManagement::LogicalUnitReset),
            function::TARGET_WARM_RESET | function::TARGET_COLD_RESET => Ok(scsi::TaskManagement::TargetReset),
            function::CLEAR_ACA => Ok(scsi::TaskManagement::ClearAca),
            function::TASK_REASSIGN => Err(function_response::REASSIGN_NOT_SUPPORTED),
            function::QUERY_TASK => is_there(referenced.is_some()),
            function::QUERY_TASK_SET => {
                let unit = scsi::decode_lun(lun);
                is_there(manager.tasks.next_where(0, |task| scsi::decode_lun(task.issued.lun) == unit).is_some())
            }
            function::I_T_NEXUS_RESET => Ok(scsi::TaskManagement::NexusReset),
            function::QUERY_ASYNCHRONOUS_EVENT => Err(function_response::NOT_SUPPORTED),
            _ => Err(function_response::REJECTED),
        };
        match function {
            Ok(function) => {
                let closes = request.function == function::TARGET_COLD_RESET;
                let answered = Function { itt: request.itt, closes };
                manager.manage(now, (function, lun, referenced), answered, link, backend);
            }
            Err(response) => respond_to_function(link, request.itt, response),
        }
        Ok(self.end_reset(link))
    }

    /// Answers the requests and commands whose aborted tasks have ended or take too long.
    #[cold]
    pub(super) fn answer_awaited(&mut self, now: Instant, link: &mut Link) -> Flow {
        if let Some(session) = &mut self.session {
            session.manager.answer_awaited(now, link);
        }
        self.end_reset(link)
    }

    /// Ends all sessions of the target once TARGET COLD RESET is answered.
    fn end_reset(&mut self, link: &Link) -> Flow {
        match &self.session {
            Some(session) if link.is_reset => {
                session.grant.sessions.with(&mut Sessions::end_all);
                Flow::Close
            }
            _ => Flow::GoOn,
        }
    }
}
