//! The login phase on the target's side (RFC 7143 §6.3).

use alloc::{
    boxed::Box,
    string::{String, ToString},
    vec::Vec,
};

use super::{Config, IscsiBackend, LoginGrant, link::Link, security::Security};
use crate::iscsi::{
    Agreed,
    negotiate::Negotiation,
    pdu::{
        ConnectionId, LoginRequest, LoginResponse, SessionHandle,
        login::{LoginStatus, stage},
    },
    text::{DEFAULT_SEGMENT_LEN, TextIn, TextOut, pairs},
};

/// Requests of one login; more bring nothing forward.
const LOGIN_REQUESTS_MAX: u32 = 64;
/// RFC 7143 §4.2.7.1.
const NAME_LEN_MAX: usize = 223;

/// A login under way.
pub(super) struct Login {
    requests: u32,
    isid: [u8; 6],
    tsih: SessionHandle,
    cid: ConnectionId,
    stage: u8,
    initiator: Option<String>,
    target: Option<String>,
    discovery: bool,
    text_in: TextIn,
    text_out: TextOut,
    negotiation: Negotiation,
    declared: bool,
    /// Set once the initiator is known by name.
    security: Option<Security>,
    grant: Option<LoginGrant>,
}

/// A login that is done: what the full feature phase begins with.
pub(super) struct LoggedIn {
    pub(super) initiator: String,
    pub(super) isid: [u8; 6],
    pub(super) cid: ConnectionId,
    /// None in a discovery session.
    pub(super) normal: Option<(String, LoginGrant)>,
    pub(super) agreed: Agreed,
}

/// What follows a request.
pub(super) enum Reply {
    /// Send this, and wait for more.
    Continue(LoginResponse, Vec<u8>),
    /// Send this with a TSIH; the login is done.
    Done(LoginResponse, Vec<u8>, Box<LoggedIn>),
}

impl Login {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            requests: 0,
            isid: [0; 6],
            tsih: SessionHandle::NEW,
            cid: ConnectionId::default(),
            stage: stage::SECURITY,
            initiator: None,
            target: None,
            discovery: false,
            text_in: TextIn::default(),
            text_out: TextOut::default(),
            negotiation: Negotiation::new(config.wishes.clone(), false),
            declared: false,
            security: None,
            grant: None,
        }
    }

    /// Takes a Login Request; an error is a status to refuse with.
    pub(super) fn request<B: IscsiBackend>(
        &mut self,
        request: &LoginRequest,
        data: &[u8],
        link: &mut Link,
        backend: &mut B,
    ) -> Result<Reply, LoginStatus> {
        self.check(request, link)?;
        let mut response = LoginResponse {
            csg: request.csg,
            isid: request.isid,
            tsih: request.tsih,
            itt: request.itt,
            ..LoginResponse::default()
        };
        self.text_in.push(data).map_err(|_| LoginStatus::INITIATOR_ERROR)?;
        if request.continued {
            return Ok(Reply::Continue(response, Vec::new()));
        }
        let text = self.text_in.take();
        if self.text_out.is_empty() {
            self.take_text(&text, backend)?;
        } else if !text.is_empty() {
            // RFC 7143 §6.2: while we continue, the initiator sends empty requests.
            return Err(LoginStatus::INVALID_DURING_LOGIN);
        }
        if self.stage == stage::OPERATIONAL && !self.declared {
            self.declared = true;
            self.negotiation.declare(&mut self.text_out);
        }
        let (segment, more) = self.text_out.next_segment(DEFAULT_SEGMENT_LEN);
        response.continued = more;
        let satisfied = self.security.as_ref().is_some_and(Security::is_satisfied);
        if request.transit && !more && satisfied {
            response.transit = true;
            response.nsg = request.nsg;
            self.stage = request.nsg;
            if request.nsg == stage::FULL_FEATURE {
                return Ok(Reply::Done(response, segment, Box::new(self.logged_in()?)));
            }
        }
        Ok(Reply::Continue(response, segment))
    }

    /// The header fits the login so far (RFC 7143 §11.12).
    fn check(&mut self, request: &LoginRequest, link: &mut Link) -> Result<(), LoginStatus> {
        self.requests += 1;
        if self.requests == 1 {
            if request.version_min > 0 {
                return Err(LoginStatus::UNSUPPORTED_VERSION);
            }
            (self.isid, self.tsih, self.cid, self.stage) = (request.isid, request.tsih, request.cid, request.csg);
            link.exp_cmd_sn = request.cmd_sn;
        }
        let same = (request.isid, request.tsih, request.cid) == (self.isid, self.tsih, self.cid);
        let stage_known = matches!(request.csg, stage::SECURITY | stage::OPERATIONAL) && request.csg == self.stage;
        let next_known = matches!(request.nsg, stage::OPERATIONAL | stage::FULL_FEATURE) && request.nsg > request.csg;
        if !same
            || !stage_known
            || request.transit && (!next_known || request.continued)
            || self.requests > LOGIN_REQUESTS_MAX
        {
            return Err(LoginStatus::INITIATOR_ERROR);
        }
        Ok(())
    }

    fn take_text<B: IscsiBackend>(&mut self, text: &[u8], backend: &mut B) -> Result<(), LoginStatus> {
        let pairs = pairs(text).map_err(|_| LoginStatus::INITIATOR_ERROR)?;
        if self.security.is_none() {
            self.identify(&pairs, backend)?;
        }
        let security = self.security.as_mut().ok_or(LoginStatus::MISSING_PARAMETER)?;
        for (key, value) in pairs {
            let known = matches!(key, "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType");
            if !known && !security.take(key, value) {
                let taken = self.negotiation.take(key, value, &mut self.text_out);
                taken.map_err(|_| LoginStatus::INITIATOR_ERROR)?;
            }
        }
        security.respond(&mut self.text_out, backend)
    }

    /// Learns from the first text who wants what (RFC 7143 §6.3), and asks the server.
    fn identify<B: IscsiBackend>(&mut self, pairs: &[(&str, &str)], backend: &mut B) -> Result<(), LoginStatus> {
        for (key, value) in pairs {
            let name = || Some((*value).to_string()).filter(|name| (1..=NAME_LEN_MAX).contains(&name.len()));
            match *key {
                "InitiatorName" => self.initiator = name(),
                "TargetName" => self.target = name(),
                "SessionType" if *value == "Discovery" => self.discovery = true,
                "SessionType" if *value != "Normal" => return Err(LoginStatus::SESSION_TYPE_NOT_SUPPORTED),
                _ => {}
            }
        }
        let initiator = self.initiator.as_ref().ok_or(LoginStatus::MISSING_PARAMETER)?;
        self.negotiation.set_discovery(self.discovery);
        let policy = if self.discovery {
            backend.discovery_auth(initiator)
        } else {
            let target = self.target.as_ref().ok_or(LoginStatus::MISSING_PARAMETER)?;
            let grant = backend.login(initiator, target).map_err(super::LoginRefusal::status)?;
            // RFC 7143 §13.9: told in the first response of a login to a named target.
            self.text_out.put("TargetPortalGroupTag", grant.portal_group_tag);
            let policy = grant.auth.clone();
            self.grant = Some(grant);
            policy
        };
        if self.tsih != SessionHandle::NEW {
            // RFC 7143 §6.3.4: another connection for a session, of which each has one.
            let mut exists = false;
            if let Some(grant) = &self.grant {
                grant.sessions.with(&mut |sessions| exists = sessions.exists(self.tsih));
            }
            return Err(if exists { LoginStatus::TOO_MANY_CONNECTIONS } else { LoginStatus::SESSION_DOES_NOT_EXIST });
        }
        let security = Security::new(policy);
        if self.stage != stage::SECURITY && !security.is_satisfied() {
            return Err(LoginStatus::AUTHENTICATION_FAILURE);
        }
        self.security = Some(security);
        Ok(())
    }

    fn logged_in(&mut self) -> Result<LoggedIn, LoginStatus> {
        let normal = self.target.take().zip(self.grant.take()).filter(|_| !self.discovery);
        Ok(LoggedIn {
            initiator: self.initiator.take().ok_or(LoginStatus::MISSING_PARAMETER)?,
            isid: self.isid,
            cid: self.cid,
            normal,
            agreed: self.negotiation.agreed(),
        })
    }
}
