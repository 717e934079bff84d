//! CPU time of this process, of others and of the machine; and the processors on which threads run.

mod events;
mod machine;
mod process;
mod vm;

pub use events::{EventCounters, EventCounts, NoEvents};
pub use machine::{CoreTimes, MachineTimes};
pub use process::{ProcessClock, ProcessTimes, thread_time_ns};
pub use vm::{VmProcess, VmThreads};

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Restricts the calling thread to these processors.
pub fn pin_thread(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if *cpu >= CpuSet::MAX_CPU {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no processor {cpu}")));
        }
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The processors that the calling thread may run on.
pub fn usable_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_runs_where_it_was_put() {
        std::thread::spawn(|| {
            let cpu = *usable_cpus().unwrap().last().unwrap();
            pin_thread(&[cpu]).unwrap();
            assert_eq!(usable_cpus().unwrap(), [cpu]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_processor_that_cannot_be_is_an_error() {
        assert!(pin_thread(&[usize::MAX]).is_err());
    }
}
