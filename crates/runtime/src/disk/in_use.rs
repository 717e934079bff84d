//! Whether a block device serves somebody else already: mounted, swapped to, or part of another device.

use std::{
    fmt, fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{major, minor};

/// Who uses a block device, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    Mount {
        device: String,
        at: String,
    },
    Swap {
        device: String,
    },
    /// A device built from it: LVM, RAID, encryption, multipath.
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
            Self::Device { device, by } => write!(f, "{device} is part of {by}"),
        }
    }
}

/// Looks for users of a block device and of its partitions. `None` for what is no block device.
pub fn holder_of(path: &Path) -> io::Result<Option<Holder>> {
    let metadata = path.metadata()?;
    if !metadata.file_type().is_block_device() {
        return Ok(None);
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    for (number, directory) in device_and_partitions(metadata.rdev()) {
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
    Ok(None)
}

/// `major:minor` and the directory under /sys of a device and of each of its partitions.
fn device_and_partitions(device: u64) -> Vec<(String, PathBuf)> {
    let number = format!("{}:{}", major(device), minor(device));
    let link = PathBuf::from(format!("/sys/dev/block/{number}"));
    let directory = fs::canonicalize(&link).unwrap_or(link);
    let partitions = names_in(&directory)
        .into_iter()
        .map(|name| directory.join(name))
        .filter(|directory| directory.join("partition").exists())
        .filter_map(|directory| Some((fs::read_to_string(directory.join("dev")).ok()?.trim().to_owned(), directory)))
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

/// proc_pid_mountinfo(5): field 3 is major:minor, field 5 the mount point with spaces and such as octal escapes.
fn mounted_at(mountinfo: &str, number: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2)? == number).then(|| unescape(fields.nth(1).unwrap_or_default()))
    })
}

/// proc_swaps(5): the first field is the device's path.
fn is_swap(swaps: &str, device: &str) -> bool {
    swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .any(|path| Path::new(path).file_name().is_some_and(|name| name.to_string_lossy() == device))
}

fn unescape(field: &str) -> String {
    let mut text = field.to_owned();
    for (escape, plain) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(escape, plain);
    }
    text
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
    fn a_file_has_no_holder() {
        assert_eq!(holder_of(&std::env::current_exe().unwrap()).unwrap(), None);
        assert!(holder_of(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn the_device_of_the_root_file_system_is_held() {
        let number = fs::metadata("/").unwrap().dev();
        let node = fs::canonicalize(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
        let Some(name) = node.ok().and_then(|node| Some(node.file_name()?.to_string_lossy().into_owned())) else {
            return; // An overlay or a network file system: there is no device to ask about.
        };
        let path = Path::new("/dev").join(name);
        if path.exists() {
            let holder = holder_of(&path).unwrap();
            assert!(matches!(holder, Some(Holder::Mount { .. })), "{holder:?}");
        }
    }
}
