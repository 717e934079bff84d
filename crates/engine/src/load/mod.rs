//! `iotax-engine load`: runs one task against one endpoint.

pub(crate) mod begin;
mod coordinator;
mod local;
mod observe;
pub(crate) mod report;
mod session;
mod slice;
pub(crate) mod threads;
mod window;

pub(crate) use session::{Commands, run as run_session};

use std::time::Duration;

use iotax_node::failure::Failure;
use iotax_proto::Instant;
use iotax_runtime::Clock;

use self::window::Meters;
use crate::{
    caller,
    document::{self, Event, IdleEvent, LoadDocument, Task},
    version::VERSION,
};

pub(crate) fn run() -> Result<(), Failure> {
    let document: LoadDocument = caller::read_document()?;
    caller::follow(|line| {
        if line.is_none() {
            caller::input_ended();
        }
    });
    match document.task {
        Task::Idle => idle(&document),
        Task::Run | Task::Check | Task::Fill => coordinator::run(&document),
    }
}

/// Measures what the machine spends without load, over a window like a run's.
fn idle(document: &LoadDocument) -> Result<(), Failure> {
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
    caller::emit(&Event::Idle(IdleEvent { engine_version: VERSION, window: window_event, cpu: report::cpu(&usage) }));
    Ok(())
}
