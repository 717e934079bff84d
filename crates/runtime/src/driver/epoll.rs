//! Sockets over epoll, edge-triggered: in the steady state a wake costs one wait, one receive and one send.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    time::Duration,
};

use iotax_node::{CloseReason, ConnId, DiskId, DiskToken, Input, ListenerId, Node};
use iotax_proto::Payload;
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    io::Errno,
    net::{RecvFlags, sockopt},
    time::Timespec,
};

use super::{
    DriverConfig,
    connections::Connection,
    gather::Sent,
    life::Life,
    place,
    pool::Pool,
    port::{Common, MAX_RECEIVE_BYTES, Port, SPILL_BYTES, Until, receive_limit, settle},
    socket::{self, Window},
    waker::Handed,
};
use crate::disk::Transfer;

/// Receives from one connection before other connections have their turn.
const RECEIVES_A_TURN: usize = 8;

/// Maximum number of connections accepted from one listener in a turn.
const ACCEPTS_A_TURN: usize = 64;

/// Maximum number of events per wait.
const EVENTS: usize = 256;

/// Kinds of events, in the top byte of their data; below it is a connection's key.
const KIND_SHIFT: u32 = 56;
const CONNECTION: u64 = 0;
const LISTENER: u64 = 1;
const WAKER: u64 = 2;
const POOL: u64 = 3;

pub(super) struct EpollPort {
    common: Common<Conn>,
    epoll: OwnedFd,
    listeners: Vec<TcpListener>,
    events: Vec<Event>,
    /// One buffer for all connections: it holds bytes only while the node processes them.
    receive_buffer: Vec<u8>,
    pool: Pool,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a socket, not the states of a machine")]
pub(super) struct Conn {
    socket: OwnedFd,
    connecting: bool,
    /// A receive may return something: the system has reported it since the last `EAGAIN`.
    readable: bool,
    writable: bool,
    /// Bytes received since a receive last found fewer than requested.
    streak_bytes: usize,
    window: Window,
    /// The last receive filled a place.
    had_place: bool,
    /// The peer has ended its side: keep receiving until the end arrives, even after short receives.
    ended: bool,
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
            window: if connecting { Window::of_initiator() } else { Window::default() },
            had_place: false,
            ended: false,
            life: Life::default(),
        }
    }

    /// Counts a receive. `is_full`: it got all that was requested, so more may wait.
    #[inline]
    fn count_streak(&mut self, received: usize, is_full: bool) {
        if is_full {
            self.streak_bytes += received;
            self.window.received(&self.socket, self.streak_bytes);
        } else {
            self.streak_bytes = 0;
        }
    }
}

impl Connection for Conn {
    fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn life(&self) -> &Life {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    fn is_connecting(&self) -> bool {
        self.connecting
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
            events: Vec::with_capacity(EVENTS),
            receive_buffer: vec![0; MAX_RECEIVE_BYTES],
            pool,
        };
        for (index, listener) in port.listeners.iter().enumerate() {
            listener.set_nonblocking(true)?;
            epoll::add(&port.epoll, listener, listener_data(index), EventFlags::IN)?;
        }
        Ok(port)
    }

    fn register(&mut self, id: ConnId, conn: Conn) -> io::Result<()> {
        self.common.conns.insert(id, conn);
        let data = EventData::new_u64((CONNECTION << KIND_SHIFT) | self.common.conns.key(id));
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Some(conn) = self.common.conns.get(id) {
            epoll::add(&self.epoll, &conn.socket, data, interest)?;
        }
        Ok(())
    }

    fn take_event(&mut self, event: Event) {
        let data = event.data.u64();
        match data >> KIND_SHIFT {
            CONNECTION => {
                let Some(id) = self.common.conns.find(data) else { return };
                let Some(conn) = self.common.conns.get_mut(id) else { return };
                let flags = event.flags;
                if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
                    conn.ended = true;
                    conn.readable = true;
                }
                conn.readable |= flags.contains(EventFlags::IN);
                if flags.contains(EventFlags::OUT) && !conn.writable {
                    conn.writable = true;
                    if !conn.connecting {
                        self.common.conns.has_bytes(id);
                    }
                }
                self.common.conns.queue(id);
            }
            LISTENER => self.accept((data & 0xFFFF_FFFF) as usize),
            POOL => self.pool.take_done(&mut self.common.disk_done),
            WAKER => {}
            kind => unreachable!("no descriptor is watched as {kind}"),
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
                        // The listeners are registered, so modifying them cannot fail.
                        let _ = epoll::modify(&self.epoll, listener, listener_data(index), EventFlags::empty());
                    }
                    self.common.rest_listeners();
                    return;
                }
                // A connection that ended in the queue.
                Err(_) => {}
            }
        }
    }

    fn receive<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let mut buffer = std::mem::take(&mut self.receive_buffer);
        let mut received = 0;
        while let Some(conn) = self.common.conns.get_mut(id)
            && conn.readable
            && conn.life.receives()
        {
            if received == RECEIVES_A_TURN {
                self.common.conns.queue(id);
                break;
            }
            let wanted = node.wants_receive(id);
            let discard = conn.life.discards(wanted);
            if !discard && !wanted {
                self.common.conns.pause(id);
                break;
            }
            if !discard && let Some(place) = node.place(id, place::MIN_BYTES) {
                received += 1;
                self.receive_in_place(id, node, &place, &mut buffer);
                continue;
            }
            let limit = receive_limit(self.common.optimisations, conn.streak_bytes, conn.had_place);
            match rustix::net::recv(&conn.socket, &mut buffer[..limit], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    let step = conn.life.peer_ended();
                    self.take_step(id, step);
                }
                Ok((_, count)) => {
                    // Less than requested: nothing is left, except possibly the peer's end.
                    conn.readable = count == limit || conn.ended;
                    conn.count_streak(count, count == limit);
                    conn.had_place = false;
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

    fn receive_in_place<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N, place: &Payload, buffer: &mut [u8]) {
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        let behind = &mut buffer[..SPILL_BYTES];
        match place::receive(&conn.socket, place, behind) {
            Ok((0, _)) => {
                let step = conn.life.peer_ended();
                self.take_step(id, step);
            }
            Ok((placed, more)) => {
                let is_full = placed + more == place::limit(place, behind.len());
                conn.readable = is_full || conn.ended;
                conn.count_streak(placed + more, is_full);
                conn.had_place = true;
                place::tell(node, self.common.clock.now(), id, placed, &behind[..more]);
                settle(node, self);
                self.send(id, node);
            }
            Err(libc::EAGAIN) => {
                conn.readable = false;
                conn.streak_bytes = 0;
            }
            Err(libc::EINTR) => {}
            Err(error) => {
                let step = conn.life.receive_failed(error);
                self.take_step(id, step);
            }
        }
    }
}

impl Port for EpollPort {
    type Conn = Conn;

    fn common(&mut self) -> &mut Common<Conn> {
        &mut self.common
    }

    fn connect(&mut self, id: ConnId, to: SocketAddr) {
        let begun = socket::new_stream(to, self.common.socket, self.common.optimisations).and_then(|socket| {
            rustix::io::ioctl_fionbio(&socket, true)?;
            match rustix::net::connect(&socket, &to) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error.into()),
            }
        });
        let registered = match begun {
            // If it is connected at once, the first event reports that as for any other connection.
            Ok(socket) => self.register(id, Conn::new(socket, true)),
            Err(error) => {
                self.common.conns.reserve(id);
                Err(error)
            }
        };
        if let Err(error) = registered {
            self.end(id, CloseReason::Failed(error.raw_os_error().unwrap_or(libc::EIO)));
        }
    }

    fn take_over(&mut self, id: ConnId, socket: OwnedFd) -> bool {
        if rustix::io::ioctl_fionbio(&socket, true).is_err() {
            return false;
        }
        let registered = self.register(id, Conn::new(socket, false)).is_ok();
        if !registered {
            self.common.conns.remove(id);
            self.common.conns.release(id);
        }
        registered
    }

    fn end(&mut self, id: ConnId, reason: CloseReason) {
        if let Some(conn) = self.common.conns.remove(id)
            && conn.life.is_closing()
            && !conn.connecting
        {
            self.common.conns.has_closed();
        }
        self.common.conns.gone.push_back((id, reason));
    }

    fn start_transfer(&mut self, token: DiskToken, _: DiskId, transfer: Transfer) {
        self.pool.submit(token, transfer);
    }

    fn send<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        if conn.connecting {
            return;
        }
        if let Some(transmit) = node.transmit(id) {
            if conn.life.send_failed() {
                transmit.clear();
            } else if conn.writable {
                match self.common.gather.send(transmit, &conn.socket) {
                    Sent::All => {}
                    Sent::Blocked => conn.writable = false,
                    Sent::Failed(error) => {
                        // The peer's last bytes, and its end, are still to be received.
                        conn.readable = true;
                        let step = conn.life.set_send_error(error);
                        self.common.conns.queue(id);
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

    fn serve<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let Some(conn) = self.common.conns.get_mut(id) else { return };
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
            self.common.conns.has_bytes(id);
        }
        self.receive(id, node);
    }

    fn listen_again(&mut self) {
        for (index, listener) in self.listeners.iter().enumerate() {
            // The listeners are registered, so modifying them cannot fail.
            let _ = epoll::modify(&self.epoll, listener, listener_data(index), EventFlags::IN);
        }
    }

    fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    fn is_alone(&self) -> bool {
        self.common.conns.is_empty() && self.listeners.is_empty() && self.pool.is_idle()
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

    fn take_events<N: Node + ?Sized>(&mut self, _: &mut N) {
        for at in 0..self.events.len() {
            let event = self.events[at];
            self.take_event(event);
        }
        self.events.clear();
    }
}

impl fmt::Debug for EpollPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpollPort").field("common", &self.common).finish_non_exhaustive()
    }
}

fn listener_data(index: usize) -> EventData {
    EventData::new_u64((LISTENER << KIND_SHIFT) | index as u64)
}
