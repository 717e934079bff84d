//! The `idle` task: measures what the machine spends without load, over a window like a run's.

use std::time::Duration;

use iotax_node::failure::Failure;
use iotax_proto::Instant;
use iotax_runtime::Clock;

use super::{report, window::Meters};
use crate::{
    document::{self, Event, IdleEvent, LoadDocument},
    output,
    version::VERSION,
};

pub(super) fn run(document: &LoadDocument) -> Result<(), Failure> {
    if document.runtime_ns == 0 {
        return Err(Failure::usage("must be more than 0", "runtime_ns"));
    }
    let clock = Clock::start();
    let meters = Meters::of([&document.watch_pids])?;
    let window = meters.open(&document.watch_pids, clock)?;
    std::thread::sleep(Duration::from_nanos(document.runtime_ns));
    let usage = window.close()?;
    let window_event =
        document::Window { start_unix_ns: clock.unix_ns(Instant(0)), start_ns: 0, duration_ns: usage.duration_ns };
    output::emit(&Event::Idle(IdleEvent { engine_version: VERSION, window: window_event, cpu: report::cpu(&usage) }));
    Ok(())
}
