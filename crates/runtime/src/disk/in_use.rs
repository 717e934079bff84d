//! Finds whether a file or block device is in use elsewhere: mounted, used for swap, behind a loop device, part of
//! another device, or locked by the program that uses it.

use std::{
    fmt,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::FileTypeExt,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{major, minor};

/// The user of a file or block device, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Mount {
        device: String,
        at: String,
    },
    Swap {
        device: String,
    },
    /// A loop device with these bytes, and its mount point.
    Loop {
        device: String,
        at: Option<String>,
    },
    /// A process that has locked a range of its bytes, as programs do that run a virtual machine from it.
    Lock {
        pid: i32,
    },
    /// A device built on it: LVM, RAID, encryption, multipath.
    Device {
        device: String,
        by: String,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount { device, at } => write!(f, "{device} is mounted at {at}"),
            Self::Swap { device } => write!(f, "{device} is swap space"),
            Self::Loop { device, at: None } => write!(f, "it is behind {device}"),
            Self::Loop { device, at: Some(at) } => write!(f, "it is behind {device}, which is mounted at {at}"),
            Self::Lock { pid } if *pid > 0 => write!(f, "process {pid} has locked bytes of it"),
            Self::Lock { .. } => write!(f, "another program has locked bytes of it"),
            Self::Device { device, by } => write!(f, "{device} is part of {by}"),
        }
    }
}

/// Finds a user of a file, or of a block device and its partitions.
pub(super) fn holder_of(file: &File) -> io::Result<Option<Holder>> {
    let identity = identity_of(file)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if let Some(holder) = loop_of(identity, &mounts) {
        return Ok(Some(holder));
    }
    if !file.metadata()?.file_type().is_block_device() {
        let swap = swap_paths(&swaps).find(|path| is(path, identity));
        let swap = swap.map(|path| Holder::Swap { device: path.display().to_string() });
        return Ok(swap);
    }
    for (number, directory) in device_and_partitions(identity.device) {
        let device = directory.file_name().map_or_else(|| number.clone(), |name| name.to_string_lossy().into_owned());
        if let Some(at) = mounted_at(&mounts, &number) {
            return Ok(Some(Holder::Mount { device, at }));
        }
        if is_swap(&swaps, &device) {
            return Ok(Some(Holder::Swap { device }));
        }
        if let Some(by) = names_in(&directory.join("holders")).into_iter().next() {
            return Ok(Some(Holder::Device { device, by }));
        }
    }
    // For a loop device: whether another device has the same bytes.
    let Some(behind) = backing_file(&sys_directory(identity.device)) else { return Ok(None) };
    let others = loops().filter(|(_, directory)| backing_file(directory).as_deref() == Some(&behind));
    let own = format!("{}:{}", major(identity.device), minor(identity.device));
    let mut others = others.filter_map(|(device, directory)| Some((device, number_in(&directory)?)));
    let holder = others.find_map(|(device, number)| {
        (number != own).then(|| Holder::Loop { device, at: mounted_at(&mounts, &number) })
    });
    Ok(holder)
}

/// The loop device whose bytes are this file or device. Its path under /sys is meaningful only to processes that see
/// the same file systems. Otherwise the kernel is queried, if that is permitted.
fn loop_of(identity: Identity, mounts: &str) -> Option<Holder> {
    let (device, directory) = loops().find(|(device, directory)| {
        backing_file(directory).is_some_and(|path| is(&path, identity)) || backing_identity(device) == Some(identity)
    })?;
    let at = number_in(&directory).and_then(|number| mounted_at(mounts, &number));
    Some(Holder::Loop { device, at })
}

/// Loop devices with a file: path, and directory under /sys.
fn loops() -> impl Iterator<Item = (String, PathBuf)> {
    let directory = Path::new("/sys/block");
    let names = names_in(directory).into_iter().filter(|name| name.starts_with("loop"));
    names
        .map(move |name| (format!("/dev/{name}"), directory.join(name)))
        .filter(|(_, directory)| directory.join("loop").exists())
}

fn backing_file(directory: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(directory.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

/// `loop.h`: `LOOP_GET_STATUS64` returns device and inode of the file, and the device number if the file is a device.
fn backing_identity(loop_device: &str) -> Option<Identity> {
    /// `struct loop_info64`, of which the first fields are used.
    #[repr(C)]
    struct Info {
        device: u64,
        inode: u64,
        rdev: u64,
        rest: [u64; 26],
    }
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
    let file = File::open(loop_device).ok()?;
    let mut info = Info { device: 0, inode: 0, rdev: 0, rest: [0; 26] };
    // SAFETY: the request writes one `loop_info64` of 232 bytes, and `Info` is as large.
    if unsafe { libc::ioctl(file.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) } != 0 {
        return None;
    }
    Some(if info.rdev == 0 {
        Identity { device: info.device, inode: info.inode }
    } else {
        Identity { device: info.rdev, inode: 0 }
    })
}

fn is(path: &Path, identity: Identity) -> bool {
    // Opened only as a path, because it may be any kind of file.
    let named =
        rustix::fs::open(path, rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty());
    named.is_ok_and(|named| identity_of(named).is_ok_and(|found| found == identity))
}

/// `fcntl(2)`: the holder of a lock, of a process or of an open file, that would prevent us from write-locking the
/// whole file.
pub(super) fn locked_by(file: &File) -> Option<Holder> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the request reads and writes one `flock`, and changes no lock.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    (answer == 0 && i32::from(lock.l_type) != libc::F_UNLCK).then_some(Holder::Lock { pid: lock.l_pid })
}

fn sys_directory(device: u64) -> PathBuf {
    let link = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
    fs::canonicalize(&link).unwrap_or(link)
}

fn number_in(directory: &Path) -> Option<String> {
    Some(fs::read_to_string(directory.join("dev")).ok()?.trim().to_owned())
}

/// `major:minor` and the directory under /sys of a device and of each of its partitions.
fn device_and_partitions(device: u64) -> Vec<(String, PathBuf)> {
    let number = format!("{}:{}", major(device), minor(device));
    let directory = sys_directory(device);
    let partitions = names_in(&directory)
        .into_iter()
        .map(|name| directory.join(name))
        .filter(|directory| directory.join("partition").exists())
        .filter_map(|directory| Some((number_in(&directory)?, directory)))
        .collect::<Vec<_>>();
    std::iter::once((number, directory)).chain(partitions).collect()
}

fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// proc_pid_mountinfo(5): field 3 is major:minor, field 5 the mount point, with spaces and similar characters as octal
/// escapes.
fn mounted_at(mountinfo: &str, number: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2)? == number).then(|| unescape(fields.nth(1).unwrap_or_default()))
    })
}

/// proc_swaps(5): the first field is the device's path.
fn is_swap(swaps: &str, device: &str) -> bool {
    swap_paths(swaps).any(|path| path.file_name().is_some_and(|name| name.to_string_lossy() == device))
}

fn swap_paths(swaps: &str) -> impl Iterator<Item = PathBuf> {
    swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(|path| PathBuf::from(unescape(path)))
}

fn unescape(field: &str) -> String {
    let mut text = field.to_owned();
    for (escape, plain) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(escape, plain);
    }
    text
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "22 27 0:20 / /sys rw,nosuid - sysfs sysfs rw\n\
        27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        90 27 8:17 /sub /mnt/my\\040disk rw - xfs /dev/sdb1 rw\n";

    #[test]
    fn mounts_are_found_by_device_number() {
        assert_eq!(mounted_at(MOUNTINFO, "254:0").as_deref(), Some("/"));
        assert_eq!(mounted_at(MOUNTINFO, "8:17").as_deref(), Some("/mnt/my disk"));
        assert_eq!(mounted_at(MOUNTINFO, "8:1"), None);
        assert_eq!(mounted_at("garbage\n\n", "8:1"), None);
    }

    #[test]
    fn swap_is_found_by_name() {
        let swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/sda3   partition 100 0 -2\n";
        assert!(is_swap(swaps, "sda3"));
        assert!(!is_swap(swaps, "sda"));
    }

    #[test]
    fn a_file_that_nobody_uses_has_no_holder() {
        assert_eq!(holder_of(&File::open(std::env::current_exe().unwrap()).unwrap()).unwrap(), None);
    }

    #[test]
    fn a_file_that_another_open_file_locks_is_held() {
        let path = std::env::temp_dir().join(format!("iotax-held-{}", std::process::id()));
        fs::write(&path, [1; 512]).unwrap();
        let other = File::options().read(true).write(true).open(&path).unwrap();
        let lock = libc::flock {
            l_type: libc::F_RDLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 100,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: the request reads one `flock`.
        assert_eq!(unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }, 0);
        let holder = locked_by(&File::open(&path).unwrap());
        assert!(matches!(holder, Some(Holder::Lock { .. })), "{holder:?}");
        drop(other);
        assert_eq!(locked_by(&File::open(&path).unwrap()), None);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_device_of_the_root_file_system_is_held() {
        use std::os::unix::fs::MetadataExt;
        let number = fs::metadata("/").unwrap().dev();
        let node = fs::canonicalize(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
        let Some(name) = node.ok().and_then(|node| Some(node.file_name()?.to_string_lossy().into_owned())) else {
            return; // An overlay or a network file system has no device to check.
        };
        // Readable only by its group.
        if let Ok(device) = File::open(Path::new("/dev").join(name)) {
            let holder = holder_of(&device).unwrap();
            assert!(matches!(holder, Some(Holder::Mount { .. })), "{holder:?}");
        }
    }
}
