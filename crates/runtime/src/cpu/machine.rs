//! CPU time of every core, from `/proc/stat` (proc(5)), in ticks of 10 ms, with interrupt time apart. For short windows
//! there is exact idle time, in nanoseconds, from `/proc/timer_list`, because `/proc/stat` rounds down. Only root may
//! read that file.

use std::{collections::BTreeMap, fs, io};

use super::process::ticks_per_second;

/// How a core spent its time. User time includes guests' time; nice time is apart from it.
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
    /// Time that the hypervisor gave to others.
    pub steal_ns: u64,
    /// Time of guests of this machine, which user and nice time include.
    pub guest_ns: u64,
}

/// All cores that are online.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineTimes {
    pub cores: Vec<CoreTimes>,
    /// If idle time is exact: the instant of the reading; in a difference, the time between both. `None` for ticks.
    pub exact_ns: Option<u64>,
}

impl MachineTimes {
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/stat")?, ticks_per_second()))
    }

    /// Reads with idle time in nanoseconds, if the kernel keeps it and this process may read it.
    pub fn read_exact() -> io::Result<Self> {
        let by_ticks = Self::read()?;
        let timers = fs::read_to_string("/proc/timer_list").ok();
        Ok(timers.and_then(|list| by_ticks.with_exact_idle(&list)).unwrap_or(by_ticks))
    }

    /// Returns `None` if the list does not have the idle time of every core.
    fn with_exact_idle(&self, timer_list: &str) -> Option<Self> {
        let (now_ns, idle) = exact_idle(timer_list)?;
        let cores = self.cores.iter().map(|core| {
            // Both together: a core that waits for I/O is idle.
            idle.get(&core.cpu).map(|&idle_ns| CoreTimes { idle_ns, iowait_ns: 0, ..*core })
        });
        Some(Self { cores: cores.collect::<Option<_>>()?, exact_ns: Some(now_ns) })
    }

    /// The difference between two readings. A core that came online in between counts from zero.
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
        let exact_ns = self.exact_ns.zip(earlier.exact_ns).map(|(now_ns, before_ns)| now_ns.saturating_sub(before_ns));
        Self { cores: cores.collect(), exact_ns }
    }

    /// Scales exact readings to `wanted_ns` in place of the time between them. Ticks are not scaled: they are too
    /// coarse.
    #[must_use]
    pub fn scaled_to(mut self, wanted_ns: u64) -> Self {
        let Some(read_ns) = self.exact_ns else { return self };
        self.exact_ns = Some(wanted_ns);
        for core in &mut self.cores {
            let scaled = u128::from(core.idle_ns) * u128::from(wanted_ns) / u128::from(read_ns.max(1));
            core.idle_ns = u64::try_from(scaled).unwrap_or(u64::MAX);
        }
        self
    }

    /// Adds the times of another span. A core that is in only one of them counts unchanged.
    pub fn add(&mut self, other: &Self) {
        self.exact_ns = self.exact_ns.zip(other.exact_ns).map(|(ours_ns, theirs_ns)| ours_ns + theirs_ns);
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

    /// Busy time of all cores: time that was not idle, not waiting for I/O, and not stolen. Only for a difference. With
    /// ticks, it is the sum of what the kernel sampled.
    pub fn busy_ns(&self) -> u64 {
        if let Some(span_ns) = self.exact_ns {
            let busy = |core: &CoreTimes| span_ns.saturating_sub(core.idle_ns + core.iowait_ns + core.steal_ns);
            return self.cores.iter().map(busy).sum();
        }
        let busy = |core: &CoreTimes| core.user_ns + core.nice_ns + core.system_ns + core.irq_ns + core.softirq_ns;
        self.cores.iter().map(busy).sum()
    }

    /// The part of it that guests of this machine ran.
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
        Self { cores: cores.collect(), exact_ns: None }
    }
}

/// The instant, and how long each core has been idle, including waits for I/O (kernel/time/timer_list.c). `None` if a
/// core's idle time is not kept, as without high-resolution timers.
fn exact_idle(timer_list: &str) -> Option<(u64, BTreeMap<u32, u64>)> {
    let mut now_ns: Option<u64> = None;
    let mut cores: BTreeMap<u32, BTreeMap<&str, u64>> = BTreeMap::new();
    let mut last = None;
    for line in timer_list.lines() {
        if let Some(text) = line.strip_prefix("now at ") {
            now_ns = text.split(' ').next().and_then(|word| word.parse().ok());
        } else if let Some(text) = line.strip_prefix("cpu: ") {
            last = text.trim().parse().ok();
        } else if let (Some(cpu), Some((name, text))) =
            (last, line.trim().strip_prefix('.').and_then(|it| it.split_once(':')))
            && let Some(value) = text.split_whitespace().next().and_then(|word| word.parse().ok())
        {
            cores.entry(cpu).or_default().insert(name.trim(), value);
        }
    }
    let now_ns = now_ns?;
    let idle = cores.into_iter().map(|(cpu, fields)| {
        let field = |name| fields.get(name).copied();
        // Linux 6.9 renamed it.
        field("nohz_mode").or(field("nohz")).filter(|&mode| mode > 0)?;
        let slept_ns = field("idle_sleeptime")? + field("iowait_sleeptime")?;
        // A core that sleeps without its tick adds this time only when it wakes.
        let asleep = field("tick_stopped")? > 0;
        let since_ns = if asleep { now_ns.saturating_sub(field("idle_entrytime")?) } else { 0 };
        Some((cpu, slept_ns + since_ns))
    });
    Some((now_ns, idle.collect::<Option<_>>()?))
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
        // User and nice time include guest time.
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

    /// From Linux 6.1 and, for the second core, 6.12; the lines in between are left out.
    const TIMERS: &str = "Timer List Version: v0.10\nHRTIMER_MAX_CLOCK_BASES: 8\nnow at 5000000000 nsecs\n\ncpu: 0\n clock 0:\n  \
        .base:       00000000f08173f4\n  .nohz_mode      : 2\n  .tick_stopped   : 0\n  .idle_entrytime : 4999000000 nsecs\n  \
        .idle_sleeptime : 1988475690 nsecs\n  .iowait_sleeptime: 10 nsecs\njiffies: 4294893815\ncpu: 1\n  \
        .nohz           : 1\n  .tick_stopped   : 1\n  .idle_entrytime : 4990000000 nsecs\n  .idle_sleeptime : 7 nsecs\n  \
        .iowait_sleeptime: 0 nsecs\n";

    #[test]
    fn timer_list_gives_idle_time_to_the_nanosecond() {
        let times = MachineTimes::parse(STAT, 100).with_exact_idle(TIMERS).unwrap();
        assert_eq!(times.exact_ns, Some(5_000_000_000));
        assert_eq!((times.cores[0].idle_ns, times.cores[0].iowait_ns), (1_988_475_700, 0));
        // It has slept for 10 ms that it has not added yet.
        assert_eq!(times.cores[1].idle_ns, 10_000_007);
    }

    #[test]
    fn busy_time_between_exact_readings_is_what_is_not_idle() {
        let earlier = MachineTimes::parse("cpu0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0\n", 100);
        let earlier =
            earlier.with_exact_idle(&TIMERS.replace("1988475690", "1988000000").replace("now at 5", "now at 4"));
        let later = MachineTimes::parse("cpu0 9 0 0 0 0 0 0\ncpu1 9 0 0 0 0 0 0\n", 100).with_exact_idle(TIMERS);
        let used = later.unwrap().since(&earlier.unwrap());
        assert_eq!(used.exact_ns, Some(1_000_000_000));
        assert_eq!(used.busy_ns(), (1_000_000_000 - 475_690) + (1_000_000_000 - 10_000_000));
        let half = used.scaled_to(500_000_000);
        assert_eq!(half.busy_ns(), (500_000_000 - 237_845) + (500_000_000 - 5_000_000));
    }

    #[test]
    fn without_idle_time_of_every_core_ticks_are_kept() {
        let times = MachineTimes::parse(STAT, 100);
        assert_eq!(times.with_exact_idle(&TIMERS.replace(".nohz_mode      : 2", ".nohz_mode      : 0")), None);
        assert_eq!(times.with_exact_idle(&TIMERS.replace("cpu: 1", "cpu: 2")), None);
        assert_eq!(times.with_exact_idle(""), None);
        assert_eq!(times.clone().scaled_to(5), times);
    }
}
