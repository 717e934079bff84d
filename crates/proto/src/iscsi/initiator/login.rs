//! The login phase on the initiator's side (RFC 7143 §6.3): security, then operational parameters in one request.

use super::{
    Config,
    link::{CID, Link, control_itt},
    security::Security,
};
use crate::{
    Violation,
    iscsi::{
        negotiate::Negotiation,
        pdu::{
            Bhs, Framer, LoginRequest, LoginResponse,
            login::{LoginStatus, stage},
        },
        text::{DEFAULT_SEGMENT_LEN, TextIn, TextOut, pairs},
    },
};

/// Responses of one login; a target that needs more brings nothing forward.
const LOGIN_RESPONSES_MAX: u32 = 64;

/// A login under way.
#[derive(Debug)]
pub(super) struct Login {
    isid: [u8; 6],
    stage: u8,
    responses: u32,
    text_in: TextIn,
    text_out: TextOut,
    security: Security,
    negotiation: Negotiation,
}

impl Login {
    /// Begins a login and queues its first request.
    pub(super) fn begin(config: &Config, discovery: bool, link: &mut Link) -> Self {
        let mut login = Self {
            isid: config.isid,
            stage: stage::SECURITY,
            responses: 0,
            text_in: TextIn::default(),
            text_out: TextOut::default(),
            security: Security::new(config.chap.clone()),
            negotiation: Negotiation::new(config.wishes.clone(), discovery),
        };
        login.text_out.put("InitiatorName", &config.initiator_name);
        if discovery {
            login.text_out.put("SessionType", "Discovery");
        } else {
            login.text_out.put("SessionType", "Normal");
            login.text_out.put("TargetName", &config.target_name);
        }
        login.security.offer(&mut login.text_out);
        login.request(link);
        login
    }

    /// Takes a response; true when the full feature phase begins, in which `link` and `framer` then are.
    pub(super) fn response(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        link: &mut Link,
        framer: &mut Framer,
    ) -> Result<bool, Violation> {
        let response = LoginResponse::parse(bhs);
        self.check(bhs, &response, link)?;
        self.text_in.push(data)?;
        if response.continued {
            // RFC 7143 §6.2: an empty request asks for the rest.
            self.request(link);
            return Ok(false);
        }
        let text = self.text_in.take();
        for (key, value) in pairs(&text)? {
            let known = matches!(key, "TargetPortalGroupTag" | "TargetAlias" | "TargetAddress");
            if !known && !self.security.take(key, value) {
                self.negotiation.take(key, value, &mut self.text_out)?;
            }
        }
        if self.stage == stage::SECURITY {
            self.security.respond(&mut self.text_out)?;
        }
        if response.transit {
            let unsaid = self.stage == stage::SECURITY && !self.text_out.is_empty();
            if response.nsg <= self.stage || response.nsg == 2 || unsaid {
                return Err(Violation::misbehaved("RFC 7143 §11.13.2: a stage that does not follow").at(1));
            }
            if self.stage == stage::SECURITY {
                self.security.finish()?;
            }
            self.stage = response.nsg;
            if self.stage == stage::FULL_FEATURE {
                self.finish(link, framer);
                return Ok(true);
            }
            self.negotiation.offer_all(&mut self.text_out);
        }
        self.request(link);
        Ok(false)
    }

    pub(super) fn auth_method(&self) -> &'static str {
        self.security.method()
    }

    fn check(&mut self, bhs: &Bhs, response: &LoginResponse, link: &mut Link) -> Result<(), Violation> {
        if bhs.opcode() != LoginResponse::OPCODE || response.itt != control_itt::LOGIN {
            return Err(Violation::misbehaved("RFC 7143 §6.3: the login phase takes Login Responses alone").at(0));
        }
        if response.status != LoginStatus::SUCCESS {
            return Err(Violation::refused(response.status.refusal(), response.status.name()));
        }
        self.responses += 1;
        if self.responses == 1 {
            link.begin(response.stat_sn, response.exp_cmd_sn, response.max_cmd_sn);
        } else {
            link.take_stat_sn(response.stat_sn)?;
            link.learn_window(response.exp_cmd_sn, response.max_cmd_sn);
        }
        if response.csg != self.stage || response.transit && response.continued || self.responses > LOGIN_RESPONSES_MAX
        {
            return Err(Violation::misbehaved("RFC 7143 §11.13: a response that does not fit the login").at(1));
        }
        Ok(())
    }

    /// Sends what is to be said in this stage, and asks for the next where all is said.
    fn request(&mut self, link: &mut Link) {
        let (segment, continued) = self.text_out.next_segment(DEFAULT_SEGMENT_LEN);
        let transit = !continued && (self.stage != stage::SECURITY || self.security.may_transit());
        let next = if self.stage == stage::SECURITY { stage::OPERATIONAL } else { stage::FULL_FEATURE };
        let request = LoginRequest {
            immediate: true,
            transit,
            continued,
            csg: self.stage,
            nsg: if transit { next } else { 0 },
            isid: self.isid,
            itt: control_itt::LOGIN,
            cid: CID,
            cmd_sn: link.cmd_sn,
            exp_stat_sn: link.exp_stat_sn,
            ..LoginRequest::default()
        };
        link.bytes(request.encode(), &segment);
    }

    fn finish(&mut self, link: &mut Link, framer: &mut Framer) {
        let agreed = self.negotiation.agreed();
        link.sender.header_digest = agreed.header_digest;
        link.sender.data_digest = agreed.data_digest;
        framer.set_negotiated(agreed.header_digest, agreed.data_digest, agreed.max_recv_segment_len);
        link.agreed = agreed;
    }
}
