//! A local unit: opened once for all threads, and for writing only after it was judged.

use std::{path::Path, sync::Arc, time::Duration};

use iotax_node::{
    DiskId,
    failure::{Failure, FailureKind},
    load::{Content, LocalUnit, endpoint},
};
use iotax_proto::Geometry;
use iotax_runtime::{
    disk::{Candidate, Disk, DiskError, DiskOptions, Lock, check_larger, check_new},
    memory::{MemoryError, SharedRegion},
};

use crate::{
    caller,
    document::{CheckedEvent, Event, Identity, LoadDocument, ProgressEvent},
    failure,
    judge::{content_of, refuse_foreign},
};

/// Maximum size of an I/O.
const IO_BYTES_MAX: u32 = 1 << 20;
const PROGRESS_PERIOD: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) enum Local {
    /// Memory of another process (`/proc/PID/fd/N`).
    Memory(SharedRegion),
    Disk(Arc<Disk>),
}

impl Local {
    /// The unit as a load's thread uses it; a disk is the thread's first disk.
    pub(super) fn unit(&self) -> LocalUnit {
        match self {
            Self::Memory(memory) => LocalUnit::Memory(memory.region()),
            Self::Disk(disk) => LocalUnit::Disk { disk: DiskId(0), geometry: geometry(disk, disk.is_read_only()) },
        }
    }

    pub(super) fn disk(&self) -> Option<Arc<Disk>> {
        match self {
            Self::Memory(_) => None,
            Self::Disk(disk) => Some(Arc::clone(disk)),
        }
    }
}

/// The path of a file or block device that must be judged; `None` for memory and for remote units.
pub(super) fn disk_path(unit: &endpoint::Unit) -> Option<&Path> {
    let endpoint::Unit::Local { path } = unit else { return None };
    Some(Path::new(path)).filter(|path| !is_memory_file(path))
}

/// Opens the local unit of a load. A unit that is written must not be in use by others or contain foreign data, unless
/// the document names it as judged by the caller, or as data that may be destroyed.
pub(super) fn open(
    document: &LoadDocument,
    unit: &endpoint::Unit,
    destroy: bool,
    writes: bool,
) -> Result<Option<Local>, Failure> {
    let endpoint::Unit::Local { path } = unit else { return Ok(None) };
    let (place, path) = (|| format!("local:{path}"), Path::new(path));
    if is_memory_file(path) {
        let memory = SharedRegion::open(path, writes).map_err(|error| memory_failure(&error, place()))?;
        return Ok(Some(Local::Memory(memory)));
    }
    let fail = |error: DiskError| failure::disk(&error, place());
    let candidate = Candidate::open(path).map_err(fail)?;
    match document.judged {
        Some(judged) => candidate.expect(judged.into()).map_err(fail)?,
        None => candidate.lock(if writes { Lock::Exclusive } else { Lock::Shared }).map_err(fail)?,
    }
    if writes {
        candidate.expect_free().map_err(fail)?;
    }
    if writes && !destroy && document.judged.is_none() {
        refuse_foreign(&candidate, place(), progress(candidate.size_bytes()))?;
    }
    let direct = document.options.direct.unwrap_or(true);
    // A server that lends its own volume has claimed it, and so has a caller that judged it.
    let options = DiskOptions { read_only: !writes, direct, claim: document.judged.is_none() };
    let disk = Disk::of(candidate, options).map_err(fail)?;
    Ok(Some(Local::Disk(Arc::new(disk))))
}

/// Reports what a path contains, or whether a volume could be created there. Changes nothing.
pub(super) fn check(document: &LoadDocument, path: &Path) -> Result<CheckedEvent, Failure> {
    let place = || format!("local:{}", path.display());
    let fail = |error: DiskError| failure::disk(&error, place());
    let candidate = match (Candidate::open(path), document.volume_bytes) {
        (Err(DiskError::Io { source, .. }), Some(size_bytes)) if source.kind() == std::io::ErrorKind::NotFound => {
            check_new(path, size_bytes).map_err(fail)?;
            return Ok(absent(size_bytes));
        }
        (result, _) => result.map_err(fail)?,
    };
    if let Some(judged) = document.judged {
        candidate.expect(judged.into()).map_err(fail)?;
    }
    let held = holder(&candidate, document.judged.is_some()).map_err(fail)?;
    if let Some(size_bytes) = document.volume_bytes {
        check_larger(candidate.file(), path, size_bytes).map_err(fail)?;
    }
    let size_bytes = candidate.size_bytes();
    let looked_at = 0..document.look_bytes.unwrap_or(size_bytes).min(size_bytes);
    let content = content_of(&candidate, looked_at.clone(), progress(looked_at.end))?;
    let (identity, writable) = (candidate.identity(), candidate.is_writable());
    let options = DiskOptions { read_only: true, direct: document.options.direct.unwrap_or(true), claim: false };
    let disk = Disk::of(candidate, options).map_err(fail)?;
    Ok(CheckedEvent {
        identity: Some(identity.into()),
        held,
        ..checked(&geometry(&disk, !writable), content, looked_at.end)
    })
}

/// The event for a unit that was checked.
pub(super) fn checked(geometry: &Geometry, content: Content, scanned_bytes: u64) -> CheckedEvent {
    let (holds, what, at_bytes) = match content {
        Content::Zeros => ("zeros", None, None),
        Content::Pattern => ("pattern", None, None),
        Content::Foreign { at, what } => ("foreign", Some(what), Some(at)),
    };
    CheckedEvent {
        size_bytes: geometry.size_bytes,
        block_size_bytes: geometry.block_size,
        max_io_bytes: Some(geometry.max_io_bytes),
        read_only: geometry.read_only,
        holds,
        what,
        at_bytes,
        scanned_bytes,
        held: None,
        identity: None,
    }
}

fn absent(size_bytes: u64) -> CheckedEvent {
    let geometry = Geometry { size_bytes, block_size: 1, max_io_bytes: IO_BYTES_MAX, read_only: false };
    CheckedEvent { holds: "nothing", max_io_bytes: None, ..checked(&geometry, Content::Zeros, 0) }
}

/// Describes who uses a file or device. Locks are not checked if they are the caller's.
fn holder(candidate: &Candidate, is_locked: bool) -> Result<Option<String>, DiskError> {
    let lock = || if is_locked { Ok(()) } else { candidate.lock(Lock::Exclusive) };
    match candidate.expect_free().and_then(|()| lock()) {
        Ok(()) => Ok(None),
        Err(DiskError::InUse { holder, .. }) => Ok(Some(holder)),
        Err(error) => Err(error),
    }
}

fn geometry(disk: &Disk, read_only: bool) -> Geometry {
    Geometry {
        size_bytes: disk.size_bytes(),
        block_size: disk.block_size_bytes(),
        max_io_bytes: IO_BYTES_MAX,
        read_only,
    }
}

/// Reports the progress of a check from time to time.
fn progress(total_bytes: u64) -> impl FnMut(u64) -> Result<(), Failure> {
    let mut told_at = std::time::Instant::now();
    move |done_bytes| {
        if told_at.elapsed() >= PROGRESS_PERIOD {
            told_at = std::time::Instant::now();
            caller::emit(&Event::Progress(ProgressEvent { done_bytes, total_bytes }));
        }
        Ok(())
    }
}

fn memory_failure(error: &MemoryError, place: String) -> Failure {
    let kind = match error {
        MemoryError::Map { source, .. } => failure::kind_of(source),
        _ => FailureKind::Io,
    };
    Failure::new(kind, error.to_string(), place)
}

fn is_memory_file(path: &Path) -> bool {
    path.starts_with("/proc")
        && std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:"))
}

impl From<Identity> for iotax_runtime::disk::Identity {
    fn from(identity: Identity) -> Self {
        Self { device: identity.device, inode: identity.inode }
    }
}

impl From<iotax_runtime::disk::Identity> for Identity {
    fn from(identity: iotax_runtime::disk::Identity) -> Self {
        Self { device: identity.device, inode: identity.inode }
    }
}
