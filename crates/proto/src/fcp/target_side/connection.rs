//! A connection as its driver sees it: `Target` over logins and commands.

use alloc::{boxed::Box, rc::Rc, vec::Vec};
use core::fmt;

use super::{Config, FcpBackend, LoginGrant, LoginRefusal, image::Image, ports::ports};
use crate::{
    Instant, IoId, Origin, Payload, Refusal, Target, Transmit, UnitError, Violation, ViolationKind,
    fc::{
        Fragment, Framer, Header, Link, PortId, Special,
        els::{Process, Rejection},
        encapsulation::DATA_LEN_MAX,
        frame::{kind, r_ctl},
        logins::Opened,
        responder::{Asked, Responder, reject},
    },
    fcp::iu::service,
    scsi::{Nexus, Wait},
};

/// How often a quiet connection looks whether its login, or tasks of it, were ended by another.
const ENDED_POLL: core::time::Duration = core::time::Duration::from_secs(1);

/// The target's side of one connection.
pub struct Connection {
    config: Config,
    framer: Framer,
    link: Link,
    responder: Responder,
    /// Since the Special Frame; `Err` for a port that is not let in.
    grant: Option<Result<LoginGrant, LoginRefusal>>,
    /// Since PRLI.
    image: Option<Box<Image>>,
    /// The frame under way while there is no image.
    header: Header,
    /// The information unit or link service being received; its capacity is kept.
    unit: Vec<u8>,
    closed: bool,
    login_deadline: Instant,
    last_heard: Instant,
    next_poll: Instant,
}

impl Connection {
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            framer: Framer::default(),
            link: Link::new(PortId::FABRIC, PortId::default()),
            responder: Responder::new(config.port),
            grant: None,
            image: None,
            header: Header::default(),
            unit: Vec::new(),
            closed: false,
            login_deadline: now + config.login_timeout,
            last_heard: now,
            next_poll: now + ENDED_POLL,
            config,
        }
    }

    #[inline]
    fn step<B: FcpBackend>(&mut self, now: Instant, fragment: Fragment<'_>, backend: &mut B) -> Result<(), Violation> {
        match (fragment, &mut self.image) {
            (Fragment::Header(header, len), image) => {
                self.link.took();
                self.unit.clear();
                match image {
                    Some(image) => image.header(&header, len)?,
                    None if !header.is_whole_sequence() => {
                        return Err(Violation::misbehaved("FC-FS-5: a unit in more frames than one").at(46));
                    }
                    None => self.header = header,
                }
            }
            (Fragment::Data { offset, bytes }, Some(image)) => image.data(offset, bytes, &mut self.unit, backend),
            (Fragment::Data { bytes, .. }, None) => {
                if self.unit.len() + bytes.len() <= DATA_LEN_MAX {
                    self.unit.extend_from_slice(bytes);
                }
            }
            (Fragment::End, Some(image)) => {
                if let Some(header) = image.end(now, &mut self.link, backend) {
                    self.unit(now, &header, backend)?;
                }
            }
            (Fragment::End, None) => {
                let header = self.header;
                self.unit(now, &header, backend)?;
            }
            (Fragment::Ready(count), _) => self.link.ready(count)?,
            (Fragment::Special(special), _) => self.special(&special, backend)?,
        }
        Ok(())
    }

    /// A frame other than data is complete.
    #[inline]
    fn unit<B: FcpBackend>(&mut self, now: Instant, header: &Header, backend: &mut B) -> Result<(), Violation> {
        match (header.kind, header.r_ctl, &mut self.image) {
            (kind::FCP, r_ctl::UNSOLICITED_COMMAND, Some(image)) => {
                image.command(now, header, &self.unit, &mut self.link, backend)
            }
            (kind::BLS, r_ctl::ABTS, Some(image)) => image.abort_exchange(now, header, &mut self.link, backend),
            (kind::ELS, r_ctl::ELS_REQUEST, _) => {
                self.link.transmit.charge(Transmit::REQUEST);
                self.link_service(header, backend)
            }
            _ => Err(Violation::misbehaved("FC-FS-5: a frame that may not come now").at(32)),
        }
    }

    /// The connection begins: is the port that is wanted here?
    #[cold]
    fn special<B: FcpBackend>(&mut self, special: &Special, backend: &mut B) -> Result<(), Violation> {
        self.responder.special(special)?;
        let grant = backend.login(special.source, special.destination);
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
    fn link_service<B: FcpBackend>(&mut self, header: &Header, backend: &mut B) -> Result<(), Violation> {
        let grant = &self.grant;
        let may_log_in = |_| match grant {
            Some(Ok(_)) => Ok(()),
            _ => Err(Rejection::UNABLE),
        };
        match self.responder.request(header, &self.unit, &mut self.link, may_log_in)? {
            Asked::Nothing => Ok(()),
            Asked::Process(process) => self.process_login(header, process, backend),
            Asked::Logout => {
                self.end_image(backend);
                self.closed = true;
                Ok(())
            }
        }
    }

    fn process_login<B: FcpBackend>(
        &mut self,
        header: &Header,
        process: Process,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let wanted = service::INITIATOR | service::READ_XFER_RDY_DISABLED;
        if process.kind != kind::FCP || process.parameters & wanted != wanted {
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
            // Its tasks end before those of this login begin, not when it next looks by itself.
            backend.notify_others();
        }
        let ports = ports(initiator, self.responder.port_name(), grant.node_name);
        let nexus = Nexus::new(Rc::clone(&grant.device), ports);
        let accepted = Process { kind: kind::FCP, parameters: service::TARGET | service::READ_XFER_RDY_DISABLED };
        self.responder.accept(header, accepted, &mut self.link);
        self.image = Some(Box::new(Image::new(nexus, grant, ended, self.config.tasks, self.config.burst_len)));
        Ok(())
    }

    /// Gives up the login: its tasks, its nexus.
    fn end_image<B: FcpBackend>(&mut self, backend: &mut B) {
        let Some(mut image) = self.image.take() else { return };
        // First what others wait for, so that they learn when it has ended.
        image.end_purged(&mut self.link, backend);
        image.abort_where(|_| true, None, &mut self.link, backend);
        image.nexus.lost();
        let ended = &image.ended;
        image.grant.logins.with(&mut |logins| logins.close(ended));
    }

    /// Does what other logins did to this one: its tasks, or all of it, may be over; so may be what it waits for.
    #[inline]
    pub fn handle_notification<B: FcpBackend>(&mut self, now: Instant, backend: &mut B) {
        let Some(image) = &mut self.image else { return };
        if image.is_ended() {
            self.end_image(backend);
            self.closed = true;
            return;
        }
        image.end_purged(&mut self.link, backend);
        if image.awaits {
            image.answer_ended(now, &mut self.link);
        }
    }

    /// Whether the next frame may be taken: the connection stands, and there is room for its answer.
    #[inline]
    fn may_go_on(&self) -> bool {
        !self.closed && !self.link.transmit.is_full()
    }

    /// Looks again soon where something waits to be answered.
    #[inline]
    fn look_soon(&mut self, now: Instant) {
        if self.image.as_ref().is_some_and(|image| image.awaits) {
            self.next_poll = self.next_poll.min(now + Wait::POLL);
        }
    }
}

impl<B: FcpBackend> Target<B> for Connection {
    fn receive(&mut self, now: Instant, bytes: &[u8], backend: &mut B) -> Result<usize, Violation> {
        self.handle_notification(now, backend);
        self.last_heard = now;
        let mut input = bytes;
        let mut may_go_on = self.may_go_on();
        while may_go_on {
            let Some(fragment) = self.framer.next(&mut input)? else { break };
            // Asked once for each frame, which ends with its answer.
            let is_end = matches!(fragment, Fragment::End);
            self.step(now, fragment, backend)?;
            may_go_on = !is_end || self.may_go_on();
        }
        self.link.settle();
        self.look_soon(now);
        // What comes after the end is nobody's.
        let left = if self.closed { 0 } else { input.len() };
        Ok(bytes.len() - left)
    }

    fn complete(&mut self, now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, backend: &mut B) {
        self.handle_notification(now, backend);
        if let Some(image) = &mut self.image {
            image.complete(id, result, &mut self.link);
        }
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.image {
            _ if self.closed => None,
            None => Some(self.login_deadline),
            Some(_) => Some(self.next_poll),
        }
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        self.next_poll = now + ENDED_POLL;
        self.handle_notification(now, backend);
        self.look_soon(now);
        let is_late = match &self.image {
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
        self.end_image(backend);
        self.closed = true;
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match &self.image {
            _ if self.closed => "closed",
            None => "login",
            Some(_) => "image pair",
        };
        f.debug_struct("Connection").field("phase", &phase).field("link", &self.link).finish_non_exhaustive()
    }
}
