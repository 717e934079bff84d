//! A driver in memory: two nodes, virtual time, and connections that deliver bytes in random pieces. One seed
//! determines everything.
#![allow(dead_code, unreachable_pub)] // each test file uses its part

pub mod peers;
pub mod server;

use std::{collections::VecDeque, net::SocketAddr, rc::Rc, time::Duration};

use iotax_node::{
    CloseReason, ConnId, DiskOp, DiskToken, Input, ListenerId, LoadConfig, Node, Output, RunConfig, TaskConfig,
    load::Pacing, pattern::Reduction, seeded::SeededRng,
};
pub use iotax_proto::HeapRegion as Heap;
use iotax_proto::{Instant, Payload, Region};

#[allow(clippy::unnecessary_wraps)] // the type that a load asks for
pub fn allocate(len: usize) -> Result<Rc<dyn Region>, iotax_node::Failure> {
    Ok(Heap::new(len))
}

pub const RUN: RunConfig = RunConfig {
    outstanding: 8,
    block_size_bytes: 4096,
    read_percent: 50.0,
    random_percent: 100.0,
    streams: Vec::new(),
    shared: None,
    oltp: None,
    pacing: Pacing::Closed,
    warmup: Duration::from_millis(5),
    runtime: Duration::from_millis(20),
    sample: Duration::from_millis(5),
    count: None,
    seed: 7,
    verify: true,
    durable: false,
    flush_after: 0,
    filled: false,
    read_back: false,
};

pub fn load(task: TaskConfig, workers: u32) -> LoadConfig {
    LoadConfig {
        task,
        workers,
        first_worker: 0,
        own_workers: workers,
        working_set_bytes: None,
        working_set_offset_bytes: 0,
        reduction: Reduction::default(),
        run: 99,
    }
}

/// How the simulated world behaves.
#[derive(Clone, Debug)]
pub struct World {
    pub seed: u64,
    /// Maximum number of bytes delivered at once.
    pub piece_max: u64,
    /// Time per delivered piece, and per turn of a node that is due at once.
    pub step: Duration,
    /// Nothing is delivered in this span of virtual time.
    pub stall: Option<(Instant, Instant)>,
}

impl Default for World {
    fn default() -> Self {
        Self { seed: 1, piece_max: 9000, step: Duration::from_nanos(700), stall: None }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct DiskCounts {
    pub writes: u64,
    pub durable_writes: u64,
    pub flushes: u64,
}

pub struct Lab<'a, C> {
    world: World,
    random: SeededRng,
    pub now: Instant,
    client: &'a mut C,
    server: Option<&'a mut dyn Node>,
    listeners: Vec<SocketAddr>,
    pipes: Vec<Pipe>,
    disks: Vec<Rc<Heap>>,
    disk_ops: VecDeque<(Side, DiskToken, Result<u32, i32>)>,
    /// The disk operations requested so far.
    pub asked: DiskCounts,
    /// The client's address as the server sees it.
    pub peer: SocketAddr,
    /// Connections that have ended.
    pub closed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

const SIDES: [Side; 2] = [Side::Client, Side::Server];

impl Side {
    fn other(self) -> Self {
        SIDES[1 - self as usize]
    }
}

/// A connection: its two ends, by side.
#[derive(Debug)]
struct Pipe([End; 2]);

#[derive(Debug, Default)]
struct End {
    conn: u32,
    /// Bytes from this end that the other has not received.
    sent: VecDeque<u8>,
    /// This end requested that the connection is closed.
    closes: bool,
}

impl<'a, C: Node> Lab<'a, C> {
    pub fn new(client: &'a mut C, server: Option<&'a mut dyn Node>, listeners: &[SocketAddr]) -> Self {
        Self {
            random: SeededRng::new(1, "lab", 0),
            world: World::default(),
            now: Instant(1_000),
            client,
            server,
            listeners: listeners.to_vec(),
            pipes: Vec::new(),
            disks: Vec::new(),
            disk_ops: VecDeque::new(),
            asked: DiskCounts::default(),
            peer: SocketAddr::from(([127, 0, 0, 1], 50_000)),
            closed: 0,
        }
    }

    pub fn world(mut self, world: World) -> Self {
        self.random = SeededRng::new(world.seed, "lab", 0);
        self.world = world;
        self
    }

    pub fn disk(mut self, disk: Rc<Heap>) -> Self {
        self.disks.push(disk);
        self
    }

    /// Drives both nodes until the client is finished, or `control`, which is called before every step, returns true;
    /// `false` if virtual time exceeded `limit`.
    pub fn run_until(&mut self, limit: Instant, mut control: impl FnMut(&mut C, Instant) -> bool) -> bool {
        self.settle();
        while self.now < limit {
            if self.client.is_finished() || control(self.client, self.now) {
                self.settle();
                return true;
            }
            self.settle();
            let moved = self.step();
            if !moved {
                let next =
                    earliest(self.client.poll_timeout(), self.server.as_ref().and_then(|node| node.poll_timeout()));
                let next = match (next, self.world.stall) {
                    (None, Some((_, end))) if end > self.now => end,
                    (Some(next), Some((from, end))) if self.now >= from && self.now < end => next.min(end),
                    (Some(next), _) => next,
                    (None, _) => panic!("nothing moves and nobody waits for a time"),
                };
                self.now = self.now.max(next);
            }
            self.now = self.now + self.world.step;
            self.timers();
        }
        false
    }

    fn timers(&mut self) {
        for side in [Side::Client, Side::Server] {
            if let Some(node) = self.node(side)
                && node.poll_timeout().is_some_and(|at| at <= self.now)
            {
                self.handle(side, Input::Timer);
            }
        }
    }

    fn node(&mut self, side: Side) -> Option<&mut (dyn Node + 'a)> {
        match side {
            Side::Client => Some(&mut *self.client),
            Side::Server => self.server.as_deref_mut(),
        }
    }

    fn handle(&mut self, side: Side, input: Input<'_>) {
        let now = self.now;
        if let Some(node) = self.node(side) {
            node.handle(now, input);
        }
        self.settle();
    }

    /// Executes one event: a disk operation ends, a piece of bytes arrives, or a connection ends.
    fn step(&mut self) -> bool {
        if let Some((side, token, result)) = self.disk_ops.pop_front() {
            self.handle(side, Input::DiskDone { token, result });
            return true;
        }
        if self.world.stall.is_some_and(|(from, to)| self.now >= from && self.now < to) {
            return false;
        }
        let count = self.pipes.len() as u64;
        let first = if count == 0 { 0 } else { self.random.below(count * 2) };
        for at in 0..count * 2 {
            let at = (first + at) % (count * 2);
            if self.carry((at / 2) as usize, SIDES[(at % 2) as usize]) {
                return true;
            }
        }
        false
    }

    /// Delivers a piece of what `from` queued on a pipe to the other side, or the end of the connection.
    fn carry(&mut self, index: usize, from: Side) -> bool {
        self.take(index, from);
        let to = from.other();
        let receiver = ConnId(self.pipes[index].0[to as usize].conn);
        let sender = &self.pipes[index].0[from as usize];
        if !sender.sent.is_empty() {
            let len = (self.random.below(self.world.piece_max) + 1).min(sender.sent.len() as u64) as usize;
            if !self.node(to).is_some_and(|node| node.wants_receive(receiver)) {
                return false;
            }
            let bytes: Vec<u8> = self.pipes[index].0[from as usize].sent.drain(..len).collect();
            let place =
                if self.random.below(2) == 0 { None } else { self.node(to).and_then(|node| node.place(receiver, 1)) };
            let (placed, rest) = bytes.split_at(place.as_ref().map_or(0, Payload::len).min(len));
            if let Some(place) = place {
                place.copy_in(0, placed);
                self.handle(to, Input::Placed { conn: receiver, len: placed.len() });
            }
            if !rest.is_empty() {
                self.handle(to, Input::Received { conn: receiver, bytes: rest });
            }
            return true;
        }
        if sender.closes {
            let pipe = self.pipes.swap_remove(index);
            self.end(&pipe, &CloseReason::Ended);
            return true;
        }
        false
    }

    fn end(&mut self, pipe: &Pipe, reason: &CloseReason) {
        self.closed += 1;
        // The server first: the client may reconnect at once, and its new connection may get the same id there.
        for side in [Side::Server, Side::Client] {
            self.handle(side, Input::Closed { conn: ConnId(pipe.0[side as usize].conn), reason: reason.clone() });
        }
    }

    /// Moves what a node queued into the pipe.
    fn take(&mut self, index: usize, from: Side) {
        let conn = ConnId(self.pipes[index].0[from as usize].conn);
        let Some(transmit) = self.node(from).and_then(|node| node.transmit(conn)) else { return };
        let bytes = transmit.take_bytes();
        self.pipes[index].0[from as usize].sent.extend(bytes);
    }

    fn settle(&mut self) {
        for side in SIDES {
            while let Some(output) = self.node(side).and_then(Node::poll_output) {
                self.output(side, output);
            }
            while self.node(side).and_then(Node::poll_transmit).is_some() {}
        }
    }

    fn output(&mut self, side: Side, output: Output) {
        match output {
            Output::Connect { conn, to } => {
                let Some(listener) = self.listeners.iter().position(|at| *at == to) else {
                    self.handle(side, Input::Closed { conn, reason: CloseReason::Failed(ECONNREFUSED) });
                    return;
                };
                // Ids of closed connections are reused, as drivers do.
                let is_free = |id: &u32| self.pipes.iter().all(|pipe| pipe.0[Side::Server as usize].conn != *id);
                let server = (0..=self.pipes.len() as u32).find(is_free).expect("one more than there are pipes");
                self.pipes.push(Pipe([conn.0, server].map(|conn| End { conn, ..End::default() })));
                let (conn_at_server, listener) = (ConnId(server), ListenerId(listener as u32));
                // Each connection comes from a different port.
                let peer = SocketAddr::new(self.peer.ip(), self.peer.port() + self.pipes.len() as u16);
                self.handle(Side::Server, Input::Accepted { conn: conn_at_server, listener, peer });
                self.handle(Side::Client, Input::Connected { conn });
            }
            Output::Close { conn } => {
                if let Some(index) = self.pipes.iter().position(|pipe| pipe.0[side as usize].conn == conn.0) {
                    self.take(index, side);
                    self.pipes[index].0[side as usize].closes = true;
                }
            }
            Output::Disk { token, disk, op } => {
                match &op {
                    DiskOp::Write { durable: true, .. } => self.asked.durable_writes += 1,
                    DiskOp::Write { .. } => self.asked.writes += 1,
                    DiskOp::Sync => self.asked.flushes += 1,
                    _ => {}
                }
                let result = perform(&self.disks[disk.0 as usize], &op);
                self.disk_ops.push_back((side, token, result));
            }
        }
    }

    /// Ends the connections that are still open when the client is finished, as its driver does.
    pub fn close_all(&mut self) {
        for pipe in std::mem::take(&mut self.pipes) {
            self.end(&pipe, &CloseReason::Ended);
        }
    }

    /// Resets every connection, as when a peer crashes.
    pub fn cut(&mut self) {
        for pipe in std::mem::take(&mut self.pipes) {
            self.end(&pipe, &CloseReason::Failed(ECONNRESET));
        }
    }
}

const ECONNRESET: i32 = 104;
const ECONNREFUSED: i32 = 111;
const EIO: i32 = 5;

pub fn perform(disk: &Heap, op: &DiskOp) -> Result<u32, i32> {
    let inside = |offset: u64, len: usize| offset as usize + len <= disk.len();
    match op {
        DiskOp::Read { offset, into } => {
            let len = into.len().min(disk.len().saturating_sub(*offset as usize));
            let mut bytes = vec![0; len];
            disk.copy_out(*offset as usize, &mut bytes);
            into.copy_in(0, &bytes);
            Ok(len as u32)
        }
        DiskOp::Write { offset, from, .. } if inside(*offset, from.len()) => {
            disk.copy_in(*offset as usize, &from.to_vec());
            Ok(from.len() as u32)
        }
        DiskOp::Sync | DiskOp::Allocate { .. } => Ok(0),
        DiskOp::WriteZeroes { offset, len } | DiskOp::Unmap { offset, len } if inside(*offset, *len as usize) => {
            disk.copy_in(*offset as usize, &vec![0; *len as usize]);
            Ok(0)
        }
        _ => Err(EIO),
    }
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}
