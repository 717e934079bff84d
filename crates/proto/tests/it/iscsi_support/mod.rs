//! An initiator and a target joined by queues. Bytes are delivered in pieces of a chosen size; time is virtual.
#![allow(dead_code, unused_imports, unreachable_pub, clippy::unwrap_used, reason = "shared by several test binaries")]

pub mod backend;
mod peer;

use std::collections::{BTreeMap, VecDeque};

pub use crate::in_place::give;
pub use backend::MemoryBackend;
use iotax_proto::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Payload, Tag, Target, Violation,
    iscsi::{Wishes, decode::describe, initiator, pdu::Bhs, target_side},
};
pub use peer::Peer;

pub const INITIATOR: &str = "iqn.2026-11.io.iotax:initiator";
pub const TARGET: &str = "iqn.2026-11.io.iotax:volume";

/// Records the events of an initiator.
#[derive(Debug, Default)]
pub struct Recorder {
    pub ready: Option<Geometry>,
    pub data: BTreeMap<Tag, Vec<u8>>,
    pub completed: VecDeque<(Tag, Result<(), IoError>)>,
    pub closed: bool,
    /// Reports about the access: how often it was known, and in question.
    pub access: [u32; 2],
}

impl InitiatorEvents for Recorder {
    fn ready(&mut self, _now: Instant, geometry: &Geometry) {
        assert!(self.ready.replace(geometry.clone()).is_none(), "ready once");
    }

    fn data(&mut self, tag: Tag, offset: u32, bytes: &[u8]) {
        let buffer = self.data.entry(tag).or_default();
        buffer.truncate(offset as usize);
        assert_eq!(buffer.len(), offset as usize, "data come in order");
        buffer.extend_from_slice(bytes);
    }

    fn complete(&mut self, _now: Instant, tag: Tag, result: Result<(), IoError>) {
        self.completed.push_back((tag, result));
    }

    fn closed(&mut self, _now: Instant) {
        assert!(!std::mem::replace(&mut self.closed, true), "closed once");
    }

    fn access_known(&mut self, _now: Instant) {
        self.access[0] += 1;
    }

    fn access_in_question(&mut self, _now: Instant) {
        self.access[1] += 1;
    }
}

/// How the byte streams are split for delivery.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Everything queued arrives at once.
    Whole,
    /// Into pieces of this many bytes.
    Every(usize),
    /// Into two pieces, at this byte of each direction's stream.
    At(usize),
}

pub struct Pair {
    pub now: Instant,
    pub initiator: initiator::Session,
    pub target: target_side::Connection,
    pub backend: MemoryBackend,
    pub events: Recorder,
    /// All bytes that each side sent, for golden vectors.
    pub to_target: Vec<u8>,
    pub to_initiator: Vec<u8>,
    /// The same bytes in the order of sending; true if the initiator sent them.
    pub order: Vec<(bool, Vec<u8>)>,
    cut: Cut,
}

impl Pair {
    pub fn new(config: initiator::Config, target: target_side::Config, backend: MemoryBackend, cut: Cut) -> Self {
        let now = Instant(0);
        Self {
            now,
            initiator: initiator::Session::new(now, config),
            target: target_side::Connection::new(now, target),
            backend,
            events: Recorder::default(),
            to_target: Vec::new(),
            to_initiator: Vec::new(),
            order: Vec::new(),
            cut,
        }
    }

    /// A pair that is logged in and ready. The initiator negotiates with `wishes`.
    pub fn ready(wishes: Wishes, target: target_side::Config, backend: MemoryBackend, cut: Cut) -> Self {
        let mut pair = Self::new(config(wishes), target, backend, cut);
        pair.run().expect("login");
        assert!(pair.events.ready.is_some(), "ready after login");
        pair
    }

    /// Carries bytes both ways until neither side sends any.
    pub fn run(&mut self) -> Result<(), Violation> {
        loop {
            let out = self.initiator.transmit().take_bytes();
            let mut moved = !out.is_empty();
            for piece in cut(self.cut, self.to_target.len(), &out) {
                give(&mut self.target, self.now, piece, &mut self.backend)?;
            }
            self.to_target.extend_from_slice(&out);
            self.order.push((true, out));
            while let Some((id, result)) = self.backend.take_queued() {
                moved = true;
                self.target.complete(self.now, id, result, &mut self.backend);
            }
            let out = Target::<MemoryBackend>::transmit(&mut self.target).take_bytes();
            moved |= !out.is_empty();
            for piece in cut(self.cut, self.to_initiator.len(), &out) {
                self.initiator.receive(self.now, piece, &mut self.events)?;
            }
            self.to_initiator.extend_from_slice(&out);
            self.order.push((false, out));
            if !moved {
                return Ok(());
            }
        }
    }

    /// Does one I/O and returns its result.
    pub fn io(&mut self, tag: Tag, io: Io) -> Result<Vec<u8>, IoError> {
        self.events.data.remove(&tag);
        self.initiator.submit(self.now, tag, io).expect("an I/O that may be submitted");
        self.run().expect("no violation");
        let (completed, result) = self.events.completed.pop_front().expect("the I/O completes");
        assert_eq!(completed, tag);
        assert!(self.events.completed.is_empty(), "one completion an I/O");
        result.map(|()| self.events.data.remove(&tag).unwrap_or_default())
    }

    pub fn write(&mut self, tag: Tag, offset: u64, data: &[u8]) {
        let io = Io::Write { offset, data: Payload::from_vec(data.to_vec()), durable: false };
        assert_eq!(self.io(tag, io), Ok(Vec::new()));
    }

    pub fn read(&mut self, tag: Tag, offset: u64, len: usize) -> Vec<u8> {
        self.io(tag, Io::Read { offset, len: len as u32 }).expect("a read")
    }

    /// The header of the last PDU that the target sent. The connection must have no digests.
    pub fn last_of_target(&self) -> Bhs {
        let mut rest = &self.to_initiator[..];
        loop {
            let (len, _) = describe(rest).expect("a PDU");
            if len == rest.len() {
                return Bhs(*rest.first_chunk().expect("a header"));
            }
            rest = &rest[len..];
        }
    }

    pub fn close(&mut self) {
        self.initiator.close(self.now);
        self.run().expect("logout");
        assert!(self.events.closed);
        assert!(Target::<MemoryBackend>::is_closing(&self.target));
    }
}

pub fn config(wishes: Wishes) -> initiator::Config {
    initiator::Config { wishes, queue_depth: 32, ..initiator::Config::new(INITIATOR, TARGET, 0) }
}

/// Splits `bytes`. Their first byte is byte `done` of the stream.
pub fn cut(cut: Cut, done: usize, bytes: &[u8]) -> Vec<&[u8]> {
    match cut {
        Cut::Whole => vec![bytes],
        Cut::Every(len) => bytes.chunks(len).collect(),
        Cut::At(at) => {
            let (left, right) = bytes.split_at(at.saturating_sub(done).min(bytes.len()));
            vec![left, right]
        }
    }
}

/// Bytes that depend on their position and on `seed`.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31).wrapping_add(at >> 8).wrapping_add(seed * 7)) as u8).collect()
}
