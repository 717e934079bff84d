//! Files and block devices that hold a volume.

mod candidate;
mod in_use;
mod room;
mod transfer;

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::FsWord;

pub use candidate::{Candidate, Lock};
pub use in_use::Identity;
pub use room::{Growth, check_larger, check_new};
pub(crate) use transfer::{DriversDisk, SystemOp, Transfer};

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is neither a file nor a block device")]
    WrongKind { path: PathBuf },
    #[error("{path} is in use: {holder}; unmount or release it first")]
    InUse { path: PathBuf, holder: String },
    #[error("{path} is another file than the one that was judged: {found} stands there now; nothing was written to it")]
    Swapped { path: PathBuf, found: Identity },
    #[error("{path}: the file system has no room for {size_bytes} bytes")]
    NoSpace { path: PathBuf, size_bytes: u64 },
    #[error("{path}: {size_bytes} bytes do not fit: {free_bytes} are free, of which {spare_bytes} are left to others")]
    NoRoom { path: PathBuf, size_bytes: u64, free_bytes: u64, spare_bytes: u64 },
}

/// How to open a disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    pub read_only: bool,
    /// Request `O_DIRECT`. If the file system refuses it, I/O uses the page cache and the block size is one byte.
    pub direct: bool,
    /// Open a block device exclusively if it is opened for writing.
    pub claim: bool,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { read_only: false, direct: true, claim: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    File,
    BlockDevice,
}

/// An open file or block device.
#[derive(Debug)]
pub struct Disk {
    file: File,
    /// The file as it was judged, with its lock and its name.
    candidate: Candidate,
    /// Undone when the disk is dropped, unless it is kept.
    growth: Option<Growth>,
    read_only: bool,
    size_bytes: u64,
    block_size_bytes: u32,
    memory_align: usize,
    is_in_memory: bool,
}

impl Disk {
    /// Opens a judged candidate for I/O.
    pub fn of(candidate: Candidate, options: DiskOptions) -> Result<Self, DiskError> {
        let fail = |source: io::Error| DiskError::Io { path: candidate.path().to_owned(), source };
        let is_device = candidate.kind() == DiskKind::BlockDevice;
        let exclusive = if is_device && !options.read_only && options.claim { libc::O_EXCL } else { 0 };
        let open = |flags: i32| {
            let mut how = OpenOptions::new();
            candidate.again(how.read(true).write(!options.read_only).custom_flags(exclusive | flags))
        };
        // Reads do not update the access time of the file, if this process owns it and may request that: the updates
        // would cost 6 % of the rate of a cached file.
        let open = |flags: i32| match open(flags | libc::O_NOATIME) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => open(flags),
            result => result,
        };
        let open = |flags: i32| once_released(|| open(flags));
        let (file, direct) = match (options.direct, open(if options.direct { libc::O_DIRECT } else { 0 })) {
            (true, Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => (open(0), false),
            (direct, result) => (result, direct),
        };
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => DiskError::InUse {
                path: candidate.path().to_owned(),
                holder: "another program holds it alone".to_owned(),
            },
            _ => fail(error),
        })?;
        let (size_bytes, block_size_bytes) = match candidate.kind() {
            DiskKind::BlockDevice => device_geometry(&file).map_err(fail)?,
            DiskKind::File => (file.metadata().map_err(fail)?.len(), 1),
        };
        let (memory_align, offset_align) = if direct { direct_alignment(&file, block_size_bytes) } else { (1, 1) };
        let block_size_bytes = block_size_bytes.max(offset_align);
        let read_only = options.read_only;
        let is_in_memory = is_in_memory(&file, candidate.kind()).map_err(fail)?;
        Ok(Self { file, candidate, growth: None, read_only, size_bytes, block_size_bytes, memory_align, is_in_memory })
    }

    /// Creates a file at a path where there is none. The file is removed with the disk, unless it is kept.
    pub fn make(path: &Path, options: DiskOptions) -> Result<Self, DiskError> {
        let fail = |source: io::Error| DiskError::Io { path: path.to_owned(), source };
        let candidate = Candidate::make(path)?;
        let growth = Growth::of_new(path, candidate.file().try_clone().map_err(fail)?).map_err(fail)?;
        candidate.lock(Lock::Exclusive)?;
        Ok(Self { growth: Some(growth), ..Self::of(candidate, options)? })
    }

    /// Extends a file to at least `size_bytes` and reserves its space; one that is long enough stays as it is, with its
    /// holes. Undone when the disk is dropped, unless it is kept.
    pub fn grow(&mut self, size_bytes: u64) -> Result<(), DiskError> {
        let path = self.candidate.path();
        let fail = |source: io::Error| DiskError::Io { path: path.to_owned(), source };
        let growth = match self.growth.take() {
            Some(growth) => growth,
            None => Growth::of_old(path, self.file.try_clone().map_err(fail)?).map_err(fail)?,
        };
        self.growth.insert(growth).reserve(size_bytes)?;
        self.size_bytes = self.file.metadata().map_err(fail)?.len();
        Ok(())
    }

    /// The creation or extension of the file, which is undone when this is dropped, unless it is kept.
    pub fn take_growth(&mut self) -> Option<Growth> {
        self.growth.take()
    }

    pub fn path(&self) -> &Path {
        self.candidate.path()
    }

    pub fn kind(&self) -> DiskKind {
        self.candidate.kind()
    }

    pub fn identity(&self) -> Identity {
        self.candidate.identity()
    }

    /// A path by which other processes of this user reach this file itself while the disk is open.
    pub fn shared_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// The same file through the page cache, for occasional I/O with memory of any alignment.
    pub fn buffered(&self) -> io::Result<File> {
        self.candidate.again(OpenOptions::new().read(true).write(!self.read_only))
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Offsets and lengths must be multiples of it; 1 for a file through the page cache.
    pub fn block_size_bytes(&self) -> u32 {
        self.block_size_bytes
    }

    /// Memory whose address is a multiple of it is used in place; other memory costs a copy.
    pub fn memory_align(&self) -> usize {
        self.memory_align
    }

    /// Whether its bytes are only in memory, so that no operation waits for a device.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// Device number of the device, or of the file system that the file is on.
    pub fn device(&self) -> io::Result<u64> {
        let metadata = self.file.metadata()?;
        Ok(if self.kind() == DiskKind::BlockDevice { metadata.rdev() } else { metadata.dev() })
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Opens a device that another process may still hold exclusively. Waits a few seconds, longer each time, because the
/// ring of a killed process releases its files some time after the process has ended.
fn once_released(open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let is_held = |result: &io::Result<File>| matches!(result, Err(error) if error.raw_os_error() == Some(libc::EBUSY));
    let mut result = open();
    for wait in RELEASE_WAITS_MS.map(Duration::from_millis) {
        if !is_held(&result) {
            break;
        }
        std::thread::sleep(wait);
        result = open();
    }
    result
}

/// Four seconds in total.
const RELEASE_WAITS_MS: [u64; 12] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// Whether it is a file on tmpfs or ramfs. A device node may be on one, but its bytes are not.
fn is_in_memory(file: &File, kind: DiskKind) -> io::Result<bool> {
    const TMPFS_MAGIC: FsWord = 0x0102_1994;
    const RAMFS_MAGIC: FsWord = 0x8584_58F6;
    Ok(kind == DiskKind::File && [TMPFS_MAGIC, RAMFS_MAGIC].contains(&rustix::fs::fstatfs(file)?.f_type))
}

/// Size and logical block size of a block device.
fn device_geometry(file: &File) -> io::Result<(u64, u32)> {
    let mut size_bytes = 0_u64;
    // SAFETY: BLKGETSIZE64 writes one u64 to the given address.
    if unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut size_bytes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let block_size_bytes = rustix::fs::ioctl_blksszget(file)?;
    Ok((size_bytes, block_size_bytes))
}

/// `_IOR(0x12, 114, size_t)`, which libc does not define.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl; // an int with musl

/// Alignment that direct I/O requires: of addresses, and of offsets and lengths.
fn direct_alignment(file: &File, block_size_bytes: u32) -> (usize, u32) {
    // SAFETY: all-zero bytes are a valid statx.
    let mut status: libc::statx = unsafe { std::mem::MaybeUninit::zeroed().assume_init() };
    // SAFETY: the name is an empty C string, and the result is written to a statx.
    let answer = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut status)
    };
    if answer == 0 && status.stx_mask & libc::STATX_DIOALIGN != 0 && status.stx_dio_offset_align > 0 {
        return (status.stx_dio_mem_align as usize, status.stx_dio_offset_align);
    }
    // Kernels before 6.1, and file systems that do not report it: one page suits all of them.
    if block_size_bytes > 1 { (512, block_size_bytes) } else { (4096, 4096) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("iotax-disk-{}-{name}", std::process::id()))
    }

    fn open(path: &Path, options: DiskOptions) -> Result<Disk, DiskError> {
        Disk::of(Candidate::open(path)?, options)
    }

    #[test]
    fn a_file_is_made_reserved_and_never_shortened() {
        let path = scratch("create");
        let mut disk = Disk::make(&path, DiskOptions::default()).unwrap();
        disk.grow(1 << 20).unwrap();
        disk.take_growth().unwrap().keep();
        assert_eq!((disk.kind(), disk.size_bytes()), (DiskKind::File, 1 << 20));
        assert!(path.metadata().unwrap().blocks() * 512 >= 1 << 20, "its space is reserved");
        assert!(disk.block_size_bytes().is_power_of_two() && disk.memory_align().is_power_of_two());
        assert_eq!(disk.memory_align() > 1, disk.block_size_bytes() > 1);
        drop(disk);
        let mut again = open(&path, DiskOptions::default()).unwrap();
        again.grow(4096).unwrap();
        assert_eq!(again.size_bytes(), 1 << 20);
        drop(again);
        assert_eq!(path.metadata().unwrap().len(), 1 << 20);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_was_made_goes_away_unless_it_is_kept() {
        let path = scratch("undone");
        let mut made = Disk::make(&path, DiskOptions::default()).unwrap();
        made.grow(1 << 20).unwrap();
        drop(made);
        assert!(!path.exists());
        std::fs::write(&path, [0; 4096]).unwrap();
        let mut grown = open(&path, DiskOptions::default()).unwrap();
        grown.grow(1 << 20).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 1 << 20);
        drop(grown);
        assert_eq!(path.metadata().unwrap().len(), 4096);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_stands_there_is_never_made_anew() {
        let path = scratch("stands");
        std::fs::write(&path, [7; 512]).unwrap();
        assert!(Disk::make(&path, DiskOptions::default()).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), [7; 512]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_buffered_file_has_no_alignment() {
        let path = scratch("buffered");
        std::fs::write(&path, [1, 2, 3]).unwrap();
        let options = DiskOptions { direct: false, read_only: true, claim: false };
        let disk = open(&path, options).unwrap();
        assert_eq!((disk.size_bytes(), disk.block_size_bytes(), disk.memory_align()), (3, 1, 1));
        assert!(disk.is_read_only());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn files_in_memory_are_told_from_those_on_a_device() {
        let beside = std::env::current_exe().unwrap().with_file_name(format!("disk-kind-{}", std::process::id()));
        let shared = PathBuf::from(format!("/dev/shm/iotax-disk-kind-{}", std::process::id()));
        for path in [beside, shared] {
            std::fs::write(&path, [0; 512]).unwrap();
            let kind = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(&path).output().unwrap().stdout;
            let disk = open(&path, DiskOptions { direct: false, ..DiskOptions::default() }).unwrap();
            assert_eq!(disk.is_in_memory(), kind == b"tmpfs\n", "{}", path.display());
            std::fs::remove_file(path).unwrap();
        }
        let device = File::open("/dev/null").unwrap();
        assert!(!is_in_memory(&device, DiskKind::BlockDevice).unwrap(), "only its name is in memory");
    }

    #[test]
    fn what_is_no_disk_is_refused_in_words() {
        let error = open(Path::new("/nowhere/at/all"), DiskOptions::default()).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/at/all: "), "{error}");
    }

    #[test]
    fn a_volume_larger_than_its_file_system_takes_nothing_of_it() {
        let path = scratch("full");
        let error = check_new(&path, 1 << 50).unwrap_err();
        assert!(matches!(error, DiskError::NoRoom { .. }), "{error}");
        let mut disk = Disk::make(&path, DiskOptions::default()).unwrap();
        let error = disk.grow(1 << 50).unwrap_err();
        assert!(matches!(error, DiskError::NoRoom { .. }), "{error}");
        assert_eq!(path.metadata().unwrap().blocks(), 0);
        drop(disk);
        assert!(!path.exists());
    }

    #[test]
    fn paths_that_cannot_be_are_named_before_anything_is_made() {
        let file = scratch("no-folder");
        std::fs::write(&file, [0; 512]).unwrap();
        for path in [PathBuf::from("/nowhere/at/all"), file.join("below"), PathBuf::from("x".repeat(300))] {
            let error = check_new(&path, 4096).unwrap_err();
            assert!(matches!(error, DiskError::Io { .. }), "{error}");
        }
        std::fs::remove_file(file).unwrap();
    }
}
