//! A stand-in for the transport of the device server, and the volume behind it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use iotax_proto::{
    Allocation, Backend, Ending, Geometry, Instant, IoId, Origin, Payload, Shared, Started, UnitError, UnitId, UnitOp,
    scsi::{
        Command, DataIn, Device, Identity, LogicalUnit, Next, Nexus, Ports, Provisioning, Response, Sense, Transport,
        encode_lun,
    },
};

pub(crate) const BLOCK: usize = 512;
pub(crate) const BLOCKS: u64 = 2048;
/// MAXIMUM TRANSFER LENGTH of the volume.
pub(crate) const MAX_IO_BLOCKS: u32 = 256;

pub(crate) const GOOD: u8 = 0x00;
pub(crate) const CHECK_CONDITION: u8 = 0x02;
pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;

/// A device, and a count of how often it was locked.
struct SharedDevice(RefCell<Device>, Cell<u32>);

/// Version descriptor of the rig's transport. It is that of FCP-4, so tests see that it comes from the transport.
pub(crate) const VERSION_DESCRIPTOR: u16 = 0x0a40;
pub(crate) const FUNCTIONS: [u8; 2] = [0xde, 0x03];

impl Shared<Device> for SharedDevice {
    fn with(&self, use_it: &mut dyn FnMut(&mut Device)) {
        self.1.set(self.1.get() + 1);
        use_it(&mut self.0.borrow_mut());
    }
}

/// A volume in memory as LUN 0. It records the operations done on it.
pub(crate) struct Volume {
    pub(crate) bytes: Vec<u8>,
    pub(crate) read_only: bool,
    pub(crate) flushes: u32,
    /// The last operation on blocks was durable.
    pub(crate) was_durable: bool,
    pub(crate) unmapped: Vec<(u64, u64)>,
    pub(crate) fails_with: Option<UnitError>,
    pending: Option<(UnitOp, Vec<u8>)>,
}

impl Volume {
    fn do_op(&mut self, op: &UnitOp, data: &[u8]) -> Result<Option<Payload>, UnitError> {
        let size = self.bytes.len() as u64;
        let range = |offset: u64, len: u64| {
            let end = offset.checked_add(len).filter(|end| *end <= size).ok_or(UnitError::OutOfRange)?;
            Ok(offset as usize..end as usize)
        };
        if let Some(error) = self.fails_with {
            return Err(error);
        }
        match *op {
            UnitOp::Read { offset, len, durable } => {
                self.was_durable = durable;
                return Ok(Some(Payload::from_vec(self.bytes[range(offset, len.into())?].to_vec())));
            }
            UnitOp::Write { offset, len, durable } => {
                self.bytes[range(offset, len.into())?].copy_from_slice(data);
                self.was_durable = durable;
            }
            UnitOp::Flush => self.flushes += 1,
            UnitOp::Allocate { .. } => panic!("SCSI has no such operation"),
            UnitOp::WriteZeroes { offset, len, durable } => {
                self.bytes[range(offset, len)?].fill(0);
                self.was_durable = durable;
            }
            UnitOp::Unmap { ref ranges, durable } => {
                self.was_durable = durable;
                for (offset, len) in ranges {
                    self.bytes[range(*offset, *len)?].fill(0);
                }
                self.unmapped.extend_from_slice(ranges);
            }
            UnitOp::Compare { offset, len, durable } => {
                self.was_durable = durable;
                compare(&self.bytes[range(offset, len.into())?], data)?;
            }
            UnitOp::CompareAndWrite { offset, len, durable } => {
                let (expected, new) = data.split_at(len as usize);
                let range = range(offset, len.into())?;
                compare(&self.bytes[range.clone()], expected)?;
                self.bytes[range].copy_from_slice(new);
                self.was_durable = durable;
            }
            UnitOp::OrWrite { offset, len, durable } => {
                self.bytes[range(offset, len.into())?].iter_mut().zip(data).for_each(|(ours, theirs)| *ours |= theirs);
                self.was_durable = durable;
            }
            UnitOp::WriteSame { offset, len, durable, .. } => {
                self.was_durable = durable;
                for block in self.bytes[range(offset, len)?].chunks_mut(data.len()) {
                    block.copy_from_slice(data);
                }
            }
        }
        Ok(None)
    }
}

fn compare(ours: &[u8], theirs: &[u8]) -> Result<(), UnitError> {
    match ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs) {
        Some(at) => Err(UnitError::Miscompare(at as u32)),
        None => Ok(()),
    }
}

impl Backend for Volume {
    /// A block of zeros is reported as not mapped.
    fn allocation(&self, _: UnitId, offset: u64) -> Option<Allocation> {
        let is_mapped = |block: &[u8]| block.iter().any(|byte| *byte != 0);
        let mut blocks = self.bytes[offset as usize..].chunks(BLOCK).map(is_mapped).peekable();
        let first = *blocks.peek()?;
        let same = blocks.take_while(|mapped| *mapped == first).count();
        Some(Allocation { is_mapped: first, len: (same * BLOCK) as u64 })
    }

    fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        (unit == UnitId(7)).then(|| Geometry {
            size_bytes: self.bytes.len() as u64,
            block_size: BLOCK as u32,
            max_io_bytes: MAX_IO_BLOCKS * BLOCK as u32,
            read_only: self.read_only,
        })
    }

    fn start(&mut self, _: Instant, _: IoId, _: UnitId, op: UnitOp) -> Started {
        if op.data_len() == 0 {
            return Started::Done(self.do_op(&op, &[]));
        }
        let data = vec![0; op.data_len() as usize];
        self.pending = Some((op, data));
        Started::NeedData
    }

    fn place(&mut self, _: IoId, offset: u32, bytes: &[u8]) {
        let (_, data) = self.pending.as_mut().expect("an operation that needs data");
        data[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn finish(&mut self, _: Instant, _: IoId) -> Started {
        let (op, data) = self.pending.take().expect("an operation that needs data");
        Started::Done(self.do_op(&op, &data))
    }

    fn abort(&mut self, _: IoId, _: Option<Ending>) {
        self.pending = None;
    }
}

/// A device with one thin volume as LUN 0, and functions that send it commands.
pub(crate) struct Rig {
    pub(crate) volume: Volume,
    device: Rc<SharedDevice>,
}

/// A session with the device. `Rig` sends its commands.
pub(crate) struct Session(pub(crate) Nexus);

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Provisioning::Thin { reads_zero: true })
    }

    /// A device whose two target ports are target port groups.
    pub(crate) fn asymmetric() -> Self {
        Self::of(Provisioning::Thin { reads_zero: true }, |device| device.with_port_groups([2, 1]))
    }

    pub(crate) fn with(provisioning: Provisioning) -> Self {
        Self::of(provisioning, |device| device)
    }

    fn of(provisioning: Provisioning, adapt: impl FnOnce(Device) -> Device) -> Self {
        // In these tests a unit can be erased if it is thin.
        let erasable = matches!(provisioning, Provisioning::Thin { .. });
        let unit = LogicalUnit { provisioning, erasable, ..LogicalUnit::new(0, UnitId(7), "volume-0001") };
        let device = adapt(Device::new(Identity::default(), [unit]));
        let volume = Volume {
            bytes: vec![0; BLOCKS as usize * BLOCK],
            read_only: false,
            flushes: 0,
            was_durable: false,
            unmapped: Vec::new(),
            fails_with: None,
            pending: None,
        };
        Self { volume, device: Rc::new(SharedDevice(RefCell::new(device), Cell::new(0))) }
    }

    /// A new session between an initiator and the target. The unit attention POWER ON has not been reported to it yet.
    pub(crate) fn fresh_session(&self, name: &str) -> Session {
        self.fresh_session_at(name, 1)
    }

    /// The same through a target port.
    pub(crate) fn fresh_session_at(&self, name: &str, port: u16) -> Session {
        let device: Rc<dyn Shared<Device>> = self.device.clone();
        let initiator = format!("iqn.2026-11.test:{name},i,0x800000000001");
        let ports = Ports {
            initiator_id: format!("\x06\0\0\0{name}").into_bytes(),
            initiator,
            target: format!("iqn.2026-11.test:target,t,0x{port:04x}"),
            target_device: "iqn.2026-11.test:target".to_owned(),
            relative_target_port: port,
            transport: Transport {
                protocol_identifier: 6,
                version_descriptor: VERSION_DESCRIPTOR,
                functions: FUNCTIONS,
            },
        };
        Session(Nexus::new(device, ports, Origin::Address(1)))
    }

    /// A session to which POWER ON has been reported.
    pub(crate) fn session(&mut self, name: &str) -> Session {
        self.session_at(name, 1)
    }

    pub(crate) fn session_at(&mut self, name: &str, port: u16) -> Session {
        let mut session = self.fresh_session_at(name, port);
        let first = self.run(&mut session, &[0; 6], &[]);
        assert_eq!(first.sense, Some(Sense::POWER_ON));
        session
    }

    pub(crate) fn change_device(&self, change: impl FnOnce(&mut Device)) {
        change(&mut self.device.0.borrow_mut());
    }

    /// How often sessions have locked the device.
    pub(crate) fn locks(&self) -> u32 {
        self.device.1.get()
    }

    /// Sends a command to LUN 0 and runs it to its end.
    pub(crate) fn run(&mut self, session: &mut Session, cdb: &[u8], data_out: &[u8]) -> Response {
        self.run_on(session, encode_lun(0), cdb, data_out)
    }

    pub(crate) fn run_on(&mut self, session: &mut Session, lun: u64, cdb: &[u8], data_out: &[u8]) -> Response {
        let command = Command { lun, cdb, data_out_len: data_out.len() as u32, data_in_len: 1 << 20 };
        let mut next = session.0.command(&command, &self.volume);
        if let Next::Parameters { len } = next {
            assert!(len <= command.data_out_len, "more parameters wanted than are sent");
            next = session.0.parameters(&command, &data_out[..len as usize], &self.volume);
        }
        match next {
            Next::Respond(response) | Next::RespondAfter(_, response) => response,
            Next::Medium { unit, op, after } => {
                let len = op.data_len();
                assert!(len <= command.data_out_len, "more data wanted than are sent");
                let mut started = self.volume.start(Instant(0), 0, unit, op);
                if let Started::NeedData = started {
                    self.volume.place(0, 0, &data_out[..len as usize]);
                    started = self.volume.finish(Instant(0), 0);
                }
                let Started::Done(result) = started else { panic!("the volume answers at once") };
                session.0.medium_done(after, result)
            }
            Next::Parameters { .. } => panic!("parameters wanted twice"),
        }
    }

    /// Runs a command that must succeed, and returns its data.
    pub(crate) fn good(&mut self, session: &mut Session, cdb: &[u8], data_out: &[u8]) -> Vec<u8> {
        let response = self.run(session, cdb, data_out);
        assert_eq!((response.status, response.sense), (GOOD, None), "CDB {cdb:02x?}");
        match response.data {
            DataIn::None => Vec::new(),
            DataIn::Inline(bytes) => bytes,
            DataIn::Payload(payload) => payload.to_vec(),
        }
    }

    /// Runs a command that must fail with CHECK CONDITION, and returns its sense data.
    pub(crate) fn check(&mut self, session: &mut Session, cdb: &[u8], data_out: &[u8]) -> Sense {
        let response = self.run(session, cdb, data_out);
        assert_eq!(response.status, CHECK_CONDITION, "CDB {cdb:02x?}");
        assert!(response.data.is_empty(), "data with CHECK CONDITION");
        response.sense.expect("sense data with CHECK CONDITION")
    }

    /// Runs a command that must fail with RESERVATION CONFLICT.
    pub(crate) fn conflict(&mut self, session: &mut Session, cdb: &[u8], data_out: &[u8]) {
        let response = self.run(session, cdb, data_out);
        assert_eq!((response.status, response.sense), (RESERVATION_CONFLICT, None), "CDB {cdb:02x?}");
    }
}

/// Sense key, ASC and ASCQ as `0xKKCCQQ`.
pub(crate) const LBA_OUT_OF_RANGE: u32 = 0x05_2100;
pub(crate) const INVALID_FIELD_IN_CDB: u32 = 0x05_2400;
pub(crate) const INVALID_FIELD_IN_PARAMETER_LIST: u32 = 0x05_2600;
pub(crate) const PARAMETER_LIST_LENGTH_ERROR: u32 = 0x05_1a00;
pub(crate) const INVALID_OPCODE: u32 = 0x05_2000;
pub(crate) const WRITE_PROTECTED: u32 = 0x07_2700;

pub(crate) fn block_of(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK]
}

/// A ten-byte CDB with an LBA and a number of blocks.
pub(crate) fn cdb_10(opcode: u8, flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    cdb.extend(lba.to_be_bytes());
    cdb.push(0);
    cdb.extend(blocks.to_be_bytes());
    cdb.push(0);
    cdb
}

pub(crate) fn cdb_12(opcode: u8, flags: u8, lba: u32, blocks: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    cdb.extend(lba.to_be_bytes());
    cdb.extend(blocks.to_be_bytes());
    cdb.extend([0, 0]);
    cdb
}

pub(crate) fn cdb_16(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    cdb.extend(lba.to_be_bytes());
    cdb.extend(blocks.to_be_bytes());
    cdb.extend([0, 0]);
    cdb
}

/// The ten-, twelve- and sixteen-byte CDBs of one command. `opcodes` are their operation codes.
pub(crate) fn each_size(opcodes: [u8; 3], flags: u8, lba: u32, blocks: u16) -> [Vec<u8>; 3] {
    [
        cdb_10(opcodes[0], flags, lba, blocks),
        cdb_12(opcodes[1], flags, lba, blocks.into()),
        cdb_16(opcodes[2], flags, lba.into(), blocks.into()),
    ]
}
