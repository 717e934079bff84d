//! The interface of io_uring or epoll to the driver's turn, and what is common to both.

use std::{collections::VecDeque, io, net::SocketAddr, os::fd::OwnedFd, rc::Rc, sync::Arc, time::Duration};

use iotax_node::{CloseReason, ConnId, DiskId, DiskToken, Input, Node, Output};
use iotax_proto::Instant;

use super::{
    DriverConfig,
    connections::{Connection, Connections},
    gather::Gather,
    life::LifeStep,
    optimisations::Optimisations,
    socket::{self, SocketOptions},
    waker::{Handed, Waker},
};
use crate::{
    clock::Clock,
    disk::{DriversDisk, Transfer},
};

/// Bytes per receive at the start of a streak, which lasts while a connection always has more to receive. Replies are
/// sent before the rest is received, so the peer works on them while we work on the rest. Otherwise both sides would
/// take turns, each asleep while the other works. Smaller receives cost more system calls; larger ones wake the peer
/// later. `examples/raw_limit.rs` shows it at depth 32.
const FIRST_RECEIVE_BYTES: usize = 32 * 1024;

/// After this many bytes of a streak both sides are busy anyway, and larger receives cost less.
const STREAK_BYTES: usize = 4 * FIRST_RECEIVE_BYTES;

/// Maximum bytes per receive.
pub(super) const MAX_RECEIVE_BYTES: usize = 128 * 1024;

/// Bytes that are received together with data in place, behind them: the next headers. More is likely to have a place,
/// too.
pub(super) const SPILL_BYTES: usize = 4 * 1024;

/// How long a listener rests if it could not accept because file descriptors or memory were short.
const LISTENER_REST: Duration = Duration::from_millis(100);

/// When a port without work returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// At once: there is work already.
    Now,
    At(Instant),
    Woken,
}

pub(super) trait Port {
    type Conn: Connection;

    fn common(&mut self) -> &mut Common<Self::Conn>;
    fn connect(&mut self, id: ConnId, to: SocketAddr);
    /// Serves an accepted socket under a free id; false if the system refuses.
    fn take_over(&mut self, id: ConnId, socket: OwnedFd) -> bool;
    /// Ends a connection without an orderly close. The node is informed when the kernel has no more operations on it.
    fn end(&mut self, id: ConnId, reason: CloseReason);
    fn start_transfer(&mut self, token: DiskToken, disk: DiskId, transfer: Transfer);
    /// Sends what the node has for a connection.
    fn send<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N);
    /// Gives a turn to one connection that may have events.
    fn serve<N: Node + ?Sized>(&mut self, id: ConnId, node: &mut N);
    /// Accepts again after a shortage.
    fn listen_again(&mut self);
    /// Whether the last wait returned events.
    fn has_events(&self) -> bool;
    /// Whether only the waker can cause an event.
    fn is_alone(&self) -> bool;
    /// Sleeps until there is an event, until the given time, or until woken.
    fn wait(&mut self, until: Until) -> io::Result<()>;
    /// Handles the events of the last wait.
    fn take_events<N: Node + ?Sized>(&mut self, node: &mut N);

    /// Executes or queues an output of the node.
    fn output(&mut self, output: Output) {
        match output {
            Output::Connect { conn, to } => self.connect(conn, to),
            Output::Close { conn } => self.close(conn),
            Output::Disk { token, disk, op } => {
                let common = self.common();
                match Transfer::new(Rc::clone(&common.disks[disk.0 as usize]), op) {
                    Ok(transfer) if transfer.never_waits() => common.disk_done.push_back((token, transfer.perform())),
                    Ok(transfer) => self.start_transfer(token, disk, transfer),
                    Err(error) => common.disk_done.push_back((token, Err(error))),
                }
            }
        }
    }

    /// Takes over an accepted socket, unless there are too many connections.
    fn adopt(&mut self, handed: Handed) -> Option<Input<'static>> {
        let Handed { socket, listener, peer } = handed;
        let common = self.common();
        let full = common.conns.open_count() >= common.max_connections;
        if full || common.socket.apply(&socket, peer, common.optimisations).is_err() {
            return None;
        }
        let conn = common.conns.free_id();
        self.take_over(conn, socket).then_some(Input::Accepted { conn, listener, peer })
    }

    /// Begins an orderly close.
    fn close(&mut self, id: ConnId) {
        let common = self.common();
        let Some(conn) = common.conns.get_mut(id) else { return };
        if conn.is_over() || !conn.life_mut().start_closing() {
            return;
        }
        if conn.is_connecting() {
            self.end(id, CloseReason::Ended);
            return;
        }
        let deadline = common.clock.now() + common.close_timeout;
        common.conns.start_closing(id, deadline);
        common.conns.has_bytes(id);
        common.conns.queue(id);
    }

    fn take_step(&mut self, id: ConnId, step: LifeStep) {
        match step {
            LifeStep::Stay => {}
            LifeStep::Close => {
                self.close(id);
                self.common().conns.has_bytes(id);
            }
            LifeStep::ShutDown => {
                if let Some(conn) = self.common().conns.get(id) {
                    socket::end_sending(conn.socket());
                }
            }
            LifeStep::End(reason) => self.end(id, reason),
        }
    }

    /// Ends connections that did not close in time.
    fn expire(&mut self, now: Instant) {
        while let Some(key) = self.common().conns.take_expired(now) {
            let conns = &self.common().conns;
            if let Some(id) = conns.find(key)
                && let Some(conn) = conns.get(id)
            {
                let reason = conn.life().overdue();
                self.end(id, reason);
            }
        }
    }

    /// Sends queued bytes.
    fn flush<N: Node + ?Sized>(&mut self, node: &mut N) {
        let dirty = self.common().conns.take_dirty();
        for &id in &dirty {
            if self.common().conns.take_dirty_mark(id) {
                self.send(id, node);
            }
        }
        self.common().conns.give_back_dirty(dirty);
    }

    /// Reports events to the node.
    fn process<N: Node + ?Sized>(&mut self, node: &mut N) {
        self.take_events(node);
        let ready = self.common().conns.take_ready();
        for &id in &ready {
            if self.common().conns.take_turn(id) {
                self.serve(id, node);
            }
        }
        self.common().conns.give_back_ready(ready);
    }

    /// Whether `process` has something to do without waiting.
    fn has_work(&mut self) -> bool {
        self.has_events() || self.common().conns.has_work()
    }
}

/// State that both ports have.
#[derive(Debug)]
pub(super) struct Common<C> {
    pub(super) clock: Clock,
    pub(super) waker: Waker,
    pub(super) socket: SocketOptions,
    pub(super) polling: super::Polling,
    pub(super) optimisations: Optimisations,
    pub(super) conns: Connections<C>,
    pub(super) gather: Gather,
    pub(super) disk_done: VecDeque<(DiskToken, Result<u32, i32>)>,
    pub(super) accepted: VecDeque<Handed>,
    pub(super) listen_again_at: Option<Instant>,
    disks: Vec<DriversDisk>,
    max_connections: usize,
    close_timeout: Duration,
    accept_to: Vec<Waker>,
    next_turn: usize,
}

impl<C> Common<C> {
    pub(super) fn new(config: &DriverConfig) -> Self {
        Self {
            clock: config.clock,
            waker: config.waker.clone(),
            socket: config.socket,
            polling: config.polling,
            optimisations: config.optimisations,
            conns: Connections::new(),
            gather: Gather::new(config.optimisations),
            disk_done: VecDeque::new(),
            accepted: VecDeque::new(),
            listen_again_at: None,
            disks: config.disks.iter().map(|disk| Rc::new(Arc::clone(disk))).collect(),
            max_connections: config.max_connections,
            close_timeout: config.close_timeout,
            accept_to: config.accept_to.clone(),
            next_turn: 0,
        }
    }

    /// Gives an accepted socket to the driver with the fewest connections that carry I/O.
    pub(super) fn distribute(&mut self, handed: Handed) {
        if self.accept_to.is_empty() {
            self.waker.announce();
            self.accepted.push_back(handed);
            return;
        }
        let count = self.accept_to.len();
        let in_turn = (0..count).map(|at| (self.next_turn + at) % count);
        // The first in turn of those with the lowest load.
        let chosen = in_turn.min_by_key(|index| self.accept_to[*index].load()).expect("there is a thread");
        self.next_turn = chosen + 1;
        let to = &self.accept_to[chosen];
        to.announce();
        if to.is_same(&self.waker) {
            self.accepted.push_back(handed);
        } else {
            to.hand_over(handed);
        }
    }

    pub(super) fn rest_listeners(&mut self) {
        self.listen_again_at = Some(self.clock.now() + LISTENER_REST);
    }

    pub(super) fn has_undelivered(&self) -> bool {
        !self.conns.gone.is_empty() || !self.accepted.is_empty() || !self.disk_done.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.conns.next_deadline().into_iter().chain(self.listen_again_at).min()
    }
}

/// Bytes to request in the next receive of a streak. `had_place`: the last receive filled a place, so the next data are
/// likely to have one, too, once their header is known.
#[inline]
pub(super) fn receive_limit(optimisations: Optimisations, streak_bytes: usize, had_place: bool) -> usize {
    if had_place {
        SPILL_BYTES
    } else if optimisations.pieces && streak_bytes < STREAK_BYTES {
        FIRST_RECEIVE_BYTES
    } else {
        MAX_RECEIVE_BYTES
    }
}

/// Executes the outputs of the node after a `handle`.
#[inline]
pub(super) fn settle<N: Node + ?Sized>(node: &mut N, port: &mut impl Port) {
    while let Some(output) = node.poll_output() {
        port.output(output);
    }
    while let Some(conn) = node.poll_transmit() {
        port.common().conns.has_bytes(conn);
    }
}
