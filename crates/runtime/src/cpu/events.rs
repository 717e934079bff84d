//! Instructions and cycles of a process, counted by the processor itself, separately for user space and the kernel
//! (`perf_event_open`(2)).

use std::{
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// The counters of a process's threads, including threads that these start later.
#[derive(Debug)]
pub struct EventCounters {
    threads: Vec<[Counter; 4]>,
}

/// The counts of a process's threads since counting started, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    pub user_instructions: u64,
    pub kernel_instructions: u64,
    pub user_cycles: u64,
    pub kernel_cycles: u64,
    /// How long the counters were enabled, and how long they ran on the processor.
    enabled_ns: u64,
    running_ns: u64,
}

/// Why a process's events could not be counted; `perf_event_open`(2), ERRORS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEvents {
    #[error("this machine's processors offer no counters (few virtual machines have them)")]
    Absent,
    #[error("this user may not count what the kernel does (`sysctl kernel.perf_event_paranoid=1` lets every user)")]
    Forbidden,
    #[error("others used the processor's counters for a part of the time")]
    Shared,
    #[error("{0}")]
    Failed(String),
}

#[derive(Debug)]
struct Counter(OwnedFd);

/// `perf_event_attr`, up to its first version (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// `PERF_TYPE_HARDWARE` and two of its events, `PERF_COUNT_HW_INSTRUCTIONS` and `PERF_COUNT_HW_CPU_CYCLES`.
const HARDWARE: u32 = 0;
const INSTRUCTIONS: u64 = 1;
const CYCLES: u64 = 0;
/// Bits of `perf_event_attr` after `type`.
const INHERIT: u64 = 1 << 1;
const EXCLUDE_USER: u64 = 1 << 4;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED` and `PERF_FORMAT_TOTAL_TIME_RUNNING`.
const BOTH_TIMES: u64 = 1 | 2;
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

impl EventCounters {
    /// Counts a process of this user.
    pub fn of(pid: u32) -> Result<Self, NoEvents> {
        let mut threads = Vec::new();
        // Listed before any is counted: a thread that a counted one starts meanwhile is counted with it, and only once.
        let listed = fs::read_dir(format!("/proc/{pid}/task"))?.collect::<Result<Vec<_>, _>>()?;
        for thread in listed {
            let name = thread.file_name();
            let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            match Self::of_thread(tid) {
                Ok(counters) => threads.push(counters),
                // The thread ended after it was listed.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { threads })
    }

    fn of_thread(tid: libc::pid_t) -> io::Result<[Counter; 4]> {
        Ok([
            Counter::open(HARDWARE, INSTRUCTIONS, EXCLUDE_KERNEL, tid)?,
            Counter::open(HARDWARE, INSTRUCTIONS, EXCLUDE_USER, tid)?,
            Counter::open(HARDWARE, CYCLES, EXCLUDE_KERNEL, tid)?,
            Counter::open(HARDWARE, CYCLES, EXCLUDE_USER, tid)?,
        ])
    }

    pub fn read(&self) -> Result<EventCounts, NoEvents> {
        let mut together = EventCounts::default();
        for thread in &self.threads {
            let counts = &mut together;
            for (at, counter) in thread.iter().enumerate() {
                let [count, enabled_ns, running_ns] = counter.read()?;
                *counts.each_mut()[at] += count;
                counts.enabled_ns += enabled_ns;
                counts.running_ns += running_ns;
            }
        }
        Ok(together)
    }
}

impl EventCounts {
    /// The counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Result<Self, NoEvents> {
        let found = Self {
            user_instructions: self.user_instructions.saturating_sub(earlier.user_instructions),
            kernel_instructions: self.kernel_instructions.saturating_sub(earlier.kernel_instructions),
            user_cycles: self.user_cycles.saturating_sub(earlier.user_cycles),
            kernel_cycles: self.kernel_cycles.saturating_sub(earlier.kernel_cycles),
            enabled_ns: self.enabled_ns.saturating_sub(earlier.enabled_ns),
            running_ns: self.running_ns.saturating_sub(earlier.running_ns),
        };
        if found.running_ns == found.enabled_ns { Ok(found) } else { Err(NoEvents::Shared) }
    }

    pub fn each_mut(&mut self) -> [&mut u64; 4] {
        [&mut self.user_instructions, &mut self.kernel_instructions, &mut self.user_cycles, &mut self.kernel_cycles]
    }

    /// Adds the counts of another span of time.
    pub fn add(&mut self, other: &Self) {
        self.user_instructions += other.user_instructions;
        self.kernel_instructions += other.kernel_instructions;
        self.user_cycles += other.user_cycles;
        self.kernel_cycles += other.kernel_cycles;
        self.enabled_ns += other.enabled_ns;
        self.running_ns += other.running_ns;
    }
}

impl From<io::Error> for NoEvents {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => Self::Absent,
            Some(libc::EACCES | libc::EPERM) => Self::Forbidden,
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl Counter {
    /// Counts from now on, on whatever processor the thread runs.
    fn open(kind: u32, config: u64, exclude: u64, tid: libc::pid_t) -> io::Result<Self> {
        let attributes = Attributes {
            kind,
            size: size_of::<Attributes>() as u32,
            config,
            read_format: BOTH_TIMES,
            flags: INHERIT | EXCLUDE_HYPERVISOR | exclude,
            ..Attributes::default()
        };
        let (any_cpu, no_group): (libc::c_int, libc::c_int) = (-1, -1);
        // SAFETY: `attributes` has the size that it contains, and the call only reads it.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, tid, any_cpu, no_group, CLOSE_ON_EXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call gave this descriptor to this process alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) }))
    }

    /// The count, how long the counter was enabled, and how long it ran.
    fn read(&self) -> io::Result<[u64; 3]> {
        let mut found = [0_u64; 3];
        // SAFETY: `found` has room for the number of bytes passed.
        let read = unsafe { libc::read(self.0.as_raw_fd(), found.as_mut_ptr().cast(), size_of_val(&found)) };
        match usize::try_from(read) {
            Err(_) => Err(io::Error::last_os_error()),
            Ok(bytes) if bytes < size_of_val(&found) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_TASK_CLOCK`: processor time, which machines without hardware counters
    /// count, too.
    const SOFTWARE: u32 = 1;
    const TASK_CLOCK: u64 = 1;

    #[test]
    fn a_counter_counts_its_thread_and_those_that_it_starts() {
        // SAFETY: the call takes and gives numbers only.
        let tid = unsafe { libc::gettid() };
        // A container may forbid the call.
        let Ok(counter) = Counter::open(SOFTWARE, TASK_CLOCK, 0, tid) else { return };
        let before = counter.read().unwrap();
        std::thread::spawn(|| work(20)).join().unwrap();
        work(20);
        let after = counter.read().unwrap();
        let counted_ns = after[0] - before[0];
        // The two clocks leave out different parts of a switch between threads. One thread alone would be 21 ms.
        assert!(counted_ns >= 30_000_000, "{counted_ns} ns of two threads that worked for 20 ms each");
        assert_eq!(after[1] - before[1], after[2] - before[2], "a clock needs no room in the processor");
    }

    #[test]
    fn counts_that_were_shared_with_others_are_refused() {
        let earlier = EventCounts { user_instructions: 10, enabled_ns: 5, running_ns: 5, ..EventCounts::default() };
        let whole = EventCounts { user_instructions: 30, enabled_ns: 9, running_ns: 9, ..EventCounts::default() };
        assert_eq!(whole.since(&earlier).unwrap().user_instructions, 20);
        let shared = EventCounts { running_ns: 8, ..whole };
        assert_eq!(shared.since(&earlier), Err(NoEvents::Shared));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(EventCounters::of(u32::MAX).is_err());
    }

    /// Works until this thread has used the processor for that time.
    fn work(ms: i64) {
        let used_ms = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
        };
        let begun_ms = used_ms();
        while used_ms() - begun_ms <= ms {}
    }
}
