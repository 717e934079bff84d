//! A driver for many nodes in virtual time.

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

use iotax_node::{CloseReason, ConnId, DiskId, Input, ListenerId, Node, Output, seeded::SeededRng};
use iotax_proto::Instant;

use crate::{
    disk::Disk,
    events::Events,
    link::{End, EndState, Flow, Link, Nic, Packet, Pipe, PipeId, Side, take_front},
    trace::Trace,
};

const ECONNRESET: i32 = 104;
const ECONNREFUSED: i32 = 111;
/// How long an end that closes waits for the other's end, as the drivers on sockets do.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// A node that wants no sleep has its next turn after that.
const TURN: Duration = Duration::from_micros(1);
/// When a connection request without an answer is sent again (RFC 6298 §2.1).
const SYN_AGAIN: Duration = Duration::from_secs(1);

/// A node's place in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub usize);

/// What `World::step` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Happened,
    /// It is the time that `call_at` was given for this number.
    Call(u64),
}

/// Driven one event at a time. Whoever changes a node from outside calls `settle` after it.
pub struct World {
    now: Instant,
    events: Events<Event>,
    pub trace: Trace,
    random: SeededRng,
    hosts: Vec<Host>,
    nics: Vec<Nic>,
    listeners: Vec<Listener>,
    pipes: Vec<Slot>,
    free_pipes: Vec<u32>,
    disks: Vec<Disk>,
    /// See `take_left`.
    left: Vec<(HostId, u64)>,
    /// Set by nodes that did something to others, each with those others.
    bells: Vec<(Arc<AtomicBool>, Vec<usize>)>,
    /// Memory of packets, to be used again.
    spare: Vec<Vec<u8>>,
    /// A canary: of a thousand flushes, so many never reach the disk.
    pub flushes_dropped: u64,
    /// A canary: of a thousand reads, so many have another's answer.
    pub reads_swapped: u64,
}

struct Host {
    node: Option<Rc<RefCell<dyn Node>>>,
    address: IpAddr,
    /// Where its connections come from; `None`: each from a port of its own.
    port: Option<u16>,
    nic: usize,
    disks: Vec<usize>,
    conns: Vec<Option<(PipeId, Side)>>,
    /// Ahead of the world's time.
    ahead: Duration,
    timer_at: Option<Instant>,
    /// Connections whose bytes it does not want.
    paused: Vec<ConnId>,
    /// Counts the connections that it asked for.
    connects: u64,
    /// Counts its crashes: what was begun before one ends for nobody.
    life: u32,
}

struct Listener {
    address: SocketAddr,
    /// The threads that take its connections, in turn.
    hosts: Vec<usize>,
    accepted: usize,
    id: ListenerId,
}

struct Slot {
    generation: u32,
    pipe: Option<Pipe>,
}

#[derive(Debug)]
enum Event {
    Timer { host: usize, life: u32 },
    Arrive { pipe: PipeId, to: Side },
    Accept { pipe: PipeId, to: SocketAddr },
    Established { pipe: PipeId },
    End { pipe: PipeId, side: Side, reason: CloseReason },
    Disk { host: usize, life: u32, disk: usize, number: u64 },
    Woken { host: usize },
    Call(u64),
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant(1_000),
            events: Events::new(),
            trace: Trace::default(),
            random: SeededRng::new(seed, "world", 0),
            hosts: Vec::new(),
            nics: Vec::new(),
            listeners: Vec::new(),
            pipes: Vec::new(),
            free_pipes: Vec::new(),
            disks: Vec::new(),
            left: Vec::new(),
            bells: Vec::new(),
            spare: Vec::new(),
            flushes_dropped: 0,
            reads_swapped: 0,
        }
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    // ----------------------------------------------------------------------------------------------------------- making it

    /// A way into the network, which hosts may share; its number.
    pub fn add_link(&mut self, link: Link) -> usize {
        self.nics.push(Nic::new(link));
        self.nics.len() - 1
    }

    pub fn link_mut(&mut self, index: usize) -> &mut Link {
        &mut self.nics[index].link
    }

    pub fn add_disk(&mut self, disk: Disk) -> usize {
        self.disks.push(disk);
        self.disks.len() - 1
    }

    pub fn disk_mut(&mut self, index: usize) -> &mut Disk {
        &mut self.disks[index]
    }

    /// A node that sends through a link; `disks` are its `DiskId`s in order.
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

    /// Connections to an address are taken by these hosts in turn.
    pub fn listen(&mut self, address: SocketAddr, id: ListenerId, hosts: &[HostId]) {
        let hosts = hosts.iter().map(|host| host.0).collect();
        self.listeners.push(Listener { address, hosts, accepted: 0, id });
    }

    /// Whenever the bell is set, these are woken.
    pub fn add_bell(&mut self, bell: Arc<AtomicBool>, hosts: &[HostId]) {
        self.bells.push((bell, hosts.iter().map(|host| host.0).collect()));
    }

    /// `step` says `Step::Call` at that time.
    pub fn call_at(&mut self, at: Instant, number: u64) {
        self.events.push(at.max(self.now), Event::Call(number));
    }

    // --------------------------------------------------------------------------------------------------------- what happens

    /// The next event, if there is any.
    pub fn step(&mut self) -> Option<Step> {
        let (at, event) = self.events.pop()?;
        debug_assert!(at >= self.now, "time does not go back");
        self.now = at;
        match event {
            Event::Call(number) => return Some(Step::Call(number)),
            Event::Timer { host, life } => self.timer(host, life),
            Event::Arrive { pipe, to } => self.arrive(pipe, to),
            Event::Accept { pipe, to } => self.accept(pipe, to),
            Event::Established { pipe } => self.established(pipe),
            Event::End { pipe, side, reason } => self.end(pipe, side, reason),
            Event::Disk { host, life, disk, number } => self.disk_done(host, life, disk, number),
            Event::Woken { host } => self.handle(host, Input::Woken),
        }
        self.ring();
        Some(Step::Happened)
    }

    /// When the next event comes.
    pub fn next_at(&self) -> Option<Instant> {
        self.events.next_at()
    }

    /// Steps until `done`, asked before each; `false` where `limit` passed or nothing is left to happen.
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

    /// Gives a node an input that no event brings, such as `Input::Woken`.
    pub fn tell(&mut self, host: HostId, input: Input<'_>) {
        self.handle(host.0, input);
    }

    /// Carries out what a node asks for, after it was changed from outside.
    pub fn settle(&mut self, host: HostId) {
        self.settle_host(host.0);
    }

    /// A node's clock goes ahead, as one's does that slept.
    pub fn jump(&mut self, host: HostId, by: Duration) {
        self.hosts[host.0].ahead += by;
        self.hosts[host.0].timer_at = None;
        self.arm(host.0);
    }

    /// A host is gone from one instant to the next: those at the other ends learn it within `news`.
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

    /// It is there again, with what it knows of itself, unless it was never gone.
    pub fn come_back(&mut self, host: HostId, node: Rc<RefCell<dyn Node>>) {
        if self.hosts[host.0].node.is_none() {
            self.restart(host, node);
        }
    }

    /// It is there again, with another node.
    pub fn restart(&mut self, host: HostId, node: Rc<RefCell<dyn Node>>) {
        self.hosts[host.0].node = Some(node);
        self.settle_host(host.0);
    }

    // ------------------------------------------------------------------------------------------------------ faults of connections

    /// Every connection that both ends have.
    pub fn connections(&self) -> Vec<PipeId> {
        let open = |pipe: &Pipe| pipe.ends.iter().all(|end| matches!(end.state, EndState::Open | EndState::Closing));
        self.pipes
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.pipe.as_ref().is_some_and(open))
            .map(|(index, slot)| PipeId { slot: index as u32, generation: slot.generation })
            .collect()
    }

    /// Which connection a host has under an id.
    pub fn connection_of(&self, host: HostId, conn: ConnId) -> Option<PipeId> {
        self.hosts[host.0].conns.get(conn.0 as usize).copied().flatten().map(|(pipe, _)| pipe)
    }

    /// Of what is on its way in each direction a part still arrives; each end learns of the reset after its own time.
    pub fn reset(&mut self, pipe: PipeId, after: [Duration; 2]) {
        for side in Side::BOTH {
            self.cut(pipe, side);
            self.end_after(pipe, side, after[side as usize]);
        }
    }

    /// The direction from `side` ends somewhere in what is on its way; the other goes on.
    pub fn half_close(&mut self, pipe: PipeId, side: Side) {
        self.cut(pipe, side);
        let arrives = self.now + self.latency_of(pipe, side);
        self.send_end(pipe, side, arrives);
    }

    /// Nothing arrives from `side` for a time.
    pub fn stall(&mut self, pipe: PipeId, side: Side, time: Duration) {
        let until = self.now + time;
        if let Some(pipe) = self.pipe(pipe) {
            pipe.flow(side).stalled_until = until;
        }
    }

    /// Faults stop: stalls are over, and who still has a connection whose other end is gone learns it within a second.
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
                // Each waiting packet has an event at the end of the stall; these come first, and those find nothing.
                for _ in 0..waiting[side as usize] {
                    self.events.push(self.now, Event::Arrive { pipe: id, to: side.other() });
                }
                let alone = ends[side.other() as usize].state == EndState::Gone || cut;
                if alone && ends[side as usize].state != EndState::Gone {
                    let after = Duration::from_nanos(self.random.below(1_000_000_000));
                    self.end_after(id, side, after);
                }
            }
        }
    }

    /// Connections whose accepting end went since the last call: who connected, and which of its connects that was, from 1 on.
    pub fn take_left(&mut self) -> Vec<(HostId, u64)> {
        std::mem::take(&mut self.left)
    }

    // ------------------------------------------------------------------------------------------------------------- nodes

    fn host_now(&self, host: usize) -> Instant {
        self.now + self.hosts[host].ahead
    }

    fn handle(&mut self, host: usize, input: Input<'_>) {
        let now = self.host_now(host);
        let Some(node) = self.hosts[host].node.clone() else { return };
        node.borrow_mut().handle(now, input);
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
        loop {
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
                if matches!(op, iotax_node::DiskOp::Sync) && self.draws(self.flushes_dropped) {
                    let nothing =
                        iotax_node::DiskOp::Read { offset: 0, into: iotax_proto::Payload::from_vec(Vec::new()) };
                    return self.begin_disk(host, disk, token, nothing);
                }
                self.begin_disk(host, disk, token, op);
            }
        }
    }

    fn begin_disk(&mut self, host: usize, disk: usize, token: iotax_node::DiskToken, op: iotax_node::DiskOp) {
        let (number, takes) = self.disks[disk].begin(token, op);
        if self.draws(self.reads_swapped) {
            self.disks[disk].swap_reads(number);
        }
        let life = self.hosts[host].life;
        self.events.push(self.now + takes, Event::Disk { host, life, disk, number });
    }

    fn ring(&mut self) {
        for (bell, hosts) in &self.bells {
            if bell.load(Ordering::Relaxed) {
                bell.store(false, Ordering::Relaxed);
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

    fn timer(&mut self, host: usize, life: u32) {
        if self.hosts[host].life != life || self.hosts[host].timer_at != Some(self.now) {
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

    /// Has the node's next timer come. One that was armed earlier comes for nothing.
    fn arm(&mut self, host: usize) {
        let Some(node) = &self.hosts[host].node else { return };
        let Some(at) = node.borrow().poll_timeout() else { return };
        let ahead = self.hosts[host].ahead.as_nanos() as u64;
        let at = Instant(at.0.saturating_sub(ahead));
        let at = if at <= self.now { self.now + TURN } else { at };
        if self.hosts[host].timer_at.is_none_or(|armed| at < armed) {
            self.hosts[host].timer_at = Some(at);
            let life = self.hosts[host].life;
            self.events.push(at, Event::Timer { host, life });
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
                self.events.push(self.now, Event::Arrive { pipe: id, to: side });
            }
        }
    }

    // ------------------------------------------------------------------------------------------------------------- connections

    fn pipe(&mut self, id: PipeId) -> Option<&mut Pipe> {
        let slot = &mut self.pipes[id.slot as usize];
        if slot.generation == id.generation { slot.pipe.as_mut() } else { None }
    }

    fn conn(&self, host: usize, conn: ConnId) -> Option<(PipeId, Side)> {
        self.hosts[host].conns.get(conn.0 as usize).copied().flatten()
    }

    fn set_conn(&mut self, host: usize, conn: ConnId, to: Option<(PipeId, Side)>) {
        let conns = &mut self.hosts[host].conns;
        let index = conn.0 as usize;
        if index >= conns.len() {
            conns.resize(index + 1, None);
        }
        conns[index] = to;
    }

    fn latency_of(&mut self, pipe: PipeId, side: Side) -> Duration {
        let Some(host) = self.pipe(pipe).map(|pipe| pipe.end(side).host) else { return Duration::ZERO };
        self.nics[self.hosts[host].nic].link.latency
    }

    fn connect(&mut self, host: usize, conn: ConnId, to: SocketAddr) {
        let client = End { host, conn, state: EndState::Connecting };
        let server = End { host: usize::MAX, conn: ConnId(u32::MAX), state: EndState::Connecting };
        self.hosts[host].connects += 1;
        let connect = self.hosts[host].connects;
        let pipe = Pipe { connect, ends: [client, server], flows: [Flow::default(), Flow::default()] };
        let slot = self.free_pipes.pop().unwrap_or_else(|| {
            self.pipes.push(Slot { generation: 0, pipe: None });
            self.pipes.len() as u32 - 1
        });
        self.pipes[slot as usize].pipe = Some(pipe);
        let id = PipeId { slot, generation: self.pipes[slot as usize].generation };
        self.set_conn(host, conn, Some((id, Side::Client)));
        let at = self.now + self.latency_of(id, Side::Client);
        self.events.push(at, Event::Accept { pipe: id, to });
    }

    fn accept(&mut self, id: PipeId, to: SocketAddr) {
        let Some(pipe) = self.pipe(id) else { return };
        let client = *pipe.end(Side::Client);
        if client.state == EndState::Gone {
            return self.forget(id, Side::Server);
        }
        if let Some(earlier) = self.earlier_of(id) {
            // The accepting end asks back, is told of the reset, and takes the request when it comes again.
            self.end(earlier, Side::Server, CloseReason::Failed(ECONNRESET));
            return self.events.push(self.now + SYN_AGAIN, Event::Accept { pipe: id, to });
        }
        let listener = self.listeners.iter_mut().position(|listener| listener.address == to);
        let found = listener.and_then(|index| {
            let listener = &mut self.listeners[index];
            listener.accepted += 1;
            let host = listener.hosts[listener.accepted % listener.hosts.len()];
            self.hosts[host].node.is_some().then_some((host, listener.id))
        });
        let Some((host, listener)) = found else {
            self.forget(id, Side::Server);
            let at = self.now + self.latency_of(id, Side::Client);
            let reason = CloseReason::Failed(ECONNREFUSED);
            return self.events.push(at, Event::End { pipe: id, side: Side::Client, reason });
        };
        let conns = &self.hosts[host].conns;
        let conn = ConnId(conns.iter().position(Option::is_none).unwrap_or(conns.len()) as u32);
        let Some(pipe) = self.pipe(id) else { return };
        *pipe.end_mut(Side::Server) = End { host, conn, state: EndState::Open };
        self.set_conn(host, conn, Some((id, Side::Server)));
        let from = &self.hosts[client.host];
        let port = from.port.unwrap_or(20_000 + (id.slot as u16 * 97 + id.generation as u16) % 40_000);
        let peer = SocketAddr::new(from.address, port);
        self.trace.event(self.now, b'a', host as u64, u64::from(conn.0));
        let at = self.now + self.latency_of(id, Side::Server);
        self.events.push(at, Event::Established { pipe: id });
        self.handle(host, Input::Accepted { conn, listener, peer });
    }

    /// The connection that the accepting end still has from the same port: two cannot be (RFC 9293 §3.10.7.4, RFC 5961 §4). What
    /// was on its way there never arrives.
    fn earlier_of(&self, id: PipeId) -> Option<PipeId> {
        let host = self.pipes[id.slot as usize].pipe.as_ref()?.end(Side::Client).host;
        self.hosts[host].port?;
        let stands = |pipe: &Pipe| {
            let server = pipe.end(Side::Server);
            pipe.end(Side::Client).host == host && server.host != usize::MAX && server.state != EndState::Gone
        };
        let index = self.pipes.iter().position(|slot| slot.pipe.as_ref().is_some_and(stands))?;
        Some(PipeId { slot: index as u32, generation: self.pipes[index].generation })
    }

    fn established(&mut self, id: PipeId) {
        let Some(pipe) = self.pipe(id) else { return };
        let end = pipe.end_mut(Side::Client);
        if end.state != EndState::Connecting {
            return;
        }
        end.state = EndState::Open;
        let (host, conn) = (end.host, end.conn);
        pipe.flow(Side::Client).dirty = true;
        self.trace.event(self.now, b'c', host as u64, u64::from(conn.0));
        self.handle(host, Input::Connected { conn });
        self.flush(id, Side::Client, false);
    }

    /// Sends what an end has queued, as far as the window allows, or `all` of it.
    fn flush(&mut self, id: PipeId, side: Side, all: bool) {
        let Some(pipe) = self.pipe(id) else { return };
        let end = *pipe.end(side);
        if end.state == EndState::Connecting || end.state == EndState::Gone || !pipe.flow(side).dirty {
            return;
        }
        let Some(node) = self.hosts[end.host].node.clone() else { return };
        let mut node = node.borrow_mut();
        let Some(transmit) = node.transmit(end.conn) else { return };
        let nic = &mut self.nics[self.hosts[end.host].nic];
        let slot = &mut self.pipes[id.slot as usize];
        let Some(pipe) = slot.pipe.as_mut() else { return };
        let flow = pipe.flow(side);
        if flow.cut {
            transmit.clear();
        }
        while !transmit.is_empty() && (all || flow.in_flight_bytes < nic.link.window_bytes) {
            let count = transmit.len().min(nic.piece(&mut self.random));
            let mut bytes = self.spare.pop().unwrap_or_default();
            take_front(transmit, count, &mut bytes);
            flow.in_flight_bytes += count;
            flow.packets.push_back(Packet { bytes });
            let arrives = nic.send(self.now, count);
            self.events.push(arrives, Event::Arrive { pipe: id, to: side.other() });
        }
        flow.dirty = !transmit.is_empty();
    }

    fn send_end(&mut self, id: PipeId, side: Side, arrives: Instant) {
        if let Some(pipe) = self.pipe(id) {
            let flow = pipe.flow(side);
            flow.cut = true;
            flow.packets.push_back(Packet { bytes: Vec::new() });
            self.events.push(arrives, Event::Arrive { pipe: id, to: side.other() });
        }
    }

    fn close(&mut self, id: PipeId, side: Side) {
        self.flush_all(id, side);
        let Some(pipe) = self.pipe(id) else { return };
        let end = pipe.end_mut(side);
        let (host, was) = (end.host, end.state);
        end.state = EndState::Closing;
        let timeout = match was {
            EndState::Open => CLOSE_TIMEOUT,
            // The connection has never been of use.
            EndState::Connecting => Duration::ZERO,
            EndState::Closing | EndState::Gone => return,
        };
        let arrives = self.nics[self.hosts[host].nic].send(self.now, 0);
        self.send_end(id, side, arrives);
        self.events.push(self.now + timeout, Event::End { pipe: id, side, reason: CloseReason::Ended });
    }

    fn flush_all(&mut self, id: PipeId, side: Side) {
        if let Some(pipe) = self.pipe(id) {
            pipe.flow(side).dirty = true;
            self.flush(id, side, true);
        }
    }

    fn arrive(&mut self, id: PipeId, to: Side) {
        let now = self.now;
        let Some(pipe) = self.pipe(id) else { return };
        let end = *pipe.end(to);
        let flow = pipe.flow(to.other());
        if flow.packets.is_empty() {
            return;
        }
        if flow.stalled_until > now {
            let until = flow.stalled_until;
            return self.events.push(until, Event::Arrive { pipe: id, to });
        }
        let wants = || {
            let node = self.hosts[end.host].node.as_ref();
            node.is_some_and(|node| node.borrow().wants_receive(end.conn))
        };
        if end.state == EndState::Open && !wants() {
            if let Some(pipe) = self.pipe(id) {
                pipe.flow(to.other()).refused += 1;
            }
            if !self.hosts[end.host].paused.contains(&end.conn) {
                self.hosts[end.host].paused.push(end.conn);
            }
            return;
        }
        let Some(pipe) = self.pipe(id) else { return };
        let flow = pipe.flow(to.other());
        let Some(Packet { bytes }) = flow.packets.pop_front() else { return };
        flow.in_flight_bytes -= bytes.len();
        let ends = bytes.is_empty();
        self.trace.event(now, b'r', end.host as u64, u64::from(end.conn.0) << 32 | bytes.len() as u64);
        self.trace.bytes(&bytes);
        match end.state {
            EndState::Open if ends => {
                self.flush_all(id, to);
                let arrives = self.nics[self.hosts[end.host].nic].send(now, 0);
                self.send_end(id, to, arrives);
                self.end(id, to, CloseReason::Ended);
            }
            EndState::Open => self.handle(end.host, Input::Received { conn: end.conn, bytes: &bytes }),
            EndState::Closing if ends => self.end(id, to, CloseReason::Ended),
            EndState::Closing | EndState::Connecting => {}
            EndState::Gone => {
                if !ends {
                    let after = self.latency_of(id, to.other());
                    self.end_after(id, to.other(), after);
                }
            }
        }
        self.spare.push(bytes);
        self.flush(id, to.other(), false);
        let sender = self.pipe(id).map(|pipe| pipe.end(to.other()).host);
        if let Some(sender) = sender.filter(|host| *host != usize::MAX)
            && let Some(node) = self.hosts[sender].node.clone()
        {
            // What was sent may have made room.
            self.ask_paused(sender, &node);
            self.arm(sender);
        }
    }

    fn end_after(&mut self, pipe: PipeId, side: Side, after: Duration) {
        let reason = CloseReason::Failed(ECONNRESET);
        self.events.push(self.now + after, Event::End { pipe, side, reason });
    }

    /// The connection is over for one end, which is told.
    fn end(&mut self, id: PipeId, side: Side, reason: CloseReason) {
        let Some(pipe) = self.pipe(id) else { return };
        let end = *pipe.end(side);
        if end.state == EndState::Gone || end.host == usize::MAX {
            return;
        }
        // A close that was asked for is done, whatever ended it.
        let reason = if end.state == EndState::Closing { CloseReason::Ended } else { reason };
        self.set_conn(end.host, end.conn, None);
        self.hosts[end.host].paused.retain(|conn| *conn != end.conn);
        self.forget(id, side);
        self.trace.event(self.now, b'e', end.host as u64, u64::from(end.conn.0));
        self.handle(end.host, Input::Closed { conn: end.conn, reason });
    }

    /// One end has nothing of the connection any more.
    fn forget(&mut self, id: PipeId, side: Side) {
        let Some(pipe) = self.pipe(id) else { return };
        pipe.end_mut(side).state = EndState::Gone;
        let (is_gone, from) = (pipe.is_gone(), (HostId(pipe.end(Side::Client).host), pipe.connect));
        if side == Side::Server {
            self.left.push(from);
        }
        if is_gone {
            let slot = &mut self.pipes[id.slot as usize];
            slot.pipe = None;
            slot.generation += 1;
            self.free_pipes.push(id.slot);
        }
    }

    /// Of what is on its way from `side`, a part is lost with all that follows.
    fn cut(&mut self, id: PipeId, side: Side) {
        let Some(waiting) = self.pipe(id).map(|pipe| pipe.flow(side).packets.len() as u64) else { return };
        let kept = self.random.below(waiting + 1) as usize;
        let Some(pipe) = self.pipe(id) else { return };
        let flow = pipe.flow(side);
        flow.cut = true;
        for packet in flow.packets.drain(kept..) {
            flow.in_flight_bytes -= packet.bytes.len();
        }
        // The last that arrives may end anywhere.
        let Some(len) = flow.packets.back().map(|packet| packet.bytes.len()).filter(|len| *len > 1) else { return };
        let left = self.random.below(len as u64 - 1) as usize + 1;
        if let Some(pipe) = self.pipe(id) {
            let flow = pipe.flow(side);
            flow.in_flight_bytes -= len - left;
            if let Some(last) = flow.packets.back_mut() {
                last.bytes.truncate(left);
            }
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({} hosts at {} ns)", self.hosts.len(), self.now.0)
    }
}
