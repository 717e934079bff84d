//! Measures a load in virtual time: hosts with processors and ports, a server, a volume. The same seed gives the same
//! results.

mod happening;
mod paths;

pub use happening::{Happening, What};
pub use paths::{Interconnect, PathFailure, PathPolicy, Paths, Towards, Zone};

use std::{cell::RefCell, net::IpAddr, rc::Rc, time::Duration};

use iotax_node::{
    Failure, LoadConfig, LoadNode, RunConfig, TaskConfig,
    failure::FailureKind,
    load::{
        Endpoint, Facts, Measured, PathPolicy as InitiatorsPolicy, PathReport, TaskOutcome,
        connector::ConnectionConfig,
        queue::{Depths, HostQueue, QueuesUsed},
    },
    pattern::{BLOCK_BYTES, Pool, Reduction, Stamp},
    server::Protocol,
    volume,
};
use iotax_proto::{Geometry, Instant};

use crate::{
    Carried, Costs, Disk, Edge, Exporter, HostId, LaneUse, Link, Media, Store, Switches, Volume, Way, Work, World,
    WorldStep, add_load, load::connection_config,
};
use paths::{Lead, Reach};

/// Maximum virtual time for connections to open, and later for I/Os to end.
const PHASE_TIME_MAX: Duration = Duration::from_secs(60);
/// The initial contents of a volume.
const FILL: Stamp = Stamp { run: 0, writer: 0, sequence: 0 };
/// Delay between the call of `begin` and the start of the run.
const BEGIN_AFTER: Duration = Duration::from_millis(1);
/// Number of parts of a window that are reported separately.
const PARTS: u32 = 10;
/// Wall-clock time at which the world starts, for protocols that need it: an afternoon in November 2026.
pub const STARTED_UNIX_NS: u64 = 1_795_000_000_000_000_000;

/// The machines of one side.
#[derive(Clone, Debug)]
pub struct Site {
    /// Cores of each machine.
    pub cores: usize,
    /// Costs of its threads, and of each I/O in addition.
    pub costs: Costs,
    pub io_ns: u64,
}

/// The configuration of a simulation.
#[derive(Clone, Debug)]
pub struct Lab {
    pub protocol: Protocol,
    /// The link of every machine's port.
    pub link: Link,
    pub initiator: Site,
    pub target: Site,
    pub target_threads: usize,
    /// Number of machines with a load. Each has `loads` loads, and each load has `threads` threads.
    pub machines: u32,
    pub paths: Paths,
    /// What happens during the window.
    pub happenings: Vec<Happening>,
    /// Queue depths of each machine, on each of its paths that are used at the same time.
    pub queues: Depths,
    pub loads: u32,
    pub threads: u32,
    pub size_bytes: u64,
    /// Whether the blocks initially hold the data pattern.
    pub filled: bool,
    pub delay_ns: u64,
    pub burn_ns: u64,
    /// `None`: memory, which takes no time.
    pub media: Option<Media>,
    pub seed: u64,
}

/// The results of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Measurements of all loads together.
    pub measured: Measured,
    /// Start of the window.
    pub start: Instant,
    /// Usage of each machine with a load in the window.
    pub initiators: Vec<Usage>,
    /// The same for each controller that is present.
    pub targets: Vec<Usage>,
    /// Usage of all machines of a side in consecutive parts of the window.
    pub parts: Vec<WindowPart>,
    /// Busy time of the media's servers together; `None` for memory.
    pub media_ns: Option<u64>,
    /// Usage of the trunks of all fabrics in the window, to the targets and back; `None` without a trunk.
    pub trunks: Option<[LaneUse; 2]>,
    /// Usage of the queues of all machines together in the window; `None` if they are unlimited.
    pub queues: Option<QueuesUsed>,
    pub geometry: Geometry,
    pub facts: Facts,
    /// What each path of the initiators did, on all machines together, if they have several, and their policy.
    pub paths: Option<(InitiatorsPolicy, Vec<PathReport>)>,
    /// Equal for identical runs.
    pub trace: u64,
    pub events: u64,
}

/// Work in a part of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowPart {
    /// From the window's start.
    pub at: Duration,
    pub duration: Duration,
    pub initiators: Work,
    pub targets: Work,
    /// Completed I/Os.
    pub ios: u64,
}

/// Usage of one machine and its ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub work: Work,
    /// Of all its ports together.
    pub carried: Carried,
    /// Busy time of its busiest port, in that port's busier direction.
    pub busiest_port_ns: u64,
    /// For a controller: bytes forwarded in both directions, and its sending time on the interconnect.
    pub forwarded_bytes: u64,
    pub interconnect_ns: u64,
}

/// Progress of a simulation: the virtual time, and when it will end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub at: Instant,
    pub until: Instant,
}

/// What the world calls its caller for.
#[derive(Clone, Copy)]
enum Call {
    /// The path with this number fails; machines notice it; they use it again.
    Failed(u32),
    Known(u32),
    Back(u32),
    /// A step of something that happens.
    Step(happening::Step),
}

/// Number of events between two progress reports.
const TELL_EVERY: u32 = 4096;

struct Running<'a, T> {
    world: World,
    loads: Vec<(HostId, Rc<RefCell<LoadNode>>)>,
    machines: Vec<Place>,
    targets: Vec<Place>,
    disks: Vec<usize>,
    queues: Vec<HostQueue>,
    paths: &'a Paths,
    happenings: &'a [Happening],
    controllers: Vec<Controller>,
    calls: Vec<Call>,
    policy: InitiatorsPolicy,
    /// One per path, if there are switches.
    fabrics: Vec<usize>,
    until: Instant,
    steps: u32,
    tell: T,
}

/// Usage so far.
struct Used {
    /// Of the controllers and then of all other machines, and of the ports of each.
    places: Vec<(Work, Vec<Carried>)>,
    /// Of each controller: bytes forwarded and time of its interconnect.
    forwarded: Vec<(u64, u64)>,
    media_ns: u64,
    trunks: Option<[LaneUse; 2]>,
    queues: QueuesUsed,
}

/// A machine and its ports.
#[derive(Clone)]
struct Place {
    machine: usize,
    ports: Vec<usize>,
    /// For a controller: its port of the interconnect, and its forwarder.
    partner: Option<(usize, u32)>,
}

/// A controller that is present: its server, and its number among those present.
struct Controller {
    server: Exporter,
    place: usize,
    /// The owners of its volumes, in the order of its endpoints.
    volumes: Vec<u32>,
}

impl Controller {
    fn endpoint(&self, volume: usize) -> Option<Endpoint> {
        let at = self.volumes.iter().position(|served| *served as usize == volume)?;
        Some(self.server.endpoint(at))
    }
}

impl Lab {
    /// Runs a load of `workers` connections on every load of every machine. `adapt` adjusts how they connect; `tell` is
    /// called occasionally with the progress.
    pub fn run(
        &self,
        run: &RunConfig,
        workers: u32,
        working_set_bytes: Option<u64>,
        adapt: impl Fn(ConnectionConfig) -> Result<ConnectionConfig, Failure>,
        tell: impl FnMut(Progress),
    ) -> Result<Simulated, Failure> {
        let mut running = self.make(run, workers, working_set_bytes, adapt, tell)?;
        running.measure(run)
    }

    /// Total number of loads in this lab.
    #[must_use]
    pub fn loads(&self) -> u32 {
        self.machines * self.loads
    }

    fn make<T: FnMut(Progress)>(
        &self,
        run: &RunConfig,
        workers: u32,
        working_set_bytes: Option<u64>,
        adapt: impl Fn(ConnectionConfig) -> Result<ConnectionConfig, Failure>,
        tell: T,
    ) -> Result<Running<'_, T>, Failure> {
        let until = World::new(self.seed).now() + run.warmup + run.runtime;
        let mut running = Running {
            world: World::new(self.seed),
            loads: Vec::new(),
            machines: Vec::new(),
            targets: Vec::new(),
            disks: Vec::new(),
            queues: Vec::new(),
            paths: &self.paths,
            happenings: &self.happenings,
            controllers: Vec::new(),
            calls: Vec::new(),
            policy: InitiatorsPolicy::default(),
            fabrics: Vec::new(),
            until,
            steps: 0,
            tell,
        };
        let fabrics = if self.paths.switches == Switches::None { 0 } else { self.paths.ports };
        let trunk = if let Switches::Two(trunk) = self.paths.switches { Some(trunk) } else { None };
        running.fabrics = (0..fabrics).map(|_| running.world.add_fabric(&self.link, trunk)).collect();
        let controllers: Vec<Option<Controller>> =
            (0..self.paths.controllers).map(|number| self.add_controller(&mut running, number, run)).collect();
        self.join_partners(&mut running, &controllers);
        let mut first_worker = 0;
        for Reach { volume, direct, forwarded } in self.paths.reaches(self.machines) {
            let place = self.add_place(&mut running, self.initiator.cores, self.paths.ports, Edge::Initiators);
            let serving = controllers.get(self.paths.serving(volume as u32) as usize).and_then(Option::as_ref);
            let Some(endpoint) = serving.and_then(|controller| controller.endpoint(volume)) else { continue };
            let way = |lead: Lead, forwards: bool| {
                let at = controllers[lead.controller].as_ref().map(|controller| &running.targets[controller.place])?;
                let by = if forwards { Some(at.partner?.1) } else { None };
                Some(Way { near: place.ports[lead.near], far: at.ports[lead.port], by })
            };
            let direct = direct.iter().filter_map(|lead| way(*lead, false));
            let ways: Vec<Way> = direct.chain(forwarded.iter().filter_map(|lead| way(*lead, true))).collect();
            let needed = if self.paths.portals { self.paths.ports as usize } else { 1 };
            if ways.len() < needed && !self.paths.zones.is_empty() {
                let what = if self.paths.portals { "a port of each path" } else { "a port of its controller" };
                return Err(Failure::usage(format!("a machine shares no zone with {what}"), "paths.zones"));
            }
            if ways.is_empty() {
                return Err(Failure::usage("a machine has no path to its volume since the takeover", "paths.takeover"));
            }
            let (machine, port) = (place.machine, place.ports[0]);
            let queue = self.queues.has_end().then(|| HostQueue::new(self.queues, running.world.wake_list()));
            running.queues.extend(queue.clone());
            let first_of_machine = first_worker;
            running.machines.push(place);
            for thread in 0..self.loads * self.threads {
                let ways = self.paths.ways(ways.clone(), volume as u32, thread);
                let thread = thread % self.threads;
                let own_workers = workers / self.threads + u32::from(thread < workers % self.threads);
                let config = LoadConfig {
                    task: TaskConfig::Run(run.clone()),
                    workers: workers * self.loads(),
                    first_worker,
                    own_workers,
                    working_set_bytes,
                    working_set_offset_bytes: 0,
                    // Reducible data make no difference in virtual time.
                    reduction: Reduction::default(),
                    run: self.seed | 1,
                };
                let place_of_first = first_worker - first_of_machine;
                first_worker += own_workers;
                let connection = adapt(connection_config(&endpoint, running.loads.len() as u32 + 1)?)?;
                running.policy = connection.policy;
                let (host, load) = add_load(&mut running.world, port, ways, &endpoint, config, &connection)?;
                if let Some(queue) = &queue {
                    load.borrow_mut().queue_at(queue.join(host.0, place_of_first));
                }
                let (counted, io_ns) = (Rc::clone(&load), self.initiator.io_ns);
                let asked = Box::new(move || counted.try_borrow().map_or(0, |load| load.completed()) * io_ns);
                running.world.run_on(host, machine, self.initiator.costs, asked);
                running.loads.push((host, load));
            }
        }
        running.controllers = controllers.into_iter().flatten().collect();
        Ok(running)
    }

    /// The ports use the fabrics in turn.
    fn add_place<T>(&self, running: &mut Running<'_, T>, cores: usize, ports: u32, edge: Edge) -> Place {
        let world = &mut running.world;
        let ports: Vec<_> = (0..ports.max(1)).map(|_| world.add_link(self.link.clone())).collect();
        for (port, fabric) in ports.iter().zip(running.fabrics.iter().cycle()) {
            world.attach(*fabric, edge, *port);
        }
        Place { machine: world.add_machine(cores), ports, partner: None }
    }

    /// A server with its volume, on a machine of its own. After a takeover it also has its partner's volume; the lost
    /// controller gives `None`.
    fn add_controller<T>(&self, running: &mut Running<'_, T>, number: u32, run: &RunConfig) -> Option<Controller> {
        if self.paths.takeover == Some(number) {
            return None;
        }
        let target = self.add_place(running, self.target.cores, self.paths.target_ports, Edge::Targets);
        let volumes: Vec<u32> = [number, number ^ 1]
            .into_iter()
            .filter(|volume| *volume == number || self.paths.takeover == Some(*volume))
            .collect();
        let world = &mut running.world;
        let described: Vec<(Vec<IpAddr>, Volume)> = volumes
            .iter()
            .map(|number| {
                let volume = self.volume(world, *number, run);
                if let Store::Disk { disk, .. } = volume.store {
                    running.disks.push(disk);
                }
                (self.paths.addresses(*number), volume)
            })
            .collect();
        let port = target.ports[0];
        let export = (self.protocol, happening::options(self.protocol, &self.happenings));
        let server = Exporter::start_at(world, &described, port, export, self.target_threads, STARTED_UNIX_NS);
        for memory in server.memories() {
            if self.filled && self.media.is_none() && run.looks_at_data() {
                volume::fill(&**memory, &Pool::default(), 0, self.size_bytes, FILL.run);
            }
            world.stays(Rc::clone(memory));
        }
        for (thread, host) in server.hosts.iter().enumerate() {
            let asked = server.burnt_ns(thread);
            world.run_on(*host, target.machine, self.target.costs, Box::new(move || asked.get()));
        }
        running.targets.push(target);
        Some(Controller { server, place: running.targets.len() - 1, volumes })
    }

    /// The volume of one controller, on its media.
    fn volume(&self, world: &mut World, number: u32, run: &RunConfig) -> Volume {
        let seed = self.seed ^ u64::from(number) << 32;
        let disk = self.media.as_ref().map(|media| {
            let mut disk = Disk::new(self.size_bytes as usize, media.clone(), seed);
            if self.filled {
                let (blocks, _) = disk.image_mut().as_chunks_mut::<BLOCK_BYTES>();
                Pool::default().fill(blocks.as_flattened_mut(), 0, FILL);
            }
            world.add_disk(disk)
        });
        let memory = if run.looks_at_data() { Store::Memory } else { Store::Blank };
        let store = disk.map_or(memory, |disk| Store::Disk { disk, block_size: 512 });
        let burn_ns = self.burn_ns + self.target.io_ns;
        Volume { size_bytes: self.size_bytes, store, delay_ns: self.delay_ns, burn_ns }
    }

    /// Adds an interconnect for each pair of controllers, if any path uses it.
    fn join_partners<T>(&self, running: &mut Running<'_, T>, controllers: &[Option<Controller>]) {
        if self.paths.to == Towards::Owner {
            return;
        }
        let Interconnect { rate_bytes_per_s, latency, message_ns } = self.paths.interconnect;
        let link = Link { latency, rate_bytes_per_s, ..Link::default() };
        for pair in controllers.chunks(2) {
            let [Some(first), Some(second)] = pair else { continue };
            let world = &mut running.world;
            let ports = [(); 2].map(|()| world.add_link(link.clone()));
            let threads = [&first.server.hosts[..], &second.server.hosts[..]];
            for (at, controller) in [first, second].into_iter().enumerate() {
                let other = 1 - at;
                let forwarder =
                    world.add_forwarder([threads[at], threads[other]], [ports[at], ports[other]], message_ns);
                running.targets[controller.place].partner = Some((ports[at], forwarder));
            }
        }
    }
}

impl<T: FnMut(Progress)> Running<'_, T> {
    fn measure(&mut self, run: &RunConfig) -> Result<Simulated, Failure> {
        let limit = self.world.now() + PHASE_TIME_MAX;
        self.go_on(limit, "connections did not stand", LoadNode::is_ready)?;
        let begin = self.world.now() + BEGIN_AFTER;
        for (host, load) in &self.loads {
            load.borrow_mut().begin(begin);
            self.world.settle(*host);
        }
        let start = begin + run.warmup;
        let end = start + run.runtime;
        self.until = end;
        self.plan_calls(start);
        let before = self.used_at(start);
        let mut stages = Vec::new();
        let mut sides = self.sides(&before);
        for stage in 1..PARTS {
            let used = self.used_at(start + run.runtime * stage / PARTS);
            stages.push(self.part(&mut sides, &used));
        }
        let after = self.used_at(end);
        stages.push(self.part(&mut sides, &after));
        for (stage, index) in stages.iter_mut().zip(0..) {
            stage.at = run.runtime * index / PARTS;
            stage.duration = (run.runtime * (index + 1) / PARTS).saturating_sub(stage.at);
        }
        let Some(load) = self.loads.first().map(|(_, load)| load.borrow()) else { return Err(nothing("no load")) };
        let (geometry, facts) = (load.geometry().cloned().ok_or_else(|| nothing("no geometry"))?, load.facts());
        drop(load);
        self.go_on(end + PHASE_TIME_MAX, "I/Os did not end", |load| load.outcome().is_some())?;
        let mut together: Option<Measured> = None;
        for (_, load) in &self.loads {
            let outcome = load.borrow().outcome().cloned().ok_or_else(|| nothing("a load has no end"))??;
            let TaskOutcome::Run(measured) = outcome else { return Err(nothing("a run gave no figures")) };
            match &mut together {
                Some(together) => together.merge(&measured),
                None => together = Some(*measured),
            }
        }
        let paths = self.path_reports();
        let used = after.places.iter().zip(&before.places).enumerate();
        let used = used.map(|(index, ((work, ports), (work_before, ports_before)))| {
            let forwarded = |used: &Used| used.forwarded.get(index).copied().unwrap_or_default();
            let ((bytes, sent_ns), (bytes_before, sent_ns_before)) = (forwarded(&after), forwarded(&before));
            let ports = ports.iter().zip(ports_before).map(|(after, before)| after.since(*before));
            Usage {
                work: work.since(*work_before),
                carried: ports.clone().fold(Carried::default(), Carried::and),
                busiest_port_ns: ports.map(|port| port.sent_ns.max(port.received_ns)).max().unwrap_or(0),
                forwarded_bytes: bytes - bytes_before,
                interconnect_ns: sent_ns - sent_ns_before,
            }
        });
        let mut targets: Vec<Usage> = used.collect();
        let initiators = targets.split_off(self.targets.len());
        Ok(Simulated {
            measured: together.ok_or_else(|| nothing("no load"))?,
            start,
            initiators,
            targets,
            parts: stages,
            media_ns: (!self.disks.is_empty()).then(|| after.media_ns - before.media_ns),
            trunks: after
                .trunks
                .zip(before.trunks)
                .map(|([out, back], [out_before, back_before])| [out.since(out_before), back.since(back_before)]),
            queues: (!self.queues.is_empty()).then(|| QueuesUsed {
                luns_ns: after.queues.luns_ns - before.queues.luns_ns,
                adapter_ns: after.queues.adapter_ns - before.queues.adapter_ns,
            }),
            geometry,
            facts,
            paths: (!paths.is_empty()).then_some((self.policy, paths)),
            trace: self.world.trace.hash(),
            events: self.world.trace.events(),
        })
    }

    /// Work so far of the controllers together and of all other machines together, and the I/Os so far.
    fn sides(&self, used: &Used) -> (Work, Work, u64) {
        let (targets, initiators) = used.places.split_at(self.targets.len());
        let sum = |side: &[(Work, Vec<Carried>)]| side.iter().fold(Work::default(), |sum, (work, _)| sum.and(*work));
        let ios = self.loads.iter().map(|(_, load)| load.borrow().completed()).sum();
        (sum(targets), sum(initiators), ios)
    }

    /// Work since `sides`, which is then updated.
    fn part(&self, sides: &mut (Work, Work, u64), used: &Used) -> WindowPart {
        let now = self.sides(used);
        let before = std::mem::replace(sides, now);
        WindowPart {
            targets: now.0.since(before.0),
            initiators: now.1.since(before.1),
            ios: now.2 - before.2,
            ..WindowPart::default()
        }
    }

    /// Usage when all events before `at` have happened.
    fn used_at(&mut self, at: Instant) -> Used {
        while self.world.next_at().is_some_and(|next| next < at) {
            self.step();
        }
        let places = self.targets.iter().chain(&self.machines).map(|place| {
            let ports = place.ports.iter().map(|port| self.world.carried(*port));
            (self.world.work(place.machine), ports.collect())
        });
        let places = places.collect();
        let queues = self.queues.iter().map(|queue| queue.used(at)).fold(QueuesUsed::default(), |sum, one| {
            QueuesUsed { luns_ns: sum.luns_ns + one.luns_ns, adapter_ns: sum.adapter_ns + one.adapter_ns }
        });
        let trunks = self.fabrics.iter().filter_map(|fabric| self.world.trunk_used(*fabric));
        let trunks = trunks.reduce(|[out, back], [more_out, more_back]| [out.and(more_out), back.and(more_back)]);
        let media_ns = self.disks.iter().map(|disk| self.world.disk_mut(*disk).busy_ns()).sum();
        let forwarded = self.targets.iter().map(|place| {
            let bytes_and_sent =
                |(port, forwarder)| (self.world.forwarded(forwarder), self.world.carried(port).sent_ns);
            place.partner.map_or((0, 0), bytes_and_sent)
        });
        let forwarded = forwarded.collect();
        Used { places, forwarded, media_ns, trunks, queues }
    }

    fn step(&mut self) -> Option<WorldStep> {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(TELL_EVERY) {
            (self.tell)(Progress { at: self.world.now(), until: self.until });
        }
        let step = self.world.step();
        if let Some(WorldStep::Call(number)) = step {
            self.called(number);
        }
        step
    }

    fn plan_calls(&mut self, start: Instant) {
        let mut calls = Vec::new();
        for PathFailure { path, at, back } in &self.paths.failures {
            let noticed = self.paths.noticed;
            calls.extend([(*at, Call::Failed(*path)), (*at + noticed, Call::Known(*path))]);
            calls.extend(back.map(|back| (back + noticed, Call::Back(*path))));
        }
        let steps = self.happenings.iter().flat_map(Happening::steps);
        calls.extend(steps.map(|(at, step)| (at, Call::Step(step))));
        for (number, (after, call)) in (0..).zip(calls) {
            self.world.call_at(start + after, number);
            self.calls.push(call);
        }
    }

    fn called(&mut self, number: u64) {
        let Some(call) = self.calls.get(number as usize).copied() else { return };
        let known = self.world.now() + self.paths.noticed;
        match call {
            Call::Failed(path) => self.at_ports(path, |world, port| world.fail(port, known)),
            Call::Known(path) => self.at_ports(path, World::avoid),
            Call::Back(path) => self.at_ports(path, World::repair),
            Call::Step(step) => step.perform(&mut self.world, self.paths, &mut self.controllers),
        }
    }

    /// Does something to the port of every machine that belongs to a path.
    fn at_ports(&mut self, path: u32, mut act: impl FnMut(&mut World, usize)) {
        for machine in &self.machines {
            act(&mut self.world, machine.ports[path as usize]);
        }
    }

    /// What each path of the initiators did, on all machines together.
    fn path_reports(&self) -> Vec<PathReport> {
        let mut together: Vec<PathReport> = Vec::new();
        for (_, load) in &self.loads {
            let reports = load.borrow().path_reports();
            for (ours, theirs) in together.iter_mut().zip(&reports) {
                ours.merge(theirs);
            }
            if together.is_empty() {
                together = reports;
            }
        }
        for (report, path) in together.iter_mut().zip(1..) {
            report.portal = format!("path {path}");
        }
        together
    }

    /// Runs until `done` is true for all loads. Returns the failure of a load that failed.
    fn go_on(&mut self, limit: Instant, what: &str, done: fn(&LoadNode) -> bool) -> Result<(), Failure> {
        let mut left: Vec<_> = self.loads.iter().map(|(_, load)| Rc::clone(load)).collect();
        let mut steps = 0_u32;
        loop {
            // Checked only occasionally, because there may be many loads.
            if steps.is_multiple_of(64) {
                left.retain(|load| !done(&load.borrow()));
                let failed = left.iter().find_map(|load| match load.borrow().outcome() {
                    Some(Err(failure)) => Some(failure.clone()),
                    _ => None,
                });
                if let Some(failure) = failed {
                    return Err(failure);
                }
                if left.is_empty() {
                    return Ok(());
                }
            }
            steps = steps.wrapping_add(1);
            let is_late = self.world.now() >= limit;
            if is_late || self.step().is_none() {
                left.retain(|load| !done(&load.borrow()));
                return match left.is_empty() {
                    true => Ok(()),
                    false if is_late => Err(too_slow(what)),
                    false => Err(nothing(what)),
                };
            }
        }
    }
}

fn too_slow(what: &str) -> Failure {
    let patience_s = PHASE_TIME_MAX.as_secs();
    let why = "links, costs or media are too slow for this load, or no path is left";
    Failure::usage(format!("{what} within {patience_s} s of virtual time: {why}"), "simulation")
}

fn nothing(what: &str) -> Failure {
    Failure::new(FailureKind::Internal, what, "simulation")
}
