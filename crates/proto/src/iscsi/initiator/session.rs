//! A normal session: login, queries about the logical unit, I/O, logout.

use alloc::{boxed::Box, string::String, vec::Vec};

use super::{
    Config,
    commands::Commands,
    link::{Link, control_itt},
    login::Login,
    watch::{AccessNews, Watch},
};
use crate::{
    Initiator, InitiatorEvents, Instant, Io, IoError, Misuse, Refusal, Tag, Transmit, Violation,
    iscsi::{
        Agreed,
        pdu::{
            AsyncMessage, Bhs, DataIn, Fragment, Framer, LogoutResponse, NopIn, R2t, Reject, ScsiCommand, ScsiResponse,
            TaskManagement, TaskManagementResponse,
            bhs::COMPLETED_AT_TARGET,
            control::{async_event, reject_reason},
        },
        text::DEFAULT_SEGMENT_LEN,
    },
    scsi::{
        self, AccessState,
        initiator::{Probe, Probed},
    },
};

const NEVER: Instant = Instant(u64::MAX);

/// The initiator's side of a session with one connection.
#[derive(Debug)]
pub struct Session {
    config: Config,
    /// INQUIRY data and serial number of the logical unit.
    identity: (Option<scsi::initiator::Inquiry>, Option<String>),
    auth_method: &'static str,
    framer: Framer,
    link: Link,
    phase: Phase,
    current: Current,
    /// Data of the control PDU that is being received. Its capacity is kept.
    control: Vec<u8>,
    /// The task management request in progress. There is one at a time.
    managing: Option<TaskManagement>,
    managed_at: Instant,
    /// When to check next whether a command takes too long, while any is outstanding.
    next_look: Instant,
    /// The access to the logical unit, if the target reports it and `Config::watches_access` is set.
    watch: Option<Watch>,
    /// When the watch needs the time.
    watch_due: Instant,
    closing: bool,
    /// No I/O is accepted: it is closing, or the access is in question.
    is_shut: bool,
    login_deadline: Instant,
    last_heard: Instant,
    pinged: bool,
}

#[derive(Debug)]
enum Phase {
    Login(Box<Login>),
    Probe(Probe),
    /// The target gives no access, so the other queries wait.
    Barred(Probe),
    Ready(Commands),
    /// A Logout Request was sent.
    Leaving,
    Closed,
}

/// The kind of the PDU that is being received.
#[derive(Clone, Copy, Debug)]
enum Current {
    Probe(DataIn),
    Data(Tag, DataIn),
    Control(Bhs),
    None,
}

impl Session {
    /// Starts a login: the first request is in `transmit`.
    pub fn new(now: Instant, config: Config) -> Self {
        let mut link = Link::default();
        let login = Login::begin(&config, false, &mut link);
        Self {
            // Data segments have the default length until another is declared (RFC 7143 §13.12).
            framer: Framer::new(DEFAULT_SEGMENT_LEN as u32),
            link,
            phase: Phase::Login(Box::new(login)),
            current: Current::None,
            control: Vec::new(),
            managing: None,
            managed_at: now,
            next_look: now,
            watch: None,
            watch_due: NEVER,
            closing: false,
            is_shut: false,
            login_deadline: now + config.login_timeout,
            last_heard: now,
            pinged: false,
            identity: (None, None),
            auth_method: "None",
            config,
        }
    }

    /// The parameters in force on the connection.
    pub fn agreed(&self) -> &Agreed {
        &self.link.agreed
    }

    /// Tag of the portal group to which the session leads: a session of the same initiator port through another portal
    /// of this group ends this one (RFC 7143 §6.3.5).
    pub fn portal_group(&self) -> Option<u16> {
        self.link.portal_group
    }

    /// How the logical unit can be accessed through the target port; `None` if the target does not report it. It is
    /// `Transitioning` while it is unknown or the session is not ready.
    pub fn access(&self) -> Option<AccessState> {
        let state = self.watch.as_ref()?.state();
        let is_ready = matches!(self.phase, Phase::Ready(_)) || !state.is_accessible();
        Some(if is_ready { state } else { AccessState::Transitioning })
    }

    /// Asks for the access again, because it may have changed.
    pub fn check_access(&mut self, now: Instant) {
        if let Some(watch) = &mut self.watch {
            watch.check(now);
            self.follow_watch(now);
        }
    }

    /// The logical unit's INQUIRY data, once received.
    pub fn inquiry(&self) -> Option<&scsi::initiator::Inquiry> {
        self.identity.0.as_ref()
    }

    /// The logical unit's serial number.
    pub fn serial(&self) -> Option<&str> {
        self.identity.1.as_deref()
    }

    /// How the initiator authenticated itself: `CHAP` or `None`.
    pub fn auth_method(&self) -> &'static str {
        self.auth_method
    }

    /// Requests the target to abort an I/O, which completes in any case. False if the I/O is not outstanding or a task
    /// management request is in progress.
    pub fn abort(&mut self, now: Instant, tag: Tag) -> bool {
        let Phase::Ready(commands) = &self.phase else { return false };
        match commands.abort_request(tag) {
            Some(request) => self.manage(now, request),
            None => false,
        }
    }

    /// Sends a task management function for all commands: ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET or a
    /// target reset (RFC 7143 §11.5.1). False if the session is not ready or a task management request is in progress.
    pub fn reset(&mut self, now: Instant, function: u8) -> bool {
        let Phase::Ready(commands) = &self.phase else { return false };
        let request = commands.reset_request(function);
        self.manage(now, request)
    }

    fn manage(&mut self, now: Instant, mut request: TaskManagement) -> bool {
        if self.managing.is_some() {
            return false;
        }
        request.immediate = true;
        request.last = true;
        request.itt = control_itt::TASK_MANAGEMENT;
        request.cmd_sn = self.link.cmd_sn;
        request.exp_stat_sn = self.link.exp_stat_sn;
        self.link.header(&request.encode());
        self.managing = Some(request);
        self.managed_at = now;
        true
    }

    fn step(&mut self, now: Instant, step: Fragment<'_>, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        match step {
            Fragment::Header(bhs) => self.header(&bhs),
            Fragment::Data { offset, bytes } => match (&mut self.phase, &self.current) {
                (_, Current::Data(tag, data)) => {
                    events.data(*tag, data.buffer_offset + offset, bytes);
                    Ok(())
                }
                (phase, Current::Probe(data)) => {
                    let offset = data.buffer_offset.saturating_add(offset);
                    let is_expected = match (phase, &mut self.watch) {
                        (Phase::Probe(probe), _) => probe.data(offset, bytes),
                        (_, Some(watch)) => watch.data(offset, bytes),
                        (_, None) => false,
                    };
                    if !is_expected {
                        let rule = rule!("RFC 7143 §11.7: data out of order or beyond what was expected");
                        return Err(Violation::misbehaved(rule).at(40));
                    }
                    Ok(())
                }
                _ => {
                    self.control.extend_from_slice(bytes);
                    Ok(())
                }
            },
            // RFC 7143 §7.8: at error recovery level 0 the data cannot be requested again, so the session ends.
            Fragment::End { intact: false } => Err(malformed!("RFC 7143 §7.8: data digest error")),
            Fragment::End { intact: true } => match core::mem::replace(&mut self.current, Current::None) {
                Current::Data(_, data) => self.data_end(now, &data, events),
                Current::Probe(data) => {
                    self.link.learn_window(data.exp_cmd_sn, data.max_cmd_sn);
                    if data.status_here {
                        self.link.take_stat_sn(data.stat_sn)?;
                        return self.probed(now, data.status, &[], events);
                    }
                    Ok(())
                }
                Current::Control(bhs) => self.control(now, &bhs, events),
                Current::None => Ok(()),
            },
        }
    }

    fn header(&mut self, bhs: &Bhs) -> Result<(), Violation> {
        let is_data = match &self.phase {
            Phase::Ready(_) => bhs.opcode() == DataIn::OPCODE,
            Phase::Probe(_) | Phase::Barred(_) => bhs.opcode() == DataIn::OPCODE && bhs.itt() == control_itt::PROBE,
            _ => false,
        };
        if !is_data {
            self.control.clear();
            self.current = Current::Control(*bhs);
            return Ok(());
        }
        let data = DataIn::parse(bhs);
        self.current = match &mut self.phase {
            Phase::Ready(commands) => match commands.data_in(&data, bhs.data_len()) {
                Ok(tag) => Current::Data(tag, data),
                Err(_) if data.itt == control_itt::PROBE && self.watch.as_ref().is_some_and(Watch::is_asking) => {
                    Current::Probe(data)
                }
                Err(violation) => return Err(violation),
            },
            _ => Current::Probe(data),
        };
        Ok(())
    }

    fn data_end(&mut self, now: Instant, data: &DataIn, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.link.learn_window(data.exp_cmd_sn, data.max_cmd_sn);
        if data.status_here {
            self.link.take_stat_sn(data.stat_sn)?;
            if let Phase::Ready(commands) = &mut self.phase {
                commands.status(now, data.itt, data.status, &[], &mut self.link, events)?;
            }
            self.leave_when_idle();
        }
        Ok(())
    }

    /// Processes a complete PDU other than Data-In.
    fn control(&mut self, now: Instant, bhs: &Bhs, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        if let Phase::Login(login) = &mut self.phase {
            if login.response(bhs, &self.control, &mut self.link, &mut self.framer)? {
                self.auth_method = login.auth_method();
                let (probe, first) = Probe::begin(self.config.max_io_len, self.config.watches_access);
                self.link.ask(scsi::encode_lun(self.config.lun), &first);
                self.phase = Phase::Probe(probe);
                self.leave_when_idle();
            }
            return Ok(());
        }
        match bhs.opcode() {
            ScsiResponse::OPCODE => self.response(now, &ScsiResponse::parse(bhs), events)?,
            R2t::OPCODE => {
                let r2t = R2t::parse(bhs);
                self.link.learn_window(r2t.exp_cmd_sn, r2t.max_cmd_sn);
                let Phase::Ready(commands) = &mut self.phase else { return Err(unexpected()) };
                commands.r2t(&r2t, &mut self.link)?;
            }
            NopIn::OPCODE => self.link.nop_in(bhs)?,
            TaskManagementResponse::OPCODE => {
                let response = TaskManagementResponse::parse(bhs);
                self.status_of(response.stat_sn, response.exp_cmd_sn, response.max_cmd_sn)?;
                let request = self.managing.take().filter(|_| response.itt == control_itt::TASK_MANAGEMENT);
                let request = request.ok_or_else(unexpected)?;
                if let Phase::Ready(commands) = &mut self.phase {
                    commands.managed(now, &request, response.response, &mut self.link, events);
                }
                self.next_look = now;
            }
            LogoutResponse::OPCODE => {
                let response = LogoutResponse::parse(bhs);
                self.status_of(response.stat_sn, response.exp_cmd_sn, response.max_cmd_sn)?;
                if !matches!(self.phase, Phase::Leaving) || response.itt != control_itt::LOGOUT {
                    return Err(unexpected());
                }
                self.phase = Phase::Closed;
                events.closed(now);
            }
            AsyncMessage::OPCODE => self.async_message(&AsyncMessage::parse(bhs))?,
            Reject::OPCODE => self.reject(now, &Reject::parse(bhs), events)?,
            _ => return Err(unexpected()),
        }
        if let Phase::Ready(commands) = &mut self.phase {
            commands.resend(&mut self.link);
        }
        self.leave_when_idle();
        Ok(())
    }

    fn response(
        &mut self,
        now: Instant,
        response: &ScsiResponse,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        self.status_of(response.stat_sn, response.exp_cmd_sn, response.max_cmd_sn)?;
        if response.itt == control_itt::PROBE {
            let control = core::mem::take(&mut self.control);
            let probed = self.probed(now, response.status, sense_data(&control), events);
            self.control = control;
            return probed;
        }
        let Phase::Ready(commands) = &mut self.phase else { return Err(unexpected()) };
        if response.response != COMPLETED_AT_TARGET {
            let error = IoError::Failed {
                status: response.response.into(),
                refusal: Refusal::Other,
                what: "iSCSI target failure",
            };
            commands.rejected(now, response.itt, error, events);
            return Ok(());
        }
        let sense = sense_data(&self.control);
        match commands.status(now, response.itt, response.status, sense, &mut self.link, events)? {
            AccessNews::None => {}
            news => self.on_access_news(now, news, events),
        }
        Ok(())
    }

    #[cold]
    fn on_access_news(&mut self, now: Instant, news: AccessNews, events: &mut dyn InitiatorEvents) {
        if let Some(watch) = &mut self.watch {
            watch.on_news(now, news);
            events.access_in_question(now);
            self.follow_watch(now);
        }
    }

    /// Asks for the access if it is time, and updates what depends on the watch.
    fn follow_watch(&mut self, now: Instant) {
        let is_open = matches!(self.phase, Phase::Ready(_) | Phase::Barred(_)) && !self.closing;
        let Some(watch) = self.watch.as_mut().filter(|_| is_open) else {
            self.watch_due = NEVER;
            return;
        };
        if watch.is_due(now) {
            if self.link.window() > 0 {
                let question = watch.ask(now, self.config.command_timeout);
                self.link.ask(scsi::encode_lun(self.config.lun), &question);
            } else {
                watch.postpone(now);
            }
        }
        self.watch_due = watch.due().unwrap_or(NEVER);
        self.is_shut = watch.is_in_question();
    }

    /// Processes the response to a query for the access.
    fn answered(
        &mut self,
        now: Instant,
        status: u8,
        sense: &[u8],
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let Some(watch) = self.watch.as_mut().filter(|watch| watch.is_asking()) else { return Err(unexpected()) };
        if let Some(question) = watch.answered(now, status, sense)? {
            if self.link.window() > 0 {
                self.link.ask(scsi::encode_lun(self.config.lun), &question);
            } else {
                watch.postpone(now);
            }
        } else if !watch.is_in_question() {
            let is_accessible = watch.state().is_accessible();
            match &mut self.phase {
                Phase::Ready(commands) => {
                    commands.release(now, is_accessible, &mut self.link, events);
                    events.access_known(now);
                }
                Phase::Barred(_) if is_accessible => self.resume_probe(now),
                _ => {}
            }
        }
        self.follow_watch(now);
        self.leave_when_idle();
        Ok(())
    }

    /// There is access: the other queries follow.
    fn resume_probe(&mut self, now: Instant) {
        match core::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Barred(mut probe) if !self.closing => {
                self.link.ask(scsi::encode_lun(self.config.lun), &probe.resume());
                self.login_deadline = now + self.config.login_timeout;
                self.phase = Phase::Probe(probe);
            }
            phase => self.phase = phase,
        }
    }

    /// Processes the response to a query of the probe.
    fn probed(
        &mut self,
        now: Instant,
        status: u8,
        sense: &[u8],
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let Phase::Probe(probe) = &mut self.phase else { return self.answered(now, status, sense, events) };
        let lun = scsi::encode_lun(self.config.lun);
        let probed = probe.end(status, sense)?;
        if let Probed::Ask(question) = &probed {
            self.link.ask(lun, question);
            return Ok(());
        }
        self.identity = probe.identity();
        self.watch = probe.take_access().map(|(query, state)| Watch::new(now, query, state));
        if let Probed::Known(geometry) = probed {
            let watches_access = self.watch.is_some();
            self.phase = Phase::Ready(Commands::new(lun, geometry.clone(), self.config.queue_depth, watches_access));
            events.ready(now, &geometry);
        } else if let Phase::Probe(probe) = core::mem::replace(&mut self.phase, Phase::Closed) {
            self.phase = Phase::Barred(probe);
        }
        if self.watch.is_some() {
            events.access_known(now);
            self.follow_watch(now);
        }
        Ok(())
    }

    fn async_message(&mut self, message: &AsyncMessage) -> Result<(), Violation> {
        self.status_of(message.stat_sn, message.exp_cmd_sn, message.max_cmd_sn)?;
        match message.event {
            // RFC 7143 §11.9.1: an initiator that does not renegotiate must log out.
            async_event::LOGOUT_REQUESTED | async_event::RENEGOTIATE => (self.closing, self.is_shut) = (true, true),
            async_event::CONNECTION_DROPPED | async_event::SESSION_DROPPED => {
                return Err(Violation::refused(Refusal::Other, "the target drops the session"));
            }
            // SCSI events are also reported as unit attention conditions. Vendor-specific events are ignored.
            _ => {}
        }
        Ok(())
    }

    fn reject(&mut self, now: Instant, reject: &Reject, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.status_of(reject.stat_sn, reject.exp_cmd_sn, reject.max_cmd_sn)?;
        if reject.reason == reject_reason::DATA_DIGEST_ERROR {
            // RFC 7143 §7.8: lost data cannot be sent again at error recovery level 0.
            return Err(misbehaved!("RFC 7143 §7.8: the target found a data digest error"));
        }
        let at_fault = self.control.first_chunk().map(|bytes| Bhs(*bytes));
        match (&mut self.phase, at_fault) {
            (Phase::Ready(commands), Some(bhs)) if bhs.opcode() == ScsiCommand::OPCODE => {
                let what = reject_reason::name(reject.reason);
                let error = IoError::Failed {
                    status: reject.reason.into(),
                    refusal: reject_reason::refusal(reject.reason),
                    what,
                };
                commands.rejected(now, bhs.itt(), error, events);
            }
            (Phase::Ready(_), Some(bhs)) if bhs.opcode() == TaskManagement::OPCODE => self.managing = None,
            (Phase::Ready(_), _) => {}
            _ => {
                return Err(Violation::refused(
                    reject_reason::refusal(reject.reason),
                    reject_reason::name(reject.reason),
                ));
            }
        }
        Ok(())
    }

    fn status_of(&mut self, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32) -> Result<(), Violation> {
        self.link.learn_window(exp_cmd_sn, max_cmd_sn);
        self.link.take_stat_sn(stat_sn)
    }

    fn is_asking(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_asking)
    }

    /// When the target has been silent for too long.
    fn silence_ends(&self) -> Instant {
        let allowed = if self.pinged { 2 * self.config.ping_interval } else { self.config.ping_interval };
        self.last_heard + allowed
    }

    /// Aborts a command that takes too long. Only one at a time, like task management requests.
    fn look(&mut self, now: Instant) -> Result<(), Violation> {
        let timeout = self.config.command_timeout;
        let Phase::Ready(commands) = &mut self.phase else { return Ok(()) };
        let Some((tag, begun)) = commands.oldest() else { return Ok(()) };
        self.next_look = begun + timeout;
        if now < self.next_look {
            return Ok(());
        }
        self.next_look = now + timeout;
        if self.managing.is_none() {
            commands.is_overdue(tag);
            self.abort(now, tag);
            return Ok(());
        }
        if now < self.managed_at + timeout {
            self.next_look = self.managed_at + timeout;
            return Ok(());
        }
        Err(Violation::timed_out("the target does not answer an abort"))
    }

    /// Logs out if that was requested and no command is outstanding.
    fn leave_when_idle(&mut self) {
        if !self.closing {
            return;
        }
        let idle = match &self.phase {
            Phase::Ready(commands) => commands.outstanding() == 0 && !self.is_asking(),
            Phase::Probe(_) => true,
            Phase::Barred(_) => !self.is_asking(),
            Phase::Login(_) | Phase::Leaving | Phase::Closed => false,
        };
        if idle {
            self.link.logout();
            self.phase = Phase::Leaving;
        }
    }
}

impl Initiator for Session {
    fn receive(&mut self, now: Instant, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.last_heard = now;
        self.pinged = false;
        let mut input = bytes;
        while !matches!(self.phase, Phase::Closed) {
            let Some(step) = self.framer.next(&mut input)? else { break };
            self.step(now, step, events)?;
        }
        Ok(())
    }

    fn credits(&self) -> usize {
        match &self.phase {
            Phase::Ready(commands) if !self.is_shut => commands.credits(&self.link),
            _ => 0,
        }
    }

    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        match &mut self.phase {
            Phase::Ready(commands) if !self.is_shut => {
                if commands.outstanding() == 0 {
                    self.next_look = now + self.config.command_timeout;
                }
                commands.submit(now, tag, io, &mut self.link)
            }
            _ => Err(Misuse::NoCredit),
        }
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Login(_) | Phase::Probe(_) => Some(self.login_deadline),
            Phase::Ready(commands) if commands.outstanding() > 0 => {
                Some(self.silence_ends().min(self.next_look).min(self.watch_due))
            }
            Phase::Ready(_) | Phase::Barred(_) | Phase::Leaving => Some(self.silence_ends().min(self.watch_due)),
            Phase::Closed => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant, _events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return Ok(());
        }
        if matches!(self.phase, Phase::Ready(_) | Phase::Barred(_) | Phase::Leaving) {
            if now >= self.watch_due {
                if self.watch.as_ref().is_some_and(|watch| watch.is_overdue(now)) {
                    return Err(Violation::timed_out("the target does not say how the unit can be accessed"));
                }
                self.follow_watch(now);
            }
            if now >= self.next_look {
                self.look(now)?;
            }
            if now < self.silence_ends() {
                return Ok(());
            }
            if !self.pinged {
                self.pinged = true;
                self.link.ping();
                return Ok(());
            }
        }
        Err(Violation::timed_out("the target is silent"))
    }

    fn close(&mut self, _now: Instant) {
        (self.closing, self.is_shut) = (true, true);
        self.leave_when_idle();
    }

    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        if let Phase::Ready(mut commands) = core::mem::replace(&mut self.phase, Phase::Closed) {
            commands.lost(now, events);
        }
    }
}

/// Sense data of a SCSI Response, which follow their length (RFC 7143 §11.4.7).
fn sense_data(segment: &[u8]) -> &[u8] {
    let Some((len, rest)) = segment.split_first_chunk() else { return &[] };
    rest.get(..u16::from_be_bytes(*len).into()).unwrap_or(rest)
}

fn unexpected() -> Violation {
    misbehaved!("RFC 7143 §11: a PDU that answers nothing").at(0)
}
