//! The login phase on the initiator's side (RFC 7143 §6.3): the security stage (§12.1), then operational parameters in
//! one request.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use super::{
    Chap, Config,
    link::{CID, Link, control_itt},
};
use crate::{
    Refusal, Violation,
    iscsi::{
        chap::{self, Algorithm},
        negotiate::Negotiation,
        pdu::{
            Bhs, Framer, LoginRequest, LoginResponse,
            control::{LoginStatus, stage},
        },
        text::{DEFAULT_SEGMENT_LEN, TextIn, TextOut, pairs},
    },
    wire::digest::same,
};

/// Maximum responses in one login. A target that needs more makes no progress.
const LOGIN_RESPONSES_MAX: u32 = 64;

/// A login in progress.
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
    /// Starts a login and queues its first request.
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

    /// Processes a response; true when the full feature phase starts. Then `link` and `framer` use the negotiated
    /// parameters.
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
            // RFC 7143 §6.2: an empty request asks for the rest of the text.
            self.request(link);
            return Ok(false);
        }
        let text = self.text_in.take();
        for (key, value) in pairs(&text)? {
            if key == "TargetPortalGroupTag" {
                link.portal_group = value.parse().ok();
            }
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
                return Err(misbehaved!("RFC 7143 §11.13.2: a stage that does not follow").at(1));
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
            return Err(misbehaved!("RFC 7143 §6.3: the login phase takes Login Responses alone").at(0));
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
            return Err(misbehaved!("RFC 7143 §11.13: a response that does not fit the login").at(1));
        }
        Ok(())
    }

    /// Sends the keys of this stage, and requests the next stage if none are left.
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

#[derive(Debug)]
pub(super) struct Security {
    chap: Option<Chap>,
    state: State,
    said: SecurityKeys,
    /// We answered a challenge.
    proved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    MethodOffered,
    AlgorithmsOffered,
    Responded(Algorithm),
    Done,
}

/// Keys of the target's last response.
#[derive(Debug, Default)]
struct SecurityKeys {
    method: Option<String>,
    algorithm: Option<String>,
    identifier: Option<String>,
    challenge: Option<String>,
    name: Option<String>,
    response: Option<String>,
}

impl Security {
    pub(super) fn new(chap: Option<Chap>) -> Self {
        Self { chap, state: State::MethodOffered, said: SecurityKeys::default(), proved: false }
    }

    /// Offers the available methods. A target that must authenticate itself cannot avoid this by choosing None.
    pub(super) fn offer(&self, out: &mut TextOut) {
        let methods = match &self.chap {
            None => "None",
            Some(Chap { target: None, .. }) => "CHAP,None",
            Some(_) => "CHAP",
        };
        out.put("AuthMethod", methods);
    }

    /// Whether everything in this stage has been sent, so that the next stage can be requested.
    pub(super) fn may_transit(&self) -> bool {
        self.chap.is_none() || matches!(self.state, State::Responded(_) | State::Done)
    }

    /// How the initiator authenticated itself.
    pub(super) fn method(&self) -> &'static str {
        if self.proved { "CHAP" } else { "None" }
    }

    /// Checks, when the target leaves the stage, that it has authenticated itself if it must.
    pub(super) fn finish(&self) -> Result<(), Violation> {
        let mutual = self.chap.as_ref().is_some_and(|chap| chap.target.is_some());
        if mutual && self.state != State::Done {
            return Err(refused("RFC 7143 §12.1.3: the target did not authenticate itself"));
        }
        Ok(())
    }

    /// Stores a key of this stage; false if the key is not one of this stage.
    pub(super) fn take(&mut self, key: &str, value: &str) -> bool {
        let place = match key {
            "AuthMethod" => &mut self.said.method,
            "CHAP_A" => &mut self.said.algorithm,
            "CHAP_I" => &mut self.said.identifier,
            "CHAP_C" => &mut self.said.challenge,
            "CHAP_N" => &mut self.said.name,
            "CHAP_R" => &mut self.said.response,
            _ => return false,
        };
        *place = Some(value.to_string());
        true
    }

    /// Answers the keys stored since the last call.
    pub(super) fn respond(&mut self, out: &mut TextOut) -> Result<(), Violation> {
        let said = core::mem::take(&mut self.said);
        self.state = match (self.state, &self.chap) {
            (State::MethodOffered, chap) => match (said.method.as_deref(), chap) {
                (Some("CHAP"), Some(_)) => {
                    out.put("CHAP_A", Algorithm::OFFER);
                    State::AlgorithmsOffered
                }
                (Some("None") | None, None | Some(Chap { target: None, .. })) => State::Done,
                _ => return Err(refused("RFC 7143 §12.1: the target chose a method that was not offered")),
            },
            (State::AlgorithmsOffered, Some(chap)) => {
                self.proved = true;
                State::Responded(answer(chap, &said, out)?)
            }
            (State::Responded(algorithm), Some(chap)) => {
                verify(chap, &said, algorithm)?;
                State::Done
            }
            (state, _) => state,
        };
        Ok(())
    }
}

/// Answers the target's challenge, and sends a challenge if the target must authenticate itself too.
fn answer(chap: &Chap, said: &SecurityKeys, out: &mut TextOut) -> Result<Algorithm, Violation> {
    let missing = malformed!("RFC 7143 §12.1.3: CHAP_A, CHAP_I and CHAP_C are needed");
    let algorithm = said.algorithm.as_deref().and_then(Algorithm::from_number).ok_or(missing.clone())?;
    let identifier = said.identifier.as_deref().and_then(chap::identifier).ok_or(missing.clone())?;
    let challenge = said.challenge.as_ref().and_then(|text| chap::decode_binary(text)).ok_or(missing)?;
    let response: Vec<u8> = algorithm.response(identifier, &chap.initiator.secret, &challenge);
    out.put("CHAP_N", &chap.initiator.name);
    out.put("CHAP_R", chap::encode_hex(&response));
    if let Some(target) = &chap.target {
        out.put("CHAP_I", target.identifier);
        out.put("CHAP_C", chap::encode_hex(&target.challenge));
    }
    Ok(algorithm)
}

/// Checks the target's response to our challenge.
fn verify(chap: &Chap, said: &SecurityKeys, algorithm: Algorithm) -> Result<(), Violation> {
    let Some(target) = &chap.target else { return Ok(()) };
    let wanted = algorithm.response(target.identifier, &target.credentials.secret, &target.challenge);
    let response = said.response.as_ref().and_then(|text| chap::decode_binary(text)).unwrap_or_default();
    if said.name.as_ref() == Some(&target.credentials.name) && same(&response, &wanted) {
        Ok(())
    } else {
        Err(refused("RFC 7143 §12.1.3: the target failed to authenticate itself"))
    }
}

fn refused(rule: &'static str) -> Violation {
    Violation::refused(Refusal::Unauthenticated, rule)
}
