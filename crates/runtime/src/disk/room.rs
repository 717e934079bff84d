//! Space for a file volume: checked before any is used, and released if the volume is not completed.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, StatVfs, fallocate, fstatvfs, statvfs};

use super::{
    DiskError,
    in_use::{Identity, identity_of},
};

/// Space left for others: a twentieth of the file system, at most this.
const SPARE_BYTES_MAX: u64 = 256 << 20;

/// Checks whether a file of this size can be created at a path where there is none. Changes nothing.
pub fn check_new(path: &Path, size_bytes: u64) -> Result<(), DiskError> {
    let fail = |source: io::Error| DiskError::Io { path: path.to_owned(), source };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Reports errors of the name itself, such as its length.
    match path.symlink_metadata() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    if !folder.metadata().map_err(fail)?.is_dir() {
        return Err(fail(io::Error::from_raw_os_error(libc::ENOTDIR)));
    }
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|error| fail(error.into()))?;
    let space = statvfs(folder).map_err(|error| fail(error.into()))?;
    enough(&space, size_bytes, path, size_bytes)
}

/// Checks whether a file can be extended to this size. Changes nothing.
pub fn check_larger(file: &File, path: &Path, size_bytes: u64) -> Result<(), DiskError> {
    let fail = |source: io::Error| DiskError::Io { path: path.to_owned(), source };
    let metadata = file.metadata().map_err(fail)?;
    if metadata.len() >= size_bytes {
        return Ok(());
    }
    let space = fstatvfs(file).map_err(|error| fail(error.into()))?;
    enough(&space, size_bytes.saturating_sub(metadata.blocks() * 512), path, size_bytes)
}

fn enough(space: &StatVfs, wanted_bytes: u64, path: &Path, size_bytes: u64) -> Result<(), DiskError> {
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    let spare_bytes = SPARE_BYTES_MAX.min(space.f_blocks.saturating_mul(space.f_frsize) / 20);
    if wanted_bytes <= free_bytes.saturating_sub(spare_bytes) {
        return Ok(());
    }
    Err(DiskError::NoRoom { path: path.to_owned(), size_bytes, free_bytes, spare_bytes })
}

/// A file that was created or extended. Unless it is kept, dropping this undoes it.
#[derive(Debug)]
pub struct Growth {
    path: PathBuf,
    file: File,
    identity: Identity,
    before: Before,
}

#[derive(Debug)]
enum Before {
    Absent,
    Bytes(u64),
    Kept,
}

impl Growth {
    /// For a file that was just created.
    pub(super) fn of_new(path: &Path, file: File) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity_of(&file)?, file, before: Before::Absent })
    }

    /// For a file that existed; it must be open for writing.
    pub(super) fn of_old(path: &Path, file: File) -> io::Result<Self> {
        let before = Before::Bytes(file.metadata()?.len());
        Ok(Self { path: path.to_owned(), identity: identity_of(&file)?, file, before })
    }

    /// Extends the file to at least `size_bytes`, with its space reserved if the file system can do that.
    pub(super) fn reserve(&self, size_bytes: u64) -> Result<(), DiskError> {
        check_larger(&self.file, &self.path, size_bytes)?;
        reserve(&self.file, size_bytes).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EFBIG | libc::EDQUOT) => {
                DiskError::NoSpace { path: self.path.clone(), size_bytes }
            }
            _ => DiskError::Io { path: self.path.clone(), source },
        })
    }

    /// Keeps the file: the volume was completed.
    pub fn keep(mut self) {
        self.before = Before::Kept;
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        // If it cannot be undone, the file stays. The failure that led here is the one to report.
        match self.before {
            Before::Kept => {}
            Before::Bytes(bytes) => drop(self.file.set_len(bytes)),
            Before::Absent => {
                let still_ours = File::open(&self.path).and_then(identity_of).is_ok_and(|found| found == self.identity);
                if still_ours {
                    let _ = std::fs::remove_file(&self.path);
                }
            }
        }
    }
}

fn reserve(file: &File, size_bytes: u64) -> io::Result<()> {
    if file.metadata()?.len() >= size_bytes {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size_bytes),
        Err(error) => Err(error.into()),
    }
}
