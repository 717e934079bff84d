//! The measurements of one load's slices in a session, one by one and together.

use std::time::Duration;

use iotax_node::load::{Measured, Sparse};
use iotax_proto::Instant;
use iotax_runtime::Clock;

use super::{
    super::{
        report,
        slice::Slice,
        window::{Span, Usage},
    },
    member::Member,
};
use crate::document::{ResultEvent, SliceReport, Window};

#[derive(Default)]
pub(super) struct Record {
    whole: Option<Whole>,
    slices: Vec<SliceReport>,
    /// How many of them were told already.
    told: usize,
}

struct Whole {
    first_start: Instant,
    measured_for: Duration,
    measured: Measured,
    usage: Usage,
}

impl Record {
    pub(super) fn add(&mut self, slice: &Slice, measured: Measured, usage: Usage) {
        let cpu_window_ns = usage.duration_ns;
        let usage = usage.scaled_to(slice.runtime);
        self.slices.push(SliceReport { cpu_window_ns, ..slice_report(slice, &measured, &usage) });
        if let Some(whole) = &mut self.whole {
            whole.measured.append(&measured, self.slices.len() as u32 - 1);
            whole.usage.add(&usage);
            whole.measured_for += slice.runtime;
        } else {
            let (first_start, measured_for) = (slice.start(), slice.runtime);
            self.whole = Some(Whole { first_start, measured_for, measured, usage });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_none()
    }

    /// The slices since the last call.
    pub(super) fn untold(&mut self) -> &[SliceReport] {
        let from = std::mem::replace(&mut self.told, self.slices.len());
        &self.slices[from..]
    }

    /// All slices together; `None` if there were none.
    pub(super) fn result(self, member: &Member, clock: Clock) -> Option<ResultEvent> {
        let Whole { first_start, measured_for, measured, usage } = self.whole?;
        let span = Span { start: first_start, measured: measured_for, start_skew_ns: 0 };
        let result = report::result(&member.document, &member.plan, member.driver, span, &measured, &usage);
        let window = Window { start_unix_ns: clock.unix_ns(first_start), ..result.window };
        let (id, paths) = (Some(member.id.clone()), report::paths(&member.plan, &member.paths));
        Some(ResultEvent { id, window, paths, slices: self.slices, ..result })
    }
}

fn slice_report(slice: &Slice, measured: &Measured, usage: &Usage) -> SliceReport {
    let (read, write) = (&measured.read, &measured.write);
    let mut latency = Sparse::default();
    latency.merge(&read.latency);
    latency.merge(&write.latency);
    let target = usage.watched.get("target").map(|process| &process.times);
    SliceReport {
        round: slice.round,
        place: slice.place,
        start_ns: slice.start().0,
        duration_ns: slice.runtime.as_nanos() as u64,
        ios: read.ios + write.ios,
        bytes: read.bytes + write.bytes,
        latency_sum_ns: read.latency_sum_ns + write.latency_sum_ns,
        latency_p50_ns: latency.quantile_ns(0.5),
        latency_p99_ns: latency.quantile_ns(0.99),
        mean_outstanding: measured.mean_outstanding,
        cpu_window_ns: usage.duration_ns,
        initiator_cpu_ns: usage.initiator.times.total_ns,
        target_cpu_ns: target.map(|times| times.total_ns),
        machine_busy_ns: usage.machine.busy_ns(),
        run_queue_wait_ns: usage.initiator.times.run_queue_wait_ns + target.map_or(0, |times| times.run_queue_wait_ns),
    }
}
