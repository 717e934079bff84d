//! CPU time of every core, from `/proc/stat` (proc(5)): 10 ms ticks, interrupts apart.

use std::{fs, io};

use super::process::ticks_per_second;

/// Where a core's time went. User time holds guests' time; nice time is apart from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTimes {
    pub cpu: u32,
    pub user_ns: u64,
    pub nice_ns: u64,
    pub system_ns: u64,
    pub idle_ns: u64,
    pub iowait_ns: u64,
    pub irq_ns: u64,
    pub softirq_ns: u64,
    /// Taken by the hypervisor for others.
    pub steal_ns: u64,
    /// What guests of this machine ran; user and nice time hold it.
    pub guest_ns: u64,
}

/// All cores that are online.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineTimes {
    pub cores: Vec<CoreTimes>,
}

impl MachineTimes {
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/stat")?, ticks_per_second()))
    }

    /// Between two readings. A core that came online between them counts from nothing.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let cores = self.cores.iter().map(|core| {
            let before = earlier.cores.iter().find(|before| before.cpu == core.cpu).copied().unwrap_or_default();
            CoreTimes {
                cpu: core.cpu,
                user_ns: core.user_ns.saturating_sub(before.user_ns),
                nice_ns: core.nice_ns.saturating_sub(before.nice_ns),
                system_ns: core.system_ns.saturating_sub(before.system_ns),
                idle_ns: core.idle_ns.saturating_sub(before.idle_ns),
                iowait_ns: core.iowait_ns.saturating_sub(before.iowait_ns),
                irq_ns: core.irq_ns.saturating_sub(before.irq_ns),
                softirq_ns: core.softirq_ns.saturating_sub(before.softirq_ns),
                steal_ns: core.steal_ns.saturating_sub(before.steal_ns),
                guest_ns: core.guest_ns.saturating_sub(before.guest_ns),
            }
        });
        Self { cores: cores.collect() }
    }

    /// Adds what each core did in another span of time. A core that only one of them knows counts as it is.
    pub fn add(&mut self, other: &Self) {
        for core in &other.cores {
            let Some(ours) = self.cores.iter_mut().find(|ours| ours.cpu == core.cpu) else {
                self.cores.push(*core);
                continue;
            };
            ours.user_ns += core.user_ns;
            ours.nice_ns += core.nice_ns;
            ours.system_ns += core.system_ns;
            ours.idle_ns += core.idle_ns;
            ours.iowait_ns += core.iowait_ns;
            ours.irq_ns += core.irq_ns;
            ours.softirq_ns += core.softirq_ns;
            ours.steal_ns += core.steal_ns;
            ours.guest_ns += core.guest_ns;
        }
    }

    /// Time in which some core did something for somebody: neither idle, nor waiting for I/O, nor stolen.
    pub fn busy_ns(&self) -> u64 {
        let busy = |core: &CoreTimes| core.user_ns + core.nice_ns + core.system_ns + core.irq_ns + core.softirq_ns;
        self.cores.iter().map(busy).sum()
    }

    /// Of it, what guests of this machine ran.
    pub fn guest_ns(&self) -> u64 {
        self.cores.iter().map(|core| core.guest_ns).sum()
    }

    fn parse(stat: &str, ticks_per_second: u64) -> Self {
        let cores = stat.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
            let mut next_ns = || {
                words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * (1_000_000_000 / ticks_per_second)
            };
            Some(CoreTimes {
                cpu,
                user_ns: next_ns(),
                nice_ns: next_ns(),
                system_ns: next_ns(),
                idle_ns: next_ns(),
                iowait_ns: next_ns(),
                irq_ns: next_ns(),
                softirq_ns: next_ns(),
                steal_ns: next_ns(),
                guest_ns: next_ns() + next_ns(),
            })
        });
        Self { cores: cores.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 1 5 100 2 3 4 1 6 1\ncpu1 20 0 6 90 0 0 1 0 0 0\nintr 5 5\n";

    #[test]
    fn stat_gives_each_core_and_not_the_sum() {
        let times = MachineTimes::parse(STAT, 100);
        assert_eq!(times.cores.len(), 2);
        assert_eq!(times.cores[0].softirq_ns, 40_000_000);
        assert_eq!(times.cores[0].steal_ns, 10_000_000);
        // User and nice time hold what guests ran.
        assert_eq!(times.guest_ns(), 70_000_000);
        assert_eq!(times.busy_ns(), (10 + 1 + 5 + 3 + 4 + 20 + 6 + 1) * 10_000_000);
    }

    #[test]
    fn difference_is_taken_core_by_core() {
        let earlier = MachineTimes::parse("cpu1 5 0 6 80 0 0 1 0\n", 100);
        let used = MachineTimes::parse(STAT, 100).since(&earlier);
        assert_eq!(used.cores[1].user_ns, 150_000_000);
        assert_eq!(used.cores[1].idle_ns, 100_000_000);
        assert_eq!(used.cores[0].user_ns, 100_000_000);
    }

    #[test]
    fn spans_of_time_are_added_core_by_core() {
        let mut times = MachineTimes::parse("cpu1 5 0 6 80 0 0 1 0\n", 100);
        times.add(&MachineTimes::parse(STAT, 100));
        let core = |cpu| times.cores.iter().find(|core| core.cpu == cpu).copied().unwrap();
        assert_eq!((core(1).user_ns, core(1).idle_ns, core(0).user_ns), (250_000_000, 1_700_000_000, 100_000_000));
    }

    #[test]
    fn this_machine_has_a_core() {
        assert!(!MachineTimes::read().unwrap().cores.is_empty());
    }
}
