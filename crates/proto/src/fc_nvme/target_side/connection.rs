//! A connection as its driver uses it: implements `Target` over logins, an association and its commands.

use alloc::{boxed::Box, vec::Vec};
use core::{fmt, time::Duration};

use super::{
    Config, FcNvmeBackend,
    association::{Association, Inbound},
};
use crate::{
    Endings, Instant, IoId, Payload, Target, Transmit, UnitError, Violation,
    fc::{
        Fragment, Framer, Header, Lifetime, Link, OxId, PortId, ProcessLogin, RxId, Special,
        els::{self, Process, Rejection},
        frame::{kind, r_ctl},
        responder::{Asked, Responder, reject},
        sequence::Unit,
    },
    fc_nvme::{
        iu::service,
        ls::{self, Answer, Request},
    },
    nvme::auth,
};

/// How often a connection checks whether aborted commands have ended.
const ABORT_POLL: Duration = Duration::from_millis(1);
/// Maximum sequences that wait for credit: two per outstanding command, and answers to link services.
const WAITING_MAX: usize = 2 * 1024 + 64;
/// Maximum aborts that wait until their exchanges have ended.
const ABORTS_MAX: usize = 1024 + 64;

/// The target's side of one connection.
pub struct Connection {
    config: Config,
    framer: Framer,
    link: Link,
    responder: Responder<()>,
    lifetime: Lifetime,
    /// Set by the answer to PRLI.
    login: Option<ProcessLogin<()>>,
    association: Option<Box<Association>>,
    /// Number of associations that this login has created.
    associations: u32,
    aborts: Vec<Abort>,
    current: Current,
    /// The information unit or link service that is being received.
    unit: Unit,
}

/// The destination of the data of the frame that is being received.
#[derive(Clone, Copy, Debug)]
enum Current {
    /// Nothing: they are dropped.
    Drop,
    Data(Inbound),
    Unit,
}

/// An ABTS that is answered when nothing of its exchange continues.
struct Abort {
    endings: Endings,
    ox_id: OxId,
    rx_id: RxId,
}

impl Connection {
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            framer: Framer::new(config.has_crc),
            link: Link::new(PortId::FABRIC, PortId::default(), config.has_crc),
            responder: Responder::new(config.port),
            lifetime: Lifetime::new(now, config.login_timeout, config.silence),
            login: None,
            association: None,
            associations: 0,
            aborts: Vec::new(),
            current: Current::Drop,
            unit: Unit::default(),
            config,
        }
    }

    /// Continues when the work given to `NvmeBackend::work` is done.
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
            Fragment::Frame(header, bytes) => {
                self.header(&header, bytes.len() as u32)?;
                if !bytes.is_empty() {
                    self.data(bytes, backend);
                }
                self.end(now, backend)
            }
            Fragment::Header(header, len) => self.header(&header, len),
            Fragment::Data { bytes, .. } => {
                self.data(bytes, backend);
                Ok(())
            }
            Fragment::End => self.end(now, backend),
            Fragment::Ready(count) => self.link.ready(count),
            Fragment::Special(special) => self.special(&special, backend),
        }
    }

    #[inline]
    fn data<B: FcNvmeBackend>(&mut self, bytes: &[u8], backend: &mut B) {
        match (self.current, &mut self.association) {
            (Current::Unit, _) => self.unit.data(bytes),
            (Current::Data(inbound), Some(association)) => association.data(inbound, bytes, backend),
            (Current::Data(_) | Current::Drop, _) => {}
        }
    }

    #[inline]
    fn end<B: FcNvmeBackend>(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        match core::mem::replace(&mut self.current, Current::Drop) {
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
        }
        Ok(())
    }

    #[inline]
    fn header(&mut self, header: &Header, len: u32) -> Result<(), Violation> {
        self.link.took();
        self.current = Current::Unit;
        if (header.kind, header.r_ctl) != (kind::NVME, r_ctl::SOLICITED_DATA) {
            return self.unit.begin(header, len);
        }
        if self.unit.is_open() {
            return Err(misbehaved!("FC-FS-5 SEQ_CNT: data within another sequence").at(46));
        }
        let inbound = match &mut self.association {
            Some(association) => association.data_begin(header, len)?,
            None => None,
        };
        self.current = inbound.map_or(Current::Drop, Current::Data);
        Ok(())
    }

    /// Processes a complete sequence other than data.
    #[inline]
    fn unit<B: FcNvmeBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        unit: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        if self.link.waiting() > WAITING_MAX {
            return Err(misbehaved!("iotax limit: requests without end, and no credit for their answers"));
        }
        match (header.kind, header.r_ctl, &mut self.association) {
            _ if self.lifetime.is_leaving() => Ok(()),
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
            _ => Err(misbehaved!("FC-FS-5 R_CTL: a frame that may not come now").at(32)),
        }
    }

    /// Starts the connection, if the requested port exists.
    #[cold]
    fn special<B: FcNvmeBackend>(&mut self, special: &Special, backend: &mut B) -> Result<(), Violation> {
        self.responder.special(special, &mut self.link, |initiator, target| backend.port_login(initiator, target))
    }

    #[cold]
    fn link_service<B: FcNvmeBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        unit: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        match self.responder.request(header, unit, &mut self.link)? {
            Asked::Nothing => {}
            Asked::Process(Process { kind: kind::NVME, parameters }) if parameters & service::INITIATOR != 0 => {
                let accepted = Process { kind: kind::NVME, parameters: service::TARGET };
                let notify_others = || backend.notify_others();
                self.responder.accept(now, header, accepted, &mut self.link, notify_others)?;
                self.login = self.responder.opened(now, &mut self.link)?;
            }
            Asked::Process(_) => reject(header, Rejection::NOT_SUPPORTED, &mut self.link),
            Asked::Logout => self.leave(now, backend),
        }
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
            // Connect checks which host may use which subsystem, because its data contain both again.
            Request::CreateAssociation { ersp_ratio, .. } => {
                self.associations = self.associations.wrapping_add(1);
                let association = Association::new(now, &self.config, self.associations, *ersp_ratio);
                let answer = Answer::Association { association: association.id, connection: association.connection() };
                self.association = Some(Box::new(association));
                answer
            }
            Request::CreateConnection { association: id, ersp_ratio, qid, .. } => {
                // A reset of the controller may have ended the I/O queue.
                if let Some(association) = &mut self.association {
                    association.handle_notification(now, &mut self.link, backend);
                }
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

    /// ABTS: aborts an exchange. The association stays until the initiator ends it, as it must (FC-NVMe-2, error
    /// recovery).
    #[cold]
    fn abort<B: FcNvmeBackend>(&mut self, header: &Header, backend: &mut B) -> Result<(), Violation> {
        if self.aborts.len() > ABORTS_MAX {
            return Err(misbehaved!("iotax limit: aborts without end"));
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
            self.link.send(els::answer(r_ctl::BA_RJT, ox_id, rx_id), &els::NO_EXCHANGE);
        }
        Ok(())
    }

    fn answer_aborts(&mut self) {
        let link = &mut self.link;
        self.aborts.retain_mut(|Abort { endings, ox_id, rx_id }| {
            let is_over = endings.are_over();
            if is_over {
                link.send(els::answer(r_ctl::BA_ACC, *ox_id, *rx_id), &els::accept(*ox_id, *rx_id));
            }
            !is_over
        });
    }

    /// Leaves if the controller has ended, e.g. because its host was rejected.
    #[inline]
    fn leave_if_over<B: FcNvmeBackend>(&mut self, now: Instant, backend: &mut B) {
        if self.association.as_ref().is_some_and(|association| association.is_over()) {
            self.leave(now, backend);
        }
    }

    /// Closes the connection when everything queued for the initiator has been sent.
    #[cold]
    fn leave<B: FcNvmeBackend>(&mut self, now: Instant, backend: &mut B) {
        self.end_login(backend);
        self.lifetime.leave(now, &self.link);
    }

    /// Ends the login and its association.
    fn end_login<B: FcNvmeBackend>(&mut self, backend: &mut B) {
        self.current = Current::Drop;
        if let Some(mut association) = self.association.take() {
            association.end(&mut self.link, backend);
        }
        self.responder.close();
        if let Some(login) = self.login.take() {
            login.close();
        }
    }

    /// Checks whether the login, or what an abort waits for, is over.
    #[inline]
    fn look<B: FcNvmeBackend>(&mut self, now: Instant, backend: &mut B) {
        if self.responder.is_opening() {
            self.look_at_opening(now, backend);
        }
        if self.login.as_ref().is_some_and(ProcessLogin::is_ended) {
            self.end_login(backend);
            self.lifetime.close();
        }
        if !self.aborts.is_empty() {
            self.answer_aborts();
        }
    }

    /// Checks whether another login has ended this one before it started, or whether the logins that it waits for are
    /// over.
    #[cold]
    fn look_at_opening<B: FcNvmeBackend>(&mut self, now: Instant, backend: &mut B) {
        let is_ended = self.responder.is_ended();
        match self.responder.opened(now, &mut self.link) {
            Ok(login) if !is_ended => self.login = login,
            Ok(login) => {
                self.login = login;
                self.end_login(backend);
                self.lifetime.close();
            }
            Err(_) => self.lifetime.close(),
        }
    }

    /// Schedules a check soon if a response waits.
    #[inline]
    fn look_soon(&mut self, now: Instant) {
        if self.responder.is_opening() || !self.aborts.is_empty() {
            self.lifetime.look_by(now + ABORT_POLL);
        }
    }
}

impl<B: FcNvmeBackend> Target<B> for Connection {
    fn receive(&mut self, now: Instant, bytes: &[u8], backend: &mut B) -> Result<usize, Violation> {
        self.look(now, backend);
        self.lifetime.heard(now);
        let mut input = bytes;
        let mut may_go_on = self.lifetime.may_go_on(&self.link);
        while may_go_on {
            let Some(fragment) = self.framer.next(&mut input)? else { break };
            // Checked once per frame, at its end, after its response.
            let is_end = matches!(fragment, Fragment::Frame(..) | Fragment::End);
            self.step(now, fragment, backend)?;
            may_go_on = !is_end || self.lifetime.may_go_on(&self.link);
        }
        self.link.settle();
        self.lifetime.settle(&self.link);
        self.look_soon(now);
        // Bytes after the end of the connection are dropped.
        let left = if self.lifetime.is_closed() { 0 } else { input.len() };
        Ok(bytes.len() - left)
    }

    fn complete(&mut self, now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, backend: &mut B) {
        self.look(now, backend);
        if let Some(association) = &mut self.association {
            association.complete(id, result, &mut self.link);
        }
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = self.lifetime.poll_timeout(self.responder.is_opening() || self.login.is_some())?;
        let queues = self.association.as_ref().and_then(|association| association.poll_timeout());
        Some(queues.map_or(own, |due| due.min(own)))
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        self.lifetime.looked(now);
        self.look(now, backend);
        self.look_soon(now);
        if let Some(association) = &mut self.association {
            association.handle_timeout(now, &mut self.link, backend)?;
        }
        self.lifetime.check(now, self.login.is_some())
    }

    fn is_closing(&self) -> bool {
        self.lifetime.is_closed()
    }

    fn handle_notification(&mut self, now: Instant, backend: &mut B) {
        self.look(now, backend);
        if let Some(association) = &mut self.association {
            association.handle_notification(now, &mut self.link, backend);
        }
    }

    fn disconnected(&mut self, _now: Instant, backend: &mut B) {
        self.end_login(backend);
        self.lifetime.close();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match (&self.login, &self.association) {
            _ if self.lifetime.is_closed() => "closed",
            (None, _) => "login",
            (Some(_), None) => "logged in",
            (Some(_), Some(_)) => "association",
        };
        f.debug_struct("Connection").field("phase", &phase).field("link", &self.link).finish_non_exhaustive()
    }
}
