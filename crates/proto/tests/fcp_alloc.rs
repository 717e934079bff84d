//! The path of an I/O allocates nothing in the steady state, on neither side.
#![allow(clippy::unwrap_used)]

mod counted;

use std::{cell::RefCell, rc::Rc};

use counted::{ALLOCATIONS, Events, Local, carry};
use iotax_proto::{
    Backend, Ending, Geometry, Initiator, Instant, Io, IoId, Payload, Started, Target, UnitId, UnitOp,
    fcp::{
        Port, PortName,
        initiator::{self, Session},
        target_side::{Config, Connection, FcpBackend, LoginGrant, LoginRefusal, Logins},
    },
    scsi::{Device, Identity, LogicalUnit, ScsiBackend},
};

/// A volume that is one payload; an operation's offset is kept in its slot.
struct Volume {
    bytes: Payload,
    offsets: [u64; 512],
    device: Rc<Local<Device>>,
    logins: Rc<Local<Logins>>,
}

impl Backend for Volume {
    fn geometry(&self, _unit: UnitId) -> Option<Geometry> {
        let size_bytes = self.bytes.len() as u64;
        Some(Geometry { size_bytes, block_size: 512, max_io_bytes: 1 << 20, read_only: false })
    }

    fn start(&mut self, _now: Instant, id: IoId, _unit: UnitId, op: UnitOp) -> Started {
        match op {
            UnitOp::Read { offset, len, .. } => {
                Started::Done(Ok(Some(self.bytes.slice(offset as usize, len as usize))))
            }
            UnitOp::Write { offset, .. } => {
                self.offsets[id as usize] = offset;
                Started::NeedData
            }
            _ => Started::Done(Ok(None)),
        }
    }

    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        self.bytes.copy_in(self.offsets[id as usize] as usize + offset as usize, bytes);
    }

    fn finish(&mut self, _now: Instant, _id: IoId) -> Started {
        Started::Done(Ok(None))
    }

    fn abort(&mut self, _id: IoId, _: Option<Ending>) {}
}

impl ScsiBackend for Volume {
    fn notify_others(&mut self) {}
}

impl FcpBackend for Volume {
    fn login(&mut self, _initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal> {
        Ok(LoginGrant {
            device: self.device.clone(),
            logins: self.logins.clone(),
            node_name: target,
            address: [127, 0, 0, 1].into(),
        })
    }
}

#[test]
fn reads_and_writes_allocate_nothing() {
    let local = |device| Rc::new(Local(RefCell::new(device)));
    let mut volume = Volume {
        bytes: Payload::from_vec(vec![0; 1 << 20]),
        offsets: [0; 512],
        device: local(Device::new(Identity::default(), [LogicalUnit::new(0, UnitId(1), "1")])),
        logins: Rc::new(Local(RefCell::new(Logins::default()))),
    };
    let now = Instant(0);
    // Small bursts and few credits, so that sequences wait and writes take several bursts.
    let port = Port { credit: 16, ..Port::new(PortName(1), PortName(1)) };
    let mut target = Connection::new(now, Config { port, burst_len: 16384, ..Config::default() });
    let mut session = Session::new(now, initiator::Config::new(port, PortName(2), 0));
    let (mut events, mut wire) = (Events::default(), Vec::new());
    let mut turn = |session: &mut Session, events: &mut Events| {
        while !session.transmit().is_empty() {
            carry(session.transmit(), &mut wire);
            target.receive(now, &wire, &mut volume).unwrap();
            carry(Target::<Volume>::transmit(&mut target), &mut wire);
            session.receive(now, &wire, events).unwrap();
        }
    };
    turn(&mut session, &mut events);
    assert!(events.ready);
    let data = Payload::from_vec(vec![7; 65536]);
    let mut before = 0;
    for round in 0..20 {
        // The first rounds bring queues and buffers to their size.
        if round == 10 {
            before = ALLOCATIONS.get();
        }
        for tag in 0..32 {
            let offset = u64::from(tag) * 512;
            let len = if tag % 8 == 0 { 65536 } else { 4096 };
            let io = match tag % 2 {
                0 => Io::Write { offset, data: data.slice(0, len) },
                _ => Io::Read { offset, len: len as u32 },
            };
            session.submit(now, tag, io).unwrap();
        }
        turn(&mut session, &mut events);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(events.completed, 20 * 32);
}
