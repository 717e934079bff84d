//! Measures the machine over one slice of a session: CPU time by core and by process, and the traffic of interfaces and
//! disks.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileTypeExt as _,
    path::Path,
    thread::JoinHandle,
    time::Duration,
};

use iotax_node::failure::{Failure, FailureKind};
use iotax_runtime::{Clock, counters::MachineCounts};
use rustix::fs::{Mode, OFlags};

use super::{
    report,
    slice::Slice,
    window::{Meters, Usage},
};
use crate::{
    caller,
    document::{self, DiskReport, Event, InterfaceReport, ObserveSpec, ObservedEvent},
    failure,
    version::VERSION,
};

/// Interval between two readings within a window.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// The role of this process.
const OBSERVER: &str = "observer";

/// A thread that sleeps except at the edges of the window and for occasional readings.
pub(super) struct Observer {
    thread: JoinHandle<Result<ObservedEvent, Failure>>,
}

impl Observer {
    /// `tells`: report each reading at once, and not only at the end.
    pub(super) fn start(spec: &ObserveSpec, slice: Slice, clock: Clock, tells: bool) -> Result<Self, Failure> {
        let spec = spec.clone();
        let body = move || {
            if let Some(waits_at) = &spec.release {
                std::thread::sleep(slice.begin_at.since(clock.now()));
                release(waits_at)?;
            }
            observe(&spec.watch_pids, slice, clock, tells)
        };
        let thread = std::thread::Builder::new().name("observe".to_owned()).spawn(body).map_err(failure::internal)?;
        Ok(Self { thread })
    }

    pub(super) fn result(self) -> Result<ObservedEvent, Failure> {
        self.thread.join().unwrap_or_else(|_| Err(failure::internal("the observer panicked")))
    }
}

/// Starts the program that waits at a FIFO. Fails, and does not wait itself, if none does.
fn release(waits_at: &Path) -> Result<(), Failure> {
    let open = || -> io::Result<File> {
        let fifo =
            File::from(rustix::fs::open(waits_at, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?);
        if fifo.metadata()?.file_type().is_fifo() { Ok(fifo) } else { Err(io::Error::other("not a FIFO")) }
    };
    open().and_then(|mut fifo| fifo.write_all(b"\n")).map_err(|error| {
        let message = format!("the program that should start now does not wait: {error}");
        Failure::new(FailureKind::Lost, message, waits_at.display().to_string())
    })
}

fn observe(
    watch_pids: &BTreeMap<String, u32>,
    slice: Slice,
    clock: Clock,
    tells: bool,
) -> Result<ObservedEvent, Failure> {
    let meters = Meters::of([watch_pids])?;
    std::thread::sleep(slice.start().since(clock.now()));
    let began = clock.now();
    let mut window = meters.open(watch_pids, clock)?;
    let before = MachineCounts::read().map_err(failure::internal)?;
    loop {
        let left = slice.end().since(clock.now());
        if left < 2 * LOOK_PERIOD {
            std::thread::sleep(left);
            break;
        }
        std::thread::sleep(LOOK_PERIOD);
        if let Some(point) = window.look()?.filter(|_| tells) {
            caller::emit(&Event::Cpu(report::cpu_point(point, OBSERVER)));
        }
    }
    let usage = window.close()?;
    let moved = MachineCounts::read().map_err(failure::internal)?.since(&before);
    let window =
        document::Window { start_unix_ns: clock.unix_ns(began), start_ns: began.0, duration_ns: usage.duration_ns };
    Ok(event(window, &usage, moved))
}

fn event(window: document::Window, usage: &Usage, moved: MachineCounts) -> ObservedEvent {
    let interfaces = moved.interfaces.into_iter().map(|each| InterfaceReport {
        name: each.name,
        received_bytes: each.received_bytes,
        received_packets: each.received_packets,
        received_dropped: each.received_dropped,
        sent_bytes: each.sent_bytes,
        sent_packets: each.sent_packets,
        sent_dropped: each.sent_dropped,
    });
    let disks = moved.disks.into_iter().map(|each| DiskReport {
        name: each.name,
        reads: each.reads,
        read_bytes: each.read_bytes,
        writes: each.writes,
        written_bytes: each.written_bytes,
        busy_ns: each.busy_ns,
    });
    ObservedEvent {
        engine_version: VERSION,
        window,
        observer: report::process(&usage.initiator),
        watched: usage.watched.iter().map(|(role, used)| (role.clone(), report::process(used))).collect(),
        machine: report::machine(&usage.machine),
        cpu_series: usage.series.iter().map(|point| report::cpu_point(point, OBSERVER)).collect(),
        interfaces: interfaces.collect(),
        disks: disks.collect(),
        slices: Vec::new(),
    }
}
