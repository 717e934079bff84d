//! A discovery session: login, SendTargets, logout (RFC 7143 §4.3, §C).

use alloc::{boxed::Box, vec::Vec};

use super::{
    Config,
    link::{Link, control_itt},
    login::Login,
};
use crate::{
    Instant, Transmit, Violation,
    iscsi::{
        DiscoveredTarget,
        pdu::{Bhs, Fragment, Framer, LogoutResponse, NopIn, TextRequest, TextResponse, TransferTag},
        text::{DEFAULT_SEGMENT_LEN, pairs},
    },
    wire::printable,
};

/// Maximum length of the target list in bytes. RFC 7143 sets no limit; this is enough for some thousand targets.
const ANSWER_LEN_MAX: usize = 1 << 20;

/// Requests a portal's list of targets.
#[derive(Debug)]
pub struct Discovery {
    framer: Framer,
    link: Link,
    phase: Phase,
    header: Option<Bhs>,
    segment: Vec<u8>,
    answer: Vec<u8>,
    targets: Vec<DiscoveredTarget>,
    deadline: Instant,
}

#[derive(Debug)]
enum Phase {
    Login(Box<Login>),
    Asked,
    Leaving,
    Done,
}

impl Discovery {
    /// Starts a login: the first request is in `transmit`.
    pub fn new(now: Instant, config: &Config) -> Self {
        let mut link = Link::default();
        let login = Login::begin(config, true, &mut link);
        Self {
            framer: Framer::new(DEFAULT_SEGMENT_LEN as u32),
            link,
            phase: Phase::Login(Box::new(login)),
            header: None,
            segment: Vec::new(),
            answer: Vec::new(),
            targets: Vec::new(),
            deadline: now + config.login_timeout,
        }
    }

    /// Processes received bytes. After `Err` the connection cannot be used any more.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let mut input = bytes;
        while !matches!(self.phase, Phase::Done) {
            let Some(step) = self.framer.next(&mut input)? else { break };
            match step {
                Fragment::Header(bhs) => {
                    self.header = Some(bhs);
                    self.segment.clear();
                }
                Fragment::Data { bytes, .. } => self.segment.extend_from_slice(bytes),
                Fragment::End { intact: false } => {
                    return Err(malformed!("RFC 7143 §7.8: data digest error"));
                }
                Fragment::End { intact: true } => {
                    if let Some(bhs) = self.header.take() {
                        self.pdu(&bhs)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.transmit
    }

    /// The targets, once the session has ended. Then the connection may be closed.
    pub fn targets(&self) -> Option<&[DiscoveredTarget]> {
        matches!(self.phase, Phase::Done).then_some(&self.targets)
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        (!matches!(self.phase, Phase::Done)).then_some(self.deadline)
    }

    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        match self.poll_timeout() {
            Some(deadline) if now >= deadline => Err(Violation::timed_out("the target is silent")),
            _ => Ok(()),
        }
    }

    fn pdu(&mut self, bhs: &Bhs) -> Result<(), Violation> {
        match (&mut self.phase, bhs.opcode()) {
            (Phase::Login(login), _) => {
                if login.response(bhs, &self.segment, &mut self.link, &mut self.framer)? {
                    self.phase = Phase::Asked;
                    self.ask(TransferTag::RESERVED, b"SendTargets=All\0");
                }
            }
            (_, NopIn::OPCODE) => self.link.nop_in(bhs)?,
            (Phase::Asked, TextResponse::OPCODE) => self.text(&TextResponse::parse(bhs))?,
            (Phase::Leaving, LogoutResponse::OPCODE) => self.phase = Phase::Done,
            _ => return Err(misbehaved!("RFC 7143 §4.3: no PDU of a discovery session").at(0)),
        }
        Ok(())
    }

    fn text(&mut self, response: &TextResponse) -> Result<(), Violation> {
        self.link.learn_window(response.exp_cmd_sn, response.max_cmd_sn);
        self.link.take_stat_sn(response.stat_sn)?;
        if self.answer.len() + self.segment.len() > ANSWER_LEN_MAX {
            return Err(misbehaved!("iotax limit: more targets than are taken"));
        }
        self.answer.extend_from_slice(&self.segment);
        if !response.last {
            // RFC 7143 §6.2: an empty request asks for the rest of the text.
            self.ask(response.ttt, &[]);
            return Ok(());
        }
        for (key, value) in pairs(&self.answer)? {
            match (key, self.targets.last_mut()) {
                ("TargetName", _) => {
                    self.targets.push(DiscoveredTarget { name: printable(value.as_bytes()), portals: Vec::new() });
                }
                ("TargetAddress", Some(target)) => target.portals.push(printable(value.as_bytes())),
                _ => {}
            }
        }
        self.link.logout();
        self.phase = Phase::Leaving;
        Ok(())
    }

    fn ask(&mut self, ttt: TransferTag, text: &[u8]) {
        let request = TextRequest {
            last: true,
            itt: control_itt::TEXT,
            ttt,
            cmd_sn: self.link.take_cmd_sn(),
            exp_stat_sn: self.link.exp_stat_sn,
            ..TextRequest::default()
        };
        self.link.bytes(request.encode(), text);
    }
}
