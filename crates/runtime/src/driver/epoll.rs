//! Sockets over epoll, edge-triggered: in the steady state a wake costs one wait, one receive and one send.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use iotax_node::{CloseReason, ConnId, Input, ListenerId, Node, Output};
use iotax_proto::Instant;
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    io::Errno,
    net::{RecvFlags, sockopt},
    time::Timespec,
};

use super::{
    DriverConfig,
    gather::{Gather, Sent},
    life::{Life, Step},
    pool::Pool,
    run::{Common, MAX_RECEIVE_BYTES, Port, Until, settle},
    socket,
    table::Table,
    waker::Handed,
};
use crate::disk::{Disk, Transfer};

/// Receives from one connection before the others have their turn.
const RECEIVES_A_TURN: usize = 8;

/// Connections accepted from one listener in a turn.
const ACCEPTS_A_TURN: usize = 64;

/// Events taken in one wait.
const EVENTS: usize = 256;

/// Kinds of events, in the top byte of their data; a connection's key is below.
const KIND_SHIFT: u32 = 56;
const CONNECTION: u64 = 0;
const LISTENER: u64 = 1;
const WAKER: u64 = 2;
const POOL: u64 = 3;

pub(super) struct EpollPort {
    common: Common,
    epoll: OwnedFd,
    listeners: Vec<TcpListener>,
    conns: Table<Conn>,
    /// Connections that may have bytes for us; an id that is not `queued` any more is passed over.
    ready: Vec<ConnId>,
    ready_now: Vec<ConnId>,
    /// Connections with bytes to send.
    dirty: Vec<ConnId>,
    dirty_now: Vec<ConnId>,
    /// Readable connections whose bytes the node does not want for now.
    paused: Vec<ConnId>,
    closing_count: usize,
    events: Vec<Event>,
    /// One for all connections: bytes stay in it only while the node looks at them.
    receive_buffer: Vec<u8>,
    gather: Gather,
    disks: Vec<Arc<Disk>>,
    pool: Pool,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a socket, not the states of a machine")]
struct Conn {
    socket: OwnedFd,
    connecting: bool,
    /// The system has said since the last `EAGAIN` that a receive may bring something.
    readable: bool,
    writable: bool,
    /// Bytes received since there were none.
    streak_bytes: usize,
    /// The peer has ended its side: receive until that shows, short receives or not.
    ended: bool,
    queued: bool,
    dirty: bool,
    paused: bool,
    life: Life,
}

impl Conn {
    fn new(socket: OwnedFd, connecting: bool) -> Self {
        Self {
            socket,
            connecting,
            readable: false,
            writable: !connecting,
            streak_bytes: 0,
            ended: false,
            queued: false,
            dirty: false,
            paused: false,
            life: Life::default(),
        }
    }
}

impl EpollPort {
    pub(super) fn new(config: DriverConfig) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let common = Common::new(&config);
        let pool = Pool::new()?;
        epoll::add(
            &epoll,
            common.waker.notifier().fd(),
            EventData::new_u64(WAKER << KIND_SHIFT),
            EventFlags::IN | EventFlags::ET,
        )?;
        epoll::add(&epoll, pool.fd(), EventData::new_u64(POOL << KIND_SHIFT), EventFlags::IN | EventFlags::ET)?;
        let port = Self {
            common,
            epoll,
            listeners: config.listeners,
            conns: Table::new(),
            ready: Vec::new(),
            ready_now: Vec::new(),
            dirty: Vec::new(),
            dirty_now: Vec::new(),
            paused: Vec::new(),
            closing_count: 0,
            events: Vec::with_capacity(EVENTS),
            receive_buffer: vec![0; MAX_RECEIVE_BYTES],
            gather: Gather::new(config.tricks),
            disks: config.disks,
            pool,
        };
        for (index, listener) in port.listeners.iter().enumerate() {
            listener.set_nonblocking(true)?;
            epoll::add(&port.epoll, listener, listener_data(index), EventFlags::IN)?;
        }
        Ok(port)
    }

    fn register(&mut self, id: ConnId, conn: Conn) -> io::Result<()> {
        self.conns.insert(id, conn);
        let data = EventData::new_u64((CONNECTION << KIND_SHIFT) | self.conns.key(id));
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Some(conn) = self.conns.get(id) {
            epoll::add(&self.epoll, &conn.socket, data, interest)?;
        }
        Ok(())
    }

    fn connect(&mut self, id: ConnId, to: SocketAddr) {
        let begun = socket::new_stream(to, self.common.socket, self.common.tricks).and_then(|socket| {
            rustix::io::ioctl_fionbio(&socket, true)?;
            match rustix::net::connect(&socket, &to) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error.into()),
            }
        });
        let registered = match begun {
            // A connection that stands at once is told of by the first event like any other.
            Ok(socket) => self.register(id, Conn::new(socket, true)),
            Err(error) => {
                self.conns.reserve(id);
                Err(error)
            }
        };
        if let Err(error) = registered {
            self.end(id, CloseReason::Failed(error.raw_os_error().unwrap_or(libc::EIO)));
        }
    }

    /// Begins an orderly end.
    fn close(&mut self, id: ConnId) {
        let key = self.conns.key(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !conn.life.start_closing() {
            return;
        }
        if conn.connecting {
            self.end(id, CloseReason::Ended);
            return;
        }
        self.closing_count += 1;
        self.common.start_closing(key);
        self.has_bytes(id);
        self.queue(id);
    }

    /// Drops the socket and remembers to tell the node.
    fn end(&mut self, id: ConnId, reason: CloseReason) {
        if let Some(conn) = self.conns.remove(id)
            && conn.life.is_closing()
            && !conn.connecting
        {
            self.closing_count -= 1;
        }
        self.common.gone.push_back((id, reason));
    }

    fn take_step(&mut self, id: ConnId, step: Step) {
        match step {
            Step::Stay => {}
            Step::Close => {
                self.close(id);
                self.has_bytes(id);
            }
            Step::ShutDown => {
                if let Some(conn) = self.conns.get(id) {
                    socket::end_sending(&conn.socket);
                }
            }
            Step::End(reason) => self.end(id, reason),
        }
    }

    /// Queues a connection for `process`.
    fn queue(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && !conn.queued
        {
            conn.queued = true;
            self.ready.push(id);
        }
    }

    fn take_event(&mut self, event: Event) {
        let data = event.data.u64();
        match data >> KIND_SHIFT {
            CONNECTION => {
                let Some(id) = self.conns.find(data) else { return };
                let Some(conn) = self.conns.get_mut(id) else { return };
                let flags = event.flags;
                if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
                    conn.ended = true;
                    conn.readable = true;
                }
                conn.readable |= flags.contains(EventFlags::IN);
                if flags.contains(EventFlags::OUT) && !conn.writable {
                    conn.writable = true;
                    if !conn.connecting {
                        self.has_bytes(id);
                    }
                }
                self.queue(id);
            }
            LISTENER => self.accept((data & 0xFFFF_FFFF) as usize),
            POOL => self.pool.take_done(&mut self.common.disk_done),
            _ => {}
        }
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_A_TURN {
            match socket::accept(&self.listeners[index]) {
                Ok((socket, peer)) => {
                    let listener = ListenerId(u32::try_from(index).unwrap_or(u32::MAX));
                    self.common.distribute(Handed { socket, listener, peer });
                }
                Err(Errno::AGAIN) => return,
                Err(error) if socket::is_shortage(error) => {
                    for (index, listener) in self.listeners.iter().enumerate() {
                        // The listeners are registered: modifying them cannot fail.
                        let _ = epoll::modify(&self.epoll, listener, listener_data(index), EventFlags::empty());
                    }
                    self.common.rest_listeners();
                    return;
                }
                // A connection that died in the queue.
                Err(_) => {}
            }
        }
    }

    /// The turn of one connection that may have news.
    fn serve<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.queued = false;
        if conn.connecting {
            if !conn.writable && !conn.ended {
                return;
            }
            match sockopt::socket_error(&conn.socket) {
                Ok(Ok(())) => {}
                Ok(Err(error)) | Err(error) => {
                    self.end(id, CloseReason::Failed(error.raw_os_error()));
                    return;
                }
            }
            conn.connecting = false;
            node.handle(self.common.clock.now(), Input::Connected { conn: id });
            settle(node, self);
            self.has_bytes(id);
        }
        self.receive(id, node);
    }

    fn receive<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let mut buffer = std::mem::take(&mut self.receive_buffer);
        let mut received = 0;
        while let Some(conn) = self.conns.get_mut(id)
            && conn.readable
            && conn.life.receives()
        {
            if received == RECEIVES_A_TURN {
                self.queue(id);
                break;
            }
            let wanted = node.wants_receive(id);
            let discard = conn.life.discards(wanted);
            if !discard && !wanted {
                if !conn.paused {
                    conn.paused = true;
                    self.paused.push(id);
                }
                break;
            }
            let limit = self.common.receive_limit(conn.streak_bytes);
            match rustix::net::recv(&conn.socket, &mut buffer[..limit], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    let step = conn.life.peer_ended();
                    self.take_step(id, step);
                }
                Ok((_, count)) => {
                    // Less than asked for: nothing is left, unless the peer's end is.
                    conn.readable = count == limit || conn.ended;
                    conn.streak_bytes = if count == limit { conn.streak_bytes + count } else { 0 };
                    received += 1;
                    if !discard {
                        node.handle(self.common.clock.now(), Input::Received { conn: id, bytes: &buffer[..count] });
                        settle(node, self);
                        self.send(id, node);
                    }
                }
                Err(Errno::AGAIN) => {
                    conn.readable = false;
                    conn.streak_bytes = 0;
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    let step = conn.life.receive_failed(error.raw_os_error());
                    self.take_step(id, step);
                }
            }
        }
        self.receive_buffer = buffer;
    }

    fn send<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.connecting {
            return;
        }
        if let Some(transmit) = node.transmit(id) {
            if conn.life.send_failed() {
                transmit.clear();
            } else if conn.writable {
                match self.gather.send(transmit, &conn.socket) {
                    Sent::All => {}
                    Sent::Blocked => conn.writable = false,
                    Sent::Failed(error) => {
                        // The peer's last words, and its end, are to be received.
                        conn.readable = true;
                        let step = conn.life.set_send_error(error);
                        self.queue(id);
                        self.take_step(id, step);
                        return;
                    }
                }
            }
            if !transmit.is_empty() {
                return;
            }
        }
        let step = conn.life.all_sent();
        self.take_step(id, step);
    }
}

impl Port for EpollPort {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Connect { conn, to } => self.connect(conn, to),
            Output::Close { conn } => self.close(conn),
            Output::Disk { token, disk, op } => match Transfer::new(Arc::clone(&self.disks[disk.0 as usize]), op) {
                Ok(transfer) => self.pool.submit(token, transfer),
                Err(error) => self.common.disk_done.push_back((token, Err(error))),
            },
        }
    }

    fn has_bytes(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && !conn.dirty
        {
            conn.dirty = true;
            self.dirty.push(id);
        }
    }

    fn adopt(&mut self, handed: Handed) -> Option<Input<'static>> {
        let refused = rustix::io::ioctl_fionbio(&handed.socket, true).is_err()
            || self.common.socket.apply(&handed.socket, handed.peer, self.common.tricks).is_err();
        if self.conns.len().saturating_sub(self.closing_count) >= self.common.max_connections || refused {
            return None;
        }
        let conn = self.conns.free_id();
        if self.register(conn, Conn::new(handed.socket, false)).is_err() {
            self.conns.remove(conn);
            self.conns.release(conn);
            return None;
        }
        Some(Input::Accepted { conn, listener: handed.listener, peer: handed.peer })
    }

    fn release(&mut self, conn: ConnId) {
        self.conns.release(conn);
    }

    fn resume<N: Node + ?Sized>(&mut self, node: &N) {
        let mut at = 0;
        while let Some(&id) = self.paused.get(at) {
            let over = |conn: &Conn| conn.life.discards(false);
            if self.conns.get(id).is_none_or(over) || node.wants_receive(id) {
                self.paused.swap_remove(at);
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.paused = false;
                }
                self.queue(id);
            } else {
                at += 1;
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(key) = self.common.take_expired(now) {
            if let Some(id) = self.conns.find(key)
                && let Some(conn) = self.conns.get(id)
            {
                let reason = conn.life.overdue();
                self.end(id, reason);
            }
        }
    }

    fn listen_again(&mut self) {
        for (index, listener) in self.listeners.iter().enumerate() {
            // The listeners are registered: modifying them cannot fail.
            let _ = epoll::modify(&self.epoll, listener, listener_data(index), EventFlags::IN);
        }
    }

    fn flush<N: Node + ?Sized>(&mut self, node: &mut N) {
        std::mem::swap(&mut self.dirty, &mut self.dirty_now);
        for at in 0..self.dirty_now.len() {
            let id = self.dirty_now[at];
            if let Some(conn) = self.conns.get_mut(id) {
                conn.dirty = false;
                self.send(id, node);
            }
        }
        self.dirty_now.clear();
    }

    fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.dirty.is_empty() || !self.events.is_empty()
    }

    fn connections(&self) -> usize {
        self.conns.len()
    }

    fn is_alone(&self) -> bool {
        self.conns.is_empty() && self.listeners.is_empty() && self.pool.is_idle()
    }

    fn is_closing(&self) -> bool {
        self.closing_count > 0
    }

    fn wait(&mut self, until: Until) -> io::Result<()> {
        let timeout = match until {
            Until::Now => Some(Duration::ZERO),
            Until::At(at) => Some(at.since(self.common.clock.now())),
            Until::Woken => None,
        };
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn process<N: Node + ?Sized>(&mut self, node: &mut N) {
        for at in 0..self.events.len() {
            let event = self.events[at];
            self.take_event(event);
        }
        self.events.clear();
        std::mem::swap(&mut self.ready, &mut self.ready_now);
        for at in 0..self.ready_now.len() {
            let id = self.ready_now[at];
            if self.conns.get(id).is_some_and(|conn| conn.queued) {
                self.serve(id, node);
            }
        }
        self.ready_now.clear();
    }
}

impl fmt::Debug for EpollPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpollPort").field("common", &self.common).field("conns", &self.conns).finish_non_exhaustive()
    }
}

fn listener_data(index: usize) -> EventData {
    EventData::new_u64((LISTENER << KIND_SHIFT) | index as u64)
}
