//! The identity of a file or block device, whatever its names.

use std::{fmt, io, os::fd::AsFd};

use rustix::fs::{major, minor};

/// Identifies a file or a block device for as long as it is held open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// For a file, the device number of its file system; for a block device, its own.
    pub device: u64,
    /// 0 for a block device.
    pub inode: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = (major(self.device), minor(self.device));
        match self.inode {
            0 => write!(f, "device {major}:{minor}"),
            inode => write!(f, "inode {inode} on {major}:{minor}"),
        }
    }
}

pub(super) fn identity_of(file: impl AsFd) -> io::Result<Identity> {
    let status = rustix::fs::fstat(file)?;
    Ok(match rustix::fs::FileType::from_raw_mode(status.st_mode) {
        rustix::fs::FileType::BlockDevice => Identity { device: status.st_rdev, inode: 0 },
        _ => Identity { device: status.st_dev, inode: status.st_ino },
    })
}
