//! A connection to a controller's admin queue that carries one command at a time: set-up to a ready and identified
//! controller, then whatever the owner asks.

use alloc::{boxed::Box, vec::Vec};
use core::time::Duration;

use super::{
    ConnectConfig,
    authenticate::{Authentication, Next},
    link::{Link, timed_out},
};
use crate::{
    Instant, Refusal, Transmit, Violation,
    nvme::{
        Cqe, Sqe, Status,
        auth::Agreed,
        command::{Sgl, admin, fabrics},
        identify::{self, ControllerFields, cns},
        property,
    },
    nvme_tcp::{
        pdu::{DataHeader, Digests, Fault, Header},
        receiver::Step,
        sender::Data,
    },
};

/// Submission queue of the admin queue, 0's based: 32 entries, the least that a controller must take.
const ADMIN_SQ_SIZE: u16 = 31;
/// How often CSTS is read while the controller becomes ready or shuts down.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What the channel tells its owner.
pub(super) enum Event {
    /// The controller is ready and identified.
    Up(Box<ControllerFields>),
    /// The answer to `submit`.
    Reply { cqe: Cqe, data: Vec<u8> },
    /// The controller is shut down.
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    Connect,
    Authenticate,
    Capabilities,
    Enable,
    WaitReady,
    Identify,
    Up,
    ShutDown,
    WaitShutDown,
    Down,
}

/// The command outstanding.
struct Pending {
    cid: u16,
    /// Bytes that the controller sends.
    len: u32,
    data: Vec<u8>,
    /// A data digest was wrong.
    is_spoilt: bool,
    /// The data PDU under way completes the command.
    succeeds: bool,
    deadline: Instant,
}

pub(super) struct AdminChannel {
    link: Link,
    config: ConnectConfig,
    stage: Stage,
    /// Under way in the stage of that name.
    authentication: Option<Box<Authentication>>,
    /// How the host proved itself, where it had to.
    agreed: Option<Agreed>,
    pending: Option<Pending>,
    next_cid: u16,
    /// When CSTS is to be read again.
    poll_at: Option<Instant>,
    /// When set-up or shut-down must be done.
    deadline: Instant,
    cap: u64,
    cntlid: u16,
    wants_down: bool,
}

impl AdminChannel {
    pub(super) fn new(now: Instant, config: ConnectConfig) -> Self {
        Self {
            link: Link::new(config.digests),
            deadline: now + config.admin_timeout,
            config,
            stage: Stage::Handshake,
            authentication: None,
            agreed: None,
            pending: None,
            next_cid: 0,
            poll_at: None,
            cap: 0,
            cntlid: 0,
            wants_down: false,
        }
    }

    pub(super) fn config(&self) -> &ConnectConfig {
        &self.config
    }

    /// CAP, once up.
    pub(super) fn cap(&self) -> u64 {
        self.cap
    }

    /// Digests and MAXH2CDATA, as ICResp said.
    pub(super) fn handshake(&self) -> (Digests, u32) {
        (self.link.digests, self.link.max_h2c_data_bytes)
    }

    pub(super) fn agreed(&self) -> Option<Agreed> {
        self.agreed
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Up && self.pending.is_none()
    }

    pub(super) fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.sender.tx
    }

    /// Sends a command that gives `len` bytes, once the last one was answered. Nothing is sent where the end has begun.
    pub(super) fn submit(&mut self, now: Instant, sqe: Sqe, len: u32) {
        if !self.wants_down {
            self.send(now, sqe, len);
        }
    }

    /// Shuts the controller down as soon as no command is outstanding.
    pub(super) fn shut_down(&mut self, now: Instant) {
        self.wants_down = true;
        if self.is_idle() {
            self.begin_shut_down(now);
        }
    }

    /// Not up yet, or not for lack of trying: there is nobody to say goodbye to.
    pub(super) fn is_up(&self) -> bool {
        self.stage == Stage::Up
    }

    /// Takes bytes off the front until there is something to tell.
    pub(super) fn receive(&mut self, now: Instant, bytes: &mut &[u8]) -> Result<Option<Event>, Violation> {
        loop {
            let before = *bytes;
            let Some(step) = self.link.step(bytes)? else { return Ok(None) };
            match self.on_step(&step) {
                Ok(Some(cqe)) => {
                    if let Some(event) = self.on_completion(now, cqe)? {
                        return Ok(Some(event));
                    }
                }
                Ok(None) => {
                    if self.stage == Stage::Handshake && self.link.is_open() {
                        self.stage = Stage::Connect;
                        self.link.connect(&self.config, None, 0, ADMIN_SQ_SIZE, self.next_cid);
                        self.expect(now, 0);
                    }
                }
                Err(fault) => return Err(self.link.fail(&fault, before)),
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let set_up = !matches!(self.stage, Stage::Up | Stage::Down);
        let command = self.pending.as_ref().map(|pending| pending.deadline);
        [set_up.then_some(self.deadline), command, self.poll_at].into_iter().flatten().min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        if self.pending.as_ref().is_some_and(|pending| now >= pending.deadline) {
            return Err(timed_out("no answer to an admin command in time"));
        }
        if !matches!(self.stage, Stage::Up | Stage::Down) && now >= self.deadline {
            return Err(timed_out("the controller is not ready or not shut down in time"));
        }
        if self.poll_at.is_some_and(|at| now >= at) {
            self.poll_at = None;
            self.property_get(now, property::CSTS);
        }
        Ok(())
    }

    // -------------------------------------------------------------------------------------------------------- receiving

    fn on_step(&mut self, step: &Step<'_>) -> Result<Option<Cqe>, Fault> {
        match step {
            Step::Header { header: Header::IcResp(resp), .. } => self.link.on_ic_resp(resp)?,
            Step::Header { header: Header::Response(cqe), .. } => {
                if self.pending.as_ref().is_none_or(|pending| pending.cid != cqe.cid) {
                    return Err(Fault::field(20, "NVMe/TCP: a response to no command outstanding"));
                }
                return Ok(Some(*cqe));
            }
            Step::Header { header: Header::ControllerData(data), data_len } => {
                self.on_controller_data(data, *data_len)?;
            }
            Step::Data(piece) => {
                if let Some(pending) = &mut self.pending {
                    pending.data.extend_from_slice(piece);
                }
            }
            Step::End { digest_ok } => return Ok(self.on_data_end(*digest_ok)),
            Step::Header { .. } => return Err(Fault::field(0, "NVMe/TCP: the PDU is not for this command")),
        }
        Ok(None)
    }

    fn on_controller_data(&mut self, data: &DataHeader, data_len: u32) -> Result<(), Fault> {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.cid == data.cid && pending.len > 0) else {
            return Err(Fault::field(8, "NVMe/TCP: C2HData for no read outstanding"));
        };
        if data.len != data_len || data_len == 0 {
            return Err(Fault::field(16, "NVMe/TCP: DATAL is not the length of the PDU's data"));
        }
        let received = pending.data.len() as u32;
        if data.offset != received || data_len > pending.len - received {
            return Err(Fault::out_of_range("NVMe/TCP: C2HData outside what the command asked for, or out of order"));
        }
        if data.is_success && (!data.is_last || data_len != pending.len - received) {
            return Err(Fault::field(1, "NVMe/TCP: SUCCESS on a PDU that is not the last"));
        }
        // The success is told by the last PDU's end, once its digest was checked.
        pending.succeeds = data.is_success;
        Ok(())
    }

    /// A completion where the data said so.
    fn on_data_end(&mut self, digest_ok: bool) -> Option<Cqe> {
        let pending = self.pending.as_mut()?;
        pending.is_spoilt |= !digest_ok;
        let success = Cqe { result: 0, sq_head: 0, cid: pending.cid, status: Status::SUCCESS };
        pending.succeeds.then_some(success)
    }

    fn on_completion(&mut self, now: Instant, mut cqe: Cqe) -> Result<Option<Event>, Violation> {
        let Some(pending) = self.pending.take() else { return Ok(None) };
        if pending.is_spoilt {
            cqe.status = Status::TRANSIENT_TRANSPORT_ERROR;
        } else if cqe.status.is_success() && pending.data.len() < pending.len as usize {
            return Err(Violation::misbehaved("NVMe/TCP: a command succeeded without all of its data"));
        }
        let event = self.advance(now, cqe, pending.data)?;
        if self.wants_down && self.is_idle() {
            self.begin_shut_down(now);
        }
        Ok(event)
    }

    /// The next command of set-up or shut-down.
    fn advance(&mut self, now: Instant, cqe: Cqe, data: Vec<u8>) -> Result<Option<Event>, Violation> {
        if self.stage == Stage::Up {
            return Ok(Some(Event::Reply { cqe, data }));
        }
        if !cqe.status.is_success() {
            return Err(self.refused(cqe.status));
        }
        match self.stage {
            Stage::Connect => {
                self.cntlid = cqe.result as u16;
                match Authentication::asked_for(cqe.result, &self.config, 0)? {
                    None => self.begin_bring_up(now),
                    Some(authentication) => {
                        authentication.begin(&mut self.link, self.next_cid);
                        self.authentication = Some(authentication);
                        self.stage = Stage::Authenticate;
                        self.expect(now, 0);
                    }
                }
            }
            Stage::Authenticate => {
                let authentication = self.authentication.as_mut().expect("the stage has it");
                match authentication.proceed(&mut self.link, self.next_cid, cqe.status, &data)? {
                    Next::Reads(len) => self.expect(now, len),
                    Next::Done(agreed) => {
                        self.agreed = Some(agreed);
                        self.begin_bring_up(now);
                    }
                }
            }
            Stage::Capabilities => {
                self.cap = cqe.result;
                self.stage = Stage::Enable;
                self.property_set(now, property::CC_ENABLE | property::CC_ENTRY_SIZES);
            }
            Stage::Enable => {
                self.deadline = now + property::ready_timeout(self.cap).max(self.config.admin_timeout);
                self.stage = Stage::WaitReady;
                self.property_get(now, property::CSTS);
            }
            Stage::WaitReady if cqe.result as u32 & property::CSTS_FATAL != 0 => {
                return Err(Violation::refused(Refusal::Other, "the controller reports a fatal status"));
            }
            Stage::WaitReady if cqe.result as u32 & property::CSTS_READY != 0 => {
                self.stage = Stage::Identify;
                let mut sqe = Sqe::new(admin::IDENTIFY, 0, 0);
                sqe.set_cdw(10, u32::from(cns::CONTROLLER));
                self.send(now, sqe, identify::LEN as u32);
            }
            Stage::Identify => {
                let bytes = data.first_chunk().expect("all data of a command that succeeded");
                let fields = identify::parse_controller(bytes);
                if fields.cntlid != self.cntlid {
                    return Err(Violation::misbehaved(
                        "NVMe base 2.1 §6.3: Connect and Identify name different controllers",
                    ));
                }
                self.stage = Stage::Up;
                return Ok(Some(Event::Up(Box::new(fields))));
            }
            Stage::ShutDown => {
                self.stage = Stage::WaitShutDown;
                self.property_get(now, property::CSTS);
            }
            Stage::WaitShutDown
                if cqe.result as u32 & property::CSTS_SHUTDOWN_MASK == property::CSTS_SHUTDOWN_COMPLETE =>
            {
                self.stage = Stage::Down;
                return Ok(Some(Event::Down));
            }
            Stage::WaitReady | Stage::WaitShutDown => self.poll_at = Some(now + POLL_INTERVAL),
            Stage::Handshake | Stage::Up | Stage::Down => {}
        }
        Ok(None)
    }

    fn begin_bring_up(&mut self, now: Instant) {
        self.stage = Stage::Capabilities;
        self.property_get(now, property::CAP);
    }

    fn refused(&self, status: Status) -> Violation {
        let (refusal, rule) = match (self.stage, status.bare()) {
            // NVMe base 2.1 §6.3: of all that may be wrong with the parameters, the name is ours to choose.
            (Stage::Connect, Status::CONNECT_INVALID_PARAMETERS) => {
                (Refusal::NotFound, "Connect refused: invalid parameters; is the subsystem's NQN right?")
            }
            (Stage::Connect, Status::CONNECT_INVALID_HOST) => {
                (status.refusal(), "Connect refused: this host is not allowed")
            }
            (Stage::Connect, Status::CONNECT_CONTROLLER_BUSY) => {
                (status.refusal(), "Connect refused: the controller is busy")
            }
            _ => (status.refusal(), status.name()),
        };
        Violation::refused(refusal, rule)
    }

    // ---------------------------------------------------------------------------------------------------------- sending

    fn send(&mut self, now: Instant, mut sqe: Sqe, len: u32) {
        assert!(self.pending.is_none(), "one admin command at a time");
        sqe.set_cid(self.next_cid);
        sqe.set_sgl(Sgl::Transport { len });
        self.link.sender.command(&sqe, Data::None);
        self.expect(now, len);
    }

    fn begin_shut_down(&mut self, now: Instant) {
        self.stage = Stage::ShutDown;
        self.deadline = now + self.config.admin_timeout;
        self.property_set(now, property::CC_ENABLE | property::CC_ENTRY_SIZES | property::CC_SHUTDOWN_NORMAL);
    }

    fn property_get(&mut self, now: Instant, offset: u32) {
        let mut sqe = Sqe::fabrics(fabrics::PROPERTY_GET, 0);
        sqe.0[40] = u8::from(offset == property::CAP);
        sqe.set_cdw(11, offset);
        self.send(now, sqe, 0);
    }

    fn property_set(&mut self, now: Instant, value: u32) {
        let mut sqe = Sqe::fabrics(fabrics::PROPERTY_SET, 0);
        sqe.set_cdw(11, property::CC);
        sqe.set_cdw(12, value);
        self.send(now, sqe, 0);
    }

    /// A command with the next identifier was sent.
    fn expect(&mut self, now: Instant, len: u32) {
        self.pending = Some(Pending {
            cid: self.next_cid,
            len,
            data: Vec::new(),
            is_spoilt: false,
            succeeds: false,
            deadline: now + self.config.admin_timeout,
        });
        self.next_cid = self.next_cid.wrapping_add(1);
    }
}
