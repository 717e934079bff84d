//! A server with one volume in memory.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use iotax_proto::{
    Backend, Ending, Geometry, Instant, IoId, Payload, Shared, Started, UnitError, UnitId, UnitOp,
    iscsi::{
        DiscoveredTarget,
        target_side::{AuthPolicy, IscsiBackend, LoginGrant, LoginRefusal, Sessions},
    },
    scsi::{Device, Identity, LogicalUnit, Provisioning, ScsiBackend},
};

pub const UNIT: UnitId = UnitId(7);
const BLOCK_SIZE: u32 = 512;

/// State shared within one thread.
pub struct Local<T>(RefCell<T>);

impl<T> Local<T> {
    pub fn new(value: T) -> Rc<Self> {
        Rc::new(Self(RefCell::new(value)))
    }
}

impl<T> Shared<T> for Local<T> {
    fn with(&self, use_it: &mut dyn FnMut(&mut T)) {
        use_it(&mut self.0.borrow_mut());
    }
}

pub type Completion = (IoId, Result<Option<Payload>, UnitError>);

/// A backend with one volume and one target. By default it lets every initiator log in.
pub struct MemoryBackend {
    pub bytes: Vec<u8>,
    pub auth: AuthPolicy,
    pub discovery_auth: AuthPolicy,
    pub targets: Vec<DiscoveredTarget>,
    pub refusal: Option<LoginRefusal>,
    pub portal_group_tag: u16,
    /// Operations are queued and completed later; otherwise they are done at once.
    pub queues: bool,
    pub device: Rc<Local<Device>>,
    pub sessions: Rc<Local<Sessions>>,
    pub staged: BTreeMap<IoId, (UnitOp, Payload)>,
    /// Whether the backend names the memory of incoming data, and how often it did.
    pub in_place: bool,
    pub named: Cell<usize>,
    pub queued: VecDeque<Completion>,
    pub random: Cell<u8>,
    pub aborted: Vec<IoId>,
    /// Aborted operations continue until the test drops these endings.
    pub lingering: Option<Vec<Ending>>,
    pub notified: u32,
}

impl MemoryBackend {
    pub fn new(len: usize) -> Self {
        let mut unit = LogicalUnit::new(0, UNIT, "serial-1");
        unit.provisioning = Provisioning::Thin { reads_zero: true };
        Self {
            bytes: vec![0; len],
            auth: AuthPolicy::None,
            discovery_auth: AuthPolicy::None,
            targets: vec![DiscoveredTarget { name: super::TARGET.into(), portals: vec!["127.0.0.1:3260,1".into()] }],
            refusal: None,
            portal_group_tag: 1,
            queues: false,
            device: Local::new(Device::new(Identity::default(), [unit])),
            sessions: Local::new(Sessions::default()),
            staged: BTreeMap::new(),
            in_place: false,
            named: Cell::new(0),
            queued: VecDeque::new(),
            random: Cell::new(0),
            aborted: Vec::new(),
            lingering: None,
            notified: 0,
        }
    }

    pub fn take_queued(&mut self) -> Option<Completion> {
        self.queued.pop_front()
    }

    /// Number of operations that are neither done nor aborted.
    pub fn open_operations(&self) -> usize {
        self.staged.len() + self.queued.len()
    }

    fn done(&mut self, id: IoId, result: Result<Option<Payload>, UnitError>) -> Started {
        if self.queues {
            self.queued.push_back((id, result));
            Started::Queued
        } else {
            Started::Done(result)
        }
    }

    fn range(&mut self, offset: u64, len: u64) -> Result<&mut [u8], UnitError> {
        let end = offset.checked_add(len).ok_or(UnitError::OutOfRange)?;
        self.bytes.get_mut(offset as usize..end as usize).ok_or(UnitError::OutOfRange)
    }

    fn apply(&mut self, op: &UnitOp, data: &[u8]) -> Result<Option<Payload>, UnitError> {
        match op {
            UnitOp::Read { offset, len, .. } => {
                return Ok(Some(Payload::from_vec(self.range(*offset, (*len).into())?.to_vec())));
            }
            UnitOp::Write { offset, len, .. } => self.range(*offset, (*len).into())?.copy_from_slice(data),
            UnitOp::Flush => {}
            UnitOp::Allocate { .. } => panic!("iSCSI has no such operation"),
            UnitOp::WriteZeroes { offset, len, .. } => self.range(*offset, *len)?.fill(0),
            UnitOp::Unmap { ranges, .. } => {
                for (offset, len) in ranges {
                    self.range(*offset, *len)?.fill(0);
                }
            }
            UnitOp::Compare { offset, len, .. } => compare(self.range(*offset, (*len).into())?, data)?,
            UnitOp::CompareAndWrite { offset, len, .. } => {
                let (expected, new) = data.split_at(*len as usize);
                let range = self.range(*offset, (*len).into())?;
                compare(range, expected)?;
                range.copy_from_slice(new);
            }
            UnitOp::OrWrite { offset, len, .. } => {
                let range = self.range(*offset, (*len).into())?;
                range.iter_mut().zip(data).for_each(|(ours, theirs)| *ours |= theirs);
            }
            UnitOp::WriteSame { offset, len, .. } => {
                for chunk in self.range(*offset, *len)?.chunks_mut(data.len()) {
                    chunk.copy_from_slice(data);
                }
            }
        }
        Ok(None)
    }
}

fn compare(left: &[u8], right: &[u8]) -> Result<(), UnitError> {
    match left.iter().zip(right).position(|(left, right)| left != right) {
        Some(at) => Err(UnitError::Miscompare(at as u32)),
        None => Ok(()),
    }
}

impl Backend for MemoryBackend {
    fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        let size_bytes = self.bytes.len() as u64;
        (unit == UNIT).then_some(Geometry {
            size_bytes,
            block_size: BLOCK_SIZE,
            max_io_bytes: 1 << 20,
            read_only: false,
        })
    }

    fn start(&mut self, _now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Started {
        assert_eq!(unit, UNIT);
        assert!(!self.staged.contains_key(&id), "an IoId is used once at a time");
        if op.data_len() > 0 {
            let data = Payload::from_vec(vec![0xee; op.data_len() as usize]);
            self.staged.insert(id, (op, data));
            return Started::NeedData;
        }
        let result = self.apply(&op, &[]);
        self.done(id, result)
    }

    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        let (_, data) = self.staged.get_mut(&id).expect("a started operation");
        data.copy_in(offset as usize, bytes);
    }

    fn memory(&self, id: IoId, offset: u32, len: u32) -> Option<Payload> {
        let (_, data) = self.staged.get(&id)?;
        self.named.set(self.named.get() + usize::from(self.in_place));
        self.in_place.then(|| data.slice(offset as usize, len as usize))
    }

    fn finish(&mut self, _now: Instant, id: IoId) -> Started {
        let (op, data) = self.staged.remove(&id).expect("a started operation");
        let result = self.apply(&op, &data.to_vec());
        self.done(id, result)
    }

    fn abort(&mut self, id: IoId, ending: Option<Ending>) {
        self.aborted.push(id);
        if let Some(lingering) = &mut self.lingering {
            lingering.extend(ending);
        }
        self.staged.remove(&id);
        self.queued.retain(|(queued, _)| *queued != id);
    }
}

impl ScsiBackend for MemoryBackend {
    fn notify_others(&mut self) {
        self.notified += 1;
    }
}

impl IscsiBackend for MemoryBackend {
    fn targets(&mut self, _initiator: &str) -> Vec<DiscoveredTarget> {
        self.targets.clone()
    }

    fn discovery_auth(&mut self, _initiator: &str) -> AuthPolicy {
        self.discovery_auth.clone()
    }

    fn login(&mut self, _initiator: &str, target: &str) -> Result<LoginGrant, LoginRefusal> {
        match self.refusal {
            Some(refusal) => Err(refusal),
            None if target != super::TARGET => Err(LoginRefusal::NoSuchTarget),
            None => Ok(LoginGrant {
                device: self.device.clone(),
                sessions: self.sessions.clone(),
                portal_group_tag: self.portal_group_tag,
                auth: self.auth.clone(),
                address: [127, 0, 0, 1].into(),
            }),
        }
    }

    fn random(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.random.get();
            self.random.set(byte.wrapping_mul(5).wrapping_add(77));
        }
    }
}
