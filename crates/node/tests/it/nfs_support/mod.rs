//! An NFS server over a tree with one volume, and a client that makes single calls.
#![allow(dead_code, unreachable_pub)] // Each test file uses its own part.

use std::{collections::HashMap, net::IpAddr, rc::Rc, sync::Arc};

use iotax_node::fs::{Limits, Tree, TreeUnit, VolumeFile};
use iotax_proto::{
    Backend, Ending, Geometry, HeapRegion, Instant, IoId, Payload, Region, Started, Target, UnitError, UnitId, UnitOp,
    nfs::{
        Files, NfsBackend, PROGRAM, ServerState,
        common::{
            Attributes, Export, ExportAccess, ExportId, FileError, FileHandle, FileId, Handles, OpenFile, Squash, Time,
        },
        v3::{
            Arguments, Procedure, Status, VERSION,
            results::{Failure, Results},
            target_side::{Config, Connection},
        },
    },
    rpc::{
        Credentials, Encoder, Mapping, Peer, Portmapper, RpcError, Xid,
        auth::Identity,
        message::{decode_reply, encode_call},
        xdr::padding,
    },
    wire::Reader,
};

pub const EXPORT: ExportId = 0;
pub const VOLUME: UnitId = UnitId(0);

/// A server of one export, `/export`, with a tree and a volume.
pub struct Server {
    pub tree: Tree,
    pub volume: Arc<VolumeFile>,
    pub memory: Rc<HeapRegion>,
    pub access: ExportAccess,
    pub verifier: [u8; 8],
    state: ServerState,
    /// By operation; a test serves several connections one call at a time.
    writes: HashMap<IoId, (UnitId, u64, Vec<u8>)>,
    now: Time,
}

impl Server {
    pub fn new(volume_bytes: usize, limits: Limits) -> Self {
        let mut tree = Tree::new(EXPORT, 1, limits, Time::default());
        let volume = tree.add_volume("volume", VOLUME, volume_bytes as u64, false, Time::default());
        Self {
            tree,
            volume,
            memory: HeapRegion::new(volume_bytes),
            access: ExportAccess { read_only: false, squash: Squash::None },
            verifier: *b"verifier",
            state: ServerState::default(),
            writes: HashMap::new(),
            now: Time::default(),
        }
    }

    fn read(&mut self, unit: UnitId, offset: u64, len: u32) -> Result<Option<Payload>, UnitError> {
        match TreeUnit::from_unit(unit) {
            None => Ok(Some(Payload::new(self.memory.clone(), offset as usize, len as usize))),
            Some(unit) => {
                self.tree.read(unit.number, offset, len, self.now).map(|bytes| Some(Payload::from_vec(bytes)))
            }
        }
    }
}

impl Backend for Server {
    fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        match TreeUnit::from_unit(unit) {
            Some(unit) => self.tree.geometry(unit.number),
            None => None,
        }
    }

    fn start(&mut self, now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Started {
        self.now = Time::from_nanos(now.0);
        match op {
            UnitOp::Read { offset, len, .. } => Started::Done(self.read(unit, offset, len)),
            UnitOp::Write { offset, len, .. } => {
                if unit == VOLUME && offset + u64::from(len) > self.memory.len() as u64 {
                    return Started::Done(Err(UnitError::OutOfRange));
                }
                self.writes.insert(id, (unit, offset, vec![0; len as usize]));
                Started::NeedData
            }
            _ => Started::Done(Ok(None)),
        }
    }

    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        let (_, _, data) = self.writes.get_mut(&id).expect("a write under way");
        data[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn finish(&mut self, _now: Instant, id: IoId) -> Started {
        let (unit, offset, data) = self.writes.remove(&id).expect("a write under way");
        if let Some(unit) = TreeUnit::from_unit(unit) {
            return Started::Done(self.tree.write(unit.number, offset, &data, self.now).map(|()| None));
        }
        self.memory.copy_in(offset as usize, &data);
        self.volume.touch(self.now);
        Started::Done(Ok(None))
    }

    fn abort(&mut self, id: IoId, _: Option<Ending>) {
        self.writes.remove(&id);
    }
}

impl NfsBackend for Server {
    fn exports(&self) -> Vec<Export> {
        vec![Export { id: EXPORT, path: "/export".into(), groups: vec![] }]
    }

    fn admit(&self, peer: &Peer, export: ExportId) -> Option<ExportAccess> {
        (export == EXPORT && peer.address.is_loopback()).then_some(self.access)
    }

    fn open(&mut self, _: ExportId, file: FileId, who: &Credentials, write: bool) -> Result<OpenFile, FileError> {
        if file == self.volume.id() { self.volume.open(who, write) } else { self.tree.open(file, who, write) }
    }

    fn attributes(&mut self, _: ExportId, file: FileId) -> Option<Attributes> {
        use iotax_proto::nfs::common::NameSpace;
        if file == self.volume.id() { Some(self.volume.attributes()) } else { self.tree.attributes(file).ok() }
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.verifier
    }

    fn with_files(&mut self, now: Instant, export: ExportId, use_it: &mut dyn FnMut(&mut Files<'_>)) {
        if export == EXPORT {
            let time = Time::from_nanos(now.0);
            use_it(&mut Files { names: &mut self.tree, state: &mut self.state, time });
        }
    }

    fn with_state(&mut self, use_it: &mut dyn FnMut(&mut ServerState)) {
        use_it(&mut self.state);
    }
}

/// A connection that makes one call at a time.
pub struct Client {
    pub connection: Box<dyn Target<Server>>,
    pub server: Server,
    pub identity: Identity,
    pub xid: Xid,
    now: Instant,
    reply: Vec<u8>,
    /// Every call and its reply, as sent.
    pub wire: Vec<[Vec<u8>; 2]>,
}

impl Client {
    pub fn new(server: Server) -> Self {
        let mut client = Self {
            connection: Box::new(Connection::new(Instant::default(), Config::new(Handles::new([9; 32])))),
            server,
            identity: Identity::None,
            xid: Xid(100),
            now: Instant::default(),
            reply: Vec::new(),
            wire: Vec::new(),
        };
        client.be(0);
        client
    }

    /// Uses another identity from now on.
    pub fn be(&mut self, uid: u32) {
        self.identity = Identity::Sys { machine: "test".into(), credentials: Credentials::new(uid, uid, &[]) };
    }

    /// Reconnects from this address and port.
    pub fn reconnect(&mut self, address: IpAddr, port: u16) {
        let peer = Peer { address, port };
        self.connection = Box::new(Connection::new(self.now, Config { peer, ..Config::new(Handles::new([9; 32])) }));
    }

    /// Connects to the portmapper.
    pub fn ask_portmapper(&mut self) {
        self.connection = Box::new(Portmapper::new(self.now, vec![Mapping::tcp(PROGRAM, VERSION, 2049)]));
    }

    /// The root directory's handle, obtained by MNT.
    pub fn mount(&mut self, path: &str) -> Result<FileHandle, iotax_proto::nfs::mount::MountError> {
        let results = self
            .call_program(iotax_proto::nfs::mount::PROGRAM, VERSION, 1, |call| {
                call.opaque(path.as_bytes());
            })
            .expect("an answer");
        iotax_proto::nfs::mount::decode_mounted(&mut Reader::new(&results)).expect("an answer to MNT")
    }

    pub fn root(&mut self) -> FileHandle {
        self.mount("/export").expect("the root")
    }

    /// Makes an NFS call that RPC accepts. `data` are the data of a WRITE; a READ's data are returned after its
    /// results.
    pub fn call(&mut self, arguments: &Arguments<'_>, data: &[u8]) -> (Result<Results<'_>, Failure>, &[u8]) {
        let procedure = arguments.procedure();
        self.xid = self.xid.wrapping_add(1);
        self.send(arguments, data);
        let mut reader = Reader::new(&self.reply);
        let (xid, outcome) = decode_reply(&mut reader).expect("a reply");
        assert_eq!((xid, outcome), (self.xid, Ok(())));
        let outcome = Results::decode(procedure, &mut reader).expect("results that decode");
        let rest = &self.reply[reader.position()..];
        if procedure != Procedure::Read {
            assert_eq!(rest, b"", "nothing follows the results of {procedure:?}");
        }
        (outcome, rest)
    }

    /// The same, returning only the status.
    pub fn status(&mut self, arguments: &Arguments<'_>) -> Result<(), Status> {
        self.call(arguments, &[]).0.map(|_| ()).map_err(|failure| failure.status)
    }

    /// Makes a call unchanged, with the current xid. Returns the whole reply.
    pub fn send(&mut self, arguments: &Arguments<'_>, data: &[u8]) -> Vec<u8> {
        let mut call = Encoder::default();
        let procedure = arguments.procedure() as u32;
        encode_call(call.begin_record(), self.xid, PROGRAM, VERSION, procedure, &self.identity.encode());
        arguments.encode(&mut call);
        call.raw(data).raw(&[0; 3][..padding(data.len())]);
        let bytes = call.end_record(0).to_vec();
        self.exchange(&bytes);
        self.reply.clone()
    }

    /// Makes a call of any program. Returns its results.
    pub fn call_program(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Encoder),
    ) -> Result<Vec<u8>, RpcError> {
        self.xid = self.xid.wrapping_add(1);
        let mut call = Encoder::default();
        encode_call(call.begin_record(), self.xid, program, version, procedure, &self.identity.encode());
        arguments(&mut call);
        let bytes = call.end_record(0).to_vec();
        self.exchange(&bytes);
        let mut reader = Reader::new(&self.reply);
        let (xid, outcome) = decode_reply(&mut reader).expect("a reply");
        assert_eq!(xid, self.xid);
        outcome.map(|()| self.reply[reader.position()..].to_vec())
    }

    fn exchange(&mut self, bytes: &[u8]) {
        self.now = Instant(self.now.0 + 1_000_000_000);
        self.connection.receive(self.now, bytes, &mut self.server).expect("a connection that stays");
        let reply = self.connection.transmit().take_bytes();
        let (mark, record) = reply.split_first_chunk::<4>().expect("a reply");
        assert_eq!(u32::from_be_bytes(*mark), 1 << 31 | record.len() as u32, "one reply in one fragment");
        self.reply = record.to_vec();
        self.wire.push([bytes.to_vec(), reply]);
    }
}
