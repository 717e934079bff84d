//! A session: login, queries about the logical unit, I/O, logout.

use alloc::{boxed::Box, string::String, vec::Vec};

use super::{
    Config,
    commands::{Commands, Overdue},
};
use crate::{
    Initiator, InitiatorEvents, Instant, Io, Misuse, Refusal, Tag, Transmit, Violation,
    fc::{
        Fragment, Framer, Header, Link, Port, PortId, Silence,
        els::Process,
        frame::{DATA_LEN_MAX, kind, r_ctl},
        login::{self, Login, ox_id, unexpected},
        sequence::TransferReady,
    },
    fcp::iu::{Command, ResponseIu, function, response_code, service},
    scsi::{
        self,
        initiator::{Probe, ProbeCommand, Probed},
    },
};

/// How often to check for commands that take too long.
const LOOK: core::time::Duration = core::time::Duration::from_secs(1);

#[derive(Debug)]
pub struct Session {
    config: Config,
    /// INQUIRY data and serial number of the logical unit.
    identity: (Option<scsi::initiator::Inquiry>, Option<String>),
    target: Option<Port>,
    framer: Framer,
    link: Link,
    phase: Phase,
    current: Current,
    /// The information unit or link service that is being received. Its capacity is kept.
    unit: Vec<u8>,
    /// The task management function in progress, and when it was sent. There is one at a time.
    managing: Option<(u8, Instant)>,
    closing: bool,
    deadline: Instant,
    silence: Silence,
    next_look: Instant,
}

#[derive(Debug)]
enum Phase {
    Login(Box<Login>),
    Probe(Probe),
    Ready(Commands),
    /// A LOGO was sent.
    Leaving,
    Closed,
}

/// The kind of the frame that is being received.
#[derive(Clone, Copy, Debug)]
enum Current {
    /// Data of the probe, at this offset.
    Probe(u32),
    /// Data of a read, at this offset.
    Data(Tag, u32),
    Unit(Header),
}

impl Session {
    /// Starts a login: the first frame is in `transmit`.
    pub fn new(now: Instant, config: Config) -> Self {
        let mut link = Link::new(PortId::default(), PortId::FABRIC, config.has_crc);
        let process = Process { kind: kind::FCP, parameters: service::INITIATOR | service::READ_XFER_RDY_DISABLED };
        let login = Login::begin(config.port, config.target, process, &mut link);
        Self {
            identity: (None, None),
            target: None,
            framer: Framer::new(config.has_crc),
            link,
            phase: Phase::Login(Box::new(login)),
            current: Current::Unit(Header::default()),
            unit: Vec::new(),
            managing: None,
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

    /// The logical unit's INQUIRY data, once received.
    pub fn inquiry(&self) -> Option<&scsi::initiator::Inquiry> {
        self.identity.0.as_ref()
    }

    /// The logical unit's serial number.
    pub fn serial(&self) -> Option<&str> {
        self.identity.1.as_deref()
    }

    /// Sends an ABTS for an I/O, which completes in any case. False if the I/O is not outstanding.
    pub fn abort(&mut self, now: Instant, tag: Tag) -> bool {
        match &mut self.phase {
            Phase::Ready(commands) => commands.abort(now, tag, &mut self.link),
            _ => false,
        }
    }

    /// Sends a task management function (`fcp::function`). False if the session is not ready or a function is in
    /// progress.
    pub fn reset(&mut self, now: Instant, function: u8) -> bool {
        if !matches!(self.phase, Phase::Ready(_)) || self.managing.is_some() {
            return false;
        }
        self.managing = Some((function, now));
        let command = Command { lun: scsi::encode_lun(self.config.lun), function, ..Command::default() };
        self.link.send(Header { ox_id: ox_id::TASK_MANAGEMENT, ..Command::header() }, &command.encode());
        true
    }

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
                    self.data(0, bytes, events)?;
                }
                self.end(now, events)
            }
            Fragment::Header(header, len) => self.header(&header, len),
            Fragment::Data { offset, bytes } => self.data(offset, bytes, events),
            Fragment::End => self.end(now, events),
            Fragment::Ready(count) => self.link.ready(count),
            Fragment::Special(special) => match &mut self.phase {
                Phase::Login(login) => login.special(&special, &mut self.link),
                _ => Err(misbehaved!("RFC 3821 §7: a second Special Frame")),
            },
        }
    }

    #[inline]
    fn header(&mut self, header: &Header, len: u32) -> Result<(), Violation> {
        self.link.took();
        let is_data = (header.kind, header.r_ctl) == (kind::FCP, r_ctl::SOLICITED_DATA);
        self.current = match &mut self.phase {
            Phase::Ready(commands) if is_data => Current::Data(commands.data(header, len)?, header.parameter),
            Phase::Probe(_) if is_data && header.ox_id == ox_id::PROBE => Current::Probe(header.parameter),
            _ => {
                if !header.is_whole_sequence() || len as usize > DATA_LEN_MAX {
                    return Err(misbehaved!("FC-FS-5 SEQ_CNT: a unit in more frames than one").at(46));
                }
                self.unit.clear();
                Current::Unit(*header)
            }
        };
        Ok(())
    }

    #[inline]
    fn data(&mut self, offset: u32, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        match (&mut self.phase, &self.current) {
            (_, Current::Data(tag, at)) => events.data(*tag, at + offset, bytes),
            (Phase::Probe(probe), Current::Probe(at)) => {
                if !probe.data(at.saturating_add(offset), bytes) {
                    return Err(misbehaved!("FCP-4 FCP_DATA: FCP_DATA out of order or beyond FCP_DL").at(52));
                }
            }
            _ => self.unit.extend_from_slice(bytes),
        }
        Ok(())
    }

    #[inline]
    fn end(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        match self.current {
            Current::Unit(header) => self.unit(now, &header, events),
            Current::Data(..) | Current::Probe(_) => Ok(()),
        }
    }

    /// Processes a complete frame other than data.
    fn unit(&mut self, now: Instant, header: &Header, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        if let Phase::Login(login) = &mut self.phase {
            if let Some(found) = login.reply(header, &self.unit, &mut self.link, &mut self.target)? {
                if found.parameters & service::TARGET == 0 {
                    return Err(Violation::refused(Refusal::WrongKind, "the port is not an FCP target"));
                }
                let (probe, first) = Probe::begin(self.config.max_io_len, false);
                self.ask(&first);
                self.phase = Phase::Probe(probe);
            }
            return Ok(());
        }
        match (header.kind, header.r_ctl) {
            (kind::FCP, r_ctl::COMMAND_STATUS) => self.response(now, header, events)?,
            (kind::FCP, r_ctl::DATA_DESCRIPTOR) => {
                let ready = TransferReady::parse(&self.unit)?;
                let Phase::Ready(commands) = &mut self.phase else { return Err(unexpected()) };
                commands.transfer_ready(header, ready, &mut self.link)?;
            }
            (kind::BLS, r_ctl::BA_ACC | r_ctl::BA_RJT) => {
                let Phase::Ready(commands) = &mut self.phase else { return Err(unexpected()) };
                commands.aborted(now, header, &mut self.link, events);
            }
            _ => {
                if login::link_service(header, &self.unit, matches!(self.phase, Phase::Leaving))? {
                    self.phase = Phase::Closed;
                    events.closed(now);
                }
            }
        }
        self.leave_when_idle();
        Ok(())
    }

    fn response(&mut self, now: Instant, header: &Header, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        let unit = core::mem::take(&mut self.unit);
        let response = ResponseIu::parse(&unit)?;
        match (&mut self.phase, header.ox_id) {
            (Phase::Probe(_), ox_id::PROBE) => self.probed(now, &response, events)?,
            (Phase::Ready(commands), ox_id::TASK_MANAGEMENT) => {
                let (function, begun) = self.managing.take().ok_or_else(unexpected)?;
                let is_done = response.code.is_none_or(|code| code == response_code::COMPLETE);
                if is_done && function != function::CLEAR_ACA {
                    commands.reset(now, events, begun);
                }
            }
            (Phase::Ready(commands), _) => commands.response(now, header, &response, &mut self.link, events)?,
            _ => return Err(unexpected()),
        }
        self.unit = unit;
        Ok(())
    }

    /// Processes the response to a query of the probe.
    fn probed(
        &mut self,
        now: Instant,
        response: &ResponseIu<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let Phase::Probe(probe) = &mut self.phase else { return Err(unexpected()) };
        match probe.end(response.status, response.sense)? {
            Probed::Ask(command) => self.ask(&command),
            Probed::NoAccess => return Err(Violation::refused(Refusal::Inaccessible, "no access to the unit")),
            Probed::Known(geometry) => {
                self.identity = probe.identity();
                let lun = scsi::encode_lun(self.config.lun);
                self.phase = Phase::Ready(Commands::new(lun, geometry.clone(), self.config.queue_depth));
                events.ready(now, &geometry);
            }
        }
        Ok(())
    }

    fn ask(&mut self, probe: &ProbeCommand) {
        let command = Command {
            lun: scsi::encode_lun(self.config.lun),
            reads: probe.len > 0,
            cdb: probe.cdb,
            data_len: probe.len.into(),
            ..Command::default()
        };
        self.link.send(Header { ox_id: ox_id::PROBE, ..Command::header() }, &command.encode());
    }

    /// Logs out if that was requested and no command is outstanding.
    fn leave_when_idle(&mut self) {
        let idle = match &self.phase {
            Phase::Ready(commands) => commands.outstanding() == 0,
            Phase::Probe(_) => true,
            Phase::Login(_) | Phase::Leaving | Phase::Closed => false,
        };
        if self.closing && idle {
            login::logout(self.config.port.port_name, &mut self.link);
            self.phase = Phase::Leaving;
        }
    }
}

impl Initiator for Session {
    fn receive(&mut self, now: Instant, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.silence.heard(now);
        let mut input = bytes;
        while !matches!(self.phase, Phase::Closed) {
            let Some(fragment) = self.framer.next(&mut input)? else { break };
            self.step(now, fragment, events)?;
        }
        self.link.settle();
        Ok(())
    }

    fn credits(&self) -> usize {
        match &self.phase {
            Phase::Ready(commands) if !self.closing => commands.credits(),
            _ => 0,
        }
    }

    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        match &mut self.phase {
            Phase::Ready(commands) if !self.closing => commands.submit(now, tag, io, &mut self.link),
            _ => Err(Misuse::NoCredit),
        }
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Login(_) | Phase::Probe(_) => Some(self.deadline),
            Phase::Ready(commands) if commands.outstanding() > 0 => Some(self.next_look.min(self.silence.ends())),
            Phase::Ready(_) | Phase::Leaving => Some(self.silence.ends()),
            Phase::Closed => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant, _events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        let late = |rule| Err(Violation::timed_out(rule));
        if matches!(self.phase, Phase::Login(_) | Phase::Probe(_)) && now >= self.deadline {
            return late("the target is silent");
        }
        if let Phase::Ready(commands) = &mut self.phase
            && now >= self.next_look
        {
            self.next_look = now + LOOK;
            if commands.overdue(now, self.config.command_timeout, &mut self.link) == Overdue::Abort {
                return late("the target does not answer an abort");
            }
        }
        if matches!(self.phase, Phase::Ready(_) | Phase::Leaving) {
            self.silence.check(now, &mut self.link)?;
        }
        Ok(())
    }

    fn close(&mut self, _now: Instant) {
        self.closing = true;
        self.leave_when_idle();
    }

    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        if let Phase::Ready(mut commands) = core::mem::replace(&mut self.phase, Phase::Closed) {
            commands.lost(now, events);
        }
    }
}
