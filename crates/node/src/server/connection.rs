//! One connection: a protocol's target and the server behind it.

use iotax_proto::{
    Instant, IoId, LiveSession, Origin, Payload, Target, Transmit, UnitError, Violation, Wait, WaitOutcome,
    nvme::auth::Worked,
    rpc::{Mapping, Portmapper},
};

use super::{backend::ServerBackend, portals::Service, room::Share};
use crate::protocols::AnyTarget;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortalNews {
    Nothing,
    /// The connection must be given turns from now on.
    FellSilent,
    /// The peer may be told that it has ended meanwhile.
    Answers,
}

#[allow(clippy::struct_excessive_bools)] // each is a state of its own
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) backend: ServerBackend,
    target: AnyTarget,
    /// Whether the driver was requested to close it.
    pub(super) is_closing: bool,
    pub(super) deadline: Option<Instant>,
    /// Whether the node has counted it as carrying no I/O.
    pub(super) is_idle: bool,
    /// Bytes that arrived but were not processed, because there is no room for their replies or other connections have
    /// their turn. The first `taken` of them have been processed.
    backlog: Vec<u8>,
    taken: usize,
    /// Whether it must wait for `go_on` before it processes more bytes.
    waits: bool,
    /// Its portal is silent: it waits, and its end is not told to the peer.
    pub(super) is_silent: bool,
    pub(super) share: Share,
    predecessor: Predecessor,
}

/// The older connection of a protocol without sessions: a client that reconnects from the same port repeats what was
/// under way, and sends newer calls after it. Calls of the older connection must not be carried out after those.
#[derive(Debug, Default)]
struct Predecessor {
    live: Option<LiveSession>,
    /// Set until the older connection has ended.
    wait: Option<Wait>,
    next_look: Option<Instant>,
}

impl Connection {
    pub(super) fn new(now: Instant, mut backend: ServerBackend) -> Self {
        let target = match backend.portal().service {
            Service::Portmap => AnyTarget::Portmap(Box::new(Portmapper::new(now, mappings(&backend)))),
            Service::Protocol(protocol) => AnyTarget::accept(protocol, now, &backend),
        };
        let predecessor = Predecessor::find(now, &backend);
        backend.ending = predecessor.live.as_ref().map(|live| live.ending().clone());
        let mut connection = Self {
            backend,
            target,
            is_closing: false,
            deadline: None,
            is_idle: false,
            backlog: Vec::new(),
            taken: 0,
            waits: predecessor.wait.is_some(),
            is_silent: false,
            share: Share::default(),
            predecessor,
        };
        connection.deadline = connection.next_deadline();
        connection
    }

    /// Gives it a turn, with `room` bytes for replies.
    #[inline]
    pub(super) fn receive(&mut self, now: Instant, bytes: &[u8], room: usize) -> Result<(), Violation> {
        if self.waits {
            // The driver received these bytes before it could know that the connection waits.
            self.backlog.extend_from_slice(bytes);
            return Ok(());
        }
        self.transmit().begin_turn(room);
        let taken = self.take(now, bytes)?;
        if taken < bytes.len() {
            self.backlog.extend_from_slice(&bytes[taken..]);
        }
        self.waits = taken < bytes.len() || self.transmit().is_turn_over();
        Ok(())
    }

    /// Memory into which at least `at_least` of the next bytes may be received.
    #[inline]
    pub(super) fn place(&mut self, at_least: usize) -> Option<Payload> {
        // This is rarely `Some`, so whether it may be used is checked last.
        let place = self.target.place(at_least, &mut self.backend)?;
        let may_go_on = !self.is_closing && !self.waits && !self.transmit().is_full();
        may_go_on.then_some(place)
    }

    /// The next `len` bytes are in that memory.
    pub(super) fn placed(&mut self, now: Instant, len: usize) -> Result<(), Violation> {
        self.backend.now = now;
        self.target.placed(now, len, &mut self.backend)
    }

    /// Continues with the backlog if there is room again.
    pub(super) fn go_on(&mut self, now: Instant, room: usize) -> Result<(), Violation> {
        if self.predecessor.wait.is_some() || self.is_silent {
            return Ok(());
        }
        self.transmit().begin_turn(room);
        if self.transmit().is_full() {
            return Ok(());
        }
        let backlog = std::mem::take(&mut self.backlog);
        let backlog_len = backlog.len();
        let taken = self.taken + self.take(now, &backlog[self.taken..])?;
        if taken < backlog.len() {
            (self.backlog, self.taken) = (backlog, taken);
        } else {
            self.taken = 0;
        }
        self.waits = taken < backlog_len || self.transmit().is_turn_over();
        Ok(())
    }

    /// Whether it can continue now.
    pub(super) fn may_go_on(&mut self) -> bool {
        self.predecessor.wait.is_none() && !self.is_silent && self.has_room()
    }

    /// Checks whether its portal fell silent or answers again.
    #[cold]
    #[inline(never)]
    pub(super) fn look_at_portal(&mut self) -> PortalNews {
        let was_silent = std::mem::replace(&mut self.is_silent, self.backend.has_silent_portal());
        match (was_silent, self.is_silent) {
            (true, false) => PortalNews::Answers,
            (false, true) if !std::mem::replace(&mut self.waits, true) => PortalNews::FellSilent,
            _ => PortalNews::Nothing,
        }
    }

    fn has_room(&mut self) -> bool {
        self.transmit().is_turn_over() || !self.transmit().is_full()
    }

    #[inline]
    fn take(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, Violation> {
        self.backend.now = now;
        self.target.receive(now, bytes, &mut self.backend)
    }

    /// Whether it waits for room or for its next turn.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether the turn ended now, outside `receive` and `go_on`: work that had waited was charged. It waits from then on.
    #[inline]
    pub(super) fn has_ended_its_turn(&mut self) -> bool {
        self.transmit().is_turn_over() && !std::mem::replace(&mut self.waits, true)
    }

    #[inline]
    pub(super) fn backlog_len(&self) -> usize {
        self.backlog.len()
    }

    /// Bytes held for a peer that does not read.
    pub(super) fn kept_bytes(&mut self) -> usize {
        self.transmit().len() + self.backlog.len()
    }

    pub(super) fn complete(&mut self, now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>) {
        self.backend.now = now;
        self.target.complete(now, id, result, &mut self.backend);
    }

    /// Handles what other connections did to this one.
    pub(super) fn handle_notification(&mut self, now: Instant) {
        self.backend.now = now;
        self.target.handle_notification(now, &mut self.backend);
    }

    /// Arithmetic that it requested is done.
    pub(super) fn worked(&mut self, now: Instant, worked: Worked) {
        self.backend.now = now;
        self.target.worked(now, worked, &mut self.backend);
    }

    /// Handles what is due by `now`: delayed operations and the protocol's own timers.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        self.backend.now = now;
        while let Some((id, result)) = self.backend.operations.take_due(now) {
            self.complete(now, id, result);
        }
        self.predecessor.look(now)?;
        let due = self.target.poll_timeout().is_some_and(|at| at <= now);
        if due { self.target.handle_timeout(now, &mut self.backend) } else { Ok(()) }
    }

    #[allow(clippy::inline_always)] // saves 20 instructions of an I/O alone on its connection
    #[inline(always)]
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if let Some(at) = self.predecessor.next_look {
            return Some(at);
        }
        let protocol = self.target.poll_timeout();
        match (protocol, self.backend.operations.next_due()) {
            (Some(protocol), Some(due)) => Some(protocol.min(due)),
            (one, None) | (None, one) => one,
        }
    }

    #[inline]
    pub(super) fn transmit(&mut self) -> &mut Transmit {
        self.target.transmit()
    }

    pub(super) fn wants_receive(&mut self) -> bool {
        self.is_closing || !self.waits && !self.transmit().is_full()
    }

    /// Whether the peer logged out or was refused.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.target.is_closing() || self.predecessor.live.as_ref().is_some_and(LiveSession::is_ended)
    }

    /// Whether it will carry no I/O.
    #[inline]
    pub(super) fn carries_no_io(&self) -> bool {
        self.target.carries_no_io()
    }

    pub(super) fn disconnected(&mut self, now: Instant) {
        self.target.disconnected(now, &mut self.backend);
        self.backend.operations.abort_all();
        self.backend.ending = None;
        self.predecessor.close(&self.backend);
    }
}

impl Predecessor {
    fn find(now: Instant, backend: &ServerBackend) -> Self {
        let Service::Protocol(protocol) = backend.portal().service else { return Self::default() };
        if protocol.about().rpc_programs.is_empty() {
            return Self::default();
        }
        let server = &backend.state.server;
        let opened = server.peers.lock().open(backend.peer_key(), Origin::of_address(backend.address()), ());
        let Some((live, mut waits_for)) = opened else { return Self::default() };
        if waits_for.are_over() {
            return Self { live: Some(live), ..Self::default() };
        }
        let wait = Wait::begin(now, waits_for, || server.notifier.notify());
        Self { live: Some(live), wait: Some(wait), next_look: Some(now + Wait::POLL) }
    }

    fn look(&mut self, now: Instant) -> Result<(), Violation> {
        let Some(wait) = &mut self.wait else { return Ok(()) };
        (self.wait, self.next_look) = match wait.outcome(now) {
            WaitOutcome::Waits => {
                self.next_look = Some(now + Wait::POLL);
                return Ok(());
            }
            WaitOutcome::Ended => (None, None),
            WaitOutcome::TooLong => {
                let late = "the connection that this peer had before does not end";
                return Err(Violation::timed_out(late));
            }
        };
        Ok(())
    }

    fn close(&mut self, backend: &ServerBackend) {
        if let Some(live) = self.live.take() {
            backend.state.server.peers.lock().close(&live);
        }
    }
}

/// The contents of this portal's portmapper: the ports of the exports that named it.
fn mappings(backend: &ServerBackend) -> Vec<Mapping> {
    let exports = &backend.portal().exports;
    let mut found: Vec<Mapping> = Vec::new();
    for portal in &backend.state.server.config.portals {
        let Service::Protocol(protocol) = portal.service else { continue };
        if !portal.exports.iter().any(|export| exports.contains(export)) {
            continue;
        }
        for (program, version) in protocol.about().rpc_programs.iter().copied() {
            // A portmapper has one port per program; the first is used.
            if !found.iter().any(|known| (known.program, known.version) == (program, version)) {
                found.push(Mapping::tcp(program, version, portal.address.port()));
            }
        }
    }
    found
}
