//! A server in memory, a recorder of an initiator's events, and an initiator and a target joined by queues, in virtual
//! time.
#![allow(dead_code, unreachable_pub, clippy::expect_used)]

pub mod raw;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    rc::Rc,
    time::Duration,
};

use crate::in_place::give;
use iotax_proto::{
    Backend, Ending, Geometry, Initiator, InitiatorEvents, Instant, IoError, IoId, Payload, Shared, Started, Tag,
    Target, UnitError, UnitId, UnitOp, Violation,
    fc::{LoginRefusal, Logins},
    nvme::{
        Admission, DISCOVERY_NQN, DiscoveryEntry, Namespace, NvmeBackend, QueueId, Refusal, Subsystem, SubsystemConfig,
        auth::{Policy, Work, Worked},
        fabrics::host::{ControllerInfo, SessionConfig},
        subsystem::DiscoveryLog,
    },
    nvme_tcp::{AdminQueue, ConnectConfig, IoQueue, TargetConfig, TargetQueue},
};

pub const SUBNQN: &str = "nqn.2026-11.example:volume";
pub const HOSTNQN: &str = "nqn.2014-08.org.nvmexpress:uuid:0b7e7a52-3a0e-4b5e-8f11-000000000001";
pub const BLOCK: usize = 512;
pub const BLOCKS: usize = 256;
pub const UNIT: UnitId = UnitId(7);

/// A `Shared` for one thread.
pub struct Local(pub RefCell<Subsystem>);

impl Shared<Subsystem> for Local {
    fn with(&self, use_it: &mut dyn FnMut(&mut Subsystem)) {
        use_it(&mut self.0.borrow_mut());
    }
}

/// When the backend completes operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// In `start` or `finish`.
    AtOnce,
    /// Later: the operations are queued, and `Server::complete_all` completes them.
    Later,
}

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub struct Server {
    pub volume: Vec<u8>,
    pub subsystem: Rc<Local>,
    pub discovery: Rc<Local>,
    pub log: DiscoveryLog,
    pub answers: Answers,
    pub read_only: bool,
    /// The authentication that hosts must pass.
    pub auth: Option<Policy>,
    /// Computations of the authentication that wait for the test; with `None` they are done at once.
    pub works: Option<Vec<Work>>,
    drawn: u8,
    pub fails_with: Option<UnitError>,
    /// Operations that take data, and the data received so far.
    taking: BTreeMap<IoId, (UnitOp, Payload, usize)>,
    /// Whether the backend names the memory of incoming data, and how often it did.
    pub in_place: bool,
    pub named: Cell<usize>,
    pub queued: Vec<(IoId, Result<Option<Payload>, UnitError>)>,
    pub aborted: Vec<IoId>,
    /// If there is a list, aborted operations continue until the test drops their endings.
    pub lingering: Option<Vec<Ending>>,
    pub durable_ops: usize,
    /// The port over which hosts connect.
    pub portal: u16,
    /// The target port, for hosts over Fibre Channel.
    pub port: FibreChannelPort,
}

/// The logins of a target port, the refusal of logins, and the number of notifications of its server.
#[derive(Default)]
pub struct FibreChannelPort {
    pub logins: Rc<LocalLogins>,
    pub refusal: Option<LoginRefusal>,
    pub notified: u32,
}

#[derive(Default)]
pub struct LocalLogins(RefCell<Logins>);

impl Shared<Logins> for LocalLogins {
    fn with(&self, use_it: &mut dyn FnMut(&mut Logins)) {
        use_it(&mut self.0.borrow_mut());
    }
}

impl Server {
    pub fn new() -> Self {
        Self::with_config(SubsystemConfig::new(SUBNQN))
    }

    pub fn with_config(config: SubsystemConfig) -> Self {
        let mut subsystem = Subsystem::new(config);
        subsystem.put_namespace(Namespace {
            nsid: 1,
            unit: UNIT,
            nguid: [0x11; 16],
            uuid: [0x22; 16],
            eui64: [0x33; 8],
        });
        Self {
            volume: (0..BLOCK * BLOCKS).map(|at| (at / BLOCK) as u8).collect(),
            subsystem: Rc::new(Local(RefCell::new(subsystem))),
            discovery: Rc::new(Local(RefCell::new(Subsystem::new(SubsystemConfig::discovery())))),
            log: DiscoveryLog {
                generation: 3,
                entries: (0..9).map(|port| DiscoveryEntry::tcp(port, SUBNQN, "127.0.0.1", "4420")).collect(),
            },
            answers: Answers::AtOnce,
            read_only: false,
            auth: None,
            works: None,
            drawn: 0,
            fails_with: None,
            taking: BTreeMap::new(),
            in_place: false,
            named: Cell::new(0),
            queued: Vec::new(),
            aborted: Vec::new(),
            lingering: None,
            durable_ops: 0,
            portal: 1,
            port: FibreChannelPort::default(),
        }
    }

    /// Number of operations that wait for data or for their completion.
    pub fn outstanding(&self) -> usize {
        self.taking.len() + self.queued.len()
    }

    pub fn complete_all(&mut self, now: Instant, target: &mut TargetQueue) {
        for (id, result) in std::mem::take(&mut self.queued) {
            target.complete(now, id, result, self);
        }
    }

    fn answer(&mut self, id: IoId, result: Result<Option<Payload>, UnitError>) -> Started {
        match self.answers {
            Answers::AtOnce => Started::Done(result),
            Answers::Later => {
                self.queued.push((id, result));
                Started::Queued
            }
        }
    }

    fn range(&self, offset: u64, len: u64) -> Result<std::ops::Range<usize>, UnitError> {
        let end =
            offset.checked_add(len).filter(|end| *end <= self.volume.len() as u64).ok_or(UnitError::OutOfRange)?;
        Ok(offset as usize..end as usize)
    }

    fn execute(&mut self, op: &UnitOp, data: &[u8]) -> Result<Option<Payload>, UnitError> {
        match op {
            UnitOp::Read { offset, len, durable } => {
                self.durable_ops += usize::from(*durable);
                let range = self.range(*offset, u64::from(*len))?;
                return Ok(Some(Payload::from_vec(self.volume[range].to_vec())));
            }
            UnitOp::Write { offset, len, durable } => {
                let range = self.range(*offset, u64::from(*len))?;
                self.volume[range].copy_from_slice(data);
                self.durable_ops += usize::from(*durable);
            }
            UnitOp::Flush => {}
            UnitOp::WriteZeroes { offset, len, durable } => {
                let range = self.range(*offset, *len)?;
                self.volume[range].fill(0);
                self.durable_ops += usize::from(*durable);
            }
            UnitOp::Unmap { ranges, .. } => {
                for (offset, len) in ranges {
                    let range = self.range(*offset, *len)?;
                    self.volume[range].fill(0xdd);
                }
            }
            UnitOp::Compare { offset, len, durable } => {
                self.durable_ops += usize::from(*durable);
                let range = self.range(*offset, u64::from(*len))?;
                if let Some(at) = self.volume[range].iter().zip(data).position(|(have, sent)| have != sent) {
                    return Err(UnitError::Miscompare(at as u32));
                }
            }
            UnitOp::CompareAndWrite { .. }
            | UnitOp::OrWrite { .. }
            | UnitOp::WriteSame { .. }
            | UnitOp::Allocate { .. } => {
                panic!("NVMe has no such operation")
            }
        }
        Ok(None)
    }
}

impl Backend for Server {
    fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        (unit == UNIT).then_some(Geometry {
            size_bytes: self.volume.len() as u64,
            block_size: BLOCK as u32,
            max_io_bytes: 1 << 20,
            read_only: self.read_only,
        })
    }

    fn start(&mut self, _now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Started {
        assert_eq!(unit, UNIT);
        assert!(!self.taking.contains_key(&id), "the IoId is in use");
        assert!(!self.queued.iter().any(|(queued, _)| *queued == id), "the IoId is in use");
        if let Some(error) = self.fails_with {
            return Started::Done(Err(error));
        }
        if let UnitOp::Write { offset, len, .. } | UnitOp::Compare { offset, len, .. } = op {
            if let Err(error) = self.range(offset, u64::from(len)) {
                return Started::Done(Err(error));
            }
            self.taking.insert(id, (op, Payload::from_vec(vec![0; len as usize]), 0));
            return Started::NeedData;
        }
        let result = self.execute(&op, &[]);
        self.answer(id, result)
    }

    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        let (_, data, placed) = self.taking.get_mut(&id).expect("an operation that takes data");
        data.copy_in(offset as usize, bytes);
        *placed += bytes.len();
    }

    fn memory(&self, id: IoId, offset: u32, len: u32) -> Option<Payload> {
        let (_, data, _) = self.taking.get(&id)?;
        self.named.set(self.named.get() + usize::from(self.in_place));
        self.in_place.then(|| data.slice(offset as usize, len as usize))
    }

    fn finish(&mut self, _now: Instant, id: IoId) -> Started {
        let (op, data, placed) = self.taking.remove(&id).expect("an operation that takes data");
        assert!(self.in_place || placed == data.len(), "every byte once");
        let result = self.execute(&op, &data.to_vec());
        self.answer(id, result)
    }

    fn abort(&mut self, id: IoId, ending: Option<Ending>) {
        if let Some(lingering) = &mut self.lingering {
            lingering.extend(ending);
        }
        let was_queued = self.queued.iter().any(|(queued, _)| *queued == id);
        assert!(self.taking.remove(&id).is_some() || was_queued, "abort of an operation that is not outstanding");
        self.queued.retain(|(queued, _)| *queued != id);
        self.aborted.push(id);
    }
}

impl NvmeBackend for Server {
    fn subsystem(&mut self, subnqn: &str, hostnqn: &str) -> Result<Admission, Refusal> {
        if hostnqn.ends_with("stranger") {
            return Err(Refusal::HostNotAllowed);
        }
        match subnqn {
            SUBNQN => Ok(Admission {
                subsystem: Rc::clone(&self.subsystem) as _,
                auth: self.auth.clone(),
                address: LOCAL,
                port: self.portal,
            }),
            DISCOVERY_NQN => Ok(Admission {
                subsystem: Rc::clone(&self.discovery) as _,
                auth: None,
                address: LOCAL,
                port: self.portal,
            }),
            _ => Err(Refusal::NoSubsystem),
        }
    }

    fn random(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.drawn = self.drawn.wrapping_mul(167).wrapping_add(13);
            *byte = self.drawn;
        }
    }

    fn work(&mut self, work: Work) -> Option<Worked> {
        match &mut self.works {
            None => Some(work.run()),
            Some(works) => {
                works.push(work);
                None
            }
        }
    }

    fn notify_others(&mut self) {
        self.port.notified += 1;
    }

    fn discovery_log(&self, _hostnqn: &str) -> DiscoveryLog {
        self.log.clone()
    }
}

/// Records the events of an initiator.
#[derive(Debug, Default)]
pub struct Recorder {
    pub geometry: Option<Geometry>,
    pub data: BTreeMap<Tag, Vec<u8>>,
    pub completions: Vec<(Tag, Result<(), IoError>)>,
    pub is_closed: bool,
}

impl Recorder {
    /// Removes and returns the result of the command with this tag.
    pub fn take(&mut self, tag: Tag) -> Result<Vec<u8>, IoError> {
        let at = self.completions.iter().position(|(completed, _)| *completed == tag).expect("a completion");
        let (_, result) = self.completions.remove(at);
        let data = self.data.remove(&tag).unwrap_or_default();
        result.map(|()| data)
    }
}

impl InitiatorEvents for Recorder {
    fn ready(&mut self, _now: Instant, geometry: &Geometry) {
        assert!(self.geometry.replace(geometry.clone()).is_none(), "ready is told once");
    }

    fn data(&mut self, tag: Tag, offset: u32, bytes: &[u8]) {
        let data = self.data.entry(tag).or_default();
        assert_eq!(data.len(), offset as usize, "data come in order");
        data.extend_from_slice(bytes);
    }

    fn complete(&mut self, _now: Instant, tag: Tag, result: Result<(), IoError>) {
        self.completions.push((tag, result));
    }

    fn closed(&mut self, _now: Instant) {
        assert!(!self.is_closed, "closed is told once");
        self.is_closed = true;
    }
}

/// How the byte stream of each direction is split for delivery.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Not at all: as they were sent.
    Never,
    /// Once, before this byte of the stream.
    At(usize),
    /// Into pieces of this length.
    Pieces(usize),
}

/// An initiator and a connection of the target, joined.
pub struct Pair<I: Initiator> {
    pub host: I,
    pub target: TargetQueue,
    pub events: Recorder,
    pub now: Instant,
    pub cut: Cut,
    /// All bytes that were sent, by direction.
    pub to_target: Vec<u8>,
    pub to_host: Vec<u8>,
    /// The same bytes in the order of sending: `>` to the target, `<` to the host.
    pub wire: Vec<(char, Vec<u8>)>,
}

impl<I: Initiator> Pair<I> {
    pub fn new(host: I, config: &TargetConfig, cut: Cut) -> Self {
        let now = Instant(0);
        Self {
            host,
            target: TargetQueue::new(now, config.clone()),
            events: Recorder::default(),
            now,
            cut,
            to_target: Vec::new(),
            to_host: Vec::new(),
            wire: Vec::new(),
        }
    }

    /// Carries bytes both ways until neither side sends any.
    pub fn run(&mut self, server: &mut Server) -> Result<(), Violation> {
        loop {
            let to_target = self.host.transmit().take_bytes();
            let sent = self.to_target.len();
            self.to_target.extend_from_slice(&to_target);
            self.wire.push(('>', to_target.clone()));
            for piece in cut(&to_target, self.cut, sent) {
                self.now = self.now + Duration::from_micros(1);
                give(&mut self.target, self.now, piece, server)?;
            }
            server.complete_all(self.now, &mut self.target);
            let to_host = Target::<Server>::transmit(&mut self.target).take_bytes();
            let sent = self.to_host.len();
            self.to_host.extend_from_slice(&to_host);
            self.wire.push(('<', to_host.clone()));
            for piece in cut(&to_host, self.cut, sent) {
                self.host.receive(self.now, piece, &mut self.events)?;
            }
            if to_target.is_empty() && to_host.is_empty() {
                return Ok(());
            }
        }
    }

    /// Calls `run`, lets time pass to the next timer, and repeats that until `is_done`. Panics after an hour of virtual
    /// time.
    pub fn run_until(&mut self, server: &mut Server, is_done: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        loop {
            self.run(server)?;
            if is_done(self) {
                return Ok(());
            }
            let timers = [self.host.poll_timeout(), Target::<Server>::poll_timeout(&self.target)];
            let next = timers.into_iter().flatten().min().expect("a timer");
            assert!(next < Instant(3_600_000_000_000), "nothing happens any more");
            self.now = self.now.max(next);
            self.host.handle_timeout(self.now, &mut self.events)?;
            self.target.handle_timeout(self.now, server)?;
        }
    }
}

pub fn cut(bytes: &[u8], cut: Cut, sent: usize) -> Vec<&[u8]> {
    match cut {
        Cut::Never => vec![bytes],
        Cut::Pieces(len) => bytes.chunks(len).collect(),
        Cut::At(at) => {
            let at = at.saturating_sub(sent).min(bytes.len());
            let (first, second) = bytes.split_at(at);
            vec![first, second]
        }
    }
}

/// Like `connect_config`, with a change.
pub fn connect_with(change: impl FnOnce(&mut SessionConfig)) -> ConnectConfig {
    let mut config = ConnectConfig::new(SUBNQN, HOSTNQN, [9; 16]);
    config.session.depth = 8;
    change(&mut config.session);
    config
}

pub fn connect_config() -> ConnectConfig {
    connect_with(|_| {})
}

/// Sets up a controller on a new connection. Returns the pair of its admin queue.
pub fn admin(server: &mut Server, config: &ConnectConfig, target: &TargetConfig, cut: Cut) -> Pair<AdminQueue> {
    let mut pair = Pair::new(AdminQueue::new(Instant(0), config.clone()), target, cut);
    pair.run_until(server, |pair| pair.host.controller().is_some()).expect("the admin queue comes up");
    pair
}

/// Connects I/O queue `qid` of a controller.
pub fn io(
    server: &mut Server,
    config: &ConnectConfig,
    controller: &ControllerInfo,
    qid: u16,
    target: &TargetConfig,
    cut: Cut,
) -> Pair<IoQueue> {
    let mut pair = Pair::new(IoQueue::new(Instant(0), config, controller, QueueId(qid)), target, cut);
    pair.run(server).expect("the I/O queue connects");
    assert!(pair.events.geometry.is_some());
    pair
}
