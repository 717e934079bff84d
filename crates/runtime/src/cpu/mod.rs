//! CPU time of this process, of others and of the machine; and the processors on which threads run.

mod events;
mod machine;
mod pin;
mod process;
mod vm;

pub use events::{EventCounters, EventCounts, NoEvents};
pub use machine::{CoreTimes, MachineTimes};
pub use pin::{pin_thread, usable_cpus};
pub use process::{ProcessClock, ProcessTimes, thread_time_ns};
pub use vm::{VmProcess, VmThreads};
