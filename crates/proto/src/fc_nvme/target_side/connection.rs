//! A connection as its driver sees it: `Target` over logins, an association and its commands.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use super::{
    Config, FcNvmeBackend, LoginGrant, LoginRefusal,
    association::{Association, Inbound},
};
use crate::{
    Endings, Instant, IoId, Origin, Payload, Refusal, Target, Transmit, UnitError, Violation, ViolationKind,
    fc::{
        Fragment, Framer, Header, Link, OxId, PortId, RxId, Special, bls,
        els::{Process, Rejection},
        frame::{kind, r_ctl},
        logins::Opened,
        responder::{Asked, Responder, reject},
        sequence::Unit,
    },
    fc_nvme::{
        iu::service,
        ls::{self, Answer, Request},
    },
    nvme::auth,
};

/// How often a quiet connection looks whether its login was ended by another.
const ENDED_POLL: Duration = Duration::from_secs(1);
/// How often it looks whether what was aborted has ended.
const ABORT_POLL: Duration = Duration::from_millis(1);
/// Sequences that wait for credit: two of each command that may be outstanding, and answers to link services.
const WAITING_MAX: usize = 2 * 1024 + 64;
/// Aborts that wait for what they aborted.
const ABORTS_MAX: usize = 1024 + 64;

/// The target's side of one connection.
pub struct Connection {
    config: Config,
    framer: Framer,
    link: Link,
    responder: Responder,
    /// Since the Special Frame; `Err` for a port that is not let in.
    grant: Option<Result<LoginGrant, LoginRefusal>>,
    /// Since PRLI.
    login: Option<ProcessLogin>,
    association: Option<Box<Association>>,
    /// Associations of this login so far.
    associations: u32,
    aborts: Vec<Abort>,
    current: Current,
    /// The information unit or service being received.
    unit: Unit,
    /// Nothing is begun any more; it closes once what waits for credit is sent.
    leaving: bool,
    closed: bool,
    /// Of the login, or of the end.
    login_deadline: Instant,
    last_heard: Instant,
    next_poll: Instant,
}

struct ProcessLogin {
    grant: LoginGrant,
    /// Set when the initiator port logs in elsewhere.
    ended: Arc<AtomicBool>,
}

/// What the frame being received is.
#[derive(Clone, Copy, Debug)]
enum Current {
    /// Its data are of no interest.
    Drop,
    Data(Inbound),
    Unit,
}

/// An ABTS that is answered once nothing of its exchange happens any more.
struct Abort {
    endings: Endings,
    ox_id: OxId,
    rx_id: RxId,
}

impl Connection {
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            framer: Framer::default(),
            link: Link::new(PortId::FABRIC, PortId::default()),
            responder: Responder::new(config.port),
            grant: None,
            login: None,
            association: None,
            associations: 0,
            aborts: Vec::new(),
            current: Current::Drop,
            unit: Unit::default(),
            leaving: false,
            closed: false,
            login_deadline: now + config.login_timeout,
            last_heard: now,
            next_poll: now + ENDED_POLL,
            config,
        }
    }

    /// What `NvmeBackend::work` was asked for is done.
    pub fn worked<B: FcNvmeBackend>(&mut self, now: Instant, worked: auth::Worked, backend: &mut B) {
        if let Some(association) = &mut self.association {
            association.worked(now, worked, &mut self.link, backend);
            self.leave_if_over(now, backend);
        }
    }

    #[inline]
    fn step<B: FcNvmeBackend>(
        &mut self,
        now: Instant,
        fragment: Fragment<'_>,
        backend: &mut B,
    ) -> Result<(), Violation> {
        match fragment {
            Fragment::Header(header, len) => {
                self.link.took();
                self.header(&header, len)?;
            }
            Fragment::Data { bytes, .. } => match (self.current, &mut self.association) {
                (Current::Unit, _) => self.unit.data(bytes),
                (Current::Data(inbound), Some(association)) => association.data(inbound, bytes, backend),
                (Current::Data(_) | Current::Drop, _) => {}
            },
            Fragment::End => match core::mem::replace(&mut self.current, Current::Drop) {
                Current::Drop => {}
                Current::Data(inbound) => {
                    if let Some(association) = &mut self.association {
                        association.data_end(now, inbound, &mut self.link, backend)?;
                        self.leave_if_over(now, backend);
                    }
                }
                Current::Unit => {
                    if let Some(header) = self.unit.end() {
                        let unit = self.unit.take();
                        let result = self.unit(now, &header, &unit, backend);
                        self.unit.put(unit);
                        result?;
                    }
                }
            },
            Fragment::Ready(count) => self.link.ready(count)?,
            Fragment::Special(special) => self.special(&special, backend)?,
        }
        Ok(())
    }

    #[inline]
    fn header(&mut self, header: &Header, len: u32) -> Result<(), Violation> {
        self.current = Current::Unit;
        if (header.kind, header.r_ctl) != (kind::NVME, r_ctl::SOLICITED_DATA) {
            return self.unit.begin(header, len);
        }
        if self.unit.is_open() {
            return Err(Violation::misbehaved("FC-FS-5: data within another sequence").at(46));
        }
        let inbound = match &mut self.association {
            Some(association) => association.data_begin(header, len)?,
            None => None,
        };
        self.current = inbound.map_or(Current::Drop, Current::Data);
        Ok(())
    }

    /// A sequence other than data is complete.
    #[inline]
    fn unit<B: FcNvmeBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        unit: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        if self.link.waiting() > WAITING_MAX {
            return Err(Violation::misbehaved("FC-FS-5: requests without end, and no credit for their answers"));
        }
        match (header.kind, header.r_ctl, &mut self.association) {
            _ if self.leaving => Ok(()),
            (kind::NVME, r_ctl::UNSOLICITED_COMMAND, Some(association)) => {
                association.command(now, header, unit, &mut self.link, backend)?;
                self.leave_if_over(now, backend);
                Ok(())
            }
            (kind::NVME, r_ctl::FC4_LS_REQUEST, _) if self.login.is_some() => {
                self.link.transmit.charge(Transmit::REQUEST);
                self.nvme_service(now, header, unit, backend)
            }
            (kind::BLS, r_ctl::ABTS, _) if self.login.is_some() => self.abort(header, backend),
            (kind::ELS, r_ctl::ELS_REQUEST, _) => {
                self.link.transmit.charge(Transmit::REQUEST);
                self.link_service(now, header, unit, backend)
            }
            _ => Err(Violation::misbehaved("FC-FS-5: a frame that may not come now").at(32)),
        }
    }

    /// The connection begins: is the port that is wanted here?
    #[cold]
    fn special<B: FcNvmeBackend>(&mut self, special: &Special, backend: &mut B) -> Result<(), Violation> {
        self.responder.special(special)?;
        let grant = backend.port_login(special.source, special.destination);
        if let Err(LoginRefusal::NoSuchPort) = &grant {
            Responder::not_found(special, &mut self.link);
            self.closed = true;
            return Err(Violation::refused(Refusal::NotFound, "there is no such port at this address"));
        }
        let node_name = grant.as_ref().map_or(special.destination, |grant| grant.node_name);
        self.responder.found(special, node_name, &mut self.link);
        self.grant = Some(grant);
        Ok(())
    }

    #[cold]
    fn link_service<B: FcNvmeBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        unit: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        let grant = &self.grant;
        let may_log_in = |_| match grant {
            Some(Ok(_)) => Ok(()),
            _ => Err(Rejection::UNABLE),
        };
        match self.responder.request(header, unit, &mut self.link, may_log_in)? {
            Asked::Nothing => Ok(()),
            Asked::Process(process) => self.process_login(header, process, backend),
            Asked::Logout => {
                self.leave(now, backend);
                Ok(())
            }
        }
    }

    fn process_login<B: FcNvmeBackend>(
        &mut self,
        header: &Header,
        process: Process,
        backend: &mut B,
    ) -> Result<(), Violation> {
        if process.kind != kind::NVME || process.parameters & service::INITIATOR == 0 {
            reject(header, Rejection::NOT_SUPPORTED, &mut self.link);
            return Ok(());
        }
        let Some(Ok(grant)) = self.grant.clone() else { return Ok(()) };
        let initiator = self.responder.initiator();
        let mut opened = None;
        grant.logins.with(&mut |logins| opened = logins.open(initiator, Origin::of_address(grant.address)));
        let Some(Opened { ended, replaces }) = opened else {
            reject(header, Rejection::INSUFFICIENT_RESOURCES, &mut self.link);
            return Err(Rejection::violation(&Rejection::INSUFFICIENT_RESOURCES.encode()));
        };
        if replaces {
            // Its commands end before those of this login begin, not when it next looks by itself.
            backend.notify_others();
        }
        let accepted = Process { kind: kind::NVME, parameters: service::TARGET };
        self.responder.accept(header, accepted, &mut self.link);
        self.login = Some(ProcessLogin { grant, ended });
        Ok(())
    }

    #[cold]
    fn nvme_service<B: FcNvmeBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        unit: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        let request = Request::parse(unit)?;
        let answer = match &request {
            Request::CreateAssociation { .. } if self.association.is_some() => {
                Answer::Rejected(ls::Rejection::INSUFFICIENT_RESOURCES)
            }
            // Who may use which subsystem is asked at Connect, whose data say both again.
            Request::CreateAssociation { ersp_ratio, .. } => {
                self.associations = self.associations.wrapping_add(1);
                let association = Association::new(now, &self.config, self.associations, *ersp_ratio);
                let answer = Answer::Association { association: association.id, connection: association.connection() };
                self.association = Some(Box::new(association));
                answer
            }
            Request::CreateConnection { association: id, ersp_ratio, qid, .. } => {
                match self.association.as_mut().filter(|association| association.id == *id) {
                    Some(association) => association.create_connection(now, *qid, *ersp_ratio),
                    None => Answer::Rejected(ls::Rejection::INVALID_ASSOCIATION),
                }
            }
            Request::DisconnectAssociation(id) => match self.association.take_if(|association| association.id == *id) {
                Some(mut association) => {
                    association.end(&mut self.link, backend);
                    Answer::Disconnected
                }
                None => Answer::Rejected(ls::Rejection::INVALID_ASSOCIATION),
            },
            Request::Other(_) => Answer::Rejected(ls::Rejection::NOT_SUPPORTED),
        };
        self.link.send(Answer::header(header), &answer.encode(request.code()));
        Ok(())
    }

    /// ABTS: the exchange ends. The association stays until its initiator ends it, as it must (FC-NVMe-2, error recovery).
    #[cold]
    fn abort<B: FcNvmeBackend>(&mut self, header: &Header, backend: &mut B) -> Result<(), Violation> {
        if self.aborts.len() > ABORTS_MAX {
            return Err(Violation::misbehaved("FC-FS-5: aborts without end"));
        }
        let (ox_id, rx_id) = (header.ox_id, header.rx_id);
        let waited = self.link.waiting();
        self.link.forget(ox_id);
        let was_answered = self.link.waiting() < waited;
        let mut endings = Endings::default();
        let aborts = |association: &mut Box<Association>| association.abort(ox_id, rx_id, &mut endings, backend);
        if self.association.as_mut().is_some_and(aborts) || was_answered {
            self.aborts.push(Abort { endings, ox_id, rx_id });
            self.answer_aborts();
        } else {
            self.link.send(bls::answer(r_ctl::BA_RJT, ox_id, rx_id), &bls::NO_EXCHANGE);
        }
        Ok(())
    }

    fn answer_aborts(&mut self) {
        let link = &mut self.link;
        self.aborts.retain_mut(|Abort { endings, ox_id, rx_id }| {
            let is_over = endings.are_over();
            if is_over {
                link.send(bls::answer(r_ctl::BA_ACC, *ox_id, *rx_id), &bls::accept(*ox_id, *rx_id));
            }
            !is_over
        });
    }

    /// The controller may be over: its host was refused, say.
    #[inline]
    fn leave_if_over<B: FcNvmeBackend>(&mut self, now: Instant, backend: &mut B) {
        if self.association.as_ref().is_some_and(|association| association.is_over()) {
            self.leave(now, backend);
        }
    }

    /// Closes once what the initiator is to know is sent.
    #[cold]
    fn leave<B: FcNvmeBackend>(&mut self, now: Instant, backend: &mut B) {
        self.end_login(backend);
        self.leaving = true;
        self.login_deadline = now + self.config.login_timeout;
    }

    /// Gives up the login and its association.
    fn end_login<B: FcNvmeBackend>(&mut self, backend: &mut B) {
        self.current = Current::Drop;
        if let Some(mut association) = self.association.take() {
            association.end(&mut self.link, backend);
        }
        if let Some(ProcessLogin { grant, ended }) = self.login.take() {
            grant.logins.with(&mut |logins| logins.close(&ended));
        }
    }

    /// Does what other logins did to this one: it may be over.
    #[inline]
    pub fn handle_notification<B: FcNvmeBackend>(&mut self, backend: &mut B) {
        if self.login.as_ref().is_some_and(|login| login.ended.load(Ordering::Relaxed)) {
            self.end_login(backend);
            self.closed = true;
        }
        if !self.aborts.is_empty() {
            self.answer_aborts();
        }
    }

    /// Whether the next frame may be taken: the connection stands, and there is room for its answer.
    #[inline]
    fn may_go_on(&self) -> bool {
        !self.closed && !self.link.transmit.is_full()
    }

    /// Looks again soon where an abort waits to be answered.
    #[inline]
    fn look_soon(&mut self, now: Instant) {
        if !self.aborts.is_empty() {
            self.next_poll = self.next_poll.min(now + ABORT_POLL);
        }
    }
}

impl<B: FcNvmeBackend> Target<B> for Connection {
    fn receive(&mut self, now: Instant, bytes: &[u8], backend: &mut B) -> Result<usize, Violation> {
        self.handle_notification(backend);
        self.last_heard = now;
        let mut input = bytes;
        let mut may_go_on = self.may_go_on();
        while may_go_on {
            let Some(fragment) = self.framer.next(&mut input)? else { break };
            // Asked once for each frame, which ends with its answer.
            let is_end = matches!(fragment, Fragment::End);
            self.step(now, fragment, backend)?;
            self.closed |= self.leaving && self.link.waiting() == 0;
            may_go_on = !is_end || self.may_go_on();
        }
        self.link.settle();
        self.look_soon(now);
        // What comes after the end is nobody's.
        let left = if self.closed { 0 } else { input.len() };
        Ok(bytes.len() - left)
    }

    fn complete(&mut self, _now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, backend: &mut B) {
        self.handle_notification(backend);
        if let Some(association) = &mut self.association {
            association.complete(id, result, &mut self.link);
        }
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.login {
            _ if self.closed => None,
            None => Some(self.login_deadline),
            Some(_) => {
                let queues = self.association.as_ref().and_then(|association| association.poll_timeout());
                Some(queues.map_or(self.next_poll, |due| due.min(self.next_poll)))
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        self.next_poll = now + ENDED_POLL;
        self.handle_notification(backend);
        self.look_soon(now);
        if let Some(association) = &mut self.association {
            association.handle_timeout(now, &mut self.link, backend)?;
        }
        let is_late = match &self.login {
            _ if self.closed => false,
            None => now >= self.login_deadline,
            Some(_) => now.since(self.last_heard) >= self.config.silence,
        };
        if is_late { Err(Violation::new(ViolationKind::TimedOut, "the initiator is silent")) } else { Ok(()) }
    }

    fn is_closing(&self) -> bool {
        self.closed
    }

    fn disconnected(&mut self, _now: Instant, backend: &mut B) {
        self.end_login(backend);
        self.closed = true;
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match (&self.login, &self.association) {
            _ if self.closed => "closed",
            (None, _) => "login",
            (Some(_), None) => "logged in",
            (Some(_), Some(_)) => "association",
        };
        f.debug_struct("Connection").field("phase", &phase).field("link", &self.link).finish_non_exhaustive()
    }
}
