//! The path of an I/O through both sides without sockets: a load and a server in one thread, bytes delivered in pieces
//! as by a driver, virtual time. The instruction counts of `initiator` and `target` are the costs of our own code, the
//! same on every machine; `tests/python/bench_rules/test_instructions.py` counts them and compares them with limits.
//!
//! `io_path nvme-tcp|iscsi|nfs3|nfs4.1|fcp|fc-nvme read|write ROUNDS [--block BYTES] [--depth N] [--digests]
//! [--verify]` prints the I/Os completed.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement, not a service")]

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use iotax_node::{
    CloseReason, ConnId, Input, ListenerId, LoadConfig, LoadNode, Node, Output, Randomness, RunConfig, Server,
    ServerConfig, ServerNode, TaskConfig,
    load::{Endpoint, Pacing, TaskOutcome, connector::ConnectionConfig},
    pattern::{Pool, Reduction},
    server::{Export, ExportOptions, Protocol, plan_portals},
    volume::{self, Media, VolumeSpec},
};
use iotax_proto::{Instant, Payload, Region, Transmit, nfs::common::Squash, wire::Chunk};
use iotax_runtime::memory::SharedRegion;

const VOLUME_BYTES: usize = 16 << 20;
/// Bytes that a driver receives at once.
const PIECE_BYTES: usize = 32 << 10;
/// Minimum bytes that a driver receives in place.
const PLACE_MIN_BYTES: usize = 16 << 10;
/// Bytes that it receives behind these.
const SPILL_BYTES: usize = 4 << 10;
/// Virtual time of a turn.
const STEP: Duration = Duration::from_micros(10);

struct Settings {
    protocol: Protocol,
    read_percent: f64,
    rounds: u32,
    block_bytes: u32,
    depth: u32,
    digests: bool,
    verify: bool,
}

fn main() {
    let settings = parse(std::env::args().skip(1));
    let (memory, server, mut target) = serve(settings.protocol);
    volume::fill(&memory, &Pool::default(), 0, VOLUME_BYTES as u64, 5);
    let endpoint = Endpoint::parse(&server.endpoint(0)).unwrap();
    let mut load = load(&settings, &endpoint);
    let mut wire = Wire { connections: Vec::new(), bytes: Vec::new(), now: Instant(1_000) };
    while !load.is_finished() {
        load.begin(wire.now);
        wire.turn(&mut load, &mut target);
    }
    match load.outcome() {
        Some(Ok(TaskOutcome::Run(measured))) => println!("{}", measured.read.ios + measured.write.ios),
        other => panic!("the load ended with {other:?}"),
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Settings {
    let protocol = arguments.next().as_deref().and_then(Protocol::of_name).expect("a protocol's name");
    let read_percent = if arguments.next().as_deref() == Some("read") { 100.0 } else { 0.0 };
    let rounds = arguments.next().unwrap().parse().unwrap();
    let mut settings =
        Settings { protocol, read_percent, rounds, block_bytes: 4096, depth: 32, digests: false, verify: false };
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--block" => settings.block_bytes = arguments.next().unwrap().parse().unwrap(),
            "--depth" => settings.depth = arguments.next().unwrap().parse().unwrap(),
            "--digests" => settings.digests = true,
            "--verify" => settings.verify = true,
            _ => panic!("there is no {name}"),
        }
    }
    settings
}

fn serve(protocol: Protocol) -> (SharedRegion, Arc<Server>, ServerNode) {
    let listen = SocketAddr::from(([127, 0, 0, 1], 4_000));
    let squash = Squash::None;
    let exports = vec![Export {
        protocol,
        volume: 0,
        read_only: false,
        listen,
        groups: None,
        portmap: None,
        squash,
        options: ExportOptions::default(),
    }];
    let server = Server::new(ServerConfig {
        volumes: vec![VolumeSpec::new("v0", VOLUME_BYTES as u64, Media::Memory)],
        portals: plan_portals(&exports).unwrap(),
        exports,
        started_unix_ns: 1_700_000_000_000_000_000,
        secret: [11; 32],
        connections_max: 8,
        has_frame_crc: true,
    });
    let memory = SharedRegion::anonymous(VOLUME_BYTES, true).unwrap();
    let node =
        ServerNode::new(Arc::clone(&server), 0, &mut |_| memory.region(), Box::new(|len| Some(region(len))), None);
    (memory, server, node)
}

fn region(len: usize) -> Rc<dyn Region> {
    SharedRegion::anonymous(len, true).unwrap().region()
}

fn load(settings: &Settings, endpoint: &Endpoint) -> LoadNode {
    let run = RunConfig {
        outstanding: settings.depth,
        block_size_bytes: settings.block_bytes,
        read_percent: settings.read_percent,
        random_percent: 100.0,
        streams: Vec::new(),
        shared: None,
        oltp: None,
        pacing: Pacing::Closed,
        warmup: STEP * 50,
        runtime: STEP * settings.rounds,
        sample: Duration::from_secs(1),
        count: None,
        seed: 7,
        verify: settings.verify,
        durable: false,
        flush_after: 0,
        filled: false,
        read_back: false,
    };
    let config = LoadConfig {
        task: TaskConfig::Run(run),
        workers: 1,
        first_worker: 0,
        own_workers: 1,
        working_set_bytes: None,
        working_set_offset_bytes: 0,
        reduction: Reduction::default(),
        run: 99,
    };
    let mut connection = ConnectionConfig::new([127, 0, 0, 1].into(), 77, Randomness::new([1; 32]));
    connection.settings.header_digest = settings.digests;
    connection.settings.data_digest = settings.digests;
    LoadNode::remote(config, endpoint, &connection, &mut |len| Ok(region(len))).unwrap()
}

/// Connections have the same id on both sides, because only the load opens them.
struct Wire {
    connections: Vec<ConnId>,
    bytes: Vec<u8>,
    now: Instant,
}

impl Wire {
    /// Delivers everything from the load to the server, and its replies back.
    fn turn(&mut self, load: &mut LoadNode, server: &mut ServerNode) {
        self.now = self.now + STEP;
        if load.poll_timeout().is_some_and(|at| at <= self.now) {
            initiator(load, Act::Handle(self.now, Input::Timer));
        }
        self.carry_out(load, server);
        for index in 0..self.connections.len() {
            let conn = self.connections[index];
            if self.take(load.transmit(conn)) {
                initiator(load, Act::Sent(conn));
                self.deliver(conn, server);
            }
            if self.take(server.transmit(conn)) {
                target(server, Act::Sent(conn));
                for bytes in self.bytes.chunks(PIECE_BYTES) {
                    initiator(load, Act::Handle(self.now, Input::Received { conn, bytes }));
                }
            }
        }
    }

    /// Delivers queued bytes to the target as a driver does: data that have a place are copied there, which is also the
    /// network's part.
    fn deliver(&self, conn: ConnId, server: &mut ServerNode) {
        let mut left = &self.bytes[..];
        let mut piece_bytes = PIECE_BYTES;
        while !left.is_empty() {
            let mut place = None;
            if left.len() >= PLACE_MIN_BYTES {
                target(server, Act::Place(conn, &mut place));
            }
            let len = place.as_ref().map_or(piece_bytes, Payload::len).min(left.len());
            piece_bytes = if place.is_some() { SPILL_BYTES } else { PIECE_BYTES };
            let (bytes, rest) = left.split_at(len);
            left = rest;
            let input = if let Some(place) = place {
                place.copy_in(0, bytes);
                Input::Placed { conn, len }
            } else {
                Input::Received { conn, bytes }
            };
            target(server, Act::Handle(self.now, input));
        }
    }

    fn carry_out(&mut self, load: &mut LoadNode, server: &mut ServerNode) {
        while let Some(output) = load.poll_output() {
            match output {
                Output::Connect { conn, .. } => {
                    let peer = SocketAddr::from(([127, 0, 0, 1], 50_000 + conn.0 as u16));
                    self.connections.push(conn);
                    target(server, Act::Handle(self.now, Input::Accepted { conn, listener: ListenerId(0), peer }));
                    initiator(load, Act::Handle(self.now, Input::Connected { conn }));
                }
                Output::Close { conn } => {
                    self.connections.retain(|open| *open != conn);
                    let reason = || CloseReason::Ended;
                    target(server, Act::Handle(self.now, Input::Closed { conn, reason: reason() }));
                    initiator(load, Act::Handle(self.now, Input::Closed { conn, reason: reason() }));
                }
                Output::Disk { .. } => panic!("a volume in memory asks for no disk"),
            }
        }
        while server.poll_output().is_some() {}
    }

    /// Copies queued bytes: the network's part, which belongs to neither side.
    fn take(&mut self, transmit: Option<&mut Transmit>) -> bool {
        let Some(transmit) = transmit.filter(|transmit| !transmit.is_empty()) else { return false };
        self.bytes.clear();
        for chunk in transmit.chunks() {
            match chunk {
                Chunk::Bytes(inline) => self.bytes.extend_from_slice(inline),
                Chunk::Payload(payload) => {
                    let at = self.bytes.len();
                    self.bytes.resize(at + payload.len(), 0);
                    payload.copy_out(0, &mut self.bytes[at..]);
                }
            }
        }
        true
    }
}

/// A driver's calls to a node.
enum Act<'a> {
    Handle(Instant, Input<'a>),
    /// Where the next bytes belong.
    Place(ConnId, &'a mut Option<Payload>),
    /// All queued bytes are sent.
    Sent(ConnId),
}

/// All work of the load's side.
#[inline(never)]
fn initiator(node: &mut LoadNode, act: Act<'_>) {
    drive(node, act);
}

/// All work of the server's side.
#[inline(never)]
fn target(node: &mut ServerNode, act: Act<'_>) {
    drive(node, act);
}

#[inline]
fn drive(node: &mut impl Node, act: Act<'_>) {
    match act {
        Act::Handle(now, input) => {
            node.handle(now, input);
            while node.poll_transmit().is_some() {}
        }
        Act::Place(conn, place) => *place = node.place(conn, PLACE_MIN_BYTES),
        Act::Sent(conn) => {
            if let Some(transmit) = node.transmit(conn) {
                transmit.advance(transmit.len());
            }
        }
    }
}
