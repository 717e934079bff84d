//! The login phase on the target's side (RFC 7143 §6.3), with one-way and mutual CHAP in the security stage (§12.1).

use alloc::{
    boxed::Box,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use super::{AuthPolicy, Config, IscsiBackend, LoginGrant, link::Link};
use crate::{
    iscsi::{
        Agreed,
        chap::{self, Algorithm, CHALLENGE_LEN},
        negotiate::Negotiation,
        pdu::{
            ConnectionId, LoginRequest, LoginResponse, SessionHandle,
            control::{LoginStatus, stage},
        },
        text::{DEFAULT_SEGMENT_LEN, TextIn, TextOut, pairs},
    },
    wire::digest::same,
};

/// Maximum requests in one login. An initiator that needs more makes no progress.
const LOGIN_REQUESTS_MAX: u32 = 64;
/// Maximum length of an iSCSI name in bytes (RFC 7143 §4.2.7.1).
const NAME_LEN_MAX: usize = 223;

/// A login in progress.
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
    /// Set once the initiator's name is known.
    security: Option<Security>,
    grant: Option<LoginGrant>,
}

/// A complete login: the input of the full feature phase.
pub(super) struct LoggedIn {
    pub(super) initiator: String,
    pub(super) isid: [u8; 6],
    pub(super) cid: ConnectionId,
    /// `None` in a discovery session.
    pub(super) normal: Option<(String, LoginGrant)>,
    pub(super) agreed: Agreed,
}

/// The answer to a request.
pub(super) enum Reply {
    /// Send this response, and wait for the next request.
    Continue(LoginResponse, Vec<u8>),
    /// Send this response with a TSIH; the login is complete.
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

    /// Processes a Login Request. An error is the status of the rejection.
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
            // RFC 7143 §6.2: while our text continues, the initiator sends empty requests.
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

    /// Checks that the header fits the state of the login (RFC 7143 §11.12).
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

    /// Reads the names of initiator and target from the first text (RFC 7143 §6.3), and asks the server for permission.
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
            // RFC 7143 §13.9: part of the first response of a login to a named target.
            self.text_out.put("TargetPortalGroupTag", grant.portal_group_tag);
            let policy = grant.auth.clone();
            self.grant = Some(grant);
            policy
        };
        if self.tsih != SessionHandle::NEW {
            // RFC 7143 §6.3.4: a request for another connection of a session. Sessions have only one.
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

#[derive(Debug)]
pub(super) struct Security {
    policy: AuthPolicy,
    state: State,
    said: SecurityKeys,
}

#[derive(Debug)]
enum State {
    /// No method has been chosen.
    Begin,
    /// CHAP has been chosen, but not its algorithm.
    Chap,
    Challenged {
        algorithm: Algorithm,
        identifier: u8,
        challenge: Vec<u8>,
    },
    Done,
}

/// Keys of the initiator's last request.
#[derive(Debug, Default)]
struct SecurityKeys {
    method: Option<String>,
    algorithms: Option<String>,
    name: Option<String>,
    response: Option<String>,
    identifier: Option<String>,
    challenge: Option<String>,
}

impl Security {
    pub(super) fn new(policy: AuthPolicy) -> Self {
        Self { policy, state: State::Begin, said: SecurityKeys::default() }
    }

    /// Whether the initiator may leave the security stage or skip it.
    pub(super) fn is_satisfied(&self) -> bool {
        matches!((&self.policy, &self.state), (AuthPolicy::None, _) | (_, State::Done))
    }

    /// Stores a key of this stage; false if the key is not one of this stage.
    pub(super) fn take(&mut self, key: &str, value: &str) -> bool {
        let place = match key {
            "AuthMethod" => &mut self.said.method,
            "CHAP_A" => &mut self.said.algorithms,
            "CHAP_N" => &mut self.said.name,
            "CHAP_R" => &mut self.said.response,
            "CHAP_I" => &mut self.said.identifier,
            "CHAP_C" => &mut self.said.challenge,
            _ => return false,
        };
        *place = Some(value.to_string());
        true
    }

    /// Answers the keys stored since the last call. An error is a login status.
    pub(super) fn respond<B: IscsiBackend>(&mut self, out: &mut TextOut, backend: &mut B) -> Result<(), LoginStatus> {
        let said = core::mem::take(&mut self.said);
        match core::mem::replace(&mut self.state, State::Begin) {
            State::Begin => {
                let Some(method) = said.method else { return Ok(()) };
                let wanted = if self.is_satisfied() { "None" } else { "CHAP" };
                if !method.split(',').any(|offer| offer == wanted) {
                    return Err(LoginStatus::AUTHENTICATION_FAILURE);
                }
                out.put("AuthMethod", wanted);
                self.state = if self.is_satisfied() { State::Done } else { State::Chap };
            }
            State::Chap => {
                let Some(offers) = said.algorithms else { return Err(LoginStatus::INITIATOR_ERROR) };
                let algorithm = Algorithm::choose(&offers).ok_or(LoginStatus::AUTHENTICATION_FAILURE)?;
                let mut random = vec![0; 1 + CHALLENGE_LEN];
                backend.random(&mut random);
                let challenge = random.split_off(1);
                let identifier = random[0];
                out.put("CHAP_A", algorithm as u8);
                out.put("CHAP_I", identifier);
                out.put("CHAP_C", chap::encode_hex(&challenge));
                self.state = State::Challenged { algorithm, identifier, challenge };
            }
            State::Challenged { algorithm, identifier, challenge } => {
                self.verify(&said, algorithm, identifier, &challenge)?;
                if said.challenge.is_some() {
                    self.prove(&said, algorithm, &challenge, out)?;
                }
                self.state = State::Done;
            }
            State::Done => self.state = State::Done,
        }
        Ok(())
    }

    /// Checks the initiator's response to our challenge.
    fn verify(
        &self,
        said: &SecurityKeys,
        algorithm: Algorithm,
        identifier: u8,
        challenge: &[u8],
    ) -> Result<(), LoginStatus> {
        let AuthPolicy::Chap { initiator, .. } = &self.policy else {
            unreachable!("a challenge is sent where CHAP is asked for")
        };
        let (Some(name), Some(response)) = (&said.name, &said.response) else {
            return Err(LoginStatus::INITIATOR_ERROR);
        };
        let response = chap::decode_binary(response).ok_or(LoginStatus::INITIATOR_ERROR)?;
        let wanted = algorithm.response(identifier, &initiator.secret, challenge);
        if *name == initiator.name && same(&response, &wanted) {
            Ok(())
        } else {
            Err(LoginStatus::AUTHENTICATION_FAILURE)
        }
    }

    /// Answers the initiator's challenge.
    fn prove(
        &self,
        said: &SecurityKeys,
        algorithm: Algorithm,
        ours: &[u8],
        out: &mut TextOut,
    ) -> Result<(), LoginStatus> {
        let AuthPolicy::Chap { target: Some(target), .. } = &self.policy else {
            return Err(LoginStatus::AUTHENTICATION_FAILURE);
        };
        let identifier = said.identifier.as_deref().and_then(chap::identifier).ok_or(LoginStatus::INITIATOR_ERROR)?;
        let challenge =
            said.challenge.as_ref().and_then(|text| chap::decode_binary(text)).ok_or(LoginStatus::INITIATOR_ERROR)?;
        // RFC 7143 §9.2.1: by returning our challenge, a peer tries to make us answer it ourselves.
        if challenge == ours {
            return Err(LoginStatus::AUTHENTICATION_FAILURE);
        }
        out.put("CHAP_N", &target.name);
        out.put("CHAP_R", chap::encode_hex(&algorithm.response(identifier, &target.secret, &challenge)));
        Ok(())
    }
}
