//! An FCP initiator and a target joined by queues. Bytes are delivered in pieces of a chosen size; time is virtual.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "shared by several test binaries")]

use std::rc::Rc;

use iotax_proto::{
    Allocation, Backend, Ending, Geometry, Initiator, Instant, Io, IoError, IoId, Payload, Started, Tag, Target,
    UnitId, UnitOp, Violation,
    fcp::{
        Port, PortName, initiator,
        target_side::{self, Connection, FcpBackend, LoginGrant, LoginRefusal, Logins},
    },
    scsi::ScsiBackend,
};

use crate::iscsi_support::{Cut, MemoryBackend, Recorder, backend::Local, cut};

pub const INITIATOR: PortName = PortName(0x3000_0001_0000_0001);
pub const TARGET: PortName = PortName(0x3000_0002_0000_0001);
pub const NODE: PortName = PortName(0x3000_0002_0000_0000);

/// The volume in memory behind one target port.
pub struct FcBackend {
    pub memory: MemoryBackend,
    pub logins: Rc<Local<Logins>>,
    pub refusal: Option<LoginRefusal>,
    pub notified: u32,
}

impl FcBackend {
    pub fn new(len: usize) -> Self {
        let logins = Local::new(Logins::default());
        Self { memory: MemoryBackend::new(len), logins, refusal: None, notified: 0 }
    }
}

impl Backend for FcBackend {
    fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        self.memory.geometry(unit)
    }

    fn allocation(&self, unit: UnitId, offset: u64) -> Option<Allocation> {
        self.memory.allocation(unit, offset)
    }

    fn start(&mut self, now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Started {
        self.memory.start(now, id, unit, op)
    }

    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        self.memory.place(id, offset, bytes);
    }

    fn finish(&mut self, now: Instant, id: IoId) -> Started {
        self.memory.finish(now, id)
    }

    fn abort(&mut self, id: IoId, ending: Option<Ending>) {
        self.memory.abort(id, ending);
    }
}

impl ScsiBackend for FcBackend {
    fn notify_others(&mut self) {
        self.notified += 1;
    }
}

impl FcpBackend for FcBackend {
    fn login(&mut self, _initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal> {
        match self.refusal {
            Some(refusal) => Err(refusal),
            None if target != TARGET => Err(LoginRefusal::NoSuchPort),
            None => Ok(LoginGrant {
                device: self.memory.device.clone(),
                logins: self.logins.clone(),
                node_name: NODE,
                address: [127, 0, 0, 1].into(),
            }),
        }
    }
}

pub struct Pair {
    pub now: Instant,
    pub initiator: initiator::Session,
    pub target: Connection,
    pub backend: FcBackend,
    pub events: Recorder,
    /// All bytes that each side sent.
    pub to_target: Vec<u8>,
    pub to_initiator: Vec<u8>,
    /// The same bytes in the order of sending; true if the initiator sent them.
    pub order: Vec<(bool, Vec<u8>)>,
    cut: Cut,
}

impl Pair {
    pub fn new(config: initiator::Config, target: target_side::Config, backend: FcBackend, cut: Cut) -> Self {
        let now = Instant(0);
        Self {
            now,
            initiator: initiator::Session::new(now, config),
            target: Connection::new(now, target),
            backend,
            events: Recorder::default(),
            to_target: Vec::new(),
            to_initiator: Vec::new(),
            order: Vec::new(),
            cut,
        }
    }

    /// A pair that is logged in and ready.
    pub fn ready(config: initiator::Config, target: target_side::Config, backend: FcBackend, cut: Cut) -> Self {
        let mut pair = Self::new(config, target, backend, cut);
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
                self.target.receive(self.now, piece, &mut self.backend)?;
            }
            self.to_target.extend_from_slice(&out);
            self.order.push((true, out));
            while let Some((id, result)) = self.backend.memory.take_queued() {
                moved = true;
                self.target.complete(self.now, id, result, &mut self.backend);
            }
            let out = Target::<FcBackend>::transmit(&mut self.target).take_bytes();
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

    pub fn close(&mut self) {
        self.initiator.close(self.now);
        self.run().expect("logout");
        assert!(self.events.closed);
        assert!(Target::<FcBackend>::is_closing(&self.target));
    }
}

pub fn config(credit: u16, frame_data_len: u16) -> initiator::Config {
    let port = Port { credit, frame_data_len, ..Port::new(INITIATOR, INITIATOR) };
    initiator::Config { queue_depth: 32, ..initiator::Config::new(port, TARGET, 0) }
}

pub fn target_config(credit: u16, frame_data_len: u16, burst_len: u32) -> target_side::Config {
    let defaults = target_side::Config::default();
    target_side::Config { port: Port { credit, frame_data_len, ..defaults.port }, burst_len, ..defaults }
}
