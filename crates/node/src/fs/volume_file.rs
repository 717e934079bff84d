//! A volume as a file. Its attributes are atomics, because every READ and WRITE of every thread reads them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use iotax_proto::{
    UnitId,
    nfs::common::{Attributes, ExportId, FileError, FileId, FileType, OpenFile, Time},
    rpc::Credentials,
};

use super::{LASTING, Number, inode::Owner, rights};

/// Resolution of the modification time: otherwise threads that write concurrently would contend for it.
const TIME_GRAIN_NS: u64 = 1_000_000;

/// A file of fixed size whose data are a volume.
#[derive(Debug)]
pub struct VolumeFile {
    export: ExportId,
    number: Number,
    unit: UnitId,
    size_bytes: u64,
    read_only: bool,
    mode: AtomicU32,
    uid: AtomicU32,
    gid: AtomicU32,
    accessed_ns: AtomicU64,
    modified_ns: AtomicU64,
    changed_ns: AtomicU64,
}

impl VolumeFile {
    pub(super) fn new(
        export: ExportId,
        number: Number,
        unit: UnitId,
        size_bytes: u64,
        read_only: bool,
        time: Time,
    ) -> Self {
        let now = time.as_nanos();
        let mode = if read_only { 0o444 } else { 0o666 };
        Self {
            export,
            number,
            unit,
            size_bytes,
            read_only,
            mode: mode.into(),
            uid: 0.into(),
            gid: 0.into(),
            accessed_ns: now.into(),
            modified_ns: now.into(),
            changed_ns: now.into(),
        }
    }

    /// Its id in file handles.
    pub fn id(&self) -> FileId {
        FileId { number: u64::from(self.number), generation: LASTING }
    }

    pub fn unit(&self) -> UnitId {
        self.unit
    }

    pub fn attributes(&self) -> Attributes {
        Attributes {
            kind: FileType::Regular,
            mode: self.mode.load(Relaxed),
            links: 1,
            uid: self.uid.load(Relaxed),
            gid: self.gid.load(Relaxed),
            size: self.size_bytes,
            used: self.size_bytes,
            device: (0, 0),
            file_system: u64::from(self.export),
            number: u64::from(self.number),
            accessed: Time::from_nanos(self.accessed_ns.load(Relaxed)),
            modified: Time::from_nanos(self.modified_ns.load(Relaxed)),
            changed: Time::from_nanos(self.changed_ns.load(Relaxed)),
        }
    }

    /// Checks that the caller may read or write it.
    #[allow(clippy::inline_always)] // As NVMe/TCP's `Link::step`: saves 30 instructions of a read.
    #[inline(always)]
    pub fn open(&self, who: &Credentials, write: bool) -> Result<OpenFile, FileError> {
        if write && self.read_only {
            return Err(FileError::ReadOnly);
        }
        let attributes = self.attributes();
        rights::check_io(&attributes, who, write)?;
        Ok(OpenFile { unit: self.unit, attributes, is_ordinary: false })
    }

    /// Records a write. A client may have set the time of modification, also to one in the future.
    pub fn touch(&self, time: Time) {
        let now = time.as_nanos();
        if now.saturating_sub(self.changed_ns.load(Relaxed)) >= TIME_GRAIN_NS {
            self.modified_ns.store(now, Relaxed);
            self.changed_ns.store(now, Relaxed);
        }
    }

    pub(super) fn set_owner(&self, owner: Owner, time: Time) {
        self.mode.store(owner.mode, Relaxed);
        self.uid.store(owner.uid, Relaxed);
        self.gid.store(owner.gid, Relaxed);
        self.changed_ns.store(time.as_nanos(), Relaxed);
    }

    pub(super) fn set_times(&self, accessed: Option<Time>, modified: Option<Time>) {
        if let Some(time) = accessed {
            self.accessed_ns.store(time.as_nanos(), Relaxed);
        }
        if let Some(time) = modified {
            self.modified_ns.store(time.as_nanos(), Relaxed);
        }
    }
}
