//! A connection as its driver uses it: implements `Target` over the phases of iSCSI.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use super::{
    AuthPolicy, Config, IMMEDIATE_TASKS, IscsiBackend,
    full_feature::{FullFeature, Session},
    link::{Flow, Link},
    login::{LoggedIn, Login, Reply},
    sessions::{Opened, ports},
};
use crate::{
    Endings, Instant, IoId, Origin, Payload, Target, Transmit, UnitError, Violation, Wait, WaitOutcome,
    iscsi::{
        Agreed,
        pdu::{
            Bhs, Fragment, Framer, LoginRequest, LoginResponse, SessionHandle, TransferTag,
            control::{LoginStatus, stage},
        },
        text::DEFAULT_SEGMENT_LEN,
    },
    scsi::{Nexus, target::TaskManager},
};

/// How often an idle connection checks whether another connection ended its session or tasks of it.
const ENDED_POLL: core::time::Duration = core::time::Duration::from_secs(1);
/// TTT of our pings. There is one at a time.
const PING_TTT: TransferTag = TransferTag(2);
/// TSIH of discovery sessions. Nothing can join them, but RFC 7143 §11.13.3 requires a TSIH other than 0.
const DISCOVERY_TSIH: SessionHandle = SessionHandle(1);

/// The target's side of one connection.
pub struct Connection {
    config: Config,
    framer: Framer,
    link: Link,
    phase: Phase,
    /// Data of the control PDU that is being received. Its capacity is kept.
    control: Vec<u8>,
    login_deadline: Instant,
    last_heard: Instant,
    pinged: bool,
    next_poll: Instant,
}

enum Phase {
    Login(Box<Login>, Option<Bhs>),
    /// The login is complete. Its last response waits until the sessions that this one reinstates are over.
    Reinstating(Box<Reinstating>),
    Full(Box<FullFeature>),
    Closed,
}

struct Reinstating {
    wait: Wait,
    request: LoginRequest,
    response: LoginResponse,
    text: Vec<u8>,
    full: Box<FullFeature>,
    agreed: Agreed,
}

impl Connection {
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            // Data segments have the default length until another is declared (RFC 7143 §13.12).
            framer: Framer::new(DEFAULT_SEGMENT_LEN as u32),
            link: Link::new(config.command_window),
            phase: Phase::Login(Box::new(Login::new(&config)), None),
            control: Vec::new(),
            login_deadline: now + config.login_timeout,
            last_heard: now,
            pinged: false,
            next_poll: now + ENDED_POLL,
            config,
        }
    }

    #[inline]
    fn step<B: IscsiBackend>(&mut self, now: Instant, step: Fragment<'_>, backend: &mut B) -> Result<(), Violation> {
        match (&mut self.phase, step) {
            (Phase::Login(_, header), Fragment::Header(bhs)) => {
                if bhs.opcode() != LoginRequest::OPCODE {
                    // RFC 7143 §6.3: only Login Requests may come before the full feature phase.
                    return Err(misbehaved!("RFC 7143 §6.3: the login phase takes Login Requests alone").at(0));
                }
                *header = Some(bhs);
                self.control.clear();
            }
            (Phase::Login(..), Fragment::Data { bytes, .. }) => self.control.extend_from_slice(bytes),
            (Phase::Login(login, header), Fragment::End { .. }) => {
                let bhs = header.take().expect("the header comes before its PDU's end");
                let request = LoginRequest::parse(&bhs);
                let reply = login.request(&request, &self.control, &mut self.link, backend);
                self.login_reply(now, &request, reply, backend)?;
            }
            (Phase::Full(full), Fragment::Header(bhs)) => {
                self.control.clear();
                full.header(now, &bhs, &mut self.link, backend)?;
            }
            (Phase::Full(full), Fragment::Data { offset, bytes }) => {
                full.data(offset, bytes, &mut self.control, backend);
            }
            (Phase::Full(full), Fragment::End { intact }) => {
                if let Some(bhs) = full.end(now, intact, &mut self.link, backend)? {
                    let flow = full.control(now, &bhs, &self.control, &mut self.link, backend)?;
                    if flow == Flow::Close {
                        self.end_session(backend);
                    }
                }
            }
            (Phase::Reinstating(_), _) => {
                return Err(misbehaved!("RFC 7143 §6.3: a PDU before the answer to the last Login Request"));
            }
            (Phase::Closed, _) => {}
        }
        Ok(())
    }

    #[cold]
    fn login_reply<B: IscsiBackend>(
        &mut self,
        now: Instant,
        request: &LoginRequest,
        reply: Result<Reply, LoginStatus>,
        backend: &mut B,
    ) -> Result<(), Violation> {
        match reply {
            Ok(Reply::Continue(response, text)) => {
                self.send_login(response, &text);
                Ok(())
            }
            Ok(Reply::Done(response, text, logged_in)) => match self.open(*logged_in) {
                Ok((tsih, full, agreed, waits_for)) => {
                    // The older session, on another thread, must end now, not at its next periodic check.
                    let wait = Wait::begin(now, waits_for, || backend.notify_others());
                    let response = LoginResponse { tsih, ..response };
                    let request = *request;
                    self.phase =
                        Phase::Reinstating(Box::new(Reinstating { wait, request, response, text, full, agreed }));
                    self.reinstate(now, backend)
                }
                Err(status) => self.refuse(request, status),
            },
            Err(status) => self.refuse(request, status),
        }
    }

    /// Starts the session when no operation of earlier ones continues. If that takes too long, rejects the login; the
    /// initiator may try again.
    #[cold]
    fn reinstate<B: IscsiBackend>(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        let Phase::Reinstating(waiting) = &mut self.phase else { return Ok(()) };
        match waiting.wait.outcome(now) {
            WaitOutcome::Waits => return Ok(()),
            WaitOutcome::Ended => {}
            WaitOutcome::TooLong => {
                let request = waiting.request;
                self.end_session(backend);
                return self.refuse(&request, LoginStatus::SERVICE_UNAVAILABLE);
            }
        }
        let Phase::Reinstating(waiting) = core::mem::replace(&mut self.phase, Phase::Closed) else { return Ok(()) };
        let Reinstating { response, text, full, agreed, .. } = *waiting;
        self.send_login(response, &text);
        // The negotiated parameters apply from here on. The response itself was the last PDU without digests.
        self.link.sender.header_digest = agreed.header_digest;
        self.link.sender.data_digest = agreed.data_digest;
        self.framer.set_negotiated(agreed.header_digest, agreed.data_digest, agreed.max_recv_segment_len);
        self.link.agreed = agreed;
        self.phase = Phase::Full(full);
        Ok(())
    }

    /// Creates the session of a complete login, and returns what it must wait for.
    fn open(&mut self, logged_in: LoggedIn) -> Result<(SessionHandle, Box<FullFeature>, Agreed, Endings), LoginStatus> {
        let LoggedIn { initiator, isid, cid, normal, agreed } = logged_in;
        let (tsih, session, waits_for) = match normal {
            None => (DISCOVERY_TSIH, None, Endings::default()),
            Some((target, grant)) => {
                let origin = match grant.auth {
                    AuthPolicy::None => Origin::of_address(grant.address),
                    AuthPolicy::Chap { .. } => Origin::Name(initiator.clone()),
                };
                let mut opened = None;
                let tag = grant.portal_group_tag;
                grant.sessions.with(&mut |sessions| opened = sessions.open(&initiator, isid, tag, origin.clone()));
                let Opened { tsih, live, waits_for } = opened.ok_or(LoginStatus::OUT_OF_RESOURCES)?;
                let ports = ports(&initiator, isid, &target, grant.portal_group_tag);
                let nexus = Nexus::new(alloc::rc::Rc::clone(&grant.device), ports, origin);
                let tasks = self.config.command_window.clamp(1, 1024) + IMMEDIATE_TASKS;
                let manager = TaskManager::new(nexus, tasks);
                (tsih, Some(Session { target, manager, grant, live }), waits_for)
            }
        };
        let full = FullFeature::new(initiator, cid, session);
        Ok((tsih, Box::new(full), agreed, waits_for))
    }

    fn send_login(&mut self, mut response: LoginResponse, text: &[u8]) {
        response.stat_sn = self.link.take_stat_sn();
        response.exp_cmd_sn = self.link.exp_cmd_sn;
        response.max_cmd_sn = self.link.max_cmd_sn();
        self.link.bytes(response.encode(), text);
    }

    /// Rejects a login (RFC 7143 §11.13.5) and ends the connection.
    fn refuse(&mut self, request: &LoginRequest, status: LoginStatus) -> Result<(), Violation> {
        let response = LoginResponse {
            csg: request.csg & stage::OPERATIONAL,
            isid: request.isid,
            tsih: request.tsih,
            itt: request.itt,
            status,
            ..LoginResponse::default()
        };
        self.send_login(response, &[]);
        self.phase = Phase::Closed;
        Err(Violation::refused(status.refusal(), status.name()))
    }

    /// Ends the session: its tasks, its nexus, its TSIH.
    #[cold]
    fn end_session<B: IscsiBackend>(&mut self, backend: &mut B) {
        let full = match core::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Full(full) => full,
            Phase::Reinstating(waiting) => waiting.full,
            Phase::Login(..) | Phase::Closed => return,
        };
        if let Some(mut session) = full.session {
            session.manager.end(session.live.ending(), &mut self.link, backend);
            session.grant.sessions.with(&mut |sessions| sessions.close(&session.live));
        }
    }

    /// Checks whether a waiting login, or what it waits for, is over.
    #[cold]
    fn look_at_login<B: IscsiBackend>(&mut self, now: Instant, backend: &mut B) {
        let Phase::Reinstating(waiting) = &mut self.phase else { return };
        if waiting.full.is_ended() {
            return self.end_session(backend);
        }
        // If the wait takes too long, `handle_timeout` ends the login.
        if waiting.wait.outcome(now) == WaitOutcome::Ended {
            let _ = self.reinstate(now, backend);
        }
    }

    /// Whether the next PDU may be processed: the connection is open, and there is space for the response.
    #[inline]
    fn may_go_on(&self) -> bool {
        !matches!(self.phase, Phase::Closed) && !self.link.transmit.is_full()
    }

    /// Schedules a check soon if a response waits.
    #[inline]
    fn look_soon(&mut self, now: Instant) {
        let waits = match &self.phase {
            Phase::Full(full) => full.awaits(),
            Phase::Reinstating(_) => true,
            Phase::Login(..) | Phase::Closed => false,
        };
        if waits {
            self.next_poll = self.next_poll.min(now + Wait::POLL);
        }
    }
}

impl<B: IscsiBackend> Target<B> for Connection {
    fn receive(&mut self, now: Instant, bytes: &[u8], backend: &mut B) -> Result<usize, Violation> {
        self.handle_notification(now, backend);
        self.last_heard = now;
        self.pinged = false;
        let mut input = bytes;
        let mut may_go_on = self.may_go_on();
        while may_go_on {
            let Some(step) = self.framer.next(&mut input)? else { break };
            // Checked once per PDU, at its end, after its response.
            let is_end = matches!(step, Fragment::End { .. });
            self.step(now, step, backend)?;
            may_go_on = !is_end || self.may_go_on();
        }
        self.look_soon(now);
        // Bytes after the end of the connection are dropped.
        let left = if matches!(self.phase, Phase::Closed) { 0 } else { input.len() };
        Ok(bytes.len() - left)
    }

    #[inline]
    fn place(&mut self, at_least: usize, backend: &mut B) -> Option<Payload> {
        let Phase::Full(full) = &self.phase else { return None };
        let (at, len) = self.framer.plain_data()?;
        if (len as usize) < at_least {
            return None;
        }
        full.place(at, len, backend).filter(|place| place.len() >= at_least)
    }

    fn placed(&mut self, now: Instant, len: usize, backend: &mut B) -> Result<(), Violation> {
        self.framer.skip(len as u32);
        // A PDU without padding ends here, without a further byte.
        self.receive(now, &[], backend).map(|_| ())
    }

    fn complete(&mut self, now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, backend: &mut B) {
        self.handle_notification(now, backend);
        if let Phase::Full(full) = &mut self.phase {
            full.complete(id, result, &mut self.link);
        }
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Login(..) => Some(self.login_deadline),
            Phase::Full(_) | Phase::Reinstating(_) => Some(self.next_poll),
            Phase::Closed => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        self.next_poll = now + ENDED_POLL;
        self.handle_notification(now, backend);
        self.reinstate(now, backend)?;
        self.look_soon(now);
        let late = Violation::timed_out("the initiator is silent");
        match &self.phase {
            Phase::Login(..) if now >= self.login_deadline => Err(late),
            Phase::Full(_) => {
                let silent = now.since(self.last_heard);
                if silent >= 2 * self.config.ping_interval {
                    return Err(late);
                }
                if silent >= self.config.ping_interval && !self.pinged {
                    self.pinged = true;
                    self.link.ping(PING_TTT);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    #[inline]
    fn handle_notification(&mut self, now: Instant, backend: &mut B) {
        let Phase::Full(full) = &mut self.phase else { return self.look_at_login(now, backend) };
        if full.is_ended() {
            return self.end_session(backend);
        }
        if let Some(session) = &mut full.session {
            session.manager.end_purged(&mut self.link, backend);
        }
        if full.awaits() && full.answer_awaited(now, &mut self.link) == Flow::Close {
            self.end_session(backend);
        }
    }

    fn disconnected(&mut self, _now: Instant, backend: &mut B) {
        self.end_session(backend);
        self.phase = Phase::Closed;
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match &self.phase {
            Phase::Login(..) => "login",
            Phase::Reinstating(_) => "reinstating",
            Phase::Full(_) => "full feature",
            Phase::Closed => "closed",
        };
        f.debug_struct("Connection").field("phase", &phase).field("link", &self.link).finish_non_exhaustive()
    }
}
