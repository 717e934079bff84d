//! An FC-NVMe initiator and a target joined by queues. Bytes are delivered in pieces of a chosen size; time is virtual.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "shared by several test binaries")]

use iotax_proto::{
    Initiator, Instant, Io, IoError, Payload, Tag, Target, Violation,
    fc_nvme::{
        Port, PortName, initiator,
        target_side::{self, Connection, FcNvmeBackend, LoginGrant, LoginRefusal},
    },
    nvme::fabrics::host::SessionConfig,
};

use crate::nvme_support::{Cut, HOSTNQN, Recorder, SUBNQN, Server, cut};

pub const INITIATOR: PortName = PortName(0x3000_0001_0000_0001);
pub const TARGET: PortName = PortName(0x3000_0002_0000_0001);
pub const NODE: PortName = PortName(0x3000_0002_0000_0000);

impl FcNvmeBackend for Server {
    fn port_login(&mut self, _initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal> {
        match self.port.refusal {
            Some(refusal) => Err(refusal),
            None if target != TARGET => Err(LoginRefusal::NoSuchPort),
            None => Ok(LoginGrant {
                logins: self.port.logins.clone(),
                node_name: NODE,
                address: [127, 0, 0, 1].into(),
                device: (),
            }),
        }
    }
}

pub struct Pair {
    pub now: Instant,
    pub initiator: initiator::Session,
    pub target: Connection,
    pub server: Server,
    pub events: Recorder,
    /// All bytes that each side sent.
    pub to_target: Vec<u8>,
    pub to_initiator: Vec<u8>,
    /// The same bytes in the order of sending; true if the initiator sent them.
    pub order: Vec<(bool, Vec<u8>)>,
    cut: Cut,
}

impl Pair {
    pub fn new(config: initiator::Config, target: target_side::Config, server: Server, cut: Cut) -> Self {
        let now = Instant(0);
        Self {
            now,
            initiator: initiator::Session::new(now, config),
            target: Connection::new(now, target),
            server,
            events: Recorder::default(),
            to_target: Vec::new(),
            to_initiator: Vec::new(),
            order: Vec::new(),
            cut,
        }
    }

    /// A pair that is logged in and whose I/O queue is connected.
    pub fn ready(config: initiator::Config, target: target_side::Config, server: Server, cut: Cut) -> Self {
        let mut pair = Self::new(config, target, server, cut);
        pair.run_until(|pair| pair.events.geometry.is_some()).expect("a session");
        pair
    }

    /// Delivers to the target what the initiator has queued. Returns true if there was anything.
    pub fn send(&mut self) -> Result<bool, Violation> {
        let out = self.initiator.transmit().take_bytes();
        for piece in cut(&out, self.cut, self.to_target.len()) {
            self.target.receive(self.now, piece, &mut self.server)?;
        }
        self.to_target.extend_from_slice(&out);
        let moved = !out.is_empty();
        self.order.push((true, out));
        Ok(moved)
    }

    /// Carries bytes both ways until neither side sends any.
    pub fn run(&mut self) -> Result<(), Violation> {
        loop {
            let mut moved = self.send()?;
            for (id, result) in std::mem::take(&mut self.server.queued) {
                moved = true;
                self.target.complete(self.now, id, result, &mut self.server);
            }
            let out = Target::<Server>::transmit(&mut self.target).take_bytes();
            moved |= !out.is_empty();
            for piece in cut(&out, self.cut, self.to_initiator.len()) {
                self.initiator.receive(self.now, piece, &mut self.events)?;
            }
            self.to_initiator.extend_from_slice(&out);
            self.order.push((false, out));
            if !moved {
                return Ok(());
            }
        }
    }

    /// Calls `run`, lets time pass to the next timer, and repeats that until `is_done`. Panics after an hour of virtual
    /// time.
    pub fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        loop {
            self.run()?;
            if is_done(self) {
                return Ok(());
            }
            let timers = [self.initiator.poll_timeout(), Target::<Server>::poll_timeout(&self.target)];
            let next = timers.into_iter().flatten().min().expect("a timer");
            assert!(next < Instant(3_600_000_000_000), "nothing happens any more");
            self.now = self.now.max(next);
            self.initiator.handle_timeout(self.now, &mut self.events)?;
            self.target.handle_timeout(self.now, &mut self.server)?;
        }
    }

    pub fn initiator_submits(&mut self, tag: Tag, io: Io) {
        self.initiator.submit(self.now, tag, io).expect("an I/O that may be submitted");
    }

    /// Does one I/O and returns its result.
    pub fn io(&mut self, tag: Tag, io: Io) -> Result<Vec<u8>, IoError> {
        self.events.data.remove(&tag);
        self.initiator_submits(tag, io);
        self.run().expect("no violation");
        let result = self.events.take(tag);
        assert!(self.events.completions.is_empty(), "one completion an I/O");
        result
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
        self.run_until(|pair| pair.events.is_closed).expect("an orderly end");
        assert!(Target::<Server>::is_closing(&self.target));
        assert_eq!(self.server.outstanding(), 0);
    }
}

pub fn config(credit: u16, frame_data_len: u16) -> initiator::Config {
    let port = Port { credit, frame_data_len, ..Port::new(INITIATOR, INITIATOR) };
    let session = SessionConfig { depth: 32, ..SessionConfig::new(SUBNQN, HOSTNQN, [9; 16]) };
    initiator::Config::new(port, TARGET, session)
}

pub fn target_config(credit: u16, frame_data_len: u16, burst_len: u32) -> target_side::Config {
    let defaults = target_side::Config::default();
    target_side::Config { port: Port { credit, frame_data_len, ..defaults.port }, burst_len, ..defaults }
}
