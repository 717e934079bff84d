//! A session: logins, association, bring-up of the controller, I/O queue, I/O. It ends in the reverse order.

use alloc::boxed::Box;
use core::{fmt, time::Duration};

use super::{
    Config,
    commands::{AbortedFor, Channel, Commands, Mailbox},
};
use crate::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Misuse, Refusal, Tag, Transmit, Violation,
    fc::{
        Fragment, Framer, Header, Link, Port, PortId, Silence,
        els::Process,
        frame::{kind, r_ctl},
        login::{self, Login, ox_id, unexpected},
        sequence::{TransferReady, Unit},
    },
    fc_nvme::{
        AssociationId, Extended,
        iu::{parse_response, result, service},
        ls::{Answer, Request},
    },
    nvme::{
        CommandId, ControllerId, Cqe, QueueId,
        fabrics::host::{AdminQueue, ConnectionEvent, ControlOutcome, ControllerInfo, IoControl},
    },
};

/// How often to check for commands that take too long.
const LOOK: Duration = Duration::from_secs(1);
/// Size of the admin submission queue, 0's based, as in its Connect.
const ADMIN_SQ_SIZE: u16 = 31;

/// An initiator's session with one I/O queue.
pub struct Session {
    config: Config,
    target: Option<Port>,
    framer: Framer,
    link: Link,
    stage: Stage,
    current: Current,
    /// The information unit or link service that is being received.
    unit: Unit,
    association: Option<AssociationId>,
    admin: Option<Box<Admin>>,
    io: Option<IoLane>,
    closing: bool,
    /// Deadline of set-up or shutdown.
    deadline: Instant,
    silence: Silence,
    next_look: Instant,
}

#[derive(Debug)]
enum Stage {
    Login(Box<Login>),
    /// Create Association was sent.
    Associate,
    /// The controller is being brought up.
    BringUp,
    /// Create I/O Connection was sent.
    CreateConnection,
    /// The I/O queue is connecting.
    Connect,
    Ready,
    /// The controller is being shut down.
    ShutDown,
    /// An exchange was aborted. When all exchanges are, the association ends (FC-NVMe-2, error recovery).
    Aborting,
    /// Disconnect Association was sent, either in an orderly shutdown or after an error.
    Disconnect {
        in_order: bool,
    },
    /// A LOGO was sent.
    Leaving,
    Closed,
}

/// The admin queue and its connection.
struct Admin {
    queue: AdminQueue<Mailbox>,
    channel: Channel,
    news: News,
}

/// The I/O queue and its connection.
struct IoLane {
    channel: Channel,
    control: IoControl,
    mailbox: Mailbox,
    commands: Commands,
}

/// The reports of the admin queue.
#[derive(Default)]
struct News {
    ready: bool,
    closed: bool,
}

/// The kind of the frame that is being received.
#[derive(Clone, Copy, Debug)]
enum Current {
    /// Data of a command of the admin queue.
    Admin,
    /// Data of a command of the I/O queue that is not I/O.
    Control,
    /// Data of a read, at this offset.
    Data(Tag, u32),
    Unit,
}

impl Session {
    /// Starts a login: the first frame is in `transmit`.
    pub fn new(now: Instant, mut config: Config) -> Self {
        config.session.io_queues = 1;
        let mut link = Link::new(PortId::default(), PortId::FABRIC, config.has_crc);
        let process = Process { kind: kind::NVME, parameters: service::INITIATOR };
        let login = Login::begin(config.port, config.target, process, &mut link);
        Self {
            target: None,
            framer: Framer::new(config.has_crc),
            link,
            stage: Stage::Login(Box::new(login)),
            current: Current::Unit,
            unit: Unit::default(),
            association: None,
            admin: None,
            io: None,
            closing: false,
            deadline: now + config.login_timeout,
            silence: Silence::new(now, config.echo_interval),
            next_look: now + LOOK,
            config,
        }
    }

    /// The target port, as described in its login.
    pub fn target(&self) -> Option<&Port> {
        self.target.as_ref()
    }

    /// The controller, once `ready` was reported.
    pub fn controller(&self) -> Option<&ControllerInfo> {
        self.admin.as_ref().and_then(|admin| admin.queue.controller())
    }

    /// Aborts the exchange of an I/O, and with it the association. The I/O completes in any case. The session ends with
    /// an error when all outstanding I/Os have completed. False if the I/O is not outstanding.
    pub fn abort(&mut self, now: Instant, tag: Tag) -> bool {
        let (Stage::Ready, Some(io)) = (&self.stage, &mut self.io) else { return false };
        let is_aborted = io.commands.abort(AbortedFor::Caller, now, tag, &mut self.link);
        if is_aborted {
            self.end_association(now);
        }
        is_aborted
    }

    /// Aborts all exchanges, because the association cannot continue.
    fn end_association(&mut self, now: Instant) {
        if let Some(io) = &mut self.io {
            io.commands.abort_all(now, &mut self.link);
        }
        self.stage = Stage::Aborting;
        self.deadline = now + self.config.command_timeout;
        self.disconnect_once_aborted();
    }

    fn disconnect_once_aborted(&mut self) {
        let left = self.io.as_ref().map_or(0, |io| io.commands.outstanding());
        if matches!(self.stage, Stage::Aborting) && left == 0 {
            self.disconnect(false);
        }
    }

    // ------------------------------------------------------------------------------------------------------- receiving

    #[inline]
    fn step(
        &mut self,
        now: Instant,
        fragment: Fragment<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        match fragment {
            Fragment::Frame(header, bytes) => {
                self.header(&header, bytes.len() as u32)?;
                if !bytes.is_empty() {
                    self.data(0, bytes, events);
                }
                self.end(now, events)
            }
            Fragment::Header(header, len) => self.header(&header, len),
            Fragment::Data { offset, bytes } => {
                self.data(offset, bytes, events);
                Ok(())
            }
            Fragment::End => self.end(now, events),
            Fragment::Ready(count) => self.link.ready(count),
            Fragment::Special(special) => match &mut self.stage {
                Stage::Login(login) => login.special(&special, &mut self.link),
                _ => Err(misbehaved!("RFC 3821 §7: a second Special Frame")),
            },
        }
    }

    #[inline]
    fn data(&mut self, offset: u32, bytes: &[u8], events: &mut dyn InitiatorEvents) {
        match self.current {
            Current::Data(tag, at) => events.data(tag, at + offset, bytes),
            Current::Unit => self.unit.data(bytes),
            Current::Admin => {
                if let Some(admin) = &mut self.admin {
                    admin.channel.data(bytes);
                }
            }
            Current::Control => {
                if let Some(io) = &mut self.io {
                    io.channel.data(bytes);
                }
            }
        }
    }

    #[inline]
    fn end(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        if !matches!(self.current, Current::Unit) {
            return Ok(());
        }
        let Some(header) = self.unit.end() else { return Ok(()) };
        let unit = self.unit.take();
        let outcome = self.unit(now, &header, &unit, events);
        self.unit.put(unit);
        outcome
    }

    #[inline]
    fn header(&mut self, header: &Header, len: u32) -> Result<(), Violation> {
        self.link.took();
        if (header.kind, header.r_ctl) != (kind::NVME, r_ctl::SOLICITED_DATA) {
            self.current = Current::Unit;
            return self.unit.begin(header, len);
        }
        if self.unit.is_open() {
            return Err(misbehaved!("FC-FS-5 SEQ_CNT: data within another sequence").at(46));
        }
        self.current = match (header.ox_id, &mut self.admin, &mut self.io) {
            (ox_id::ADMIN, Some(admin), _) => {
                admin.channel.data_begin(header, len)?;
                Current::Admin
            }
            (ox_id::CONTROL, _, Some(io)) => {
                io.channel.data_begin(header, len)?;
                Current::Control
            }
            (_, _, Some(io)) => Current::Data(io.commands.data_begin(header, len)?, header.parameter),
            _ => return Err(unexpected()),
        };
        Ok(())
    }

    /// Processes a complete sequence other than data.
    #[inline]
    fn unit(
        &mut self,
        now: Instant,
        header: &Header,
        unit: &[u8],
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        match (header.kind, header.r_ctl) {
            // Answers to earlier requests are ignored.
            (kind::NVME, _) if matches!(self.stage, Stage::Leaving) => Ok(()),
            (kind::NVME, r_ctl::COMMAND_STATUS) => {
                parse_response(unit)?;
                self.response(now, header, None, events)
            }
            (kind::NVME, r_ctl::EXTENDED_STATUS) => {
                let response = Extended::parse(unit)?;
                if response.result != result::SUCCESS {
                    return Err(misbehaved!("FC-NVMe-2 NVMe_ERSP: the target found a fault in an NVMe_CMND").at(56));
                }
                self.response(now, header, Some(response.cqe), events)
            }
            (kind::NVME, r_ctl::DATA_DESCRIPTOR) => {
                let ready = TransferReady::parse(unit)?;
                match (header.ox_id, &mut self.admin, &mut self.io) {
                    (ox_id::ADMIN, Some(admin), _) => admin.channel.transfer_ready(header, ready, &mut self.link),
                    (ox_id::CONTROL, _, Some(io)) => io.channel.transfer_ready(header, ready, &mut self.link),
                    (_, _, Some(io)) => io.commands.transfer_ready(header, ready, &mut self.link),
                    _ => Err(unexpected()),
                }
            }
            _ => self.service(now, header, unit, events),
        }
    }

    /// Processes units that do not belong to a command.
    #[cold]
    fn service(
        &mut self,
        now: Instant,
        header: &Header,
        unit: &[u8],
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        if let Stage::Login(login) = &mut self.stage {
            if let Some(found) = login.reply(header, unit, &mut self.link, &mut self.target)? {
                if found.parameters & service::TARGET == 0 {
                    return Err(Violation::refused(Refusal::WrongKind, "the port is not an NVMe target"));
                }
                if self.closing {
                    self.log_out();
                } else {
                    self.associate();
                }
            }
            return Ok(());
        }
        match (header.kind, header.r_ctl) {
            (kind::NVME, r_ctl::FC4_LS_REPLY) if header.ox_id == ox_id::FC4_LS => {
                let answer = Answer::parse(unit)?;
                self.answered(now, answer)
            }
            (kind::BLS, r_ctl::BA_ACC | r_ctl::BA_RJT) => {
                let io = self.io.as_mut().ok_or_else(unexpected)?;
                io.commands.aborted(now, header, events);
                self.disconnect_once_aborted();
                Ok(())
            }
            _ => {
                if login::link_service(header, unit, matches!(self.stage, Stage::Leaving))? {
                    self.stage = Stage::Closed;
                    events.closed(now);
                }
                Ok(())
            }
        }
    }

    /// Processes the response to a command.
    #[inline]
    fn response(
        &mut self,
        now: Instant,
        header: &Header,
        cqe: Option<Cqe>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        match (header.ox_id, &mut self.admin, &mut self.io) {
            (ox_id::ADMIN, Some(admin), _) => {
                let answer = admin.channel.answer(cqe)?;
                admin.queue.connection_mut().tell(ConnectionEvent::Answer(answer));
                self.admin_on(now)
            }
            (ox_id::CONTROL, _, Some(io)) => {
                let answer = io.channel.answer(cqe)?;
                let outcome = io.control.on_answer(&self.config.session, &answer, &mut io.mailbox)?;
                if let Some(capsule) = io.mailbox.take() {
                    io.channel.send(capsule, &mut self.link);
                }
                if outcome == ControlOutcome::Ready {
                    self.stage = Stage::Ready;
                    events.ready(now, io.commands.geometry());
                }
                Ok(())
            }
            (_, _, Some(io)) => {
                io.commands.response(now, header, cqe.as_ref(), events)?;
                self.disconnect_once_aborted();
                self.leave_when_idle(now);
                Ok(())
            }
            _ => Err(unexpected()),
        }
    }

    // ---------------------------------------------------------------------------------------------- set-up and the end

    fn ask(&mut self, request: &Request) {
        self.link.send(Request::header(ox_id::FC4_LS), &request.encode());
    }

    fn associate(&mut self) {
        let session = &self.config.session;
        let request = Request::CreateAssociation {
            ersp_ratio: self.config.ersp_ratio,
            cntlid: ControllerId::ANY,
            sq_size: ADMIN_SQ_SIZE,
            host_id: session.host_id,
            hostnqn: session.hostnqn.clone(),
            subnqn: session.subnqn.clone(),
        };
        self.ask(&request);
        self.stage = Stage::Associate;
    }

    /// Processes the answer to an NVMe link service.
    fn answered(&mut self, now: Instant, answer: Answer) -> Result<(), Violation> {
        match (&self.stage, answer) {
            // The target may have ended the association earlier.
            (Stage::Disconnect { in_order: true }, Answer::Disconnected | Answer::Rejected(_)) => {
                self.log_out();
                Ok(())
            }
            (Stage::Disconnect { in_order: false }, Answer::Disconnected | Answer::Rejected(_)) => {
                Err(Violation::timed_out("an exchange was aborted, which ends its association"))
            }
            (Stage::Associate, answer) => {
                let Answer::Association { association, connection } = answer.accepted()? else {
                    return Err(unexpected());
                };
                self.association = Some(association);
                let mut queue = AdminQueue::on(now, Mailbox::default(), self.config.session.clone());
                queue.connection_mut().tell(ConnectionEvent::Open);
                let channel = Channel::new(ox_id::ADMIN, false, connection);
                self.admin = Some(Box::new(Admin { queue, channel, news: News::default() }));
                self.stage = Stage::BringUp;
                self.admin_on(now)
            }
            (Stage::CreateConnection, answer) => {
                let Answer::Connection(connection) = answer.accepted()? else { return Err(unexpected()) };
                let Some(controller) = self.admin.as_ref().and_then(|admin| admin.queue.controller()) else {
                    return Err(unexpected());
                };
                let depth = self.config.session.depth.min(controller.max_sq_size);
                let mut io = IoLane {
                    channel: Channel::new(ox_id::CONTROL, true, connection),
                    control: IoControl::new(controller, QueueId(1), CommandId(depth)),
                    mailbox: Mailbox::default(),
                    commands: Commands::new(controller, depth),
                };
                io.control.connect(&self.config.session, &mut io.mailbox);
                if let Some(capsule) = io.mailbox.take() {
                    io.channel.send(capsule, &mut self.link);
                }
                self.io = Some(io);
                self.stage = Stage::Connect;
                Ok(())
            }
            _ => Err(unexpected()),
        }
    }

    /// Passes what was received to the admin queue, and sends what it wants to send.
    fn admin_on(&mut self, now: Instant) -> Result<(), Violation> {
        let Some(admin) = &mut self.admin else { return Ok(()) };
        admin.queue.receive(now, &[], &mut admin.news)?;
        if let Some(capsule) = admin.queue.connection_mut().take() {
            admin.channel.send(capsule, &mut self.link);
        }
        if admin.news.closed && matches!(self.stage, Stage::ShutDown) {
            self.disconnect(true);
        } else if admin.news.ready && matches!(self.stage, Stage::BringUp) {
            let depth = admin.queue.controller().map_or(0, |controller| controller.max_sq_size);
            let request = Request::CreateConnection {
                association: self.association.unwrap_or_default(),
                ersp_ratio: self.config.ersp_ratio,
                qid: QueueId(1),
                sq_size: self.config.session.depth.min(depth),
            };
            self.stage = Stage::CreateConnection;
            self.ask(&request);
        }
        Ok(())
    }

    fn disconnect(&mut self, in_order: bool) {
        self.stage = Stage::Disconnect { in_order };
        self.ask(&Request::DisconnectAssociation(self.association.unwrap_or_default()));
    }

    fn log_out(&mut self) {
        login::logout(self.config.port.port_name, &mut self.link);
        self.stage = Stage::Leaving;
    }

    /// Starts the shutdown if it was requested and no command is outstanding.
    fn leave_when_idle(&mut self, now: Instant) {
        let outstanding = self.io.as_ref().map_or(0, |io| io.commands.outstanding());
        let Some(admin) = self.admin.as_mut().filter(|_| self.closing && outstanding == 0) else { return };
        if !matches!(self.stage, Stage::Ready) {
            return;
        }
        self.stage = Stage::ShutDown;
        self.deadline = now + self.config.session.admin_timeout;
        admin.queue.close(now);
        if let Some(capsule) = admin.queue.connection_mut().take() {
            admin.channel.send(capsule, &mut self.link);
        }
    }

    /// Whether the admin queue is in use, so that its timers are active.
    fn has_controller(&self) -> bool {
        use Stage::{Aborting, BringUp, Connect, CreateConnection, Ready, ShutDown};
        matches!(self.stage, BringUp | CreateConnection | Connect | Ready | ShutDown | Aborting)
    }
}

impl Initiator for Session {
    fn receive(&mut self, now: Instant, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.silence.heard(now);
        let mut input = bytes;
        while !matches!(self.stage, Stage::Closed) {
            let Some(fragment) = self.framer.next(&mut input)? else { break };
            self.step(now, fragment, events)?;
        }
        self.link.settle();
        Ok(())
    }

    fn credits(&self) -> usize {
        match (&self.stage, &self.io) {
            (Stage::Ready, Some(io)) if !self.closing => io.commands.credits(),
            _ => 0,
        }
    }

    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        match (&self.stage, &mut self.io) {
            (Stage::Ready, Some(queue)) if !self.closing => {
                queue.commands.submit(now, tag, io, &mut queue.channel, &mut self.link)
            }
            _ => Err(Misuse::NoCredit),
        }
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let admin = self.admin.as_ref().filter(|_| self.has_controller()).and_then(|admin| admin.queue.poll_timeout());
        let own = match (&self.stage, &self.io) {
            (Stage::Closed, _) => return None,
            (Stage::Ready, Some(io)) if io.commands.outstanding() > 0 => self.next_look.min(self.silence.ends()),
            (Stage::Ready | Stage::Leaving, _) => self.silence.ends(),
            _ => self.deadline.min(self.silence.ends()),
        };
        let unsupported = self.io.as_ref().and_then(|io| io.commands.unsupported_since());
        [admin, unsupported, Some(own)].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        let late = |rule| Err(Violation::timed_out(rule));
        if let Some(io) = &mut self.io {
            io.commands.complete_unsupported(now, events);
            self.disconnect_once_aborted();
        }
        match (&self.stage, &mut self.io) {
            (Stage::Closed, _) => return Ok(()),
            (Stage::Ready, Some(io)) => {
                if now >= self.next_look {
                    self.next_look = now + LOOK;
                    if io.commands.is_overdue(now, self.config.command_timeout) {
                        self.end_association(now);
                    }
                }
                self.leave_when_idle(now);
            }
            (Stage::Leaving, _) => {}
            _ if now >= self.deadline => return late("the target does not answer in time"),
            _ => {}
        }
        if self.has_controller()
            && let Some(admin) = &mut self.admin
            && admin.queue.poll_timeout().is_some_and(|due| due <= now)
        {
            admin.queue.handle_timeout(now, &mut admin.news)?;
            self.admin_on(now)?;
        }
        self.silence.check(now, &mut self.link)
    }

    fn close(&mut self, now: Instant) {
        self.closing = true;
        match self.stage {
            Stage::Ready => self.leave_when_idle(now),
            // Nothing has been set up that must be shut down first.
            Stage::Associate | Stage::BringUp | Stage::CreateConnection | Stage::Connect => self.log_out(),
            _ => {}
        }
    }

    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        self.stage = Stage::Closed;
        if let Some(io) = &mut self.io {
            io.commands.lost(now, events);
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("stage", &self.stage).field("link", &self.link).finish_non_exhaustive()
    }
}

impl InitiatorEvents for News {
    fn ready(&mut self, _: Instant, _: &Geometry) {
        self.ready = true;
    }

    fn data(&mut self, _: Tag, _: u32, _: &[u8]) {}

    fn complete(&mut self, _: Instant, _: Tag, _: Result<(), IoError>) {}

    fn closed(&mut self, _: Instant) {
        self.closed = true;
    }
}
