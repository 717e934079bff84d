//! A server with one flat export, a mount, and the wire between them.
#![allow(dead_code, unreachable_pub)] // Each test file uses only some of these items.

pub mod server;

use iotax_proto::{
    Geometry, Initiator, InitiatorEvents, Instant, IoError, Tag, Target, Violation,
    nfs::common::Handles,
    nfs::v3::{
        initiator::{Config, Mount},
        target_side::{self, Connection},
    },
    nfs::{
        PROGRAM,
        v41::{self, codec::CompoundHead},
    },
    rpc::{Credentials, Encoder, Xid, auth::Identity, message::encode_call},
};

pub use crate::in_place::give;
use server::Server;

/// Records the events of the mount.
#[derive(Debug, Default)]
pub struct Log {
    pub geometry: Option<Geometry>,
    /// Bytes read, by tag.
    pub data: Vec<Vec<u8>>,
    pub completed: Vec<(Tag, Result<(), IoError>)>,
    pub closed: bool,
}

impl InitiatorEvents for Log {
    fn ready(&mut self, _now: Instant, geometry: &Geometry) {
        assert!(self.geometry.is_none(), "ready comes once");
        self.geometry = Some(geometry.clone());
    }

    fn data(&mut self, tag: Tag, offset: u32, bytes: &[u8]) {
        let tag = tag as usize;
        if self.data.len() <= tag {
            self.data.resize(tag + 1, Vec::new());
        }
        assert_eq!(self.data[tag].len(), offset as usize, "data come in order");
        self.data[tag].extend_from_slice(bytes);
    }

    fn complete(&mut self, _now: Instant, tag: Tag, result: Result<(), IoError>) {
        self.completed.push((tag, result));
    }

    fn closed(&mut self, _now: Instant) {
        self.closed = true;
    }
}

/// A mount and its server, joined by a wire that delivers `step` bytes at a time.
pub struct Pair<I = Mount, T = Connection> {
    pub now: Instant,
    pub mount: I,
    pub connection: T,
    pub server: Server,
    pub log: Log,
    pub step: usize,
    /// Splits the records of both sides into fragments of this many bytes.
    pub fragment: Option<usize>,
    /// All bytes that each side received.
    pub to_server: Vec<u8>,
    pub to_client: Vec<u8>,
}

/// The configuration of a target.
pub fn served() -> target_side::Config {
    target_side::Config::new(Handles::new([9; 32]))
}

pub fn config() -> Config {
    Config {
        export: "/export".into(),
        file: "volume".into(),
        identity: Identity::Sys { machine: "client".into(), credentials: Credentials::new(0, 0, &[0, 5]) },
        depth: 8,
        ..Config::default()
    }
}

impl Pair {
    pub fn new(config: Config, server: Server) -> Self {
        let now = Instant::default();
        Self::of(Mount::new(now, config), Connection::new(now, served()), server)
    }
}

impl Pair<v41::initiator::Client, v41::target_side::Connection> {
    pub fn of_41(config: v41::initiator::Config, server: Server) -> Self {
        let now = Instant::default();
        let target = v41::target_side::Config::new(Handles::new([9; 32]));
        Self::of(v41::initiator::Client::new(now, config), v41::target_side::Connection::new(now, target), server)
    }
}

/// Like `config`, for version 4.1.
pub fn config_41() -> v41::initiator::Config {
    v41::initiator::Config {
        file: "/export/volume".into(),
        identity: config().identity,
        depth: 8,
        ..v41::initiator::Config::default()
    }
}

/// A version of NFS that the tests use.
pub trait Version {
    type Initiator: Initiator;
    type Target: Target<Server>;

    /// Both sides, before they have exchanged any bytes.
    fn pair(server: Server) -> Pair<Self::Initiator, Self::Target>;
}

pub struct V3;
pub struct V41;

impl Version for V3 {
    type Initiator = Mount;
    type Target = Connection;

    fn pair(server: Server) -> Pair {
        Pair::new(config(), server)
    }
}

impl Version for V41 {
    type Initiator = v41::initiator::Client;
    type Target = v41::target_side::Connection;

    fn pair(server: Server) -> Pair<Self::Initiator, Self::Target> {
        Pair::of_41(config_41(), server)
    }
}

impl<I: Initiator, T: Target<Server>> Pair<I, T> {
    /// A mount and a connection at time zero.
    pub fn of(mount: I, connection: T, server: Server) -> Self {
        Self {
            now: Instant::default(),
            mount,
            connection,
            server,
            log: Log::default(),
            step: usize::MAX,
            fragment: None,
            to_server: Vec::new(),
            to_client: Vec::new(),
        }
    }

    /// Carries bytes both ways and completes the server's queued operations, until nothing is left to do.
    pub fn run(&mut self) -> Result<(), Violation> {
        loop {
            self.now = Instant(self.now.0 + 1000);
            let bytes = refragment(self.mount.transmit().take_bytes(), self.fragment);
            self.to_server.extend(&bytes);
            for chunk in bytes.chunks(self.step.min(bytes.len().max(1))) {
                give(&mut self.connection, self.now, chunk, &mut self.server)?;
            }
            for (id, result) in self.server.finish_queued() {
                self.connection.complete(self.now, id, result, &mut self.server);
            }
            let answer = refragment(self.connection.transmit().take_bytes(), self.fragment);
            self.to_client.extend(&answer);
            for chunk in answer.chunks(self.step.min(answer.len().max(1))) {
                self.mount.receive(self.now, chunk, &mut self.log)?;
            }
            if bytes.is_empty() && answer.is_empty() {
                return Ok(());
            }
        }
    }

    /// Runs until the file is ready.
    pub fn ready(mut self) -> Self {
        self.run().expect("a mount");
        assert!(self.log.geometry.is_some(), "the file is ready");
        self
    }

    /// Lets time pass to the mount's next timer.
    pub fn wake(&mut self) -> Result<(), Violation> {
        self.now = self.now.max(self.mount.poll_timeout().expect("something to wait for"));
        self.mount.handle_timeout(self.now, &mut self.log)
    }
}

/// The session ID of the first SEQUENCE that a client sent.
pub fn session_of(to_server: &[u8]) -> v41::SessionId {
    let number = (v41::OpCode::Sequence as u32).to_be_bytes();
    let at = to_server.windows(4).position(|window| window == number).expect("a SEQUENCE");
    v41::SessionId(to_server[at + 4..at + 20].try_into().expect("16 bytes"))
}

/// The offset of the result of the last successful operation `code`.
fn result_at(to_client: &[u8], code: v41::OpCode) -> usize {
    let done = [(code as u32).to_be_bytes(), [0; 4]].concat();
    to_client.windows(8).rposition(|window| window == done).expect("it was done") + 8
}

/// The file handle that the last GETFH returned, which is that of the opened file.
pub fn handle_of(to_client: &[u8]) -> Vec<u8> {
    let at = result_at(to_client, v41::OpCode::GetFh);
    to_client[at + 4..][..word(to_client, at) as usize].to_vec()
}

/// The state ID that the last OPEN returned.
pub fn state_of(to_client: &[u8]) -> v41::StateId {
    let at = result_at(to_client, v41::OpCode::Open);
    v41::StateId { seqid: word(to_client, at), other: to_client[at + 4..at + 16].try_into().expect("12 bytes") }
}

pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// A COMPOUND of minor version 1, as a record whose mark has no length yet.
pub fn compound(xid: u32, tag: &[u8], operations: &[v41::Operation<'_>]) -> Encoder {
    compound_of_minor(1, xid, tag, operations)
}

pub fn compound_of_minor(minor: u32, xid: u32, tag: &[u8], operations: &[v41::Operation<'_>]) -> Encoder {
    let mut call = Encoder::default();
    let (version, procedure) = (v41::VERSION, v41::PROC_COMPOUND);
    encode_call(call.begin_record(), Xid(xid), PROGRAM, version, procedure, &config_41().identity.encode());
    CompoundHead { tag, minor, operations: operations.len() as u32 }.encode(&mut call);
    for operation in operations {
        operation.encode(&mut call);
    }
    call
}

/// The same records, split into fragments of `len` bytes.
pub fn refragment(bytes: Vec<u8>, len: Option<usize>) -> Vec<u8> {
    let Some(len) = len else { return bytes };
    let mut rest = &bytes[..];
    let mut out = Vec::new();
    while let Some((mark, after)) = rest.split_first_chunk::<4>() {
        let size = (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
        let (record, after) = after.split_at(size);
        let count = record.chunks(len).len();
        for (at, chunk) in record.chunks(len).enumerate() {
            let last = if at + 1 == count { 1 << 31 } else { 0 };
            out.extend((chunk.len() as u32 | last).to_be_bytes());
            out.extend(chunk);
        }
        rest = after;
    }
    out
}

/// Bytes that depend on their position and on `seed`.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}
