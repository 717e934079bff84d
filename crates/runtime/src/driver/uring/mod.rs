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
    sync::Arc,
};

use io_uring::{opcode, squeue, types::CancelBuilder};
use iotax_node::{CloseReason, ConnId, Input, ListenerId, Node, Output};
use iotax_proto::Instant;

use super::{
    DriverConfig,
    gather::{Gather, Sent},
    life::Step,
    run::{Common, Port, Until, settle},
    socket,
    table::Table,
    waker::Handed,
};
use crate::disk::{Disk, Transfer};
use buffers::Buffers;
use conn::Conn;
pub(super) use probe::refusal;
use ring::{Completion, Ring, fd};
use transfers::Transfers;

/// Kinds of operations, in the top byte of their user data; a key or an index is below.
const KIND_SHIFT: u32 = 56;
const RECEIVE: u64 = 0;
const ROOM: u64 = 1;
const CONNECT: u64 = 2;
const ACCEPT: u64 = 3;
const WAKE: u64 = 4;
const DISK: u64 = 5;
const CANCEL: u64 = 6;

/// `IORING_RECVSEND_POLL_FIRST`.
const POLL_FIRST: u16 = 1;

pub(super) struct UringPort {
    common: Common,
    /// Dropped before the buffers that it knows.
    ring: Ring,
    buffers: Buffers,
    listeners: Vec<TcpListener>,
    conns: Table<Conn>,
    completions: Vec<Completion>,
    /// Connections that may need a receive or have held bytes.
    ready: Vec<ConnId>,
    ready_now: Vec<ConnId>,
    /// Connections with bytes to send.
    dirty: Vec<ConnId>,
    dirty_now: Vec<ConnId>,
    /// Connections whose bytes the node does not want for now.
    paused: Vec<ConnId>,
    closing_count: usize,
    gather: Gather,
    disks: Vec<Arc<Disk>>,
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
            listeners: config.listeners,
            conns: Table::new(),
            completions: Vec::with_capacity(256),
            ready: Vec::new(),
            ready_now: Vec::new(),
            dirty: Vec::new(),
            dirty_now: Vec::new(),
            paused: Vec::new(),
            closing_count: 0,
            gather: Gather::new(config.tricks),
            disks: config.disks,
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

    fn connect(&mut self, id: ConnId, to: SocketAddr) {
        let socket = match socket::new_stream(to, self.common.socket, self.common.tricks) {
            Ok(socket) => socket,
            Err(error) => {
                self.conns.reserve(id);
                let reason = CloseReason::Failed(error.raw_os_error().unwrap_or(libc::EIO));
                self.common.gone.push_back((id, reason));
                return;
            }
        };
        let mut conn = Conn::new(socket);
        let address = conn.connecting.insert(Box::new(to.into()));
        let entry = opcode::Connect::new(fd(conn.socket.as_raw_fd()), address.as_ptr().cast(), address.len()).build();
        self.conns.insert(id, conn);
        let entry = entry.user_data((CONNECT << KIND_SHIFT) | self.conns.key(id));
        // SAFETY: the address is boxed in the connection, which stays until the operation has completed.
        unsafe { self.ring.push(&entry) };
    }

    fn close(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.ending.is_some() || !conn.life.start_closing() {
            return;
        }
        if conn.connecting.is_some() {
            self.end(id, CloseReason::Ended);
            return;
        }
        self.closing_count += 1;
        self.common.start_closing(self.conns.key(id));
        self.has_bytes(id);
        self.queue(id);
    }

    /// Calls back what the kernel has of a connection; when that is done, the node is told.
    fn end(&mut self, id: ConnId, reason: CloseReason) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.ending.is_none() {
            conn.ending = Some(reason);
            if conn.life.is_closing() && conn.connecting.is_none() {
                self.closing_count -= 1;
            }
            if !conn.is_still() {
                let entry = opcode::AsyncCancel2::new(CancelBuilder::fd(fd(conn.socket.as_raw_fd())).all())
                    .build()
                    .user_data(CANCEL << KIND_SHIFT);
                // SAFETY: the entry points to nothing.
                unsafe { self.ring.push(&entry) };
            }
        }
        self.end_if_still(id);
    }

    fn end_if_still(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && conn.is_still()
            && let Some(reason) = conn.ending.take()
        {
            self.conns.remove(id);
            self.common.gone.push_back((id, reason));
        }
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

    fn take_completion<N: Node + ?Sized>(&mut self, completion: Completion, node: &mut N) {
        let data = completion.user_data;
        match data >> KIND_SHIFT {
            RECEIVE => self.received(completion, node),
            ROOM => self.has_room(completion),
            CONNECT => self.connected(completion, node),
            ACCEPT => self.accepted(completion),
            WAKE if !completion.has_more() => self.watch_waker(),
            DISK => self.transfers.take_done(&mut self.ring, completion, &mut self.common.disk_done),
            _ => {}
        }
    }

    fn connected<N: Node + ?Sized>(&mut self, completion: Completion, node: &mut N) {
        let Some(id) = self.conns.find(completion.user_data) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.connecting = None;
        if conn.ending.is_some() {
            self.end_if_still(id);
        } else if let Err(error) = completion.outcome() {
            self.end(id, CloseReason::Failed(error));
        } else {
            node.handle(self.common.clock.now(), Input::Connected { conn: id });
            settle(node, self);
            self.has_bytes(id);
            self.queue(id);
        }
    }

    fn accepted(&mut self, completion: Completion) {
        let index = (completion.user_data & 0xFFFF_FFFF) as usize;
        match completion.outcome() {
            Ok(raw_fd) => {
                // SAFETY: the kernel just made this descriptor for us; nobody else has it.
                let socket = unsafe { OwnedFd::from_raw_fd(raw_fd.cast_signed()) };
                let peer = socket::peer_of(&socket);
                let listener = ListenerId(u32::try_from(index).unwrap_or(u32::MAX));
                self.common.distribute(Handed { socket, listener, peer });
                if !completion.has_more() {
                    self.accept(index);
                }
            }
            // A connection that died in the queue.
            Err(libc::ECONNABORTED) if completion.has_more() => {}
            Err(libc::ECONNABORTED) => self.accept(index),
            Err(_) => self.common.rest_listeners(),
        }
    }

    fn accept(&mut self, index: usize) {
        let entry = opcode::AcceptMulti::new(fd(self.listeners[index].as_raw_fd()))
            .flags(libc::SOCK_CLOEXEC)
            .build()
            .user_data((ACCEPT << KIND_SHIFT) | index as u64);
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(&entry) };
    }

    fn received<N: Node + ?Sized>(&mut self, completion: Completion, node: &mut N) {
        // The key finds the connection: its slot is kept while the kernel has a receive.
        let Some(id) = self.conns.find(completion.user_data) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.receiving = false;
        conn.more_waits = completion.leaves_bytes();
        let over = conn.ending.is_some();
        let wanted = node.wants_receive(id);
        let discard = over || conn.life.discards(wanted);
        match (completion.outcome(), completion.buffer()) {
            (Ok(len @ 1..), Some(buffer)) => {
                conn.streak_bytes = if conn.more_waits { conn.streak_bytes + len as usize } else { 0 };
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
            // All buffers were in use: tried again in this turn.
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

    /// Has the kernel receive once more, or waits until the node wants it.
    fn receive_on<N: Node + ?Sized>(&mut self, id: ConnId, node: &N) {
        let wanted = node.wants_receive(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.life.discards(wanted) || (wanted && conn.held.is_empty()) {
            self.arm_receive(id);
        } else if !conn.paused {
            conn.paused = true;
            self.paused.push(id);
        }
    }

    fn arm_receive(&mut self, id: ConnId) {
        let key = self.conns.key(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.receiving || conn.connecting.is_some() || conn.ending.is_some() || !conn.life.receives() {
            return;
        }
        conn.receiving = true;
        let entry = receive(conn.socket.as_raw_fd(), conn.more_waits, self.common.receive_limit(conn.streak_bytes))
            .user_data((RECEIVE << KIND_SHIFT) | key);
        // SAFETY: the entry points to nothing; the buffers are the ring's and live as long.
        unsafe { self.ring.push(&entry) };
    }

    /// The turn of a connection that has held bytes, or no receive with the kernel.
    fn serve<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.queued = false;
        if !conn.held.is_empty() && node.wants_receive(id) {
            let held = std::mem::take(&mut conn.held);
            if !conn.life.discards(true) && conn.ending.is_none() {
                node.handle(self.common.clock.now(), Input::Received { conn: id, bytes: &held });
                settle(node, self);
                self.send(id, node);
            }
        }
        self.receive_on(id, node);
    }

    /// A full socket takes bytes again; or it has failed, which the next send says better.
    fn has_room(&mut self, completion: Completion) {
        let Some(id) = self.conns.find(completion.user_data) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.blocked = false;
        if conn.ending.is_some() {
            self.end_if_still(id);
        } else {
            self.has_bytes(id);
        }
    }

    /// Sends at once, by a system call of its own: through the ring it would cost an operation and a completion more, and the
    /// completion would end the next wait for nothing.
    fn send<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.connecting.is_some() || conn.blocked || conn.ending.is_some() {
            return;
        }
        if let Some(transmit) = node.transmit(id) {
            if conn.life.send_failed() {
                transmit.clear();
                return;
            }
            match self.gather.send(transmit, &conn.socket) {
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

    fn watch_room(&mut self, id: ConnId) {
        let key = self.conns.key(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.blocked = true;
        let entry = opcode::PollAdd::new(fd(conn.socket.as_raw_fd()), libc::POLLOUT as u32)
            .build()
            .user_data((ROOM << KIND_SHIFT) | key);
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(&entry) };
    }
}

impl Port for UringPort {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Connect { conn, to } => self.connect(conn, to),
            Output::Close { conn } => self.close(conn),
            Output::Disk { token, disk, op } => match Transfer::new(Arc::clone(&self.disks[disk.0 as usize]), op) {
                Ok(transfer) => self.transfers.start(&mut self.ring, token, disk, transfer),
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
        if self.conns.len().saturating_sub(self.closing_count) >= self.common.max_connections
            || self.common.socket.apply(&handed.socket, handed.peer, self.common.tricks).is_err()
        {
            return None;
        }
        let conn = self.conns.free_id();
        self.conns.insert(conn, Conn::new(handed.socket));
        self.queue(conn);
        Some(Input::Accepted { conn, listener: handed.listener, peer: handed.peer })
    }

    fn release(&mut self, conn: ConnId) {
        self.conns.release(conn);
    }

    fn resume<N: Node + ?Sized>(&mut self, node: &N) {
        let mut at = 0;
        while let Some(&id) = self.paused.get(at) {
            let over = |conn: &Conn| conn.life.discards(false) || conn.ending.is_some();
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
        for index in 0..self.listeners.len() {
            self.accept(index);
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
        !self.ready.is_empty() || !self.dirty.is_empty() || !self.completions.is_empty()
    }

    fn connections(&self) -> usize {
        self.conns.len()
    }

    fn is_alone(&self) -> bool {
        self.conns.is_empty() && self.listeners.is_empty() && self.transfers.is_idle()
    }

    fn is_closing(&self) -> bool {
        self.closing_count > 0
    }

    fn wait(&mut self, until: Until) -> io::Result<()> {
        self.ring.wait(until, self.common.clock, &mut self.completions)
    }

    fn process<N: Node + ?Sized>(&mut self, node: &mut N) {
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.take_completion(completion, node);
        }
        self.completions = completions;
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

/// Receives once, into a buffer of the kernel's choice.
fn receive(socket: RawFd, more_waits: bool, limit: usize) -> squeue::Entry {
    // Where nothing is there yet, trying before waiting would be in vain.
    let order = if more_waits { 0 } else { POLL_FIRST };
    opcode::Recv::new(fd(socket), std::ptr::null_mut(), limit as u32)
        .buf_group(buffers::GROUP)
        .ioprio(order)
        .build()
        .flags(squeue::Flags::BUFFER_SELECT)
}

impl Drop for UringPort {
    /// Takes everything back from the kernel: it may still read or write memory that would be freed.
    fn drop(&mut self) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any().all()).build().user_data(CANCEL << KIND_SHIFT);
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(&cancel) };
        let ids: Vec<_> = self.conns.ids().collect();
        loop {
            let busy = |id: &ConnId| self.conns.get(*id).is_some_and(|conn| !conn.is_still());
            if self.transfers.is_idle() && !ids.iter().any(busy) {
                self.ring.release_files();
                return;
            }
            let mut completions = std::mem::take(&mut self.completions);
            if completions.is_empty() && self.ring.wait(Until::Woken, self.common.clock, &mut completions).is_err() {
                // Whatever the kernel still has must stay: better lost than overwritten.
                std::mem::forget(std::mem::replace(&mut self.conns, Table::new()));
                std::mem::forget(std::mem::take(&mut self.transfers));
                return;
            }
            for completion in completions {
                match completion.user_data >> KIND_SHIFT {
                    kind @ (RECEIVE | ROOM | CONNECT) => {
                        if let Some(id) = self.conns.find(completion.user_data)
                            && let Some(conn) = self.conns.get_mut(id)
                        {
                            conn.receiving &= kind != RECEIVE;
                            conn.blocked &= kind != ROOM;
                            conn.connecting.take_if(|_| kind == CONNECT);
                        }
                    }
                    DISK => self.transfers.take_done(&mut self.ring, completion, &mut self.common.disk_done),
                    _ => {}
                }
            }
        }
    }
}

impl fmt::Debug for UringPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringPort").field("common", &self.common).field("conns", &self.conns).finish_non_exhaustive()
    }
}
