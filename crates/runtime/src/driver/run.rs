//! The turn that both drivers make, over and over; what differs between them is a `Port`.

use std::{collections::VecDeque, io, time::Duration};

use iotax_node::{CloseReason, ConnId, DiskToken, Input, Node, Output};
use iotax_proto::Instant;

use super::{
    DriverConfig, Ended, Flow,
    socket::SocketOptions,
    tricks::Tricks,
    waker::{Handed, Waker},
};
use crate::clock::Clock;

/// Bytes taken in one receive at the start of a streak, which lasts while a connection has more to receive at once. The replies
/// to them are sent before the rest is received, so that the peer works on those while we work on the rest: with both sides asleep
/// between lumps an exchange would go in lock step. Smaller costs more system calls, larger wakes the peer later;
/// `examples/raw_limit.rs` shows it at depth 32.
const FIRST_RECEIVE_BYTES: usize = 32 * 1024;

/// Bytes of a streak after which both sides are busy anyway, and larger receives cost less.
const STREAK_BYTES: usize = 4 * FIRST_RECEIVE_BYTES;

/// The most bytes taken in one receive.
pub(super) const MAX_RECEIVE_BYTES: usize = 128 * 1024;

/// How long to leave a listener alone that could not accept for want of file descriptors or memory.
const LISTENER_REST: Duration = Duration::from_millis(100);

/// When a port that found nothing to do comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// At once: there is work already.
    Now,
    At(Instant),
    Woken,
}

/// What the driver's turn needs of io_uring or epoll.
pub(super) trait Port {
    fn common(&mut self) -> &mut Common;
    /// Carries out, or queues, what the node asked for.
    fn output(&mut self, output: Output);
    /// The node queued bytes on a connection.
    fn has_bytes(&mut self, conn: ConnId);
    /// Takes an accepted socket over.
    fn adopt(&mut self, handed: Handed) -> Option<Input<'static>>;
    /// The node was told that the connection is gone.
    fn release(&mut self, conn: ConnId);
    /// Looks again at connections whose bytes the node did not want.
    fn resume<N: Node + ?Sized>(&mut self, node: &N);
    /// Gives up what did not end in time.
    fn expire(&mut self, now: Instant);
    /// Accepts again where a shortage stopped it.
    fn listen_again(&mut self);
    /// Sends what was queued.
    fn flush<N: Node + ?Sized>(&mut self, node: &mut N);
    /// True where `process` has something to do without waiting.
    fn has_work(&self) -> bool;
    fn connections(&self) -> usize;
    /// True where nothing but the waker can bring news.
    fn is_alone(&self) -> bool;
    /// True while a connection that the node closed has not ended.
    fn is_closing(&self) -> bool;
    /// Sleeps until there is news, until the time given, or until woken.
    fn wait(&mut self, until: Until) -> io::Result<()>;
    /// Tells the node what happened.
    fn process<N: Node + ?Sized>(&mut self, node: &mut N);
}

/// What both ports keep.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) clock: Clock,
    pub(super) waker: Waker,
    pub(super) socket: SocketOptions,
    pub(super) max_connections: usize,
    pub(super) spin: Duration,
    pub(super) tricks: Tricks,
    /// Connections gone, of which the node is not told yet.
    pub(super) gone: VecDeque<(ConnId, CloseReason)>,
    pub(super) disk_done: VecDeque<(DiskToken, Result<u32, i32>)>,
    /// Closing connections by key, in the order of their deadlines: all have the same time.
    closing: VecDeque<(u64, Instant)>,
    close_timeout: Duration,
    accept_to: Vec<Waker>,
    next_turn: usize,
    accepted: VecDeque<Handed>,
    listen_again_at: Option<Instant>,
}

impl Common {
    pub(super) fn new(config: &DriverConfig) -> Self {
        Self {
            clock: config.clock,
            waker: config.waker.clone(),
            socket: config.socket,
            max_connections: config.max_connections,
            spin: config.spin,
            tricks: config.tricks,
            gone: VecDeque::new(),
            disk_done: VecDeque::new(),
            closing: VecDeque::new(),
            close_timeout: config.close_timeout,
            accept_to: config.accept_to.clone(),
            next_turn: 0,
            accepted: VecDeque::new(),
            listen_again_at: None,
        }
    }

    /// Gives an accepted socket to the driver that has the fewest connections with work.
    pub(super) fn distribute(&mut self, handed: Handed) {
        if self.accept_to.is_empty() {
            self.waker.announce();
            self.accepted.push_back(handed);
            return;
        }
        let count = self.accept_to.len();
        let in_turn = (0..count).map(|at| (self.next_turn + at) % count);
        // The first in turn of those that have least to do.
        let Some(chosen) = in_turn.min_by_key(|index| self.accept_to[*index].load()) else { return };
        self.next_turn = chosen + 1;
        let to = &self.accept_to[chosen];
        to.announce();
        if to.is_same(&self.waker) {
            self.accepted.push_back(handed);
        } else {
            to.hand_over(handed);
        }
    }

    /// Bytes to ask for in the next receive of a streak.
    #[inline]
    pub(super) fn receive_limit(&self, streak_bytes: usize) -> usize {
        if self.tricks.pieces && streak_bytes < STREAK_BYTES { FIRST_RECEIVE_BYTES } else { MAX_RECEIVE_BYTES }
    }

    pub(super) fn rest_listeners(&mut self) {
        self.listen_again_at = Some(self.clock.now() + LISTENER_REST);
    }

    pub(super) fn start_closing(&mut self, key: u64) {
        self.closing.push_back((key, self.clock.now() + self.close_timeout));
    }

    /// The next closing connection whose time is up.
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<u64> {
        let &(key, deadline) = self.closing.front()?;
        (deadline <= now).then(|| {
            self.closing.pop_front();
            key
        })
    }

    fn has_undelivered(&self) -> bool {
        !self.gone.is_empty() || !self.accepted.is_empty() || !self.disk_done.is_empty()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let closing = self.closing.front().map(|&(_, deadline)| deadline);
        closing.into_iter().chain(self.listen_again_at).min()
    }
}

/// Carries out what the node wants after a `handle`.
#[inline]
pub(super) fn settle<N: Node + ?Sized>(node: &mut N, port: &mut impl Port) {
    while let Some(output) = node.poll_output() {
        port.output(output);
    }
    while let Some(conn) = node.poll_transmit() {
        port.has_bytes(conn);
    }
}

pub(super) fn run<N: Node + ?Sized>(
    mut port: impl Port,
    node: &mut N,
    mut control: impl FnMut(&mut N, Instant) -> Flow,
) -> io::Result<Ended> {
    set_timer_slack();
    let clock = port.common().clock;
    let waker = port.common().waker.clone();
    let mut patience = Patience { spin: port.common().spin, last_was_short: true };
    let mut called = true;
    loop {
        if called {
            let flow = control(node, clock.now());
            settle(node, &mut port);
            if flow == Flow::Stop || waker.is_stopped() {
                return Ok(Ended::Stopped);
            }
            let handed = waker.take_handed();
            port.common().accepted.extend(handed);
        }
        // One reading for all that the last wait brought from disks: it came together.
        let now = clock.now();
        let arrived = port.common().accepted.len();
        deliver(&mut port, node, now);
        waker.set_load(port.connections().saturating_sub(node.idle_connections()), arrived);

        if node.poll_timeout().is_some_and(|at| at <= now) {
            node.handle(now, Input::Timer);
            settle(node, &mut port);
        }
        port.expire(now);
        if port.common().listen_again_at.is_some_and(|at| at <= now) {
            port.common().listen_again_at = None;
            port.listen_again();
        }

        port.flush(node);
        port.resume(node);
        let undelivered = port.common().has_undelivered();
        if node.is_finished() && !undelivered && !port.is_closing() {
            return Ok(Ended::Finished);
        }

        let until = if undelivered || port.has_work() {
            Until::Now
        } else {
            match node.poll_timeout().into_iter().chain(port.common().next_deadline()).min() {
                Some(at) if at <= now => Until::Now,
                Some(at) => Until::At(at),
                None => Until::Woken,
            }
        };
        // A node that is always due (a load on memory) must not pay for system calls that cannot bring news.
        if until != Until::Now || !port.is_alone() {
            patience.wait(&mut port, until, clock)?;
        }
        called = waker.notifier().take();
        port.process(node);
    }
}

/// Whether to look for news for a while before a sleep. It pays while news comes sooner than a sleep and a wake would cost, so it is
/// done only while it does: after a long wait the next one sleeps at once.
struct Patience {
    spin: Duration,
    last_was_short: bool,
}

impl Patience {
    fn wait(&mut self, port: &mut impl Port, until: Until, clock: Clock) -> io::Result<()> {
        if until == Until::Now || self.spin.is_zero() {
            return port.wait(until);
        }
        let begun = clock.now();
        let end = begun + self.spin;
        if self.last_was_short {
            loop {
                port.wait(Until::Now)?;
                let now = clock.now();
                let due = matches!(until, Until::At(at) if at <= now);
                if due || port.has_work() || port.common().waker.notifier().is_pending() {
                    return Ok(());
                }
                if now >= end {
                    break;
                }
            }
        }
        port.wait(until)?;
        // A sleep takes its own time to end: news that came within the time to spin shows up to as much later.
        self.last_was_short = clock.now() < end + self.spin;
        Ok(())
    }
}

/// Tells the node of connections accepted and gone, and of disk operations done.
fn deliver<N: Node + ?Sized>(port: &mut impl Port, node: &mut N, now: Instant) {
    loop {
        let input = if let Some((token, result)) = port.common().disk_done.pop_front() {
            Input::DiskDone { token, result }
        } else if let Some((conn, reason)) = port.common().gone.pop_front() {
            port.release(conn);
            Input::Closed { conn, reason }
        } else if let Some(handed) = port.common().accepted.pop_front() {
            match port.adopt(handed) {
                Some(input) => input,
                None => continue,
            }
        } else {
            return;
        };
        node.handle(now, input);
        settle(node, port);
    }
}

/// Sleeps end when they are told to, not up to 50 µs later as the system's default has it.
fn set_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}
