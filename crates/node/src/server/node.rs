//! One thread of the server as a node.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
};

use iotax_proto::{Instant, IoId, Origin, Payload, Shares, Transmit, UnitError, Violation};

use super::{
    arithmetic::Requester,
    backend::{ServerBackend, ThreadState},
    connection::{Connection, PortalNews},
    room::Room,
    shared::Server,
};
use crate::{
    node::{ConnId, DiskToken, Input, Node, Output},
    random::Unpredictable,
    volume::{Allocate, Buffers, Burn, Disks, Operations, RegionOf, Volumes},
};

/// Maximum number of notices kept for the log; the oldest are dropped.
const NOTICES_MAX: usize = 256;

/// One address may have 1/`ORIGINS_MIN` of a thread's connections, and of what other addresses leave.
const ORIGINS_MIN: usize = 4;

const NOT_READING: &str = "the peer does not read while memory for answers is short";

/// An event that an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub peer: SocketAddr,
    pub text: String,
}

pub struct ServerNode {
    thread: u64,
    /// Connections accepted so far.
    serial: u64,
    state: Rc<ThreadState>,
    /// By `ConnId`. In a cell only because `wants_receive` looks at a queue that requires `&mut`.
    connections: Vec<Option<RefCell<Box<Connection>>>>,
    open: usize,
    /// Number of open connections by origin.
    open_of: HashMap<Origin, usize>,
    /// Number of open connections that carry no I/O, such as admin queues.
    idle: usize,
    outputs: VecDeque<Output>,
    to_send: Vec<ConnId>,
    /// Not later than the earliest deadline of a connection.
    next_timer: Option<Instant>,
    notices: VecDeque<Notice>,
    /// The notifier's count when notifications were last handled.
    notifications: u64,
    room: Room,
    /// Connections that wait for room or for their next turn, or did so.
    backlogged: Vec<ConnId>,
}

impl ServerNode {
    /// `thread` is this thread's number, `region_of` returns its handle of a memory volume, `allocate` returns staging
    /// memory.
    pub fn new(
        server: Arc<Server>,
        thread: u64,
        region_of: &mut RegionOf<'_>,
        allocate: Allocate,
        burn: Option<Burn>,
    ) -> Self {
        let volumes = Rc::new(Volumes::new(&server.config.volumes, region_of, burn));
        let disks = Rc::new(RefCell::new(Disks::new(Buffers::new(allocate))));
        // No start of the server repeats the challenges of another one with the same secret.
        let challenges = format!("challenge {}", server.config.started_unix_ns);
        let random = RefCell::new(Unpredictable::new(&server.config.secret, &challenges, thread));
        Self {
            thread,
            serial: 0,
            state: Rc::new(ThreadState { server, volumes, disks, random, unfreed: RefCell::default() }),
            connections: Vec::new(),
            open: 0,
            open_of: HashMap::new(),
            idle: 0,
            outputs: VecDeque::new(),
            to_send: Vec::new(),
            next_timer: None,
            notices: VecDeque::new(),
            notifications: 0,
            room: Room::default(),
            backlogged: Vec::new(),
        }
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.open
    }

    /// Lets the connections handle what others did to them, if anything.
    #[cold]
    #[inline(never)]
    fn handle_notifications(&mut self, now: Instant) {
        self.look_at_claims(now);
        let notifications = self.state.server.notifier.count();
        if std::mem::replace(&mut self.notifications, notifications) == notifications {
            return;
        }
        for (requester, worked) in self.state.server.arithmetic.take_done(self.thread) {
            let is_there =
                |connection: &&mut Connection| connection.backend.requester == requester && !connection.is_closing;
            if let Some(connection) = self.connection(requester.conn).filter(is_there) {
                connection.worked(now, worked);
            }
        }
        // This settles all connections, including those above.
        for index in 0..self.connections.len() {
            let conn = ConnId(index as u32);
            let Some(connection) = self.connection(conn) else { continue };
            let news = connection.look_at_portal();
            if connection.is_closing {
                if news == PortalNews::Answers {
                    self.outputs.push_back(Output::Close { conn });
                }
                continue;
            }
            connection.handle_notification(now);
            if news == PortalNews::FellSilent {
                self.backlogged.push(conn);
            }
            self.settle(now, conn, Ok(()));
        }
    }

    /// Number of operations that wait for a disk, for claimed blocks, or for their turn.
    pub fn operations(&self) -> usize {
        self.state.disks.borrow().under_way()
    }

    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn connection(&mut self, conn: ConnId) -> Option<&mut Connection> {
        self.connections.get_mut(conn.0 as usize)?.as_mut().map(|cell| cell.get_mut().as_mut())
    }

    fn accepted(&mut self, now: Instant, conn: ConnId, listener: usize, peer: SocketAddr) {
        let config = &self.state.server.config;
        if self.open >= config.connections_max || listener >= config.portals.len() {
            self.notice(peer, "too many connections".to_owned());
            self.outputs.push_back(Output::Close { conn });
            return;
        }
        let shares = Shares { all: config.connections_max, of_origin: (config.connections_max / ORIGINS_MIN).max(1) };
        let of_origin = self.open_of.entry(Origin::of_address(peer.ip())).or_default();
        if !shares.has_room(self.open, *of_origin) {
            self.notice(peer, "too many connections of one address".to_owned());
            self.outputs.push_back(Output::Close { conn });
            return;
        }
        *of_origin += 1;
        self.serial += 1;
        let requester = Requester { thread: self.thread, conn, serial: self.serial };
        let backend = ServerBackend::new(Rc::clone(&self.state), requester, peer, listener);
        let index = conn.0 as usize;
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(RefCell::new(Box::new(Connection::new(now, backend))));
        self.open += 1;
        let waits = |connection: &mut Connection| {
            connection.look_at_portal();
            connection.waits()
        };
        if self.connection(conn).is_some_and(waits) {
            self.backlogged.push(conn);
        }
        self.settle(now, conn, Ok(()));
    }

    /// After any event of a connection: updates what it has to send, whether it ends, and when it is due.
    #[inline]
    fn settle(&mut self, now: Instant, conn: ConnId, result: Result<(), Violation>) {
        let connection = self.connections.get_mut(conn.0 as usize).and_then(Option::as_mut);
        let connection = connection.expect("something happened to the connection").get_mut();
        let queued = connection.transmit().len();
        if queued > 0 {
            self.to_send.push(conn);
        }
        if connection.has_ended_its_turn() {
            self.backlogged.push(conn);
        }
        let kept_bytes = queued + connection.backlog_len();
        self.room.update(now, &mut connection.share, kept_bytes);
        if connection.carries_no_io() != connection.is_idle {
            connection.is_idle = !connection.is_idle;
            if connection.is_idle { self.idle += 1 } else { self.idle -= 1 }
        }
        connection.deadline = if connection.is_closing { None } else { connection.next_deadline() };
        self.next_timer = earlier(self.next_timer, connection.deadline);
        if (result.is_err() || connection.has_ended()) && !connection.is_closing {
            self.close(now, conn, result);
        }
    }

    #[cold]
    #[inline(never)]
    fn close(&mut self, now: Instant, conn: ConnId, result: Result<(), Violation>) {
        let Some(connection) = self.connection(conn) else { return };
        connection.is_closing = true;
        connection.deadline = None;
        // Queued bytes may take long to leave, or never leave, but the session ends now: its initiator may return
        // before and waits for operations that are still running.
        connection.disconnected(now);
        let (peer, is_silent) = (connection.backend.peer, connection.is_silent);
        if !is_silent {
            self.outputs.push_back(Output::Close { conn });
        }
        if let Err(violation) = result {
            self.notice(peer, violation.to_string());
        }
    }

    #[inline]
    fn received(&mut self, now: Instant, conn: ConnId, bytes: &[u8]) {
        let room = self.room.of_connection();
        let Some(connection) = self.connection(conn) else { return };
        if connection.is_closing {
            return;
        }
        let waited = connection.waits();
        let result = connection.receive(now, bytes, room);
        if connection.waits() && !waited {
            self.backlogged.push(conn);
        }
        self.settle(now, conn, result);
    }

    fn placed(&mut self, now: Instant, conn: ConnId, len: usize) {
        let connection = self.connection(conn).filter(|connection| !connection.is_closing);
        if let Some(connection) = connection {
            let result = connection.placed(now, len);
            self.settle(now, conn, result);
        }
    }

    /// Gives a turn to each connection that waits for one, or for room.
    fn go_on(&mut self, now: Instant) {
        let room = self.room.of_connection();
        for conn in std::mem::take(&mut self.backlogged) {
            let Some(connection) = self.connection(conn).filter(|connection| !connection.is_closing) else { continue };
            let result = connection.go_on(now, room);
            self.settle(now, conn, result);
            if self.connection(conn).is_some_and(|connection| connection.waits()) {
                self.backlogged.push(conn);
            }
        }
    }

    /// Whether any waiting connection has room, or its turn has come.
    #[cold]
    fn may_go_on(&self) -> bool {
        self.backlogged.iter().any(|conn| {
            let connection = self.connections.get(conn.0 as usize).and_then(Option::as_ref);
            connection.is_none_or(|connection| connection.borrow_mut().may_go_on())
        })
    }

    /// Counts the bytes held for all peers while room is short, and ends connections whose peers do not read.
    fn count(&mut self, now: Instant) {
        if self.room.count_at.is_none_or(|at| now < at) {
            return;
        }
        for connection in self.connections.iter_mut().flatten() {
            let connection = connection.get_mut();
            let kept_bytes = connection.kept_bytes();
            self.room.update(now, &mut connection.share, kept_bytes);
        }
        self.room.counted(now);
        let is_short = self.room.is_short();
        for index in 0..self.connections.len() {
            let conn = ConnId(index as u32);
            let Some(connection) = self.connection(conn).filter(|connection| !connection.is_closing) else { continue };
            if !is_short {
                connection.share.is_fine();
                connection.transmit().begin_turn(Transmit::ROOM);
            } else if !connection.share.is_read(now) {
                self.settle(now, conn, Err(Violation::timed_out(NOT_READING)));
            }
        }
    }

    fn closed(&mut self, now: Instant, conn: ConnId) {
        let Some(place) = self.connections.get_mut(conn.0 as usize) else { return };
        if let Some(connection) = place.take() {
            let mut connection = connection.into_inner();
            self.idle -= usize::from(connection.is_idle);
            self.room.forget(&connection.share);
            connection.disconnected(now);
            self.open -= 1;
            let origin = Origin::of_address(connection.backend.peer.ip());
            if let Some(of_origin) = self.open_of.get_mut(&origin) {
                *of_origin -= 1;
                if *of_origin == 0 {
                    self.open_of.remove(&origin);
                }
            }
        }
    }

    fn timer(&mut self, now: Instant) {
        self.take_turn(now);
        self.state.free_some();
        self.go_on(now);
        self.count(now);
        if self.next_timer.is_none_or(|at| at > now) {
            return;
        }
        for index in 0..self.connections.len() {
            let conn = ConnId(index as u32);
            let Some(connection) = self.connection(conn) else { continue };
            if connection.deadline.is_some_and(|at| at <= now) {
                let result = connection.handle_timeout(now);
                self.settle(now, conn, result);
            }
        }
        let deadlines = self.connections.iter_mut().flatten().map(|connection| connection.get_mut().deadline);
        self.next_timer = deadlines.fold(None, earlier);
    }

    fn disk_done(&mut self, now: Instant, token: DiskToken, result: Result<u32, i32>) {
        let waiting = self.state.disks.borrow_mut().done(token);
        let Some((conn, id)) = waiting else { return };
        self.advance(now, conn, id, |operations| operations.disk_done(now, id, result));
    }

    /// Lets the next long operation do one piece of its work.
    fn take_turn(&mut self, now: Instant) {
        let next = self.state.disks.borrow_mut().next_turn();
        if let Some((conn, id)) = next {
            self.advance(now, conn, id, |operations| operations.take_turn(now, id));
        }
    }

    /// Continues operations whose blocks were claimed by others.
    #[inline]
    fn look_at_claims(&mut self, now: Instant) {
        while self.state.volumes.take_granted() {
            let barred = self.state.disks.borrow_mut().take_barred();
            for (conn, id) in barred {
                self.advance(now, conn, id, |operations| operations.look_at_claim(now, id));
            }
        }
    }

    /// Continues an operation, and replies if it is complete.
    #[inline]
    fn advance(
        &mut self,
        now: Instant,
        conn: ConnId,
        id: IoId,
        step: impl FnOnce(&mut Operations) -> Option<Result<Option<Payload>, UnitError>>,
    ) {
        let Some(connection) = self.connection(conn) else { return };
        if let Some(done) = step(&mut connection.backend.operations) {
            connection.complete(now, id, done);
        }
        self.settle(now, conn, Ok(()));
    }

    #[cold]
    fn notice(&mut self, peer: SocketAddr, text: String) {
        if self.notices.len() >= NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(Notice { peer, text });
    }
}

impl Node for ServerNode {
    fn idle_connections(&self) -> usize {
        self.idle
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Received { conn, bytes } => self.received(now, conn, bytes),
            Input::Placed { conn, len } => self.placed(now, conn, len),
            Input::Accepted { conn, listener, peer } => self.accepted(now, conn, listener.0 as usize, peer),
            Input::Closed { conn, .. } => self.closed(now, conn),
            Input::DiskDone { token, result } => self.disk_done(now, token, result),
            Input::Timer => self.timer(now),
            Input::Woken => self.handle_notifications(now),
            Input::Connected { .. } => {}
        }
        self.look_at_claims(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        if let Some(request) = self.state.disks.borrow_mut().poll() {
            return Some(Output::Disk { token: request.token, disk: request.disk, op: request.op });
        }
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        self.to_send.pop()
    }

    fn transmit(&mut self, conn: ConnId) -> Option<&mut Transmit> {
        self.connection(conn).map(Connection::transmit)
    }

    fn wants_receive(&self, conn: ConnId) -> bool {
        let connection = self.connections.get(conn.0 as usize).and_then(Option::as_ref);
        connection.is_none_or(|connection| connection.borrow_mut().wants_receive())
    }

    #[inline]
    fn place(&mut self, conn: ConnId, at_least: usize) -> Option<Payload> {
        self.connection(conn)?.place(at_least)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let state = &self.state;
        let has_long_work = state.disks.borrow().has_turn() || !state.unfreed.borrow().is_empty();
        if has_long_work || (!self.backlogged.is_empty() && self.may_go_on()) {
            return Some(Instant(0));
        }
        if self.room.is_short() { earlier(self.next_timer, self.room.count_at) } else { self.next_timer }
    }

    /// A server runs until its driver is stopped.
    fn is_finished(&self) -> bool {
        false
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

impl std::fmt::Debug for ServerNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServerNode({} connections)", self.open)
    }
}
