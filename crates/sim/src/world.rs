//! The world: a driver for many nodes in virtual time.

mod connections;
mod fabric;
mod forward;
mod paths;
mod processors;
mod receive;
mod segments;
mod stretch;

pub use processors::Wake;
pub use processors::{Costs, Work, WorkAsked};

use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use iotax_node::{CloseReason, ConnId, DiskId, DiskOp, DiskToken, Input, ListenerId, Node, Output, seeded::SeededRng};
use iotax_proto::{Instant, Payload, Region};

use crate::{
    disk::Disk,
    events::Events,
    link::{Carried, EndState, Link, Nic, Pipe, PipeId, Side, Ways},
    piece::Spare,
    switch::{Step, Switching},
    tcp::Acknowledged,
    trace::Trace,
};

const ECONNRESET: i32 = 104;
const ECONNREFUSED: i32 = 111;
/// How long a closing end waits for the other end, as the drivers on sockets do.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay before the next turn of a node that is due at once.
const TURN: Duration = Duration::from_micros(1);
/// Time after which an unanswered connection request is sent again (RFC 6298 §2.1).
const SYN_AGAIN: Duration = Duration::from_secs(1);

/// The number of a host in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub usize);

/// The result of `World::step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldStep {
    Happened,
    /// The time set with `call_at` for this number has come.
    Call(u64),
}

/// The simulated world, which is driven event by event. After changing a node from outside, call `settle`.
pub struct World {
    now: Instant,
    events: Events<Event>,
    pub trace: Trace,
    seed: u64,
    random: SeededRng,
    hosts: Vec<Host>,
    nics: Vec<Nic>,
    switching: Switching,
    forwarders: Vec<forward::Forwarder>,
    machines: Vec<processors::Machine>,
    listeners: Vec<Listener>,
    pipes: Vec<PipeSlot>,
    free_pipes: Vec<u32>,
    disks: Vec<Disk>,
    /// See `take_left`.
    left: Vec<(HostId, u64)>,
    /// Flags that nodes set when they affected others, each with these other hosts.
    wake_flags: Vec<(Arc<AtomicBool>, Vec<usize>)>,
    /// Hosts that were affected by others.
    wake_list: Rc<RefCell<Vec<usize>>>,
    /// Memory of packets, for reuse.
    spare: Spare,
    /// See `stays`.
    staying: Vec<Rc<dyn Region>>,
    /// Buffer for arriving bytes that are assembled only on arrival.
    arrived: Vec<u8>,
    /// Sizes of the sends of a flush, and their ends in the stream; empty between two flushes.
    sent: Vec<(usize, u64)>,
    /// What was received is only part of one receive: nothing is answered before the rest.
    receives_more: bool,
    /// A canary: number of flushes per thousand that never reach the disk.
    pub flushes_dropped: u64,
    /// A canary: number of reads per thousand that get another's data.
    pub reads_swapped: u64,
}

struct Host {
    node: Option<Rc<RefCell<dyn Node>>>,
    address: IpAddr,
    /// Source port of its connections; `None`: each has a different one.
    port: Option<u16>,
    nic: usize,
    ways: Rc<Ways>,
    /// Set if its work takes time.
    thread: Option<processors::Thread>,
    disks: Vec<usize>,
    conns: Vec<Option<(PipeId, Side)>>,
    /// How far its clock is ahead of the world's time.
    ahead: Duration,
    timer_at: Option<Instant>,
    /// Connections from which it accepts no bytes now.
    paused: Vec<ConnId>,
    /// Number of connects that it requested.
    connects: u64,
    /// Number of its crashes: operations that started before one are not reported to it.
    life: u32,
}

struct Listener {
    address: SocketAddr,
    /// The threads that accept its connections, in turn.
    hosts: Vec<usize>,
    accepted: usize,
    id: ListenerId,
}

struct PipeSlot {
    generation: u32,
    pipe: Option<Pipe>,
}

#[derive(Debug)]
enum Event {
    Timer {
        host: usize,
        life: u32,
        at: Instant,
    },
    Arrive {
        pipe: PipeId,
        to: Side,
        bytes: u32,
    },
    Accept {
        pipe: PipeId,
        to: SocketAddr,
    },
    Established {
        pipe: PipeId,
    },
    End {
        pipe: PipeId,
        side: Side,
        reason: CloseReason,
    },
    /// An operation reaches its disk, and ends there.
    DiskBegins {
        host: usize,
        disk: usize,
        token: DiskToken,
        /// Boxed, because there are many events and few of these.
        op: Box<DiskOp>,
    },
    Disk {
        host: usize,
        life: u32,
        disk: usize,
        number: u64,
    },
    /// A thread is interrupted for what has arrived.
    Interrupt {
        host: usize,
    },
    /// A thread is awake; it has received the data of its turn; its turn ends.
    Awake {
        host: usize,
    },
    Turn {
        host: usize,
    },
    TurnEnds {
        host: usize,
    },
    Woken {
        host: usize,
    },
    /// What TCP learns about bytes that `side` sent.
    Acknowledged {
        pipe: PipeId,
        side: Side,
        what: Acknowledged,
    },
    TimedOut {
        pipe: PipeId,
        side: Side,
        end: u64,
    },
    /// A loss may be detected before its timeout.
    Missed {
        pipe: PipeId,
        side: Side,
        end: u64,
    },
    Filled {
        pipe: PipeId,
        side: Side,
        end: u64,
    },
    Switch(Step),
    /// A controller has bytes to forward, to its partner or from it.
    Forward {
        host: usize,
        forwarded: Box<forward::Forwarded>,
    },
    /// Forwarded bytes leave a controller: over the interconnect, or by its port to the connecting end.
    Crosses(Box<forward::Forwarded>),
    Leaves(Box<forward::Forwarded>),
    Call(u64),
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant(1_000),
            events: Events::new(),
            trace: Trace::default(),
            seed,
            random: SeededRng::new(seed, "world", 0),
            hosts: Vec::new(),
            nics: Vec::new(),
            switching: Switching::default(),
            forwarders: Vec::new(),
            machines: Vec::new(),
            listeners: Vec::new(),
            pipes: Vec::new(),
            free_pipes: Vec::new(),
            disks: Vec::new(),
            left: Vec::new(),
            wake_flags: Vec::new(),
            wake_list: Rc::default(),
            spare: Spare::default(),
            staying: Vec::new(),
            arrived: Vec::new(),
            sent: Vec::new(),
            receives_more: false,
            flushes_dropped: 0,
            reads_swapped: 0,
        }
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    // ---------------------------------------------------------------------------------------------------- construction

    /// Adds a link into the network, which hosts may share. Returns its number.
    pub fn add_link(&mut self, link: Link) -> usize {
        self.nics.push(Nic::new(link));
        self.nics.len() - 1
    }

    pub fn link_mut(&mut self, index: usize) -> &mut Link {
        &mut self.nics[index].link
    }

    /// Sending and receiving times of a link so far, including what it has been given and not sent yet.
    pub fn carried(&self, index: usize) -> Carried {
        let carried = self.nics[index].carried;
        let Some([sent, received]) = self.switching.used_by(index, self.now) else { return carried };
        Carried { sent_ns: sent.busy_ns, received_ns: received.busy_ns, credits_ns: sent.credits_ns, ..carried }
    }

    /// Data sent from this memory are read only when they arrive, as if an adapter sent them in place. This is faster
    /// to simulate; if they change in between, the changed data arrive.
    pub fn stays(&mut self, memory: Rc<dyn Region>) {
        self.staying.push(memory);
    }

    pub fn add_disk(&mut self, disk: Disk) -> usize {
        self.disks.push(disk);
        self.disks.len() - 1
    }

    pub fn disk_mut(&mut self, index: usize) -> &mut Disk {
        &mut self.disks[index]
    }

    /// Adds a node that sends through a link; `disks` are its `DiskId`s in order.
    pub fn add_host(
        &mut self,
        node: Rc<RefCell<dyn Node>>,
        address: IpAddr,
        port: Option<u16>,
        link: usize,
        disks: Vec<usize>,
    ) -> HostId {
        self.hosts.push(Host {
            node: Some(node),
            address,
            port,
            nic: link,
            ways: Rc::default(),
            thread: None,
            disks,
            conns: Vec::new(),
            ahead: Duration::ZERO,
            timer_at: None,
            paused: Vec::new(),
            connects: 0,
            life: 0,
        });
        HostId(self.hosts.len() - 1)
    }

    /// Sets the ways of its future connections, including their replies.
    pub fn set_ways(&mut self, host: HostId, ways: Ways) {
        self.hosts[host.0].ways = Rc::new(ways);
    }

    /// Lets these hosts accept the connections to an address, in turn.
    pub fn listen(&mut self, address: SocketAddr, id: ListenerId, hosts: &[HostId]) {
        let hosts = hosts.iter().map(|host| host.0).collect();
        self.listeners.push(Listener { address, hosts, accepted: 0, id });
    }

    /// Wakes these hosts whenever the flag is set.
    pub fn add_wake_flag(&mut self, wake_flag: Arc<AtomicBool>, hosts: &[HostId]) {
        self.wake_flags.push((wake_flag, hosts.iter().map(|host| host.0).collect()));
    }

    /// The list of hosts to wake, by number; callers may add to it.
    pub fn wake_list(&self) -> Rc<RefCell<Vec<usize>>> {
        Rc::clone(&self.wake_list)
    }

    /// Lets `step` return `WorldStep::Call` at that time.
    pub fn call_at(&mut self, at: Instant, number: u64) {
        self.events.push(at.max(self.now), Event::Call(number));
    }

    // ---------------------------------------------------------------------------------------------------------- events

    /// Executes the next event, if there is any.
    pub fn step(&mut self) -> Option<WorldStep> {
        let (at, event) = self.events.pop()?;
        debug_assert!(at >= self.now, "time does not go back");
        self.now = at;
        if let Event::Call(number) = event {
            return Some(WorldStep::Call(number));
        }
        if let Some(until) = self.is_stalled(&event) {
            self.events.push(until, event);
            return Some(WorldStep::Happened);
        }
        if self.is_held(&event) {
            return Some(WorldStep::Happened);
        }
        match self.thread_of(&event) {
            Some(host) => self.queue(host, event),
            None => self.happen(event),
        }
        self.ring();
        Some(WorldStep::Happened)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Call(_) => {}
            Event::Timer { host, life, at } => self.timer(host, life, at),
            Event::Arrive { pipe, to, .. } => self.arrive(pipe, to),
            Event::Accept { pipe, to } => self.accept(pipe, to),
            Event::Established { pipe } => self.established(pipe),
            Event::End { pipe, side, reason } => self.end(pipe, side, reason),
            Event::DiskBegins { host, disk, token, op } => self.begin_disk(host, disk, token, *op),
            Event::Disk { host, life, disk, number } => self.disk_done(host, life, disk, number),
            Event::Interrupt { host } => self.interrupt(host),
            Event::Awake { host } => self.receive(host),
            Event::Turn { host } => self.turn(host),
            Event::TurnEnds { host } => self.turn_ends(host),
            Event::Woken { host } => self.handle(host, Input::Woken),
            Event::Acknowledged { pipe, side, what } => self.acknowledged(pipe, side, what),
            Event::TimedOut { pipe, side, end } => self.timed_out(pipe, side, end),
            Event::Missed { pipe, side, end } => self.missed(pipe, side, end),
            Event::Filled { pipe, side, end } => self.filled(pipe, side, end),
            Event::Switch(step) => self.switch(step),
            Event::Forward { host, forwarded } => self.forward(host, *forwarded),
            Event::Crosses(forwarded) => self.crosses(*forwarded),
            Event::Leaves(forwarded) => self.leaves(*forwarded),
        }
    }

    /// When the next event happens.
    pub fn next_at(&self) -> Option<Instant> {
        self.events.next_at()
    }

    /// Executes events until `done`, which is checked before each. Returns `false` if `limit` passed or no events are
    /// left.
    pub fn run_until(&mut self, limit: Instant, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            if self.now >= limit || self.step().is_none() {
                return false;
            }
        }
    }

    /// Gives a node an input that no event causes, such as `Input::Woken`.
    pub fn tell(&mut self, host: HostId, input: Input<'_>) {
        self.handle(host.0, input);
    }

    /// Executes what a node requests, after it was changed from outside.
    pub fn settle(&mut self, host: HostId) {
        self.settle_host(host.0);
    }

    /// Moves a node's clock forward, as after a sleep.
    pub fn jump(&mut self, host: HostId, by: Duration) {
        self.hosts[host.0].ahead += by;
        self.hosts[host.0].timer_at = None;
        self.arm(host.0);
    }

    /// A host crashes in an instant; the other ends of its connections learn of it within `news`.
    pub fn crash(&mut self, host: HostId, news: Duration) {
        let host = &mut self.hosts[host.0];
        host.node = None;
        host.life += 1;
        host.timer_at = None;
        host.paused.clear();
        for (pipe, side) in std::mem::take(&mut host.conns).into_iter().flatten() {
            self.forget(pipe, side);
            let after = Duration::from_nanos(self.random.below(news.as_nanos() as u64 + 1));
            self.end_after(pipe, side.other(), after);
        }
    }

    /// The host is back with its own state, unless it was never gone.
    pub fn come_back(&mut self, host: HostId, node: Rc<RefCell<dyn Node>>) {
        if self.hosts[host.0].node.is_none() {
            self.restart(host, node);
        }
    }

    /// The host is back with another node.
    pub fn restart(&mut self, host: HostId, node: Rc<RefCell<dyn Node>>) {
        self.hosts[host.0].node = Some(node);
        self.settle_host(host.0);
    }

    // ------------------------------------------------------------------------------------------- faults of connections

    /// All connections that both ends have.
    pub fn connections(&self) -> Vec<PipeId> {
        let open = |pipe: &Pipe| pipe.ends.iter().all(|end| matches!(end.state, EndState::Open | EndState::Closing));
        self.pipes
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.pipe.as_ref().is_some_and(open))
            .map(|(index, slot)| PipeId { slot: index as u32, generation: slot.generation })
            .collect()
    }

    /// The connections to one address that both ends have.
    pub fn connections_to(&self, address: IpAddr) -> Vec<PipeId> {
        let mut all = self.connections();
        all.retain(|id| self.pipes[id.slot as usize].pipe.as_ref().is_some_and(|pipe| pipe.to.ip() == address));
        all
    }

    /// Resets a connection: part of the data in flight in each direction still arrives, and each end learns of the
    /// reset after its own delay.
    pub fn reset(&mut self, pipe: PipeId, after: [Duration; 2]) {
        for side in Side::BOTH {
            self.cut(pipe, side);
            self.end_after(pipe, side, after[side as usize]);
        }
    }

    /// The direction from `side` ends somewhere in its data in flight; the other continues.
    pub fn half_close(&mut self, pipe: PipeId, side: Side) {
        self.cut(pipe, side);
        let arrives = self.now + self.latency_of(pipe, side);
        self.end_arrives(pipe, side, arrives);
    }

    /// Nothing arrives from `side` for a time.
    pub fn stall(&mut self, pipe: PipeId, side: Side, time: Duration) {
        let until = self.now + time;
        if let Some(pipe) = self.pipe(pipe) {
            pipe.flow(side).stalled_until = until;
        }
    }

    /// Ends all faults: stalls are over, and an end whose other end is gone learns of it within a second.
    pub fn heal(&mut self) {
        for index in 0..self.pipes.len() as u32 {
            let id = PipeId { slot: index, generation: self.pipes[index as usize].generation };
            let Some(pipe) = self.pipe(id) else { continue };
            let mut waiting = [0; 2];
            for side in Side::BOTH {
                pipe.flow(side).stalled_until = Instant(0);
                waiting[side as usize] = pipe.flow(side).packets.len();
            }
            let ends = pipe.ends;
            let cut = pipe.flows.iter().any(|flow| flow.cut);
            for side in Side::BOTH {
                // Each waiting packet has an event at the end of the stall. The new events come first, and the old ones
                // find nothing.
                for _ in 0..waiting[side as usize] {
                    self.events.push(self.now, Event::Arrive { pipe: id, to: side.other(), bytes: 0 });
                }
                let alone = ends[side.other() as usize].state == EndState::Gone || cut;
                if alone && ends[side as usize].state != EndState::Gone {
                    let after = Duration::from_nanos(self.random.below(1_000_000_000));
                    self.end_after(id, side, after);
                }
            }
        }
    }

    /// Connections whose accepting end has gone since the last call: the connecting host, and the number of its
    /// connect, from 1 on.
    pub fn take_left(&mut self) -> Vec<(HostId, u64)> {
        std::mem::take(&mut self.left)
    }

    // ----------------------------------------------------------------------------------------------------------- nodes

    fn host_now(&self, host: usize) -> Instant {
        self.work_now(host) + self.hosts[host].ahead
    }

    fn handle(&mut self, host: usize, input: Input<'_>) {
        let now = self.host_now(host);
        let Some(node) = self.hosts[host].node.clone() else { return };
        node.borrow_mut().handle(now, input);
        self.charge_work(host);
        self.settle_node(host, &node);
    }

    /// Delivers bytes that arrived. Those for which the node has a place go there, as with a driver.
    fn deliver(&mut self, host: usize, conn: ConnId, bytes: &[u8]) {
        let now = self.host_now(host);
        let Some(node) = self.hosts[host].node.clone() else { return };
        let place = node.borrow_mut().place(conn, 1);
        let (placed, rest) = bytes.split_at(place.as_ref().map_or(0, Payload::len).min(bytes.len()));
        if let Some(place) = place {
            place.copy_in(0, placed);
            node.borrow_mut().handle(now, Input::Placed { conn, len: placed.len() });
        }
        if !rest.is_empty() {
            node.borrow_mut().handle(now, Input::Received { conn, bytes: rest });
        }
        self.charge_work(host);
        self.settle_node(host, &node);
    }

    fn settle_host(&mut self, host: usize) {
        if let Some(node) = self.hosts[host].node.clone() {
            self.settle_node(host, &node);
        }
    }

    fn settle_node(&mut self, host: usize, node: &Rc<RefCell<dyn Node>>) {
        loop {
            let output = node.borrow_mut().poll_output();
            match output {
                Some(output) => self.output(host, output),
                None => break,
            }
        }
        while !self.receives_more {
            let conn = node.borrow_mut().poll_transmit();
            let Some(conn) = conn else { break };
            if let Some((pipe, side)) = self.conn(host, conn)
                && let Some(pipe_of) = self.pipe(pipe)
            {
                pipe_of.flow(side).dirty = true;
                self.flush(pipe, side, false);
            }
        }
        self.ask_paused(host, node);
        self.arm(host);
    }

    fn output(&mut self, host: usize, output: Output) {
        match output {
            Output::Connect { conn, to } => self.connect(host, conn, to),
            Output::Close { conn } => {
                if let Some((pipe, side)) = self.conn(host, conn) {
                    self.close(pipe, side);
                }
            }
            Output::Disk { token, disk: DiskId(index), op } => {
                let disk = self.hosts[host].disks[index as usize];
                if matches!(op, DiskOp::Sync) && self.draws(self.flushes_dropped) {
                    let nothing = DiskOp::Read { offset: 0, into: iotax_proto::Payload::from_vec(Vec::new()) };
                    return self.begin_disk(host, disk, token, nothing);
                }
                let at = self.work_now(host);
                if at > self.now {
                    return self.events.push(at, Event::DiskBegins { host, disk, token, op: Box::new(op) });
                }
                self.begin_disk(host, disk, token, op);
            }
        }
    }

    fn begin_disk(&mut self, host: usize, disk: usize, token: DiskToken, op: DiskOp) {
        let (number, takes) = self.disks[disk].begin(self.now, token, op);
        if self.draws(self.reads_swapped) {
            self.disks[disk].swap_reads(number);
        }
        let life = self.hosts[host].life;
        self.events.push(self.now + takes, Event::Disk { host, life, disk, number });
    }

    fn ring(&mut self) {
        let mut woken = self.wake_list.borrow_mut();
        for host in woken.drain(..) {
            self.events.push(self.now, Event::Woken { host });
        }
        drop(woken);
        for (wake_flag, hosts) in &self.wake_flags {
            if wake_flag.load(Ordering::Relaxed) {
                wake_flag.store(false, Ordering::Relaxed);
                for host in hosts {
                    self.events.push(self.now, Event::Woken { host: *host });
                }
            }
        }
    }

    fn draws(&mut self, of_thousand: u64) -> bool {
        of_thousand > 0 && self.random.below(1000) < of_thousand
    }

    fn disk_done(&mut self, host: usize, life: u32, disk: usize, number: u64) {
        if self.hosts[host].life != life {
            return;
        }
        let Some((token, result)) = self.disks[disk].end(number) else { return };
        self.trace.event(self.now, b'd', host as u64, token.0);
        self.handle(host, Input::DiskDone { token, result });
    }

    /// Whether a timer is still needed; otherwise its event has no effect.
    fn is_due(&self, host: usize, life: u32, at: Instant) -> bool {
        let host = &self.hosts[host];
        let due = |node: &Rc<RefCell<dyn Node>>| node.borrow().poll_timeout().is_some_and(|due| due <= at + host.ahead);
        host.life == life && host.timer_at == Some(at) && host.node.as_ref().is_some_and(due)
    }

    fn timer(&mut self, host: usize, life: u32, at: Instant) {
        if self.hosts[host].life != life || self.hosts[host].timer_at != Some(at) {
            return;
        }
        self.hosts[host].timer_at = None;
        let now = self.host_now(host);
        let Some(node) = self.hosts[host].node.clone() else { return };
        let due = node.borrow().poll_timeout().is_some_and(|at| at <= now);
        if due {
            self.trace.event(self.now, b't', host as u64, 0);
            self.handle(host, Input::Timer);
        } else {
            self.arm(host);
        }
    }

    /// Schedules the node's next timer. An earlier one that is no longer needed has no effect.
    fn arm(&mut self, host: usize) {
        let Some(node) = &self.hosts[host].node else { return };
        let Some(at) = node.borrow().poll_timeout() else { return };
        let ahead = self.hosts[host].ahead.as_nanos() as u64;
        let at = Instant(at.0.saturating_sub(ahead));
        let at = if at <= self.now { self.now + TURN } else { at };
        if self.hosts[host].timer_at.is_none_or(|armed| at < armed) {
            self.hosts[host].timer_at = Some(at);
            let life = self.hosts[host].life;
            self.events.push(at, Event::Timer { host, life, at });
        }
    }

    fn ask_paused(&mut self, host: usize, node: &Rc<RefCell<dyn Node>>) {
        if self.hosts[host].paused.is_empty() {
            return;
        }
        for conn in std::mem::take(&mut self.hosts[host].paused) {
            let Some((id, side)) = self.conn(host, conn) else { continue };
            if !node.borrow().wants_receive(conn) {
                self.hosts[host].paused.push(conn);
                continue;
            }
            let Some(pipe) = self.pipe(id) else { continue };
            let refused = std::mem::take(&mut pipe.flow(side.other()).refused);
            for _ in 0..refused {
                self.events.push(self.now, Event::Arrive { pipe: id, to: side, bytes: 0 });
            }
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({} hosts at {} ns)", self.hosts.len(), self.now.0)
    }
}
