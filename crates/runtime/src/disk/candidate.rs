//! A file or block device that is only open for inspection. It is judged first and then opened for writing through the
//! same descriptor, so that a name that changes in between does no harm.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{FlockOperation, SeekFrom, flock, seek};

use super::{
    DiskError, DiskKind, device_geometry,
    in_use::{self, Identity, identity_of},
};

/// How long to wait for a lock: udev inspects a device that was just closed, under a shared lock.
const LOCK_TRIES: u32 = 20;
const LOCK_PERIOD: Duration = Duration::from_millis(50);

/// What other holders of a lock may do at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// They may read.
    Shared,
    Exclusive,
}

#[derive(Debug)]
pub struct Candidate {
    file: File,
    path: PathBuf,
    kind: DiskKind,
    identity: Identity,
    size_bytes: u64,
}

impl Candidate {
    /// Opens what the path leads to for reading. Nothing is changed, and no device is set in motion.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        let fail = |source: io::Error| DiskError::Io { path: path.to_owned(), source };
        // First without read access: opening a pipe waits, opening a tape rewinds it.
        let named = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).map_err(fail)?;
        kind_of(&named, path)?;
        let file = File::open(descriptor(&named)).map_err(fail)?;
        Self::of(file, path)
    }

    /// Creates an empty file at a path where there is none.
    pub fn make(path: &Path) -> Result<Self, DiskError> {
        let fail = |source: io::Error| DiskError::Io { path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(fail)?;
        Self::of(file, path)
    }

    fn of(file: File, path: &Path) -> Result<Self, DiskError> {
        let fail = |source: io::Error| DiskError::Io { path: path.to_owned(), source };
        let kind = kind_of(&file, path)?;
        let identity = identity_of(&file).map_err(fail)?;
        let size_bytes = match kind {
            DiskKind::BlockDevice => device_geometry(&file).map_err(fail)?.0,
            DiskKind::File => file.metadata().map_err(fail)?.len(),
        };
        Ok(Self { file, path: path.to_owned(), kind, identity, size_bytes })
    }

    /// Fails if this is not the file or device that was judged before.
    pub fn expect(&self, judged: Identity) -> Result<(), DiskError> {
        if self.identity == judged {
            return Ok(());
        }
        Err(DiskError::Swapped { path: self.path.clone(), found: self.identity })
    }

    /// Fails if it is in use elsewhere: by a file system, swap space, a loop device, a volume manager.
    pub fn expect_free(&self) -> Result<(), DiskError> {
        let fail = |source: io::Error| DiskError::Io { path: self.path.clone(), source };
        match in_use::holder_of(&self.file).map_err(fail)? {
            None => Ok(()),
            Some(holder) => Err(self.in_use(holder.to_string())),
        }
    }

    /// Locks out other runs until this, and the disk made from it, are dropped. Fails if another program has locked it,
    /// as programs do that run a virtual machine from it. On a file system without locks, nothing is locked.
    pub fn lock(&self, lock: Lock) -> Result<(), DiskError> {
        if let Some(holder) = in_use::locked_by(&self.file).filter(|_| lock == Lock::Exclusive) {
            return Err(self.in_use(holder.to_string()));
        }
        let operation = match lock {
            Lock::Shared => FlockOperation::NonBlockingLockShared,
            Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        for _ in 0..LOCK_TRIES {
            match flock(&self.file, operation) {
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PERIOD),
                _ => return Ok(()),
            }
        }
        Err(self.in_use("another program has locked it, perhaps another run of iotax".to_owned()))
    }

    fn in_use(&self, holder: String) -> DiskError {
        DiskError::InUse { path: self.path.clone(), holder }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn kind(&self) -> DiskKind {
        self.kind
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The file, open for reading.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether this process may write to it.
    pub fn is_writable(&self) -> bool {
        rustix::fs::access(descriptor(&self.file), rustix::fs::Access::WRITE_OK).is_ok()
    }

    /// The next range of data from `offset` on: what lies before it is a hole, which reads as zeros. `None`: no data
    /// follow.
    pub fn next_data(&self, offset: u64) -> Option<(u64, u64)> {
        if offset >= self.size_bytes {
            return None;
        }
        let to_end = Some((offset, self.size_bytes));
        if self.kind == DiskKind::BlockDevice {
            return to_end;
        }
        match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(begin) => {
                let end = seek(&self.file, SeekFrom::Hole(begin)).unwrap_or(self.size_bytes);
                Some((begin, end.min(self.size_bytes)))
            }
            Err(rustix::io::Errno::NXIO) => None,
            // A file system that does not support holes.
            Err(_) => to_end,
        }
    }

    /// Opens the same file or device again, whatever its name refers to by now.
    pub(super) fn again(&self, options: &OpenOptions) -> io::Result<File> {
        options.open(descriptor(&self.file))
    }
}

fn kind_of(file: &File, path: &Path) -> Result<DiskKind, DiskError> {
    let fail = |source: io::Error| DiskError::Io { path: path.to_owned(), source };
    let file_type = file.metadata().map_err(fail)?.file_type();
    if file_type.is_block_device() {
        Ok(DiskKind::BlockDevice)
    } else if file_type.is_file() {
        Ok(DiskKind::File)
    } else {
        Err(DiskError::WrongKind { path: path.to_owned() })
    }
}

/// A path of this process that refers to the open file itself.
fn descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("iotax-candidate-{}-{name}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn another_file_of_the_same_name_is_not_the_one_that_was_judged() {
        let (scratch, moved) = (Scratch::new("name"), Scratch::new("moved"));
        std::fs::write(&scratch.0, [1; 512]).unwrap();
        let judged = Candidate::open(&scratch.0).unwrap();
        judged.expect(judged.identity()).unwrap();
        std::fs::rename(&scratch.0, &moved.0).unwrap();
        std::fs::write(&scratch.0, [1; 512]).unwrap();
        let other = Candidate::open(&scratch.0).unwrap();
        let error = other.expect(judged.identity()).unwrap_err();
        assert!(matches!(error, DiskError::Swapped { .. }), "{error}");
        // The old file is found by its new name, by a link, and by its descriptor.
        std::os::unix::fs::symlink(&moved.0, scratch.0.with_extension("link")).unwrap();
        let linked = Scratch(scratch.0.with_extension("link"));
        for path in [&moved.0, &linked.0] {
            Candidate::open(path).unwrap().expect(judged.identity()).unwrap();
        }
        assert_eq!(identity_of(judged.again(OpenOptions::new().write(true)).unwrap()).unwrap(), judged.identity());
    }

    #[test]
    fn one_writer_at_a_time_and_readers_together() {
        let scratch = Scratch::new("lock");
        std::fs::write(&scratch.0, [1; 512]).unwrap();
        let open = || Candidate::open(&scratch.0).unwrap();
        let (first, second) = (open(), open());
        first.lock(Lock::Shared).unwrap();
        second.lock(Lock::Shared).unwrap();
        let error = open().lock(Lock::Exclusive).unwrap_err();
        assert!(matches!(error, DiskError::InUse { .. }), "{error}");
        drop((first, second));
        open().lock(Lock::Exclusive).unwrap();
    }

    #[test]
    fn holes_are_passed_over() {
        let scratch = Scratch::new("holes");
        let file = File::create(&scratch.0).unwrap();
        file.set_len(64 << 20).unwrap();
        assert_eq!(Candidate::open(&scratch.0).unwrap().next_data(0), None);
        std::os::unix::fs::FileExt::write_all_at(&file, &[1], 33 << 20).unwrap();
        let (begin, end) = Candidate::open(&scratch.0).unwrap().next_data(0).unwrap();
        assert!(begin <= 33 << 20 && end > 33 << 20 && end <= 64 << 20, "{begin} to {end}");
    }

    #[test]
    fn what_is_neither_file_nor_device_is_not_opened() {
        for path in ["/dev/null", "/proc/self"] {
            let error = Candidate::open(Path::new(path)).unwrap_err();
            assert!(matches!(error, DiskError::WrongKind { .. }), "{error}");
        }
    }
}
