//! A server with one export: one flat directory of files with fixed size.

use std::{cell::Cell, collections::HashMap, rc::Rc};

use iotax_proto::{
    Allocation, Backend, Ending, Geometry, HeapRegion, Instant, IoId, Payload, Region, Started, UnitError, UnitId,
    UnitOp,
    nfs::{
        Files, NfsBackend, ServerState,
        common::{
            Attributes, Caller, CreateHow, Export, ExportAccess, ExportId, FileError, FileId, FileType, Listed,
            ListingEnd, NameSpace, NodeKind, OpenFile, PathConf, SetAttributes, Space, Squash, Time,
        },
    },
    rpc::{Credentials, Peer},
};

const ROOT: u64 = 1;
/// Size of the blocks that are data or a hole.
pub const HOLE_BYTES: usize = 512;

/// The files of the export. The number of a file is its index plus 2.
#[derive(Default)]
pub struct Directory {
    files: Vec<(Vec<u8>, Rc<HeapRegion>)>,
    pub removed: Vec<Vec<u8>>,
}

pub struct Server {
    pub directory: Directory,
    state: ServerState,
    pub verifier: [u8; 8],
    /// Operations are queued, and `finish_queued` returns their results.
    pub queues: bool,
    queued: Vec<(IoId, Result<Option<Payload>, UnitError>)>,
    writes: HashMap<IoId, (UnitId, u64, Payload)>,
    /// Whether the backend names the memory of incoming data, and how often it did.
    pub in_place: bool,
    pub named: Cell<usize>,
    /// The error with which the next operation fails.
    pub error: Option<UnitError>,
    pub access: Option<ExportAccess>,
    /// All operations that were started.
    pub started: Vec<UnitOp>,
    pub aborted: Vec<IoId>,
    /// Aborted operations go on until this is cleared.
    pub going_on: Option<Vec<Ending>>,
    /// READ returns at most this many bytes.
    pub read_limit: Option<usize>,
    /// The files have holes.
    pub is_ordinary: bool,
}

impl Server {
    /// A server with a file `volume` of `size` bytes.
    pub fn new(size: usize) -> Self {
        let mut directory = Directory::default();
        directory.add(b"volume", size);
        Self {
            directory,
            state: ServerState::default(),
            verifier: *b"boot one",
            queues: false,
            queued: Vec::new(),
            writes: HashMap::new(),
            in_place: false,
            named: Cell::new(0),
            error: None,
            access: Some(ExportAccess { read_only: false, squash: Squash::None }),
            started: Vec::new(),
            aborted: Vec::new(),
            going_on: None,
            read_limit: None,
            is_ordinary: true,
        }
    }

    /// Forgets all clients and changes the verifier, as after a restart.
    pub fn restart(&mut self) {
        self.state = ServerState::default();
        self.verifier = *b"boot two";
    }

    pub fn volume(&self) -> Vec<u8> {
        self.directory.files[0].1.bytes().clone()
    }

    pub fn fill(&mut self, offset: usize, bytes: &[u8]) {
        self.directory.files[0].1.copy_in(offset, bytes);
    }

    pub fn finish_queued(&mut self) -> Vec<(IoId, Result<Option<Payload>, UnitError>)> {
        std::mem::take(&mut self.queued)
    }

    fn answer(&mut self, id: IoId, result: Result<Option<Payload>, UnitError>) -> Started {
        if self.queues {
            self.queued.push((id, result));
            Started::Queued
        } else {
            Started::Done(result)
        }
    }
}

impl Backend for Server {
    fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        let file = self.directory.files.get(unit.0 as usize)?;
        Some(Geometry { size_bytes: file.1.len() as u64, block_size: 1, max_io_bytes: 1 << 20, read_only: false })
    }

    /// Blocks of zeros are holes.
    fn allocation(&self, unit: UnitId, offset: u64) -> Option<Allocation> {
        let memory = self.directory.files[unit.0 as usize].1.bytes();
        let is_mapped = |at: usize| memory[at..].iter().take(HOLE_BYTES - at % HOLE_BYTES).any(|byte| *byte != 0);
        let mut at = offset as usize;
        while at < memory.len() && is_mapped(at) == is_mapped(offset as usize) {
            at += HOLE_BYTES - at % HOLE_BYTES;
        }
        Some(Allocation { is_mapped: is_mapped(offset as usize), len: at.min(memory.len()) as u64 - offset })
    }

    fn start(&mut self, _now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Started {
        self.started.push(op.clone());
        if let Some(error) = self.error.take() {
            return self.answer(id, Err(error));
        }
        let memory = Rc::clone(&self.directory.files[unit.0 as usize].1);
        match op {
            UnitOp::Read { offset, len, .. } => {
                let len = (len as usize).min(self.read_limit.unwrap_or(usize::MAX));
                self.answer(id, Ok(Some(Payload::new(memory, offset as usize, len))))
            }
            UnitOp::Write { offset, len, .. } => {
                if offset + u64::from(len) > memory.len() as u64 {
                    return self.answer(id, Err(UnitError::OutOfRange));
                }
                let earlier = self.writes.insert(id, (unit, offset, Payload::from_vec(vec![0; len as usize])));
                assert!(earlier.is_none(), "an id is used for one operation at a time");
                Started::NeedData
            }
            UnitOp::Flush => self.answer(id, Ok(None)),
            UnitOp::Allocate { offset, len } => {
                let inside = offset + len <= memory.len() as u64;
                self.answer(id, if inside { Ok(None) } else { Err(UnitError::OutOfRange) })
            }
            UnitOp::Unmap { ranges, .. } => {
                for (offset, len) in ranges {
                    memory.copy_in(offset as usize, &vec![0; len as usize]);
                }
                self.answer(id, Ok(None))
            }
            other => panic!("NFS has no {other:?}"),
        }
    }

    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        let (_, _, data) = self.writes.get_mut(&id).expect("a write under way");
        data.copy_in(offset as usize, bytes);
    }

    fn memory(&self, id: IoId, offset: u32, len: u32) -> Option<Payload> {
        let (_, _, data) = self.writes.get(&id)?;
        self.named.set(self.named.get() + usize::from(self.in_place));
        self.in_place.then(|| data.slice(offset as usize, len as usize))
    }

    fn finish(&mut self, _now: Instant, id: IoId) -> Started {
        let (unit, offset, data) = self.writes.remove(&id).expect("a write under way");
        self.directory.files[unit.0 as usize].1.copy_in(offset as usize, &data.to_vec());
        self.answer(id, Ok(None))
    }

    fn abort(&mut self, id: IoId, ending: Option<Ending>) {
        if let Some(going_on) = &mut self.going_on {
            going_on.extend(ending);
        }
        self.writes.remove(&id);
        self.queued.retain(|(queued, _)| *queued != id);
        self.aborted.push(id);
    }
}

impl NfsBackend for Server {
    fn exports(&self) -> Vec<Export> {
        vec![
            Export { id: 7, path: "/export".into(), groups: vec!["127.0.0.1".into()] },
            Export { id: 8, path: "/gone".into(), groups: vec![] },
        ]
    }

    fn admit(&self, _peer: &Peer, _export: ExportId) -> Option<ExportAccess> {
        self.access
    }

    fn open(&mut self, _: ExportId, file: FileId, who: &Credentials, _: bool) -> Result<OpenFile, FileError> {
        if who.uid == 666 {
            return Err(FileError::Access);
        }
        let attributes = self.directory.attributes(file)?;
        Ok(OpenFile { unit: UnitId(file.number.wrapping_sub(2)), attributes, is_ordinary: self.is_ordinary })
    }

    fn attributes(&mut self, _: ExportId, file: FileId) -> Option<Attributes> {
        self.directory.attributes(file).ok()
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.verifier
    }

    fn with_files(&mut self, now: Instant, export: ExportId, use_it: &mut dyn FnMut(&mut Files<'_>)) {
        if export == 7 {
            let time = Time::from_nanos(now.0);
            use_it(&mut Files { names: &mut self.directory, state: &mut self.state, time });
        }
    }

    fn with_state(&mut self, use_it: &mut dyn FnMut(&mut ServerState)) {
        use_it(&mut self.state);
    }
}

impl Directory {
    fn add(&mut self, name: &[u8], size: usize) -> FileId {
        self.files.push((name.to_vec(), HeapRegion::new(size)));
        FileId { number: self.files.len() as u64 + 1, generation: 1 }
    }

    fn memory(&self, file: FileId) -> Result<&Rc<HeapRegion>, FileError> {
        let at = usize::try_from(file.number.wrapping_sub(2)).map_err(|_| FileError::Stale)?;
        self.files.get(at).map(|(_, memory)| memory).ok_or(FileError::Stale)
    }
}

impl NameSpace for Directory {
    fn root(&self) -> FileId {
        FileId { number: ROOT, generation: 1 }
    }

    fn attributes(&self, file: FileId) -> Result<Attributes, FileError> {
        let is_root = file.number == ROOT;
        let size = if is_root { 512 } else { self.memory(file)?.len() as u64 };
        Ok(Attributes {
            kind: if is_root { FileType::Directory } else { FileType::Regular },
            mode: 0o755,
            links: 1,
            uid: 0,
            gid: 0,
            size,
            used: size,
            device: (0, 0),
            file_system: 7,
            number: file.number,
            accessed: Time::default(),
            modified: Time::default(),
            changed: Time::default(),
        })
    }

    fn set_attributes(&mut self, _: &Caller, file: FileId, set: &SetAttributes) -> Result<(), FileError> {
        if let Some(size) = set.size {
            self.memory(file)?.resize(size as usize);
        }
        Ok(())
    }

    fn lookup(&self, _: &Caller, directory: FileId, name: &[u8]) -> Result<FileId, FileError> {
        if directory.number != ROOT {
            return Err(FileError::NotDirectory);
        }
        let at = self.files.iter().position(|(known, _)| known == name).ok_or(FileError::NoEntry)?;
        Ok(FileId { number: at as u64 + 2, generation: 1 })
    }

    fn access(&self, caller: &Caller, file: FileId, rights: u32) -> Result<u32, FileError> {
        self.attributes(file)?;
        Ok(if caller.who.uid == 0 { rights } else { rights & 1 })
    }

    fn read_link(&self, _: FileId) -> Result<&[u8], FileError> {
        Ok(b"elsewhere")
    }

    fn create(&mut self, _: &Caller, _: FileId, name: &[u8], how: &CreateHow) -> Result<FileId, FileError> {
        match how {
            CreateHow::Unchecked(set) => Ok(self.add(name, set.size.unwrap_or(0) as usize / 2)),
            _ => Err(FileError::Exists),
        }
    }

    fn make_directory(&mut self, _: &Caller, _: FileId, _: &[u8], _: &SetAttributes) -> Result<FileId, FileError> {
        Err(FileError::NoSpace)
    }

    fn make_link(&mut self, _: &Caller, _: FileId, _: &[u8], _: &SetAttributes, _: &[u8]) -> Result<FileId, FileError> {
        Err(FileError::NoSpace)
    }

    fn make_node(
        &mut self,
        _: &Caller,
        _: FileId,
        _: &[u8],
        _: &SetAttributes,
        _: NodeKind,
    ) -> Result<FileId, FileError> {
        Err(FileError::NoSpace)
    }

    fn remove(&mut self, _: &Caller, _: FileId, name: &[u8]) -> Result<(), FileError> {
        self.removed.push(name.to_vec());
        Ok(())
    }

    fn remove_directory(&mut self, _: &Caller, _: FileId, _: &[u8]) -> Result<(), FileError> {
        Err(FileError::NotEmpty)
    }

    fn rename(&mut self, _: &Caller, _: (FileId, &[u8]), _: (FileId, &[u8])) -> Result<(), FileError> {
        Err(FileError::CrossDevice)
    }

    fn link(&mut self, _: &Caller, _: FileId, _: FileId, _: &[u8]) -> Result<(), FileError> {
        Err(FileError::TooManyLinks)
    }

    fn list(
        &self,
        _: &Caller,
        directory: FileId,
        cookie: u64,
        _: [u8; 8],
        visit: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<ListingEnd, FileError> {
        if directory.number != ROOT {
            return Err(FileError::NotDirectory);
        }
        for (at, (name, _)) in self.files.iter().enumerate().skip(cookie as usize) {
            let file = FileId { number: at as u64 + 2, generation: 1 };
            if !visit(&Listed { name, file, cookie: at as u64 + 1 }) {
                return Ok(ListingEnd { verifier: [0; 8], eof: false });
            }
        }
        Ok(ListingEnd { verifier: [0; 8], eof: true })
    }

    fn space(&self) -> Space {
        Space::default()
    }

    fn limits(&self) -> PathConf {
        PathConf {
            links_max: 1,
            name_max: 255,
            no_truncation: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        }
    }

    fn max_file_size(&self) -> u64 {
        1 << 40
    }
}
