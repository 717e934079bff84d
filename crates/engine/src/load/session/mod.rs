//! `iotax-engine session`: several loads, connected once, measured in turns, a slice of time each.
//!
//! One load works at a time; the others sleep on their open connections. Figures are kept here until the last slice has ended, so
//! that whoever reads them does not share the processors with what is measured.

mod commands;
mod member;
mod record;

use std::time::{Duration, Instant as WallInstant};

use iotax_node::failure::Failure;
use iotax_proto::Instant;
use iotax_runtime::Clock;

use self::{commands::Commands, member::Member, record::Record};
use super::{observe::Observer, report, slice::Slice, window::Meters};
use crate::{
    document::{ArmedEvent, Event, ObserveSpec, SampleEvent, SessionDocument, StartSpec, Task},
    input, output,
    version::VERSION,
};

/// From the end of one slice's load to the beginning of the next's: every thread has heard by then.
const BEGIN_AFTER: Duration = Duration::from_millis(2);
/// How often it is told how far the session is.
const TELL_PERIOD: Duration = Duration::from_millis(500);
/// Connections stand on both sides for all loads at once.
const LOADS_MAX: usize = 1024;
const SLICES_MAX: usize = 1 << 20;

pub(crate) fn run() -> Result<(), Failure> {
    let document: SessionDocument = input::read_document()?;
    check(&document)?;
    let commands = Commands::follow(document.lease_ns);
    let start = document.start;
    let mut session = Session::prepare(document, Clock::start())?;
    if start == StartSpec::Told {
        output::emit(&Event::Armed(ArmedEvent { engine_version: VERSION, pid: std::process::id() }));
        (session.clock, session.begin_at) = commands.start(session.clock)?;
    }
    session.measure()?;
    session.release()
}

fn check(document: &SessionDocument) -> Result<(), Failure> {
    let count = document.loads.len();
    let slices = document.rounds.iter().map(Vec::len).sum::<usize>();
    for (holds, message, place) in [
        (count > 0 || document.observe.is_some(), "must name at least one, or observe the machine".into(), "loads"),
        (count <= LOADS_MAX, format!("must be at most {LOADS_MAX}"), "loads"),
        (document.rounds.iter().all(|round| round.iter().all(|load| *load < count)), "names no load".into(), "rounds"),
        (slices <= SLICES_MAX, "too many slices".into(), "rounds"),
        (document.observe.is_none() || slices <= 1, "must be one slice where the machine is observed".into(), "rounds"),
        (
            document.lead_in_ns == 0 || document.start == StartSpec::Now,
            "must be 0 where the start is told".into(),
            "lead_in_ns",
        ),
        (document.slice_ns > 0, "must be more than 0".into(), "slice_ns"),
        (document.sample_ns != Some(0), "must be more than 0".into(), "sample_ns"),
        (document.loads.iter().all(|each| each.load.task == Task::Run), "must be `run`".into(), "loads.load.task"),
    ] {
        if !holds {
            return Err(Failure::usage(message, place));
        }
    }
    Ok(())
}

struct Session {
    clock: Clock,
    /// Of the first slice's load, where somebody said it.
    begin_at: Option<Instant>,
    lead_in: Duration,
    settle: Duration,
    slice: Duration,
    rounds: Vec<Vec<usize>>,
    members: Vec<Member>,
    meters: Meters,
    records: Vec<Record>,
    observe: Option<ObserveSpec>,
}

impl Session {
    /// Connects every load; none sends an I/O yet.
    fn prepare(document: SessionDocument, clock: Clock) -> Result<Self, Failure> {
        let lead_in = Duration::from_nanos(document.lead_in_ns);
        let settle = Duration::from_nanos(document.settle_ns);
        let slice = Duration::from_nanos(document.slice_ns);
        let mut members = Vec::new();
        for (index, mut each) in document.loads.into_iter().enumerate() {
            (each.load.warmup_ns, each.load.runtime_ns) = (document.settle_ns, document.slice_ns);
            each.load.sample_ns = document.sample_ns.unwrap_or(document.slice_ns);
            members.push(Member::start(index, each.id, each.load, clock)?);
        }
        for member in &mut members {
            output::emit(&Event::Connected(member.wait_until_ready()?));
        }
        let meters = Meters::of(members.iter().map(|member| &member.document.watch_pids))?;
        let records = members.iter().map(|_| Record::default()).collect();
        let observe = document.observe;
        let rounds = document.rounds;
        Ok(Self { clock, begin_at: None, lead_in, settle, slice, rounds, members, meters, records, observe })
    }

    fn measure(&mut self) -> Result<(), Failure> {
        self.lead_in()?;
        let mut told_at = WallInstant::now();
        let mut place = 0;
        let mut first = Some(self.next_slice(1, 1));
        let observer = match (&self.observe, first) {
            (Some(spec), Some(slice)) => Some(Observer::start(spec, slice, self.clock)?),
            _ => None,
        };
        for round in 0..self.rounds.len() {
            for turn in 0..self.rounds[round].len() {
                let index = self.rounds[round][turn];
                place += 1;
                let slice = first.take().unwrap_or_else(|| self.next_slice(round + 1, place));
                let slice = Slice { round: round + 1, ..slice };
                let (measured, usage) = self.members[index].measure(&slice, &self.meters)?;
                if let Some(last) = measured.series.last().filter(|_| told_at.elapsed() >= TELL_PERIOD) {
                    told_at = WallInstant::now();
                    let id = Some(self.members[index].id.clone());
                    let at_ns = slice.end().0;
                    let sample = SampleEvent { id, round: Some(round + 1), at_ns, ..report::sample(last) };
                    output::emit(&Event::Sample(sample));
                }
                self.records[index].add(&slice, measured, usage);
            }
        }
        if let Some(observer) = observer {
            output::emit(&Event::Observed(Box::new(observer.result()?)));
        }
        Ok(())
    }

    /// Load before the first slice: whatever else starts or ends with this session does so meanwhile.
    fn lead_in(&mut self) -> Result<(), Failure> {
        let first = self.rounds.iter().flatten().next().copied().filter(|_| self.lead_in > Duration::ZERO);
        if let Some(index) = first {
            let slice = Slice { settle: Duration::ZERO, runtime: self.lead_in, ..self.next_slice(0, 0) };
            self.members[index].measure(&slice, &self.meters)?;
        }
        Ok(())
    }

    fn next_slice(&mut self, round: usize, place: usize) -> Slice {
        let begin_at = self.begin_at.take().unwrap_or_else(|| self.clock.now() + BEGIN_AFTER);
        Slice {
            round,
            place,
            begin_at,
            settle: self.settle,
            runtime: self.slice,
            // Distinct in every slice on a unit: the time of its start is.
            run: self.clock.unix_ns(begin_at),
        }
    }

    /// Ends every load in order, then says what came of each.
    fn release(self) -> Result<(), Failure> {
        let mut failed = None;
        for (member, record) in self.members.into_iter().zip(self.records) {
            let result = record.result(&member, self.clock);
            match member.release() {
                Ok(()) => {
                    if let Some(result) = result {
                        output::emit(&Event::Result(Box::new(result)));
                    }
                }
                Err(failure) => _ = failed.get_or_insert(failure),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
