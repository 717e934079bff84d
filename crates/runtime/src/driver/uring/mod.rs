//! Sockets and disks over io_uring: in the steady state a wake costs one wait, which also receives, and one send.

mod buffers;
mod conn;
mod probe;
mod ring;
mod transfers;

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use io_uring::{opcode, squeue, types::CancelBuilder};
use iotax_node::{CloseReason, ConnId, DiskId, DiskToken, Input, ListenerId, Node};

use super::{
    DriverConfig,
    connections::Connections,
    gather::Sent,
    place,
    port::{Common, Port, SPILL_BYTES, Until, receive_limit, settle},
    socket::{self, Window},
    waker::Handed,
};
use crate::disk::Transfer;
use buffers::Buffers;
use conn::Conn;
pub(super) use probe::refusal;
use ring::{Completion, Ring, fd};
use transfers::Transfers;

/// Kinds of operations, in the top byte of their user data; below it is a key or an index.
const KIND_SHIFT: u32 = 56;
const RECEIVE: u64 = 0;
const ROOM: u64 = 1;
const CONNECT: u64 = 2;
const ACCEPT: u64 = 3;
const WAKE: u64 = 4;
const DISK: u64 = 5;
const CANCEL: u64 = 6;
const READABLE: u64 = 7;

/// `IORING_RECVSEND_POLL_FIRST`.
const POLL_FIRST: u16 = 1;

pub(super) struct UringPort {
    common: Common<Conn>,
    /// Dropped before the buffers, which it refers to.
    ring: Ring,
    buffers: Buffers,
    /// Memory for bytes behind data that are received in place.
    spill: Vec<u8>,
    listeners: Vec<TcpListener>,
    /// Whether an accept of each listener is at the kernel; it returns many connections.
    accepting: Vec<bool>,
    completions: Vec<Completion>,
    transfers: Transfers,
}

impl UringPort {
    pub(super) fn new(config: DriverConfig) -> io::Result<Self> {
        let ring = Ring::new()?;
        let buffers = Buffers::new(&ring)?;
        ring.register_files(&config.disks.iter().map(|disk| disk.raw_fd()).collect::<Vec<_>>())?;
        let mut port = Self {
            common: Common::new(&config),
            ring,
            buffers,
            spill: vec![0; SPILL_BYTES],
            accepting: vec![false; config.listeners.len()],
            listeners: config.listeners,
            completions: Vec::with_capacity(256),
            transfers: Transfers::default(),
        };
        port.watch_waker();
        port.listen_again();
        Ok(port)
    }

    fn watch_waker(&mut self) {
        let entry = opcode::PollAdd::new(fd(self.common.waker.notifier().fd().as_raw_fd()), libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(WAKE << KIND_SHIFT);
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(&entry) };
    }

    fn end_if_still(&mut self, id: ConnId) {
        if let Some(conn) = self.common.conns.get_mut(id)
            && conn.is_still()
            && let Some(reason) = conn.ending.take()
        {
            self.common.conns.remove(id);
            self.common.conns.gone.push_back((id, reason));
        }
    }

    fn take_completion<N: Node + ?Sized>(&mut self, completion: Completion, node: &mut N) {
        let data = completion.user_data;
        match data >> KIND_SHIFT {
            RECEIVE => self.received(completion, node),
            READABLE => self.readable(completion, node),
            ROOM => self.has_room(completion),
            CONNECT => self.connected(completion, node),
            ACCEPT => self.accepted(completion),
            WAKE if !completion.has_more() => self.watch_waker(),
            DISK => self.transfers.take_done(&mut self.ring, completion, &mut self.common.disk_done),
            WAKE | CANCEL => {}
            kind => unreachable!("nothing is asked for as {kind}"),
        }
    }

    fn connected<N: Node + ?Sized>(&mut self, completion: Completion, node: &mut N) {
        let Some(id) = self.common.conns.find(completion.user_data) else { return };
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        conn.connecting = None;
        if conn.ending.is_some() {
            self.end_if_still(id);
        } else if let Err(error) = completion.outcome() {
            self.end(id, CloseReason::Failed(error));
        } else {
            node.handle(self.common.clock.now(), Input::Connected { conn: id });
            settle(node, self);
            self.common.conns.has_bytes(id);
            self.common.conns.queue(id);
        }
    }

    fn accepted(&mut self, completion: Completion) {
        let index = self.listener_of(completion);
        match completion.outcome() {
            Ok(raw_fd) => {
                // SAFETY: the kernel just created this descriptor for us; nothing else owns it.
                let socket = unsafe { OwnedFd::from_raw_fd(raw_fd.cast_signed()) };
                let peer = socket::peer_of(&socket);
                let listener = ListenerId(u32::try_from(index).unwrap_or(u32::MAX));
                self.common.distribute(Handed { socket, listener, peer });
                if !completion.has_more() {
                    self.accept(index);
                }
            }
            // A connection that ended in the queue.
            Err(libc::ECONNABORTED) if completion.has_more() => {}
            Err(libc::ECONNABORTED) => self.accept(index),
            Err(_) => self.common.rest_listeners(),
        }
    }

    /// The listener whose accept this is, which may be the accept's last completion.
    fn listener_of(&mut self, completion: Completion) -> usize {
        let index = (completion.user_data & 0xFFFF_FFFF) as usize;
        self.accepting[index] &= completion.has_more();
        index
    }

    fn accept(&mut self, index: usize) {
        let entry = opcode::AcceptMulti::new(fd(self.listeners[index].as_raw_fd()))
            .flags(libc::SOCK_CLOEXEC)
            .build()
            .user_data((ACCEPT << KIND_SHIFT) | index as u64);
        self.accepting[index] = true;
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(&entry) };
    }

    fn received<N: Node + ?Sized>(&mut self, completion: Completion, node: &mut N) {
        // The key always finds the connection, because its slot is kept while the kernel has a receive.
        let Some(id) = self.common.conns.find(completion.user_data) else { return };
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        conn.receiving = false;
        conn.had_place = false;
        conn.more_waits = completion.leaves_bytes();
        let over = conn.ending.is_some();
        let wanted = node.wants_receive(id);
        let discard = over || conn.life.discards(wanted);
        match (completion.outcome(), completion.buffer()) {
            (Ok(len @ 1..), Some(buffer)) => {
                conn.count_streak(len as usize);
                let bytes = self.buffers.bytes(buffer, len as usize);
                if discard {
                } else if wanted && conn.held.is_empty() {
                    node.handle(self.common.clock.now(), Input::Received { conn: id, bytes });
                    settle(node, self);
                } else {
                    conn.held.extend_from_slice(bytes);
                }
            }
            (Ok(_), _) if !over => {
                let step = conn.life.peer_ended();
                self.take_step(id, step);
            }
            // All buffers were in use: retried in this turn.
            (Err(libc::ENOBUFS | libc::EINTR | libc::EAGAIN) | Ok(_), _) => {}
            (Err(error), _) if !over => {
                let step = conn.life.receive_failed(error);
                self.take_step(id, step);
            }
            (Err(_), _) => {}
        }
        if let Some(buffer) = completion.buffer() {
            self.buffers.give_back(buffer);
        }
        self.end_if_still(id);
        self.send(id, node);
        self.receive_on(id, node);
    }

    /// Starts another receive, or waits until the node accepts bytes.
    fn receive_on<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let wanted = node.wants_receive(id);
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        if conn.life.discards(wanted) {
            self.arm_receive(id);
        } else if wanted && conn.held.is_empty() {
            if node.place(id, place::MIN_BYTES).is_none() {
                self.arm_receive(id);
            } else if conn.more_waits {
                self.common.conns.queue(id);
            } else {
                self.watch_readable(id);
            }
        } else {
            self.common.conns.pause(id);
        }
    }

    fn arm_receive(&mut self, id: ConnId) {
        let key = self.common.conns.key(id);
        let Some(conn) = self.common.conns.get_mut(id).filter(|conn| conn.may_receive()) else { return };
        conn.receiving = true;
        let entry = receive(
            conn.socket.as_raw_fd(),
            conn.more_waits,
            receive_limit(self.common.optimisations, conn.streak_bytes, conn.had_place),
        )
        .user_data((RECEIVE << KIND_SHIFT) | key);
        // SAFETY: the entry points to nothing; the buffers are the ring's and live as long.
        unsafe { self.ring.push(&entry) };
    }

    /// Lets the kernel report when bytes arrive for a place. The receive is then a separate system call: a receive that
    /// waits in the ring could still write to the place after the operation has ended.
    fn watch_readable(&mut self, id: ConnId) {
        let key = self.common.conns.key(id);
        let Some(conn) = self.common.conns.get_mut(id).filter(|conn| conn.may_receive()) else { return };
        conn.receiving = true;
        let entry = opcode::PollAdd::new(fd(conn.socket.as_raw_fd()), libc::POLLIN as u32)
            .build()
            .user_data((READABLE << KIND_SHIFT) | key);
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(&entry) };
    }

    /// Bytes have arrived, or the connection has failed, which the next receive reports.
    fn readable<N: Node + ?Sized>(&mut self, completion: Completion, node: &mut N) {
        let Some(id) = self.common.conns.find(completion.user_data) else { return };
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        conn.receiving = false;
        conn.more_waits = true;
        if conn.ending.is_some() {
            self.end_if_still(id);
        } else {
            self.serve(id, node);
        }
    }

    /// Receives at once if the node names a place for the waiting bytes.
    fn receive_in_place<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let wanted = node.wants_receive(id);
        let Some(conn) = self.common.conns.get_mut(id).filter(|conn| conn.may_receive()) else { return };
        if !wanted || !conn.more_waits || !conn.held.is_empty() || conn.life.discards(wanted) {
            return;
        }
        let Some(place) = node.place(id, place::MIN_BYTES) else { return };
        match place::receive(&conn.socket, &place, &mut self.spill) {
            Ok((0, _)) => {
                let step = conn.life.peer_ended();
                self.take_step(id, step);
            }
            Ok((placed, spilt)) => {
                conn.more_waits = placed + spilt == place::limit(&place, self.spill.len());
                conn.count_streak(placed + spilt);
                conn.had_place = true;
                place::tell(node, self.common.clock.now(), id, placed, &self.spill[..spilt]);
                settle(node, self);
            }
            Err(libc::EAGAIN) => {
                conn.more_waits = false;
                conn.streak_bytes = 0;
            }
            Err(libc::EINTR) => {}
            Err(error) => {
                let step = conn.life.receive_failed(error);
                self.take_step(id, step);
            }
        }
        self.send(id, node);
    }

    /// A full socket has room again; or it has failed, which the next send reports.
    fn has_room(&mut self, completion: Completion) {
        let Some(id) = self.common.conns.find(completion.user_data) else { return };
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        conn.blocked = false;
        if conn.ending.is_some() {
            self.end_if_still(id);
        } else {
            self.common.conns.has_bytes(id);
        }
    }

    fn watch_room(&mut self, id: ConnId) {
        let key = self.common.conns.key(id);
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        conn.blocked = true;
        let entry = opcode::PollAdd::new(fd(conn.socket.as_raw_fd()), libc::POLLOUT as u32)
            .build()
            .user_data((ROOM << KIND_SHIFT) | key);
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(&entry) };
    }
}

impl Port for UringPort {
    type Conn = Conn;

    fn common(&mut self) -> &mut Common<Conn> {
        &mut self.common
    }

    fn connect(&mut self, id: ConnId, to: SocketAddr) {
        let socket = match socket::new_stream(to, self.common.socket, self.common.optimisations) {
            Ok(socket) => socket,
            Err(error) => {
                self.common.conns.reserve(id);
                let reason = CloseReason::Failed(error.raw_os_error().unwrap_or(libc::EIO));
                self.common.conns.gone.push_back((id, reason));
                return;
            }
        };
        let mut conn = Conn::new(socket);
        conn.window = Window::of_initiator();
        let address = conn.connecting.insert(Box::new(to.into()));
        let entry = opcode::Connect::new(fd(conn.socket.as_raw_fd()), address.as_ptr().cast(), address.len()).build();
        self.common.conns.insert(id, conn);
        let entry = entry.user_data((CONNECT << KIND_SHIFT) | self.common.conns.key(id));
        // SAFETY: the address is boxed in the connection, which stays until the operation has completed.
        unsafe { self.ring.push(&entry) };
    }

    fn take_over(&mut self, id: ConnId, socket: OwnedFd) -> bool {
        self.common.conns.insert(id, Conn::new(socket));
        self.common.conns.queue(id);
        true
    }

    /// Cancels the kernel's operations on the connection.
    fn end(&mut self, id: ConnId, reason: CloseReason) {
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        if conn.ending.is_none() {
            conn.ending = Some(reason);
            let had_begun = conn.life.is_closing() && conn.connecting.is_none();
            if !conn.is_still() {
                let entry = opcode::AsyncCancel2::new(CancelBuilder::fd(fd(conn.socket.as_raw_fd())).all())
                    .build()
                    .user_data(CANCEL << KIND_SHIFT);
                // SAFETY: the entry points to nothing.
                unsafe { self.ring.push(&entry) };
            }
            if had_begun {
                self.common.conns.has_closed();
            }
        }
        self.end_if_still(id);
    }

    fn start_transfer(&mut self, token: DiskToken, disk: DiskId, transfer: Transfer) {
        self.transfers.start(&mut self.ring, token, disk, transfer);
    }

    /// Sends at once, by a separate system call. Through the ring it would cost an additional operation and completion,
    /// and the completion would needlessly end the next wait.
    fn send<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        if conn.connecting.is_some() || conn.blocked || conn.ending.is_some() {
            return;
        }
        if let Some(transmit) = node.transmit(id) {
            if conn.life.send_failed() {
                transmit.clear();
                return;
            }
            match self.common.gather.send(transmit, &conn.socket) {
                Sent::All => {}
                Sent::Blocked => {
                    self.watch_room(id);
                    return;
                }
                Sent::Failed(error) => {
                    let step = conn.life.set_send_error(error);
                    self.take_step(id, step);
                    return;
                }
            }
        }
        let step = conn.life.all_sent();
        self.take_step(id, step);
    }

    /// Gives a turn to a connection that has held bytes, or without a receive at the kernel.
    fn serve<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let Some(conn) = self.common.conns.get_mut(id) else { return };
        if !conn.held.is_empty() && node.wants_receive(id) {
            let held = std::mem::take(&mut conn.held);
            if !conn.life.discards(true) && conn.ending.is_none() {
                node.handle(self.common.clock.now(), Input::Received { conn: id, bytes: &held });
                settle(node, self);
                self.send(id, node);
            }
        }
        self.receive_in_place(id, node);
        self.receive_on(id, node);
    }

    fn listen_again(&mut self) {
        for index in 0..self.listeners.len() {
            if !self.accepting[index] {
                self.accept(index);
            }
        }
    }

    fn has_events(&self) -> bool {
        !self.completions.is_empty()
    }

    fn is_alone(&self) -> bool {
        self.common.conns.is_empty() && self.listeners.is_empty() && self.transfers.is_idle()
    }

    fn wait(&mut self, until: Until) -> io::Result<()> {
        self.ring.wait(until, self.common.clock, &mut self.completions)
    }

    fn take_events<N: Node + ?Sized>(&mut self, node: &mut N) {
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.take_completion(completion, node);
        }
        self.completions = completions;
    }
}

// Receives once, into a buffer of the kernel's choice.
fn receive(socket: RawFd, more_waits: bool, limit: usize) -> squeue::Entry {
    // If nothing has arrived yet, trying before waiting would be useless.
    let order = if more_waits { 0 } else { POLL_FIRST };
    opcode::Recv::new(fd(socket), std::ptr::null_mut(), limit as u32)
        .buf_group(buffers::GROUP)
        .ioprio(order)
        .build()
        .flags(squeue::Flags::BUFFER_SELECT)
}

impl Drop for UringPort {
    /// Takes all operations back from the kernel, because it may still read or write memory that would be freed.
    fn drop(&mut self) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any().all()).build().user_data(CANCEL << KIND_SHIFT);
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(&cancel) };
        let ids: Vec<_> = self.common.conns.ids().collect();
        loop {
            let busy = |id: &ConnId| self.common.conns.get(*id).is_some_and(|conn| !conn.is_still());
            if self.transfers.is_idle() && !self.accepting.contains(&true) && !ids.iter().any(busy) {
                self.ring.release_files();
                return;
            }
            let mut completions = std::mem::take(&mut self.completions);
            if completions.is_empty() && self.ring.wait(Until::Woken, self.common.clock, &mut completions).is_err() {
                // Memory that the kernel still uses must stay: a leak is better than overwritten memory.
                std::mem::forget(std::mem::replace(&mut self.common.conns, Connections::new()));
                std::mem::forget(std::mem::take(&mut self.transfers));
                self.buffers.leak();
                return;
            }
            for completion in completions {
                match completion.user_data >> KIND_SHIFT {
                    kind @ (RECEIVE | READABLE | ROOM | CONNECT) => {
                        if let Some(id) = self.common.conns.find(completion.user_data)
                            && let Some(conn) = self.common.conns.get_mut(id)
                        {
                            conn.receiving &= kind != RECEIVE && kind != READABLE;
                            conn.blocked &= kind != ROOM;
                            conn.connecting.take_if(|_| kind == CONNECT);
                        }
                    }
                    DISK => self.transfers.take_done(&mut self.ring, completion, &mut self.common.disk_done),
                    ACCEPT => {
                        self.listener_of(completion);
                        if let Ok(raw_fd) = completion.outcome() {
                            // SAFETY: the kernel just created this descriptor for us; nothing else owns it.
                            drop(unsafe { OwnedFd::from_raw_fd(raw_fd.cast_signed()) });
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

impl fmt::Debug for UringPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringPort").field("common", &self.common).finish_non_exhaustive()
    }
}
