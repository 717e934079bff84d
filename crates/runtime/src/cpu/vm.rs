//! CPU time of the threads of a virtual machine's process, by their function for the guest.

use std::path::Path;
use std::{fs, io};

/// QEMU's name of a thread that runs a processor of the guest: `CPU 0/KVM`.
const PROCESSOR: &str = "CPU ";
/// A thread that does the I/O of disks: `IO iothread1`. The monitor's thread is named in the same way.
const IO: &str = "IO ";
const MONITOR: &str = "IO mon_iothread";
/// A worker of vhost, named after the process whose network it serves: `vhost-4711`.
const VHOST: &str = "vhost-";

/// The process of a virtual machine with named threads. QEMU names them with `-name debug-threads=on`, which libvirt
/// uses.
#[derive(Clone, Debug)]
pub struct VmProcess {
    pid: u32,
    /// Kernel threads of vhost, which are not threads of the process before Linux 6.4.
    vhost_apart: Vec<u32>,
}

/// CPU time since the threads started, or between two readings. Ended threads add nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmThreads {
    /// Threads that run the guest's processors: the guest's own time, and the host's work for it in between.
    pub processors_ns: u64,
    pub io_ns: u64,
    /// Workers of vhost that are threads of the process.
    pub vhost_ns: u64,
    /// Workers of vhost that are kernel threads.
    pub vhost_apart_ns: u64,
}

impl VmProcess {
    /// Returns `None` if no thread of the process is named as one that runs a processor.
    pub fn of(pid: u32) -> io::Result<Option<Self>> {
        let named = threads(pid)?.iter().any(|(name, _)| name.starts_with(PROCESSOR));
        Ok(named.then(|| Self { pid, vhost_apart: vhost_apart(pid) }))
    }

    pub fn read(&self) -> io::Result<VmThreads> {
        let mut found = VmThreads::default();
        for (name, used_ns) in threads(self.pid)? {
            if let Some(sum) = found.of_thread(&name) {
                *sum += used_ns;
            }
        }
        let apart = self.vhost_apart.iter().filter_map(|pid| used_ns(&Path::new("/proc").join(pid.to_string())));
        found.vhost_apart_ns = apart.sum();
        Ok(found)
    }
}

impl VmThreads {
    fn of_thread(&mut self, name: &str) -> Option<&mut u64> {
        match name {
            MONITOR => None,
            _ if name.starts_with(PROCESSOR) => Some(&mut self.processors_ns),
            _ if name.starts_with(IO) => Some(&mut self.io_ns),
            _ if name.starts_with(VHOST) => Some(&mut self.vhost_ns),
            _ => None,
        }
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// Adds what was used in another span of time.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            processors_ns: of(self.processors_ns, other.processors_ns),
            io_ns: of(self.io_ns, other.io_ns),
            vhost_ns: of(self.vhost_ns, other.vhost_ns),
            vhost_apart_ns: of(self.vhost_apart_ns, other.vhost_apart_ns),
        }
    }
}

/// Name and CPU time of each thread of a process, as counted by the scheduler (`/proc/PID/task/TID/schedstat`, field
/// 1).
fn threads(pid: u32) -> io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let folder = thread?.path();
        // A thread may end meanwhile.
        let (Ok(name), Some(used_ns)) = (fs::read_to_string(folder.join("comm")), used_ns(&folder)) else { continue };
        found.push((name.trim_end().to_owned(), used_ns));
    }
    Ok(found)
}

fn used_ns(folder: &Path) -> Option<u64> {
    fs::read_to_string(folder.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
}

fn vhost_apart(pid: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let wanted = format!("{VHOST}{pid}");
    let named = processes.filter_map(|process| {
        let process = process.ok()?;
        let number = process.file_name().to_str()?.parse().ok()?;
        (fs::read_to_string(process.path().join("comm")).ok()?.trim_end() == wanted).then_some(number)
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn threads_are_told_apart_by_what_qemu_calls_them() {
        let mut found = VmThreads::default();
        for (name, used_ns) in [("CPU 0/KVM", 1), ("CPU 11/TCG", 2), ("IO iothread1", 4), ("vhost-4711", 8)] {
            *found.of_thread(name).unwrap() += used_ns;
        }
        assert_eq!(found, VmThreads { processors_ns: 3, io_ns: 4, vhost_ns: 8, vhost_apart_ns: 0 });
        for name in ["qemu-system-x86", "IO mon_iothread", "worker", "call_rcu"] {
            assert_eq!(found.of_thread(name), None, "{name}");
        }
        assert_eq!(found.and(&found).since(&found), found);
    }

    #[test]
    fn named_threads_of_a_process_are_read() {
        let pid = std::process::id();
        assert!(VmProcess::of(pid).unwrap().is_none(), "no thread here is a processor's");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for name in ["CPU 0/KVM", "IO iothread1", "vhost-4711"] {
                let busy = || {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                };
                thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, busy).unwrap();
            }
            let process = loop {
                if let Some(found) = VmProcess::of(pid).unwrap() {
                    break found;
                }
                thread::yield_now();
            };
            let before = process.read().unwrap();
            let enough = 20_000_000;
            let used = loop {
                let used = process.read().unwrap().since(&before);
                if used.processors_ns.min(used.io_ns).min(used.vhost_ns) > enough {
                    break used;
                }
                thread::yield_now();
            };
            done.store(true, Ordering::Relaxed);
            assert_eq!(used.vhost_apart_ns, 0);
        });
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(VmProcess::of(u32::MAX).is_err());
    }
}
