//! Opens the storage of volumes, and fills a whole volume with the data pattern, so that reads can be verified from the
//! start.

use std::{os::unix::fs::FileExt as _, path::Path, sync::Arc};

use iotax_node::{
    DiskId,
    failure::{Failure, FailureKind},
    pattern::{Pool, Stamp},
    volume::{self, Media, ModelledMedia, VolumeSpec},
};
use iotax_runtime::{
    disk::{Candidate, Disk, DiskError, DiskKind, DiskOptions, Growth, Lock, check_new},
    memory::SharedRegion,
};

use crate::{
    document::{self, ServeDocument},
    failure,
    judge::refuse_foreign,
    secret,
};

/// A volume with its memory mapped or its file open.
pub(super) struct OpenVolume {
    pub(super) spec: document::VolumeSpec,
    pub(super) store: Store,
    pub(super) modelled: Option<ModelledMedia>,
    /// The file created or extended for it, which is undone if the server does not start.
    growth: Option<Growth>,
}

/// With it, IQN and NQN of a volume stay within the 223 bytes that they may have.
const NAME_LEN_MAX: usize = 128;

pub(super) enum Store {
    Memory(SharedRegion),
    Disk(Arc<Disk>),
    Null,
}

pub(super) fn open(document: &ServeDocument) -> Result<Vec<OpenVolume>, Failure> {
    for (index, spec) in document.volumes.iter().enumerate() {
        // iSCSI compares names without case (RFC 7143 §4.2.7.1).
        if document.volumes[..index].iter().any(|other| other.name.eq_ignore_ascii_case(&spec.name)) {
            let message = "another volume has this name, and upper and lower case count as equal";
            return Err(Failure::usage(message, format!("volume {}", spec.name)));
        }
    }
    document.volumes.iter().map(open_one).collect()
}

fn open_one(spec: &document::VolumeSpec) -> Result<OpenVolume, Failure> {
    let place = || format!("volume {}", spec.name);
    let usage = |message: &str| Err(Failure::usage(message, place()));
    if spec.name.is_empty() || !spec.name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
    {
        return usage("its name may contain only letters, digits, '-', '_' and '.'");
    }
    if spec.name.len() > NAME_LEN_MAX {
        return usage("its name may have at most 128 characters");
    }
    if spec.keep
        && (spec.media != document::Media::File || spec.fill != document::Fill::Zeros || spec.destroy.is_some())
    {
        return usage("`keep` is only for file volumes, without `fill` and `destroy`");
    }
    if spec.media != document::Media::File && (spec.destroy.is_some() || spec.expect.is_some()) {
        return usage("`destroy` and `expect` are only for file volumes");
    }
    if spec.model.is_some() && spec.media != document::Media::Memory {
        return usage("only a memory volume can have a model");
    }
    let modelled = modelled(spec)?;
    let size_bytes = usize::try_from(spec.size_bytes).unwrap_or(usize::MAX);
    let mut growth = None;
    let store = match (spec.media, &spec.path) {
        (document::Media::Memory | document::Media::Null, _) if size_bytes == 0 => {
            return usage("its size must be more than 0");
        }
        (document::Media::Memory | document::Media::Null, Some(_)) => return usage("only a file volume has a path"),
        (document::Media::Memory, _) => {
            let open = if spec.file_io { SharedRegion::plain } else { SharedRegion::new };
            let memory = open(&spec.name, size_bytes, true)
                .map_err(|error| Failure::new(FailureKind::Io, error.to_string(), place()))?;
            Store::Memory(memory)
        }
        (document::Media::Null, _) => Store::Null,
        (document::Media::File, None) => return usage("a file volume needs a path"),
        (document::Media::File, Some(path)) => {
            let mut disk = open_disk(path, spec)?;
            growth = disk.take_growth();
            Store::Disk(Arc::new(disk))
        }
    };
    Ok(OpenVolume { spec: spec.clone(), store, modelled, growth })
}

/// Two servers must not draw the same service times: their measurements would be correlated.
fn modelled(spec: &document::VolumeSpec) -> Result<Option<ModelledMedia>, Failure> {
    let Some(media) = &spec.model else { return Ok(None) };
    let model = media.model(&format!("volume {}, model", spec.name))?;
    let drawn = secret::random()?.first_chunk().copied().map_or(0, u64::from_le_bytes);
    Ok(Some(ModelledMedia::new(model, drawn)))
}

/// Opens a disk: it is judged before it is opened for writing, and held, locked and claimed until the server ends.
fn open_disk(path: &Path, spec: &document::VolumeSpec) -> Result<Disk, Failure> {
    let place = || format!("volume {}", spec.name);
    let fail = |error: DiskError| failure::disk(&error, place());
    if spec.destroy.as_deref().is_some_and(|named| named != path) {
        return Err(Failure::usage("must be the same as the volume's path", format!("{}, destroy", place())));
    }
    let options = DiskOptions { read_only: false, direct: spec.direct, claim: true };
    let mut disk = match (Candidate::open(path), spec.expect) {
        (Err(DiskError::Io { source, .. }), None) if is_absent(&source) && spec.size_bytes > 0 && !spec.keep => {
            check_new(path, spec.size_bytes).map_err(fail)?;
            Disk::make(path, options).map_err(fail)?
        }
        (result, expected) => {
            let candidate = result.map_err(fail)?;
            if let Some(expected) = expected {
                candidate.expect(expected.into()).map_err(fail)?;
            }
            candidate.expect_free().map_err(fail)?;
            candidate.lock(Lock::Exclusive).map_err(fail)?;
            if spec.destroy.is_none() && !spec.keep {
                refuse_foreign(&candidate, place(), |_| Ok(()))?;
            }
            Disk::of(candidate, options).map_err(fail)?
        }
    };
    match disk.kind() {
        DiskKind::File if !spec.keep => disk.grow(spec.size_bytes).map_err(fail)?,
        _ if disk.size_bytes() < spec.size_bytes => {
            let message =
                format!("{} has {} bytes, the volume needs {}", path.display(), disk.size_bytes(), spec.size_bytes);
            return Err(Failure::new(FailureKind::TooSmall, message, place()));
        }
        _ if disk.size_bytes() == 0 => return Err(Failure::usage("its size must be more than 0", place())),
        _ => {}
    }
    Ok(disk)
}

fn is_absent(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// The volumes as the server's threads use them; disks are numbered in order.
pub(super) fn specs(volumes: &[OpenVolume]) -> Vec<VolumeSpec> {
    let mut disks = 0..;
    let specs = volumes.iter().map(|volume| {
        let media = match &volume.store {
            Store::Memory(_) => Media::Memory,
            Store::Null => Media::Null,
            Store::Disk(disk) => {
                Media::Disk { disk: DiskId(disks.next().unwrap_or_default()), block_size: disk.block_size_bytes() }
            }
        };
        let mut spec = VolumeSpec::new(volume.spec.name.clone(), volume.size_bytes(), media);
        spec.model.clone_from(&volume.modelled);
        spec.delay_ns = volume.spec.delay_ns;
        spec.burn_ns = volume.spec.burn_ns;
        spec
    });
    specs.collect()
}

impl OpenVolume {
    pub(super) fn size_bytes(&self) -> u64 {
        match &self.store {
            Store::Disk(disk) if self.spec.size_bytes == 0 => disk.size_bytes(),
            _ => self.spec.size_bytes,
        }
    }

    /// A path to a file with the same bytes, accessible without a protocol.
    pub(super) fn path(&self) -> Option<String> {
        match &self.store {
            Store::Memory(memory) => memory.path().map(|path| path.display().to_string()),
            Store::Disk(disk) => Some(disk.shared_path().display().to_string()),
            Store::Null => None,
        }
    }

    pub(super) fn identity(&self) -> Option<document::Identity> {
        match &self.store {
            Store::Disk(disk) => Some(disk.identity().into()),
            Store::Memory(_) | Store::Null => None,
        }
    }

    /// Keeps the file that was created or extended for it.
    pub(super) fn keep(&mut self) {
        if let Some(growth) = self.growth.take() {
            growth.keep();
        }
    }
}

const PIECE_BYTES: u64 = 1 << 20;

pub(super) fn fill(volume: &OpenVolume) -> Result<(), Failure> {
    let pool = Pool::new(volume.spec.data.reduction()?);
    match &volume.store {
        Store::Memory(memory) => fill_memory(memory, &pool, volume.size_bytes(), volume.spec.seed),
        Store::Disk(disk) => fill_disk(disk, &pool, volume.size_bytes(), volume.spec.seed)?,
        Store::Null => {}
    }
    Ok(())
}

/// All cores share the work.
fn fill_memory(memory: &SharedRegion, pool: &Pool, size_bytes: u64, run: u64) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = size_bytes.div_ceil(threads).next_multiple_of(PIECE_BYTES);
    std::thread::scope(|scope| {
        for start in (0..size_bytes).step_by(share as usize) {
            let len = share.min(size_bytes - start);
            scope.spawn(move || volume::fill(memory, pool, start, len, run));
        }
    });
}

/// The contents were judged when the disk was opened, and it has been held since.
fn fill_disk(disk: &Disk, pool: &Pool, size_bytes: u64, run: u64) -> Result<(), Failure> {
    let place = disk.path().display().to_string();
    let fail = |error: std::io::Error| failure::io(&error, &place);
    let file = disk.buffered().map_err(fail)?;
    let mut piece = vec![0; PIECE_BYTES as usize];
    for offset in (0..size_bytes).step_by(PIECE_BYTES as usize) {
        let piece = &mut piece[..PIECE_BYTES.min(size_bytes - offset) as usize];
        let blocks = piece.len() - piece.len() % 512;
        pool.fill(&mut piece[..blocks], offset, Stamp { run, writer: 0, sequence: 0 });
        file.write_all_at(&piece[..blocks], offset).map_err(fail)?;
    }
    file.sync_data().map_err(fail)
}
