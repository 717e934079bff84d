//! A connection to a controller's admin queue that carries one command at a time: first set-up, until the controller is
//! ready and identified, then commands of the owner.
//!
//! Also in-band authentication of a queue after Connect, for admin and I/O queues.

use alloc::boxed::Box;
use core::time::Duration;

use super::{Answer, Capsules, Connection, ConnectionEvent, SessionConfig, connect, timed_out};
use crate::{
    Instant, Refusal, Transmit, Violation,
    nvme::{
        CommandId, ControllerId, QueueId, Sqe, Status,
        auth::{self, Agreed, AuthStep, Host},
        command::{Sgl, admin, fabrics},
        identify::{self, ControllerFields, cns},
        property,
    },
};

/// Size of the admin submission queue, 0's based: 32 entries, the minimum that a controller must accept.
const ADMIN_SQ_SIZE: u16 = 31;
/// Identifier of the Asynchronous Event Request. Other commands have those below.
const EVENT_REQUEST: CommandId = CommandId(u16::MAX);
/// How often CSTS is read while the controller becomes ready or shuts down.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A report of the channel to its owner.
pub(super) enum Event {
    /// The controller is ready and identified.
    Up(Box<ControllerFields>),
    /// The answer to `submit`.
    Reply(Answer),
    /// The answer to `request_event`: whether there is an event.
    Notice(bool),
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

pub(super) struct AdminChannel<C> {
    connection: C,
    config: SessionConfig,
    stage: Stage,
    /// Present in the stage of that name.
    authentication: Option<Box<Authentication>>,
    /// How the host authenticated itself, if it had to.
    agreed: Option<Agreed>,
    /// Deadline for the answer to the outstanding command.
    pending: Option<Instant>,
    next_cid: CommandId,
    /// When to read CSTS again.
    poll_at: Option<Instant>,
    /// Deadline of set-up or shutdown.
    deadline: Instant,
    cap: u64,
    cntlid: ControllerId,
    wants_down: bool,
}

impl<C: Connection> AdminChannel<C> {
    pub(super) fn new(now: Instant, connection: C, config: SessionConfig) -> Self {
        Self {
            connection,
            deadline: now + config.admin_timeout,
            config,
            stage: Stage::Handshake,
            authentication: None,
            agreed: None,
            pending: None,
            next_cid: CommandId(0),
            poll_at: None,
            cap: 0,
            cntlid: ControllerId::default(),
            wants_down: false,
        }
    }

    pub(super) fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// CAP, once up.
    pub(super) fn cap(&self) -> u64 {
        self.cap
    }

    pub(super) fn connection(&self) -> &C {
        &self.connection
    }

    pub(super) fn connection_mut(&mut self) -> &mut C {
        &mut self.connection
    }

    pub(super) fn agreed(&self) -> Option<Agreed> {
        self.agreed
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Up && self.pending.is_none()
    }

    pub(super) fn transmit(&mut self) -> &mut Transmit {
        self.connection.transmit()
    }

    /// Sends a command that returns `len` bytes. The last one must have been answered. Sends nothing once shutdown was
    /// requested.
    pub(super) fn submit(&mut self, now: Instant, sqe: Sqe, len: u32) {
        if !self.wants_down {
            self.send(now, sqe, len);
        }
    }

    /// Requests an event of the controller. The last request must have been answered. Sends nothing once shutdown was
    /// requested.
    pub(super) fn request_event(&mut self) {
        if !self.wants_down {
            self.connection.request_event(EVENT_REQUEST);
        }
    }

    /// Shuts the controller down as soon as no command is outstanding.
    pub(super) fn shut_down(&mut self, now: Instant) {
        self.wants_down = true;
        if self.is_idle() {
            self.begin_shut_down(now);
        }
    }

    /// Whether the channel is up. It is not before set-up is complete or after a failure; then no shutdown can be sent.
    pub(super) fn is_up(&self) -> bool {
        self.stage == Stage::Up
    }

    /// Takes bytes off the front until there is an event to report.
    pub(super) fn receive(&mut self, now: Instant, bytes: &mut &[u8]) -> Result<Option<Event>, Violation> {
        while let Some(heard) = self.connection.receive(bytes)? {
            match heard {
                ConnectionEvent::Open => {
                    self.stage = Stage::Connect;
                    let cid = self.take_cid(now);
                    connect(&mut self.connection, &self.config, None, QueueId::ADMIN, ADMIN_SQ_SIZE, cid);
                }
                ConnectionEvent::Notice(cqe) => return Ok(Some(Event::Notice(cqe.status.is_success()))),
                ConnectionEvent::Answer(answer) => {
                    if let Some(event) = self.on_answer(now, answer)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
        Ok(None)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let set_up = !matches!(self.stage, Stage::Up | Stage::Down);
        [set_up.then_some(self.deadline), self.pending, self.poll_at].into_iter().flatten().min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        if self.pending.is_some_and(|deadline| now >= deadline) {
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

    /// The command that was submitted must be answered within this time, if that is less than what others have.
    pub(super) fn hurry(&mut self, now: Instant, within: Duration) {
        self.pending = self.pending.map(|deadline| deadline.min(now + within));
    }

    fn on_answer(&mut self, now: Instant, answer: Answer) -> Result<Option<Event>, Violation> {
        self.pending = None;
        let event = self.advance(now, answer)?;
        if self.wants_down && self.is_idle() {
            self.begin_shut_down(now);
        }
        Ok(event)
    }

    /// Sends the next command of set-up or shutdown.
    fn advance(&mut self, now: Instant, answer: Answer) -> Result<Option<Event>, Violation> {
        if self.stage == Stage::Up {
            return Ok(Some(Event::Reply(answer)));
        }
        let Answer { cqe, data } = answer;
        if !cqe.status.is_success() {
            return Err(self.refused(cqe.status));
        }
        match self.stage {
            Stage::Connect => {
                self.cntlid = ControllerId(cqe.result as u16);
                match Authentication::asked_for(cqe.result, &self.config, QueueId::ADMIN)? {
                    None => self.begin_bring_up(now),
                    Some(authentication) => {
                        let cid = self.take_cid(now);
                        authentication.begin(&mut self.connection, cid);
                        self.authentication = Some(authentication);
                        self.stage = Stage::Authenticate;
                    }
                }
            }
            Stage::Authenticate => {
                let cid = self.take_cid(now);
                let authentication = self.authentication.as_mut().expect("the stage has it");
                match authentication.proceed(&mut self.connection, cid, cqe.status, &data)? {
                    Next::Wait => {}
                    Next::Done(agreed) => {
                        self.agreed = Some(agreed);
                        self.pending = None;
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
                let mut sqe = Sqe::new(admin::IDENTIFY, CommandId(0), 0);
                sqe.set_cdw(10, u32::from(cns::CONTROLLER));
                self.send(now, sqe, identify::LEN as u32);
            }
            Stage::Identify => {
                let bytes = data.first_chunk().expect("all data of a command that succeeded");
                let fields = identify::parse_controller(bytes);
                if fields.cntlid != self.cntlid {
                    return Err(misbehaved!("NVMe base 2.1 §6.3: Connect and Identify name different controllers"));
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
            // NVMe base 2.1 §6.3: of all parameters that may be invalid, only the name is chosen by the user.
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

    // --------------------------------------------------------------------------------------------------------- sending

    fn send(&mut self, now: Instant, mut sqe: Sqe, len: u32) {
        assert!(self.pending.is_none(), "one admin command at a time");
        sqe.set_cid(self.take_cid(now));
        sqe.set_sgl(Sgl::Transport { len });
        self.connection.send(&sqe, &[], len);
    }

    fn begin_shut_down(&mut self, now: Instant) {
        self.stage = Stage::ShutDown;
        self.deadline = now + self.config.admin_timeout;
        self.property_set(now, property::CC_ENABLE | property::CC_ENTRY_SIZES | property::CC_SHUTDOWN_NORMAL);
    }

    fn property_get(&mut self, now: Instant, offset: u32) {
        let mut sqe = Sqe::fabrics(fabrics::PROPERTY_GET, CommandId(0));
        sqe.0[40] = u8::from(offset == property::CAP);
        sqe.set_cdw(11, offset);
        self.send(now, sqe, 0);
    }

    fn property_set(&mut self, now: Instant, value: u32) {
        let mut sqe = Sqe::fabrics(fabrics::PROPERTY_SET, CommandId(0));
        sqe.set_cdw(11, property::CC);
        sqe.set_cdw(12, value);
        self.send(now, sqe, 0);
    }

    /// Returns the identifier of a command that is sent now, and starts its timeout.
    fn take_cid(&mut self, now: Instant) -> CommandId {
        self.pending = Some(now + self.config.admin_timeout);
        let cid = self.next_cid;
        self.next_cid = CommandId(if cid.0 + 1 == EVENT_REQUEST.0 { 0 } else { cid.0 + 1 });
        cid
    }
}

/// AUTHREQ in the result of Connect (NVMe base 2.1 §6.3): in-band authentication.
const AUTHENTICATION: u64 = 1 << 17;
/// All bits by which Connect may require something.
const REQUIRED: u64 = 0xffff_0000;

/// The next step after an answer.
pub(super) enum Next {
    /// Another command was sent.
    Wait,
    Done(Agreed),
}

pub(super) struct Authentication {
    host: Host,
}

impl Authentication {
    /// Starts what the result of Connect requires; `None` if the queue may be used at once.
    pub(super) fn asked_for(result: u64, config: &SessionConfig, qid: QueueId) -> Result<Option<Box<Self>>, Violation> {
        let host = config.auth.clone().map(|auth| Host::new(auth, &config.hostnqn, &config.subnqn, qid));
        match (result & REQUIRED, host) {
            // A controller that must authenticate itself cannot avoid this by requiring no authentication.
            (0, Some(host)) if host.is_mutual() => Err(Violation::refused(
                Refusal::Unauthenticated,
                "the controller asks for no authentication, so it does not authenticate itself either",
            )),
            (0, _) => Ok(None),
            (AUTHENTICATION, Some(host)) => Ok(Some(Box::new(Self { host }))),
            (AUTHENTICATION, None) => Err(Violation::refused(
                Refusal::Unauthenticated,
                "the controller asks for authentication: no secret is given",
            )),
            _ => Err(unsupported!("NVMe base 2.1 §6.3: the controller asks for a secure channel")),
        }
    }

    /// Sends AUTH_Negotiate.
    pub(super) fn begin(&self, capsules: &mut impl Capsules, cid: CommandId) {
        send(capsules, cid, &self.host.first());
    }

    /// Processes the answer to the last command, and sends the next one with the identifier `cid`.
    pub(super) fn proceed(
        &mut self,
        capsules: &mut impl Capsules,
        cid: CommandId,
        status: Status,
        data: &[u8],
    ) -> Result<Next, Violation> {
        if !status.is_success() {
            return Err(Violation::refused(Refusal::Unauthenticated, status.name()));
        }
        let step = if data.is_empty() { Ok(self.host.sent()) } else { self.host.received(data) };
        match step {
            Ok(AuthStep::Send(message)) => {
                send(capsules, cid, &message);
                Ok(Next::Wait)
            }
            Ok(AuthStep::Receive) => {
                capsules.send(&auth::receive(cid, auth::MESSAGE_LEN_MAX), &[], auth::MESSAGE_LEN_MAX);
                Ok(Next::Wait)
            }
            Ok(AuthStep::Done) => Ok(Next::Done(self.host.agreed().expect("a transaction that is done"))),
            Err(ended) => {
                if let Some(last) = ended.last {
                    send(capsules, cid, &last);
                }
                Err(ended.violation)
            }
        }
    }
}

/// Messages fit into a capsule of every transport (NVMe/TCP transport 1.1 §3.5.1: 8,192 bytes).
fn send(capsules: &mut impl Capsules, cid: CommandId, message: &[u8]) {
    capsules.send(&auth::send(cid, message.len() as u32), message, 0);
}
