//! CPU time of a process: exact total, split into user and system, and time spent waiting for a processor.

use std::{fs, io};

/// A process's CPU clock, looked up once and readable at any time.
#[derive(Clone, Copy, Debug)]
pub struct ProcessClock {
    pid: u32,
    clock: libc::clockid_t,
}

/// What a process has used since its start, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTimes {
    /// By the process's CPU clock: all threads, including ended ones, in nanoseconds.
    pub total_ns: u64,
    /// By `/proc/PID/stat`, whose tick is 10 ms: usable for the split, not for the sum.
    pub user_ns: u64,
    pub system_ns: u64,
    /// The part of user time that guests ran on its threads, if the process is a virtual machine's.
    pub guest_ns: u64,
    /// Time in which its present threads were ready but had no processor.
    pub run_queue_wait_ns: u64,
    /// Maximum resident memory so far.
    pub max_rss_bytes: u64,
}

/// CPU time of the calling thread since its start.
pub fn thread_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

impl ProcessClock {
    /// The clock of a process of this user; it may be this process.
    pub fn of(pid: u32) -> io::Result<Self> {
        let mut clock = 0;
        let pid_number = libc::pid_t::try_from(pid).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: `clock` has room for the one value that the call writes.
        let error = unsafe { libc::clock_getcpuclockid(pid_number, &raw mut clock) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(Self { pid, clock })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn read(&self) -> io::Result<ProcessTimes> {
        let total_ns = self.total_ns()?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        let (user_ns, system_ns, guest_ns) = parse_stat(&stat, ticks_per_second()).ok_or_else(unexpected)?;
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        Ok(ProcessTimes {
            total_ns,
            user_ns,
            system_ns,
            guest_ns,
            run_queue_wait_ns: run_queue_wait_ns(self.pid),
            max_rss_bytes: parse_max_rss(&status).unwrap_or(0),
        })
    }

    /// Reads only the clock, no file.
    pub fn total_ns(&self) -> io::Result<u64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` has room for the one value that the call writes.
        if unsafe { libc::clock_gettime(self.clock, &raw mut time) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
    }
}

impl ProcessTimes {
    /// What was used since `earlier`; memory is the maximum so far.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            guest_ns: self.guest_ns.saturating_sub(earlier.guest_ns),
            run_queue_wait_ns: self.run_queue_wait_ns.saturating_sub(earlier.run_queue_wait_ns),
            max_rss_bytes: self.max_rss_bytes,
        }
    }

    /// Adds what was used in another span of time; memory is the maximum of both.
    pub fn add(&mut self, other: &Self) {
        self.total_ns += other.total_ns;
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.guest_ns += other.guest_ns;
        self.run_queue_wait_ns += other.run_queue_wait_ns;
        self.max_rss_bytes = self.max_rss_bytes.max(other.max_rss_bytes);
    }
}

pub(super) fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// User, system and guest time of `/proc/PID/stat` (proc(5): fields 14, 15 and 43; the last since Linux 2.6.24). The
/// name, field 2, may contain any characters, including parentheses.
fn parse_stat(stat: &str, ticks_per_second: u64) -> Option<(u64, u64, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let field_ns = |number: usize| {
        let text = after_name.split_whitespace().nth(number - 3)?;
        Some(text.parse::<u64>().ok()? * (1_000_000_000 / ticks_per_second))
    };
    Some((field_ns(14)?, field_ns(15)?, field_ns(43).unwrap_or(0)))
}

fn parse_max_rss(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Sum over threads. Ended threads, and kernels without this accounting, add nothing.
fn run_queue_wait_ns(pid: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let waits = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    waits.sum()
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the system's account of a process has an unknown form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_whatever_the_process_is_called() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 99 0 0 0 250 31 0 0 20 0 1 0 5 0 0";
        assert_eq!(parse_stat(stat, 100), Some((2_500_000_000, 310_000_000, 0)));
        let whole = format!("{stat} {} 120 0", ["0"; 18].join(" "));
        assert_eq!(parse_stat(&whole, 100), Some((2_500_000_000, 310_000_000, 1_200_000_000)));
        assert_eq!(parse_stat("nothing", 100), None);
    }

    #[test]
    fn resident_memory_is_read_from_its_line() {
        assert_eq!(parse_max_rss("VmPeak:\t 9 kB\nVmHWM:\t   12 kB\n"), Some(12 * 1024));
    }

    #[test]
    fn own_clock_counts_work_and_not_sleep() {
        let clock = ProcessClock::of(std::process::id()).unwrap();
        let before = clock.read().unwrap();
        let mut sum = 0_u64;
        while clock.read().unwrap().since(&before).total_ns < 20_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let used = clock.read().unwrap().since(&before);
        assert!(used.total_ns >= 20_000_000);
        assert!(used.max_rss_bytes > 0);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(ProcessClock::of(u32::MAX).is_err());
    }
}
