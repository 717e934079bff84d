//! A connection as its driver uses it: implements `Target` over logins and commands.

use alloc::{boxed::Box, rc::Rc, vec::Vec};
use core::fmt;

use super::{
    Config, FcpBackend,
    image::{Image, WAITING_MAX},
    ports,
};
use crate::{
    Instant, IoId, Origin, Payload, Shared, Target, Transmit, UnitError, Violation, Wait,
    fc::{
        Fragment, Framer, Header, Lifetime, Link, PortId, Special,
        els::{Process, Rejection},
        frame::{DATA_LEN_MAX, kind, r_ctl},
        responder::{Asked, Responder, reject},
    },
    fcp::iu::service,
    scsi::{Device, Nexus},
};

/// The target's side of one connection.
pub struct Connection {
    config: Config,
    framer: Framer,
    link: Link,
    responder: Responder<Rc<dyn Shared<Device>>>,
    lifetime: Lifetime,
    /// Set by the answer to PRLI.
    image: Option<Box<Image>>,
    /// The current frame, while there is no image.
    header: Header,
    /// The information unit or link service that is being received. Its capacity is kept.
    unit: Vec<u8>,
}

impl Connection {
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            framer: Framer::new(config.has_crc),
            link: Link::new(PortId::FABRIC, PortId::default(), config.has_crc),
            responder: Responder::new(config.port),
            lifetime: Lifetime::new(now, config.login_timeout, config.silence),
            image: None,
            header: Header::default(),
            unit: Vec::new(),
            config,
        }
    }

    #[inline]
    fn step<B: FcpBackend>(&mut self, now: Instant, fragment: Fragment<'_>, backend: &mut B) -> Result<(), Violation> {
        match fragment {
            Fragment::Frame(header, bytes) => {
                self.header(&header, bytes.len() as u32)?;
                if !bytes.is_empty() {
                    self.data(0, bytes, backend);
                }
                self.end(now, backend)
            }
            Fragment::Header(header, len) => self.header(&header, len),
            Fragment::Data { offset, bytes } => {
                self.data(offset, bytes, backend);
                Ok(())
            }
            Fragment::End => self.end(now, backend),
            Fragment::Ready(count) => self.link.ready(count),
            Fragment::Special(special) => self.special(&special, backend),
        }
    }

    #[inline]
    fn header(&mut self, header: &Header, len: u32) -> Result<(), Violation> {
        self.link.took();
        self.unit.clear();
        match &mut self.image {
            Some(image) => image.header(header, len)?,
            // After the initiator has left, data for commands that had started may still arrive.
            None if !header.is_whole_sequence() && !self.lifetime.is_leaving() => {
                return Err(misbehaved!("FC-FS-5 SEQ_CNT: a unit in more frames than one").at(46));
            }
            None => self.header = *header,
        }
        Ok(())
    }

    #[inline]
    fn data<B: FcpBackend>(&mut self, offset: u32, bytes: &[u8], backend: &mut B) {
        match &mut self.image {
            Some(image) => image.data(offset, bytes, &mut self.unit, backend),
            None if self.unit.len() + bytes.len() <= DATA_LEN_MAX => self.unit.extend_from_slice(bytes),
            None => {}
        }
    }

    #[inline]
    fn end<B: FcpBackend>(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        let header = match &mut self.image {
            Some(image) => image.end(now, &mut self.link, backend),
            None => Some(self.header),
        };
        header.map_or(Ok(()), |header| self.unit(now, &header, backend))
    }

    /// Processes a complete frame other than data.
    #[inline]
    fn unit<B: FcpBackend>(&mut self, now: Instant, header: &Header, backend: &mut B) -> Result<(), Violation> {
        if self.lifetime.is_leaving() {
            return Ok(());
        }
        let of_commands = self.image.as_ref().map_or(0, |image| 2 * image.manager.tasks.capacity());
        if self.link.waiting() > of_commands + WAITING_MAX {
            return Err(misbehaved!("iotax limit: requests without end, and no credit for their answers"));
        }
        match (header.kind, header.r_ctl, &mut self.image) {
            (kind::FCP, r_ctl::UNSOLICITED_COMMAND, Some(image)) => {
                image.command(now, header, &self.unit, &mut self.link, backend)
            }
            (kind::BLS, r_ctl::ABTS, Some(image)) => image.abort_exchange(now, header, &mut self.link, backend),
            (kind::ELS, r_ctl::ELS_REQUEST, _) => {
                self.link.transmit.charge(Transmit::REQUEST);
                self.link_service(now, header, backend)
            }
            _ => Err(misbehaved!("FC-FS-5 R_CTL: a frame that may not come now").at(32)),
        }
    }

    /// Starts the connection, if the requested port exists.
    #[cold]
    fn special<B: FcpBackend>(&mut self, special: &Special, backend: &mut B) -> Result<(), Violation> {
        self.responder.special(special, &mut self.link, |initiator, target| backend.login(initiator, target))
    }

    #[cold]
    fn link_service<B: FcpBackend>(&mut self, now: Instant, header: &Header, backend: &mut B) -> Result<(), Violation> {
        match self.responder.request(header, &self.unit, &mut self.link)? {
            Asked::Nothing => {}
            Asked::Process(process) => self.process_login(now, header, process, backend)?,
            Asked::Logout => {
                self.end_image(backend);
                self.lifetime.leave(now, &self.link);
            }
        }
        Ok(())
    }

    fn process_login<B: FcpBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        process: Process,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let wanted = service::INITIATOR | service::READ_XFER_RDY_DISABLED;
        if process.kind != kind::FCP || process.parameters & wanted != wanted {
            reject(header, Rejection::NOT_SUPPORTED, &mut self.link);
            return Ok(());
        }
        let accepted = Process { kind: kind::FCP, parameters: service::TARGET | service::READ_XFER_RDY_DISABLED };
        let notify_others = || backend.notify_others();
        self.responder.accept(now, header, accepted, &mut self.link, notify_others)?;
        self.open(now)
    }

    /// Starts the waiting login if it may start.
    #[cold]
    fn open(&mut self, now: Instant) -> Result<(), Violation> {
        let Some(login) = self.responder.opened(now, &mut self.link)? else { return Ok(()) };
        let port = self.responder.port();
        let ports = ports(self.responder.initiator(), port.port_name, port.node_name);
        let origin = Origin::of_address(login.grant.address);
        let nexus = Nexus::new(Rc::clone(&login.grant.device), ports, origin);
        self.image = Some(Box::new(Image::new(nexus, login, self.config.tasks, self.config.burst_len)));
        Ok(())
    }

    /// Ends the login: its tasks and its nexus.
    fn end_image<B: FcpBackend>(&mut self, backend: &mut B) {
        self.responder.close();
        let Some(mut image) = self.image.take() else { return };
        image.manager.end(image.login.ending(), &mut self.link, backend);
        image.login.close();
    }

    /// Checks whether another login has ended this one before it started, or whether the logins that it waits for are
    /// over.
    #[cold]
    fn look_at_opening<B: FcpBackend>(&mut self, now: Instant, backend: &mut B) {
        if self.responder.is_ended() || self.open(now).is_err() {
            self.end_image(backend);
            self.lifetime.close();
        }
    }

    /// Schedules a check soon if a response waits.
    #[inline]
    fn look_soon(&mut self, now: Instant) {
        if self.responder.is_opening() || self.image.as_ref().is_some_and(|image| image.manager.awaits()) {
            self.lifetime.look_by(now + Wait::POLL);
        }
    }
}

impl<B: FcpBackend> Target<B> for Connection {
    fn receive(&mut self, now: Instant, bytes: &[u8], backend: &mut B) -> Result<usize, Violation> {
        self.handle_notification(now, backend);
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
        self.handle_notification(now, backend);
        if let Some(image) = &mut self.image {
            image.manager.complete(id, result, &mut self.link);
        }
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lifetime.poll_timeout(self.responder.is_opening() || self.image.is_some())
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        self.lifetime.looked(now);
        self.handle_notification(now, backend);
        self.look_soon(now);
        self.lifetime.check(now, self.image.is_some())
    }

    fn is_closing(&self) -> bool {
        self.lifetime.is_closed()
    }

    #[inline]
    fn handle_notification(&mut self, now: Instant, backend: &mut B) {
        if self.responder.is_opening() {
            return self.look_at_opening(now, backend);
        }
        let Some(image) = &mut self.image else { return };
        if image.login.is_ended() {
            self.end_image(backend);
            self.lifetime.close();
            return;
        }
        image.manager.end_purged(&mut self.link, backend);
        if image.manager.awaits() {
            image.manager.answer_awaited(now, &mut self.link);
        }
    }

    fn disconnected(&mut self, _now: Instant, backend: &mut B) {
        self.end_image(backend);
        self.lifetime.close();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match &self.image {
            _ if self.lifetime.is_closed() => "closed",
            None => "login",
            Some(_) => "image pair",
        };
        f.debug_struct("Connection").field("phase", &phase).field("link", &self.link).finish_non_exhaustive()
    }
}
