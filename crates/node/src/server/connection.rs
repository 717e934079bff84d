//! One connection: a protocol's target and its desk.

use iotax_proto::{
    Instant, IoId, Payload, Target, Transmit, UnitError, Violation, iscsi,
    nfs3::{self, MOUNT_PROGRAM, PROGRAM, VERSION},
    nvme::auth::Worked,
    nvme_tcp,
    rpc::{Mapping, Peer, Portmapper},
};

use super::{
    desk::Desk,
    portals::{Portal, Protocol, Service},
    room::Share,
};

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) desk: Desk,
    target: AnyTarget,
    /// The driver was asked to close it.
    pub(super) is_closing: bool,
    pub(super) deadline: Option<Instant>,
    /// As the node has counted it.
    pub(super) is_idle: bool,
    /// Bytes that came and were not taken, since their answers would find no room or others have their turn; `taken` of them are.
    backlog: Vec<u8>,
    taken: usize,
    /// It takes up no bytes before `go_on`.
    waits: bool,
    pub(super) share: Share,
}

/// Told apart here once for all, instead of at each call through a table.
enum AnyTarget {
    Nfs(Box<nfs3::target_side::Connection>),
    Portmap(Box<Portmapper>),
    Iscsi(Box<iscsi::target_side::Connection>),
    Nvme(Box<nvme_tcp::TargetQueue>),
}

macro_rules! each {
    ($target:expr, $bound:ident => $use_it:expr) => {
        match $target {
            AnyTarget::Nfs($bound) => $use_it,
            AnyTarget::Portmap($bound) => $use_it,
            AnyTarget::Iscsi($bound) => $use_it,
            AnyTarget::Nvme($bound) => $use_it,
        }
    };
}

impl Connection {
    pub(super) fn new(now: Instant, desk: Desk) -> Self {
        let peer = Peer { address: desk.peer.ip(), port: desk.peer.port() };
        let target = match desk.portal().service {
            Service::Portmap => AnyTarget::Portmap(Box::new(Portmapper::new(now, mappings(&desk)))),
            Service::Protocol(Protocol::Nfs3) => {
                let handles = nfs3::target_side::Handles::new(desk.counter.server.handle_key);
                let config = nfs3::target_side::Config { peer, handles, ..Default::default() };
                AnyTarget::Nfs(Box::new(nfs3::target_side::Connection::new(now, config)))
            }
            Service::Protocol(Protocol::Iscsi) => AnyTarget::Iscsi(Box::new(iscsi::target_side::Connection::new(
                now,
                iscsi::target_side::Config::default(),
            ))),
            Service::Protocol(Protocol::NvmeTcp) => {
                let config = nvme_tcp::TargetConfig::default();
                AnyTarget::Nvme(Box::new(nvme_tcp::TargetQueue::new(now, config)))
            }
        };
        let mut connection = Self {
            desk,
            target,
            is_closing: false,
            deadline: None,
            is_idle: false,
            backlog: Vec::new(),
            taken: 0,
            waits: false,
            share: Share::default(),
        };
        connection.deadline = connection.next_deadline();
        connection
    }

    /// A turn of it, with room for so many bytes of answers.
    #[inline]
    pub(super) fn receive(&mut self, now: Instant, bytes: &[u8], room: usize) -> Result<(), Violation> {
        if self.waits {
            // A driver had them before it could know.
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

    /// Goes on with what was left, where there is room again.
    pub(super) fn go_on(&mut self, now: Instant, room: usize) -> Result<(), Violation> {
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

    /// It could go on now.
    pub(super) fn may_go_on(&mut self) -> bool {
        self.transmit().is_turn_over() || !self.transmit().is_full()
    }

    #[inline]
    fn take(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, Violation> {
        self.desk.now = now;
        each!(&mut self.target, target => target.receive(now, bytes, &mut self.desk))
    }

    /// It waits for room, or for its next turn.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    #[inline]
    pub(super) fn backlog_len(&self) -> usize {
        self.backlog.len()
    }

    /// Bytes kept for a peer that does not read.
    pub(super) fn kept_bytes(&mut self) -> usize {
        self.transmit().len() + self.backlog.len()
    }

    pub(super) fn complete(&mut self, now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>) {
        self.desk.now = now;
        each!(&mut self.target, target => target.complete(now, id, result, &mut self.desk));
    }

    /// Does what other connections did to this one.
    pub(super) fn heed(&mut self, now: Instant) {
        self.desk.now = now;
        if let AnyTarget::Iscsi(target) = &mut self.target {
            target.heed(now, &mut self.desk);
        }
    }

    /// Arithmetic that it asked for is done.
    pub(super) fn worked(&mut self, now: Instant, worked: Worked) {
        self.desk.now = now;
        if let AnyTarget::Nvme(target) = &mut self.target {
            target.worked(now, worked, &mut self.desk);
        }
    }

    /// What is due by `now`: delayed operations, the protocol's own timers.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        self.desk.now = now;
        while let Some((id, result)) = self.desk.operations.take_due(now) {
            self.complete(now, id, result);
        }
        each!(&mut self.target, target => {
            let due = Target::<Desk>::poll_timeout(target.as_ref()).is_some_and(|at| at <= now);
            if due { target.handle_timeout(now, &mut self.desk) } else { Ok(()) }
        })
    }

    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let protocol = each!(&self.target, target => Target::<Desk>::poll_timeout(target.as_ref()));
        match (protocol, self.desk.operations.next_due()) {
            (Some(protocol), Some(due)) => Some(protocol.min(due)),
            (one, None) | (None, one) => one,
        }
    }

    #[inline]
    pub(super) fn transmit(&mut self) -> &mut Transmit {
        each!(&mut self.target, target => Target::<Desk>::transmit(target.as_mut()))
    }

    pub(super) fn wants_receive(&mut self) -> bool {
        self.is_closing || !self.waits && !self.transmit().is_full()
    }

    /// The peer logged out or was refused.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        each!(&self.target, target => Target::<Desk>::is_closing(target.as_ref()))
    }

    /// It will carry no I/O.
    #[inline]
    pub(super) fn carries_no_io(&self) -> bool {
        matches!(&self.target, AnyTarget::Nvme(target) if target.qid() == Some(0))
    }

    pub(super) fn disconnected(&mut self, now: Instant) {
        each!(&mut self.target, target => target.disconnected(now, &mut self.desk));
        self.desk.operations.abort_all();
    }
}

/// What this portal's portmapper tells: where the exports that named it are served.
fn mappings(desk: &Desk) -> Vec<Mapping> {
    let portals = desk.counter.server.config.portals.iter();
    let mut served = portals.filter(|portal| {
        portal.service == Service::Protocol(Protocol::Nfs3)
            && portal.exports.iter().any(|export| desk.portal().exports.contains(export))
    });
    // A portmapper has one port for a program; the first is it.
    let mapped = |portal: &Portal| {
        let port = portal.address.port();
        vec![Mapping::tcp(PROGRAM, VERSION, port), Mapping::tcp(MOUNT_PROGRAM, VERSION, port)]
    };
    served.next().map(mapped).unwrap_or_default()
}

impl std::fmt::Debug for AnyTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nfs(_) => "Nfs",
            Self::Portmap(_) => "Portmap",
            Self::Iscsi(_) => "Iscsi",
            Self::Nvme(_) => "Nvme",
        })
    }
}
