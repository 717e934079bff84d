//! Files and block devices that hold a volume.

mod in_use;
mod transfer;

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

pub use in_use::{Holder, holder_of};
pub(crate) use transfer::{SystemOp, Transfer};

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is neither a file nor a block device")]
    WrongKind { path: PathBuf },
    #[error("{path} is in use: {holder}; unmount or release it first")]
    InUse { path: PathBuf, holder: String },
    #[error("{path}: the file system has no room for {size_bytes} bytes")]
    NoSpace { path: PathBuf, size_bytes: u64 },
}

/// How to open a disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    pub read_only: bool,
    /// Ask for `O_DIRECT`; where the file system refuses it, I/O goes through the page cache and `Disk::is_direct` says so.
    pub direct: bool,
    /// Make a file of this size, its space reserved, where there is none or a shorter one.
    pub create_bytes: Option<u64>,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { read_only: false, direct: true, create_bytes: None }
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
    path: PathBuf,
    kind: DiskKind,
    direct: bool,
    read_only: bool,
    size_bytes: u64,
    block_size_bytes: u32,
    memory_align: usize,
}

impl Disk {
    /// Opens a disk. A block device that is to be written is opened for us alone: one that is mounted or part of something is refused.
    pub fn open(path: &Path, options: DiskOptions) -> Result<Self, DiskError> {
        let fail = |source: io::Error| DiskError::Io { path: path.to_owned(), source };
        let is_device = path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
        if is_device
            && !options.read_only
            && let Some(holder) = holder_of(path).map_err(fail)?
        {
            return Err(DiskError::InUse { path: path.to_owned(), holder: holder.to_string() });
        }

        let exclusive = if is_device && !options.read_only { libc::O_EXCL } else { 0 };
        let open = |flags: i32| {
            OpenOptions::new()
                .read(true)
                .write(!options.read_only)
                .create(options.create_bytes.is_some() && !options.read_only && !is_device)
                .custom_flags(exclusive | flags)
                .open(path)
        };
        // Reading leaves the file's times alone where we may say so, which its owner may: 6 % of the rate of a cached file.
        let open = |flags: i32| match open(flags | libc::O_NOATIME) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => open(flags),
            result => result,
        };
        let (file, direct) = match (options.direct, open(if options.direct { libc::O_DIRECT } else { 0 })) {
            (true, Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => (open(0), false),
            (direct, result) => (result, direct),
        };
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => {
                DiskError::InUse { path: path.to_owned(), holder: "another program holds it alone".to_owned() }
            }
            _ => fail(error),
        })?;

        // Asked of the open file: the name may mean another by now.
        let file_type = file.metadata().map_err(fail)?.file_type();
        let kind = if file_type.is_block_device() {
            DiskKind::BlockDevice
        } else if file_type.is_file() {
            DiskKind::File
        } else {
            return Err(DiskError::WrongKind { path: path.to_owned() });
        };
        if kind == DiskKind::File
            && let Some(size_bytes) = options.create_bytes
        {
            reserve(&file, size_bytes).map_err(|error| match error.raw_os_error() {
                Some(libc::ENOSPC | libc::EFBIG | libc::EDQUOT) => {
                    DiskError::NoSpace { path: path.to_owned(), size_bytes }
                }
                _ => fail(error),
            })?;
        }
        let (size_bytes, block_size_bytes) = match kind {
            DiskKind::BlockDevice => device_geometry(&file).map_err(fail)?,
            DiskKind::File => (file.metadata().map_err(fail)?.len(), 1),
        };
        let (memory_align, offset_align) = if direct { direct_alignment(&file, block_size_bytes) } else { (1, 1) };
        let block_size_bytes = block_size_bytes.max(offset_align);
        Ok(Self {
            file,
            path: path.to_owned(),
            kind,
            direct,
            read_only: options.read_only,
            size_bytes,
            block_size_bytes,
            memory_align,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn kind(&self) -> DiskKind {
        self.kind
    }

    /// True where I/O goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
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

    /// Addresses that are multiples of it are used in place; others cost a copy through memory that is.
    pub fn memory_align(&self) -> usize {
        self.memory_align
    }

    /// Device number of the device, or of the file system that the file is on.
    pub fn device(&self) -> io::Result<u64> {
        let metadata = self.file.metadata()?;
        Ok(if self.kind == DiskKind::BlockDevice { metadata.rdev() } else { metadata.dev() })
    }

    /// The open file, for what is done once and may wait: scanning for foreign data, filling.
    pub fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Makes a file at least so long, with its space reserved where the file system can do that.
fn reserve(file: &File, size_bytes: u64) -> io::Result<()> {
    if file.metadata()?.len() >= size_bytes {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, size_bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size_bytes),
        Err(error) => Err(error.into()),
    }
}

/// Size and logical block size of a block device.
fn device_geometry(file: &File) -> io::Result<(u64, u32)> {
    let mut size_bytes = 0_u64;
    // SAFETY: BLKGETSIZE64 writes one u64 where it is told.
    if unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut size_bytes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let block_size_bytes = rustix::fs::ioctl_blksszget(file)?;
    Ok((size_bytes, block_size_bytes))
}

/// `_IOR(0x12, 114, size_t)`, which libc does not name.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;

/// What direct I/O wants of addresses, and of offsets and lengths.
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
    // Kernels before 6.1, and file systems that do not say: a page suits all of them.
    if block_size_bytes > 1 { (512, block_size_bytes) } else { (4096, 4096) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("iotax-disk-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_file_is_made_reserved_and_never_shortened() {
        let path = scratch("create");
        let make = |bytes| DiskOptions { create_bytes: Some(bytes), ..DiskOptions::default() };
        let disk = Disk::open(&path, make(1 << 20)).unwrap();
        assert_eq!((disk.kind(), disk.size_bytes()), (DiskKind::File, 1 << 20));
        assert!(disk.file().metadata().unwrap().blocks() * 512 >= 1 << 20, "its space is reserved");
        assert!(disk.block_size_bytes().is_power_of_two() && disk.memory_align().is_power_of_two());
        assert_eq!(disk.is_direct(), disk.block_size_bytes() > 1);
        let again = Disk::open(&path, make(4096)).unwrap();
        assert_eq!(again.size_bytes(), 1 << 20);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_buffered_file_has_no_alignment() {
        let path = scratch("buffered");
        std::fs::write(&path, [1, 2, 3]).unwrap();
        let options = DiskOptions { direct: false, read_only: true, create_bytes: None };
        let disk = Disk::open(&path, options).unwrap();
        assert_eq!((disk.size_bytes(), disk.block_size_bytes(), disk.memory_align()), (3, 1, 1));
        assert!(!disk.is_direct() && disk.is_read_only());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_disk_is_refused_in_words() {
        let error = Disk::open(Path::new("/nowhere/at/all"), DiskOptions::default()).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/at/all: "), "{error}");
        let options = DiskOptions { read_only: true, direct: false, create_bytes: None };
        let error = Disk::open(Path::new("/dev/null"), options).unwrap_err();
        assert!(matches!(error, DiskError::WrongKind { .. }), "{error}");
    }

    #[test]
    fn a_full_file_system_is_named() {
        let path = scratch("full");
        let options = DiskOptions { create_bytes: Some(1 << 50), ..DiskOptions::default() };
        let error = Disk::open(&path, options).unwrap_err();
        assert!(matches!(error, DiskError::NoSpace { .. }), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}
