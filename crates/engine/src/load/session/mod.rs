//! `iotax-engine session`: several loads, connected once and measured in turns, one slice of time each.
//!
//! One load works at a time, while the others sleep on their open connections. Results are kept here until the last
//! slice has ended, so that their reader does not compete with the measured load for processors.

mod commands;
mod member;
mod record;

pub(crate) use self::commands::Commands;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant as WallInstant},
};

use iotax_node::failure::{Failure, FailureKind};
use iotax_proto::Instant;
use iotax_runtime::{Clock, disk::Candidate};

use self::{member::Member, record::Record};
use super::{
    begin,
    coordinator::writes,
    local::{self, Local},
    observe::Observer,
    report,
    slice::Slice,
    window::{Meters, Usage},
};
use crate::{
    caller,
    document::{
        ArmedEvent, Event, KeptEvent, LoadDocument, ObserveSpec, ObservedEvent, ObservedSlice, SampleEvent,
        SessionDocument, StartSpec, Task,
    },
    failure,
    version::VERSION,
};

/// Delay between the end of one slice's load and the start of the next, so that every thread receives the order in
/// time.
const BEGIN_AFTER: Duration = Duration::from_millis(2);
/// How often the progress of the session is reported.
const TELL_PERIOD: Duration = Duration::from_millis(500);
/// Connections of all loads are open on both sides at once.
const LOADS_MAX: usize = 1024;
const SLICES_MAX: usize = 1 << 20;

pub(crate) fn run() -> Result<(), Failure> {
    let document: SessionDocument = caller::read_document()?;
    check(&document)?;
    begin::require_fine_clock(Clock::step())?;
    let commands = Commands::follow(document.lease_ns);
    let start = document.start;
    let mut session = Session::prepare(document, Clock::start())?;
    if start == StartSpec::Told {
        caller::emit(&Event::Armed(ArmedEvent { engine_version: VERSION, pid: std::process::id() }));
        (session.clock, session.begin_at) = commands.start(session.clock)?;
    }
    if let Err(failure) = session.measure() {
        session.tell_slices();
        return Err(failure);
    }
    session.release()
}

fn check(document: &SessionDocument) -> Result<(), Failure> {
    let count = document.loads.len();
    let slices = document.rounds.iter().map(Vec::len).sum::<usize>();
    for (holds, message, place) in [
        (count > 0 || document.observe.is_some(), "needs at least one load, unless `observe` is given".into(), "loads"),
        (count <= LOADS_MAX, format!("must be at most {LOADS_MAX}"), "loads"),
        (
            document.rounds.iter().flatten().flatten().all(|load| *load < count),
            "must contain positions in `loads` or null".into(),
            "rounds",
        ),
        (slices <= SLICES_MAX, "too many slices".into(), "rounds"),
        (
            document.gap_ns.is_some() || document.observe.is_none() || slices <= 1,
            "`observe` with several slices needs `gap_ns`".into(),
            "rounds",
        ),
        (
            document.gap_ns.is_some() || document.rounds.iter().flatten().all(Option::is_some),
            "slices of another machine need `gap_ns`".into(),
            "rounds",
        ),
        (
            document.lead_in_ns == 0 || document.start == StartSpec::Now || document.gap_ns.is_some(),
            "must be 0 for the start `told`, unless `gap_ns` is given".into(),
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
    /// Start of the first slice's load, if it was given.
    begin_at: Option<Instant>,
    lead_in: Duration,
    settle: Duration,
    slice: Duration,
    /// For a schedule by the clock.
    gap: Option<Duration>,
    /// Base of the slices' run numbers, if hosts share them.
    run: Option<u64>,
    rounds: Vec<Vec<Option<usize>>>,
    members: Vec<Member>,
    meters: Meters,
    records: Vec<Record>,
    observe: Option<ObserveSpec>,
    /// Files and devices that several loads share.
    _held: Vec<Local>,
}

impl Session {
    /// Connects every load; no load sends I/O yet.
    fn prepare(mut document: SessionDocument, clock: Clock) -> Result<Self, Failure> {
        for each in &mut document.loads {
            (each.load.warmup_ns, each.load.runtime_ns) = (document.settle_ns, document.slice_ns);
            each.load.sample_ns = document.sample_ns.unwrap_or(document.slice_ns);
        }
        let held = hold_shared(&mut document.loads.iter_mut().map(|each| &mut each.load).collect::<Vec<_>>())?;
        let lead_in = Duration::from_nanos(document.lead_in_ns);
        let settle = Duration::from_nanos(document.settle_ns);
        let slice = Duration::from_nanos(document.slice_ns);
        let mut members = Vec::new();
        for (index, each) in document.loads.into_iter().enumerate() {
            members.push(Member::start(index, each.id, each.load, clock)?);
        }
        for member in &mut members {
            caller::emit(&Event::Connected(member.wait_until_ready()?));
        }
        let observe = document.observe;
        let watched = members.iter().map(|member| &member.document.watch_pids);
        let several = document.rounds.iter().map(Vec::len).sum::<usize>() > 1;
        let meters = Meters::of(watched.chain(observe.as_ref().map(|spec| &spec.watch_pids)))?
            .exact(several && observe.is_some());
        let records = members.iter().map(|_| Record::default()).collect();
        let (rounds, gap) = (document.rounds, document.gap_ns.map(Duration::from_nanos));
        let run = document.run;
        Ok(Self {
            clock,
            begin_at: None,
            lead_in,
            settle,
            slice,
            gap,
            run,
            rounds,
            members,
            meters,
            records,
            observe,
            _held: held,
        })
    }

    fn measure(&mut self) -> Result<(), Failure> {
        if self.gap.is_some() && self.begin_at.is_none() {
            self.begin_at = Some(self.clock.now() + BEGIN_AFTER);
        }
        self.lead_in()?;
        let mut told_at = WallInstant::now();
        let mut place = 0;
        let mut first = Some(self.next_slice(1, 1));
        let all = first.map(|slice| self.all_of(slice));
        let observer = match (&self.observe, all) {
            (Some(spec), Some(all)) => Some(Observer::start(spec, all, self.clock, !self.has_several_slices())?),
            _ => None,
        };
        let mut seen = Vec::new();
        for round in 0..self.rounds.len() {
            for turn in 0..self.rounds[round].len() {
                place += 1;
                let slice = first.take().unwrap_or_else(|| self.next_slice(round + 1, place));
                let in_time = match self.gap {
                    Some(_) => slice.from(self.clock.now() + BEGIN_AFTER),
                    None => Some(slice),
                };
                let Some(slice) = in_time else { continue };
                let usage = match self.rounds[round][turn] {
                    Some(index) => self.measure_load(index, &slice, told_at)?,
                    None => self.observe_slice(&slice)?,
                };
                if self.has_several_slices() && told_at.elapsed() >= TELL_PERIOD {
                    told_at = WallInstant::now();
                    self.tell_slices();
                }
                if self.gap.is_some() && self.observe.is_some() && slice.is_whole(usage.duration_ns) {
                    seen.push(observed_slice(&slice, usage));
                }
            }
        }
        for (index, member) in self.members.iter().enumerate() {
            if self.records[index].is_empty() && self.rounds.iter().flatten().any(|load| *load == Some(index)) {
                let message =
                    "no slice was measured on schedule: earlier I/Os were outstanding, or this machine woke late";
                return Err(Failure::new(FailureKind::Late, message, &member.id));
            }
        }
        if let Some(observer) = observer {
            caller::emit(&Event::Observed(Box::new(ObservedEvent { slices: seen, ..observer.result()? })));
        }
        Ok(())
    }

    fn measure_load(&mut self, index: usize, slice: &Slice, told_at: WallInstant) -> Result<Usage, Failure> {
        let (measured, usage) = self.members[index].measure(slice, &self.meters)?;
        if let Some(last) = measured.series.last().filter(|_| told_at.elapsed() >= TELL_PERIOD) {
            let id = Some(self.members[index].id.clone());
            let sample = SampleEvent { id, round: Some(slice.round), at_ns: slice.end().0, ..report::sample(last) };
            caller::emit(&Event::Sample(sample));
        }
        if self.gap.is_none() || slice.is_whole(usage.duration_ns) {
            self.records[index].add(slice, measured, usage.clone());
        }
        Ok(usage)
    }

    /// Tells the slices that ended since the last call, so that they outlive a session that fails.
    fn tell_slices(&mut self) {
        for (member, record) in self.members.iter().zip(&mut self.records) {
            let slices = record.untold().to_vec();
            if !slices.is_empty() {
                caller::emit(&Event::Kept(KeptEvent { id: member.id.clone(), slices }));
            }
        }
    }

    /// Observes this machine while the load of another machine works.
    fn observe_slice(&self, slice: &Slice) -> Result<Usage, Failure> {
        let none = BTreeMap::new();
        let watched = self.observe.as_ref().map_or(&none, |spec| &spec.watch_pids);
        std::thread::sleep(slice.start().since(self.clock.now()));
        let window = self.meters.open(watched, self.clock)?;
        std::thread::sleep(slice.end().since(self.clock.now()));
        window.close()
    }

    /// Runs a load before the first slice, so that everything else that starts or ends with this session happens
    /// meanwhile.
    fn lead_in(&mut self) -> Result<(), Failure> {
        let first = self.rounds.iter().flatten().next().copied().flatten().filter(|_| self.lead_in > Duration::ZERO);
        if let Some(index) = first {
            let begin_at = self.gap.and(self.begin_at).unwrap_or_else(|| self.clock.now() + BEGIN_AFTER);
            let slice = Slice { begin_at, settle: Duration::ZERO, runtime: self.lead_in, ..self.next_slice(0, 0) };
            self.members[index].measure(&slice, &self.meters)?;
        }
        Ok(())
    }

    /// The next slice, according to the schedule if there is one. `place` counts from 1.
    fn next_slice(&mut self, round: usize, place: usize) -> Slice {
        let begin_at = match (self.gap, self.begin_at) {
            (Some(gap), Some(begin_at)) => {
                let led_in = if self.lead_in.is_zero() { Duration::ZERO } else { self.lead_in + gap };
                let before = u32::try_from(place.saturating_sub(1)).unwrap_or(u32::MAX);
                begin_at + led_in + (self.settle + self.slice + gap) * before
            }
            _ => self.begin_at.take().unwrap_or_else(|| self.clock.now() + BEGIN_AFTER),
        };
        Slice {
            round,
            place,
            begin_at,
            settle: self.settle,
            runtime: self.slice,
            // Different for every slice on a unit, and increasing: it is the time of the slice's start by one clock.
            run: self.run.map_or_else(|| self.clock.unix_ns(begin_at), |run| run.saturating_add(place as u64)),
        }
    }

    fn has_several_slices(&self) -> bool {
        self.rounds.iter().map(Vec::len).sum::<usize>() > 1
    }

    /// One slice from the start of the first to the end of the last.
    fn all_of(&mut self, first: Slice) -> Slice {
        if !self.has_several_slices() {
            return first;
        }
        let last = self.next_slice(0, self.rounds.iter().map(Vec::len).sum());
        Slice { runtime: last.end().since(first.start()), ..first }
    }

    /// Ends every load in order, then reports its results.
    fn release(self) -> Result<(), Failure> {
        let mut failed = None;
        for (member, record) in self.members.into_iter().zip(self.records) {
            let result = record.result(&member, self.clock);
            match member.release() {
                Ok(()) => {
                    if let Some(result) = result {
                        caller::emit(&Event::Result(Box::new(result)));
                    }
                }
                Err(failure) => _ = failed.get_or_insert(failure),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Opens files and devices that several loads of one session use, once for all of them, as strictly as for a load that
/// writes. The loads' documents then name what was judged. Returns what must be kept open while they work.
fn hold_shared(documents: &mut [&mut LoadDocument]) -> Result<Vec<Local>, Failure> {
    let mut sharing: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, document) in documents.iter().enumerate() {
        let endpoint = begin::endpoint(document)?;
        if local::disk_path(&endpoint.unit).is_some() && document.judged.is_none() {
            sharing.entry(endpoint.text).or_default().push(index);
        }
    }
    let mut held = Vec::new();
    for indices in sharing.into_values().filter(|indices| indices.len() > 1) {
        let (mut strictest, mut any_writes) = (indices[0], false);
        for &index in &indices {
            // The second argument (a time) only identifies what is written.
            if begin::configs(documents[index], 0)?.iter().any(writes) {
                (strictest, any_writes) = (index, true);
                break;
            }
        }
        let document = &*documents[strictest];
        let endpoint = begin::endpoint(document)?;
        let Some(path) = local::disk_path(&endpoint.unit) else { continue };
        let place = || format!("local:{}", path.display());
        let candidate = Candidate::open(path).map_err(|error| failure::disk(&error, place()))?;
        held.extend(local::open(document, &endpoint.unit, begin::may_destroy(document)?, any_writes)?);
        for index in indices {
            documents[index].judged = Some(candidate.identity().into());
        }
    }
    Ok(held)
}

fn observed_slice(slice: &Slice, usage: Usage) -> ObservedSlice {
    let cpu_window_ns = usage.duration_ns;
    let usage = usage.scaled_to(slice.runtime);
    let machine = &usage.machine;
    ObservedSlice {
        place: slice.place,
        start_ns: slice.start().0,
        duration_ns: slice.runtime.as_nanos() as u64,
        cpu_window_ns,
        machine_busy_ns: machine.busy_ns(),
        watched_ns: usage.watched.iter().map(|(role, process)| (role.clone(), process.times.total_ns)).collect(),
        resolution_ns: machine.exact_ns.map(|_| 0),
    }
}
