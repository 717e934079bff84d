//! `iotax-engine simulate`: runs a load in virtual time. Its output is that of a load.

use std::time::{Duration, Instant};

use iotax_node::{
    failure::Failure,
    load::{TaskConfig, config::RunConfig, queue::Depths},
};
use iotax_sim::{
    Costs, Frames, LaneUse, Link, Loss, Media, Switches, Trunk, Wake,
    lab::{
        Happening, Interconnect, Lab, PathFailure, PathPolicy, Paths, Progress, STARTED_UNIX_NS, Simulated, Site,
        Towards, Usage, What, WindowPart, Zone,
    },
};

use crate::{
    caller,
    document::{
        self, ControllerReport, CoreCpu, CpuPoint, CpuReport, Event, Fill, HappeningSpec, LaneReport, LinkSpec,
        MachineCpu, PathsSpec, PolicySpec, ProcessCpu, SimulateDocument, SimulatedReport, SimulatingEvent, SiteReport,
        SiteSpec, Task, TowardsSpec, TrunksReport, WhatSpec, Window,
    },
    load::{begin, report, threads::Unit},
};

/// Upper limits: beyond these, a typing error could request years of work.
const LOADS_MAX: u32 = 10_000;
const CORES_MAX: u32 = 1024;
const PORTS_MAX: u32 = 64;
const COALESCE_NS_MAX: u64 = 10_000_000;
const LUNS_MAX: u32 = 1024;
/// The frames in flight on a link around the world at 64GFC.
const CREDITS_MAX: u32 = 65_535;
const FAILURES_MAX: usize = 64;
const HAPPENINGS_MAX: usize = 64;
const FLAPS_MAX: u64 = 10_000;
const ZONES_MAX: usize = 10_000;
/// One in ten: with more losses a stream hardly advances.
const LOST_PER_MILLION_MAX: u32 = 100_000;
/// The smallest and the largest MTU that hosts support (RFC 791 §3.2, jumbo frames).
const MTU_BYTES: std::ops::RangeInclusive<u32> = 576..=9216;
/// A simulated volume is in this process's memory.
const SIZE_BYTES_MAX: u64 = 64 << 30;
const DRIVER: &str = "simulated";
/// Real time between two progress reports.
const TELL_EVERY: Duration = Duration::from_millis(500);

pub(crate) fn run() -> Result<(), Failure> {
    let document: SimulateDocument = caller::read_document()?;
    caller::follow(|line| {
        if line.is_none() {
            caller::input_ended();
        }
    });
    let (lab, run) = (lab(&document)?, run_of(&document)?);
    let load = &document.load;
    let adapt = |connection| begin::with_options(load, connection);
    let simulated = lab.run(&run, load.workers, load.working_set_bytes, adapt, progress())?;
    tell(&document, &simulated);
    Ok(())
}

fn progress() -> impl FnMut(Progress) {
    let mut told = Instant::now();
    move |far| {
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            caller::emit(&Event::Simulating(SimulatingEvent { at_ns: far.at.0, until_ns: far.until.0 }));
        }
    }
}

fn run_of(document: &SimulateDocument) -> Result<RunConfig, Failure> {
    match begin::task(&document.load)? {
        TaskConfig::Run(run) if document.load.task == Task::Run => Ok(run),
        _ => Err(Failure::usage("only a run can be simulated", "load.task")),
    }
}

/// The lab that the document describes. Impossible setups are rejected.
fn lab(document: &SimulateDocument) -> Result<Lab, Failure> {
    let (link, load, paths, queues) = (&document.link, &document.load, &document.paths, document.queues);
    let loss = (link.lost_per_million.is_some() || link.buffer_bytes.is_some())
        .then(|| Loss { per_million: link.lost_per_million.unwrap_or(0), buffer_bytes: link.buffer_bytes });
    let loads = u64::from(document.machines) * u64::from(document.loads) * load.threads as u64;
    for (holds, message, field) in [
        (link.rate_bits_per_s >= 8, "must be at least 8", "link.rate_bits_per_s"),
        (link.mtu_bytes.is_none_or(|mtu| MTU_BYTES.contains(&mtu)), "must be 576 to 9216", "link.mtu_bytes"),
        ((1..=u64::from(LOADS_MAX)).contains(&loads), "machines × loads × threads must be 1 to 10,000", "machines"),
        (
            (1..=document.machines).contains(&paths.controllers),
            "must be 1 to the number of machines",
            "paths.controllers",
        ),
        ((1..=PORTS_MAX).contains(&paths.target_ports), "must be 1 to 64", "paths.target_ports"),
        ((1..=PORTS_MAX).contains(&paths.ports), "must be 1 to 64", "paths.ports"),
        (paths.failures.len() <= FAILURES_MAX, "must be at most 64", "paths.failures"),
        (
            paths.failures.iter().all(|each| (1..=paths.ports).contains(&each.path)),
            "each path must be 1 to the number of ports",
            "paths.failures",
        ),
        (
            paths.failures.iter().all(|each| each.back_ns.is_none_or(|back_ns| back_ns > each.at_ns)),
            "back_ns must be later than at_ns",
            "paths.failures",
        ),
        ((1..=LUNS_MAX).contains(&queues.luns), "must be 1 to 1024", "queues.luns"),
        (queues.lun_depth != Some(0), "must be at least 1", "queues.lun_depth"),
        (queues.adapter_depth != Some(0), "must be at least 1", "queues.adapter_depth"),
        (
            link.credits.is_none_or(|credits| (1..=CREDITS_MAX).contains(&credits)),
            "must be 1 to 65,535",
            "link.credits",
        ),
        (link.credits.is_none() || link.mtu_bytes.is_none(), "must be absent for Ethernet", "link.credits"),
        (
            link.lost_per_million.is_none_or(|lost| (1..=LOST_PER_MILLION_MAX).contains(&lost)),
            "must be 1 to 100,000",
            "link.lost_per_million",
        ),
        (
            link.buffer_bytes.is_none_or(|buffer| buffer >= u64::from(*MTU_BYTES.end())),
            "must be at least 9216, the size of the largest frame",
            "link.buffer_bytes",
        ),
        (link.coalesce_ns <= COALESCE_NS_MAX, "must be at most 10 ms", "link.coalesce_ns"),
        (
            loss.is_none() || link.mtu_bytes.is_some(),
            "only Ethernet loses segments: set mtu_bytes",
            "link.lost_per_million",
        ),
        (document.threads > 0, "must be at least 1", "threads"),
        (document.initiators.costs.turn_cv_percent <= 100, "must be 0 to 100", "initiators.costs.turn_cv_percent"),
        (document.target.costs.turn_cv_percent <= 100, "must be 0 to 100", "target.costs.turn_cv_percent"),
        ((1..=CORES_MAX).contains(&document.initiators.cores), "must be 1 to 1024", "initiators.cores"),
        ((1..=CORES_MAX).contains(&document.target.cores), "must be 1 to 1024", "target.cores"),
        (
            load.workers > 0 && load.workers as usize >= load.threads,
            "must be at least the number of threads",
            "load.workers",
        ),
        (load.working_set_offset_bytes == 0, "must be absent in a simulation", "load.working_set_offset_bytes"),
        (load.data == document::DataSpec::default(), "must be absent in a simulation", "load.data"),
        (document.volume.media == document::Media::Memory, "must be `memory` in a simulation", "volume.media"),
        (document.volume.size_bytes <= SIZE_BYTES_MAX, "must be at most 64 GiB", "volume.size_bytes"),
        (document.volume.model.is_none(), "must be absent in a simulation: use `media`", "volume.model"),
    ] {
        if !holds {
            return Err(Failure::usage(message, field));
        }
    }
    fabrics(document)?;
    partners(document)?;
    portals(document)?;
    let model = document.media.as_ref().map(|media| media.model("media")).transpose()?;
    let media = model.map(|model| Media { model, write_through: true, ..Media::default() });
    Ok(Lab {
        protocol: document.protocol.0,
        link: Link { loss, ..link_of(link, !paths.zones.is_empty()) },
        initiator: site(&document.initiators),
        target: site(&document.target),
        target_threads: document.threads as usize,
        machines: document.machines,
        paths: paths_of(paths),
        happenings: document.happenings.iter().map(happening).collect(),
        queues: Depths { luns: queues.luns, of_lun: queues.lun_depth, of_adapter: queues.adapter_depth },
        loads: document.loads,
        threads: load.threads as u32,
        size_bytes: document.volume.size_bytes,
        filled: document.volume.fill == Fill::Pattern,
        delay_ns: document.volume.delay_ns,
        burn_ns: document.volume.burn_ns,
        media,
        seed: document.seed,
    })
}

/// Rejects impossible switches, and zones of machines or ports that do not exist.
fn fabrics(document: &SimulateDocument) -> Result<(), Failure> {
    let paths = &document.paths;
    let has_trunk = paths.trunk_rate_bits_per_s.is_some() || paths.trunk_credits.is_some();
    let ports = u64::from(paths.controllers) * u64::from(paths.target_ports);
    let is_there = |numbers: &[u32], last: u64| {
        !numbers.is_empty() && numbers.iter().all(|number| *number > 0 && u64::from(*number) <= last)
    };
    for (holds, message, field) in [
        (paths.switches <= 2, "must be 0, 1 or 2", "paths.switches"),
        (
            paths.switches == 0 || paths.target_ports >= paths.ports,
            "with switches, must be at least `ports`: each path needs its own port of each controller",
            "paths.target_ports",
        ),
        (paths.switches == 2 || !has_trunk, "must be 2 with a trunk", "paths.switches"),
        (paths.trunk_rate_bits_per_s.is_none_or(|rate| rate >= 8), "must be at least 8", "paths.trunk_rate_bits_per_s"),
        (
            paths.trunk_credits.is_none_or(|credits| (1..=CREDITS_MAX).contains(&credits)),
            "must be 1 to 65,535",
            "paths.trunk_credits",
        ),
        (
            paths.trunk_credits.is_none() || document.link.mtu_bytes.is_none(),
            "must be absent for Ethernet",
            "paths.trunk_credits",
        ),
        (paths.zones.is_empty() || paths.switches > 0, "zones need switches", "paths.zones"),
        (paths.zones.len() <= ZONES_MAX, "must be at most 10,000", "paths.zones"),
        (
            paths.zones.iter().all(|zone| is_there(&zone.machines, u64::from(document.machines))),
            "each zone needs machines, numbered from 1 to `machines`",
            "paths.zones",
        ),
        (
            paths.zones.iter().all(|zone| is_there(&zone.ports, ports)),
            "each zone needs ports, numbered from 1 to controllers × target_ports",
            "paths.zones",
        ),
    ] {
        if !holds {
            return Err(Failure::usage(message, field));
        }
    }
    Ok(())
}

/// Rejects paths through missing partners, and takeovers of controllers that do not exist.
fn partners(document: &SimulateDocument) -> Result<(), Failure> {
    let (paths, link) = (&document.paths, &document.link);
    let to = paths.to.unwrap_or_default();
    let forwards = to != TowardsSpec::Owner;
    let is_paired = paths.controllers.is_multiple_of(2);
    for (holds, message, field) in [
        (!forwards || is_paired, "must be even: partners are pairs", "paths.controllers"),
        (!forwards || paths.interconnect.is_some(), "is required for paths to partners", "paths.interconnect"),
        (
            paths.interconnect.is_none_or(|between| between.rate_bits_per_s >= 8),
            "must be at least 8",
            "paths.interconnect.rate_bits_per_s",
        ),
        (
            !forwards || document.protocol.0.about().rpc_programs.is_empty(),
            "must be `owner` for NFS: a mount goes to one address, that of the owner",
            "paths.to",
        ),
        (!forwards || paths.failures.is_empty(), "can be used only if all paths lead to owners", "paths.failures"),
        (
            !forwards || link.lost_per_million.is_none() && link.buffer_bytes.is_none(),
            "segments can be lost only if all paths lead to owners",
            "link.lost_per_million",
        ),
        (
            to != TowardsSpec::Both || paths.policy == PolicySpec::RoundRobin,
            "must be `round-robin` if paths lead to both controllers",
            "paths.policy",
        ),
        (
            paths.takeover.is_none_or(|gone| is_paired && (1..=paths.controllers).contains(&gone)),
            "must be 1 to the number of controllers, which must be even",
            "paths.takeover",
        ),
    ] {
        if !holds {
            return Err(Failure::usage(message, field));
        }
    }
    Ok(())
}

/// Rejects portals of protocols that have one, and happenings that cannot be.
fn portals(document: &SimulateDocument) -> Result<(), Failure> {
    let (paths, happenings) = (&document.paths, &document.happenings);
    let has_paths = document.protocol.0.about().has_paths;
    let forwards = paths.to.unwrap_or_default() != TowardsSpec::Owner;
    let all = |holds: fn(&HappeningSpec) -> bool| happenings.iter().all(holds);
    let is_access = |each: &HappeningSpec| matches!(each.what, WhatSpec::Access { .. });
    for (holds, message, field) in [
        (!paths.portals || paths.ports == 1 || has_paths, "this protocol has one portal", "paths.portals"),
        (
            !paths.portals || !forwards && paths.failures.is_empty(),
            "can be used only if all paths lead to owners, and without `failures`",
            "paths.portals",
        ),
        (happenings.len() <= HAPPENINGS_MAX, "must be at most 64", "happenings"),
        (all(|each| each.lasts_ns > 0), "lasts_ns must be at least 1", "happenings"),
        (all(flaps_in_bounds), "a path must flap 1 to 10,000 times", "happenings"),
        (
            happenings.iter().filter_map(|each| each.what.path()).all(|path| (1..=paths.ports).contains(&path)),
            "each path must be 1 to the number of ports",
            "happenings",
        ),
        (
            paths.portals || happenings.iter().all(|each| each.what.path().is_none()),
            "only a path to a portal of its own can be affected: set paths.portals",
            "happenings",
        ),
        (has_paths || !happenings.iter().any(is_access), "this protocol reports no access", "happenings"),
        (
            has_paths && paths.portals || !happenings.iter().any(|each| matches!(each.what, WhatSpec::Kill)),
            "only initiators with portals of their own connect again: set paths.portals, and a protocol that has them",
            "happenings",
        ),
    ] {
        if !holds {
            return Err(Failure::usage(message, field));
        }
    }
    Ok(())
}

fn flaps_in_bounds(spec: &HappeningSpec) -> bool {
    let WhatSpec::Flap { every_ns, .. } = spec.what else { return true };
    spec.lasts_ns.checked_div(every_ns).is_some_and(|times| (1..=FLAPS_MAX).contains(&times))
}

fn happening(spec: &HappeningSpec) -> Happening {
    let what = match spec.what {
        WhatSpec::Freeze => What::Freeze,
        WhatSpec::Kill => What::Kill,
        WhatSpec::Fail { path } => What::Fail { path: path - 1 },
        WhatSpec::Flap { path, every_ns } => What::Flap { path: path - 1, every: Duration::from_nanos(every_ns) },
        WhatSpec::Access { path, access } => What::Access { path: path - 1, access: access.into() },
    };
    Happening { at: Duration::from_nanos(spec.at_ns), lasts: Duration::from_nanos(spec.lasts_ns), what }
}

fn link_of(spec: &LinkSpec, is_tagged: bool) -> Link {
    let ethernet = spec.mtu_bytes.map(Frames::ethernet);
    let ethernet = if is_tagged { ethernet.map(Frames::tagged) } else { ethernet };
    Link {
        latency: Duration::from_nanos(spec.delay_ns),
        rate_bytes_per_s: Some(spec.rate_bits_per_s / 8),
        frames: Some(ethernet.unwrap_or(Frames::FIBRE_CHANNEL)),
        credits: spec.credits,
        coalesce: Duration::from_nanos(spec.coalesce_ns),
        ..Link::default()
    }
}

fn paths_of(spec: &PathsSpec) -> Paths {
    let failures = spec.failures.iter().map(|failure| PathFailure {
        path: failure.path - 1,
        at: Duration::from_nanos(failure.at_ns),
        back: failure.back_ns.map(Duration::from_nanos),
    });
    Paths {
        controllers: spec.controllers,
        target_ports: spec.target_ports,
        ports: spec.ports,
        policy: match spec.policy {
            PolicySpec::Fixed => PathPolicy::Fixed,
            PolicySpec::RoundRobin => PathPolicy::RoundRobin,
            PolicySpec::QueueDepth => PathPolicy::QueueDepth,
            PolicySpec::Numa => PathPolicy::Numa,
        },
        portals: spec.portals,
        failures: failures.collect(),
        noticed: Duration::from_nanos(spec.noticed_ns),
        switches: match spec.switches {
            0 => Switches::None,
            1 => Switches::One,
            _ => Switches::Two(Trunk {
                rate_bytes_per_s: spec.trunk_rate_bits_per_s.map(|rate| rate / 8),
                credits: spec.trunk_credits,
            }),
        },
        zones: spec
            .zones
            .iter()
            .map(|zone| Zone { machines: from_0(&zone.machines), ports: from_0(&zone.ports) })
            .collect(),
        to: match spec.to.unwrap_or_default() {
            TowardsSpec::Owner => Towards::Owner,
            TowardsSpec::Partner => Towards::Partner,
            TowardsSpec::Both => Towards::Both,
        },
        interconnect: spec.interconnect.map_or_else(Interconnect::default, |between| Interconnect {
            rate_bytes_per_s: Some(between.rate_bits_per_s / 8),
            latency: Duration::from_nanos(between.delay_ns),
            message_ns: between.message_ns,
        }),
        takeover: spec.takeover.map(|number| number - 1),
    }
}

fn from_0(numbers: &[u32]) -> Vec<u32> {
    numbers.iter().map(|number| number - 1).collect()
}

fn site(spec: &SiteSpec) -> Site {
    let costs = &spec.costs;
    Site {
        cores: spec.cores as usize,
        costs: Costs {
            wake: Wake { deep_ns: costs.wake_ns, short_ns: costs.wake_short_ns, delay_ns: costs.wake_delay_ns },
            turn_ns: costs.turn_ns,
            send_ns: costs.send_ns,
            kib_ns: costs.kib_ns,
            kib_sent_ns: costs.kib_sent_ns,
            segment_ns: costs.segment_ns,
            turn_cv_percent: costs.turn_cv_percent,
        },
        io_ns: costs.io_ns,
    }
}

fn tell(document: &SimulateDocument, simulated: &Simulated) {
    let endpoint = document.load.endpoint.as_deref().unwrap_or_default();
    let unit = Unit { geometry: simulated.geometry.clone(), facts: simulated.facts.clone() };
    caller::emit(&Event::Connected(report::connected(endpoint, DRIVER, &unit)));
    for sample in &simulated.measured.series {
        caller::emit(&Event::Sample(report::sample(sample)));
    }
    let duration_ns = document.load.runtime_ns;
    let start_ns = simulated.start.0;
    let window = Window { start_unix_ns: STARTED_UNIX_NS + start_ns, start_ns, duration_ns };
    let cpu = cpu(document, simulated);
    let mut result = report::figures(&document.load, endpoint, window, &simulated.measured, cpu, duration_ns);
    result.driver = DRIVER;
    result.cpu_series = simulated.parts.iter().map(cpu_point).collect();
    result.checks.clock = "virtual";
    result.outstanding.workers *= document.machines * document.loads;
    result.paths = simulated.paths.as_ref().and_then(|(policy, reports)| report::paths_under(*policy, reports));
    let has_zones = !document.paths.zones.is_empty();
    result.simulated = Some(SimulatedReport {
        initiators: site_report(&simulated.initiators, has_zones),
        target: site_report(&simulated.targets, has_zones),
        media_busy_ns: simulated.media_ns,
        luns_busy_ns: simulated.queues.filter(|_| document.queues.lun_depth.is_some()).map(|used| used.luns_ns),
        adapters_busy_ns: simulated
            .queues
            .filter(|_| document.queues.adapter_depth.is_some())
            .map(|used| used.adapter_ns),
        trunks: simulated
            .trunks
            .map(|[out, back]| TrunksReport { to_targets: lane_report(out), to_initiators: lane_report(back) }),
        controllers: controllers(&document.paths, &simulated.targets),
    });
    caller::emit(&Event::Result(Box::new(result)));
}

fn cpu(document: &SimulateDocument, simulated: &Simulated) -> CpuReport {
    let spent_ns = |usage: &Usage| usage.work.spent_ns;
    let target_ns: u64 = simulated.targets.iter().map(spent_ns).sum();
    let machines = simulated.initiators.iter().map(|usage| (spent_ns(usage), document.initiators.cores));
    let machines = machines.chain(simulated.targets.iter().map(|usage| (spent_ns(usage), document.target.cores)));
    let initiators_ns: u64 = simulated.initiators.iter().map(spent_ns).sum();
    CpuReport {
        initiator: process(initiators_ns),
        target: Some(process(target_ns)),
        machine: MachineCpu {
            cores: machines
                .enumerate()
                .map(|(machine, (spent_ns, cores))| core(machine as u32, spent_ns, cores, document.load.runtime_ns))
                .collect(),
            busy_ns: initiators_ns + target_ns,
            resolution_ns: None,
        },
    }
}

fn cpu_point(part: &WindowPart) -> CpuPoint {
    let (initiators_ns, targets_ns) = (part.initiators.spent_ns, part.targets.spent_ns);
    let busy_ns = [("initiator", initiators_ns), ("target", targets_ns), ("machine", initiators_ns + targets_ns)];
    CpuPoint {
        at_ns: part.at.as_nanos() as u64,
        duration_ns: part.duration.as_nanos() as u64,
        busy_ns: busy_ns.map(|(role, spent_ns)| (role.to_owned(), spent_ns)).into_iter().collect(),
        guest_ns: 0,
        initiators: Some(site_report(&[Usage { work: part.initiators, ..Usage::default() }], false)),
        ios: Some(part.ios),
    }
}

fn site_report(machines: &[Usage], has_zones: bool) -> SiteReport {
    let busiest_port_ns = machines.iter().map(|machine| machine.busiest_port_ns).max().filter(|_| has_zones);
    let none = SiteReport { busiest_port_ns, ..SiteReport::default() };
    machines.iter().fold(none, |site, Usage { work, carried, .. }| SiteReport {
        wakes: site.wakes + work.wakes,
        wakes_deep_permille: site.wakes_deep_permille + work.wakes_deep_permille,
        turns: site.turns + work.turns,
        sends: site.sends + work.sends,
        bytes: site.bytes + work.bytes,
        segments: site.segments + work.segments,
        sent_bytes: site.sent_bytes + work.sent_bytes,
        sent_ns: site.sent_ns + carried.sent_ns,
        received_ns: site.received_ns + carried.received_ns,
        busiest_port_ns,
        credits_ns: site.credits_ns + carried.credits_ns,
        lost: site.lost + carried.lost,
        timeouts: site.timeouts + carried.timeouts,
    })
}

fn controllers(paths: &PathsSpec, targets: &[Usage]) -> Option<Vec<ControllerReport>> {
    paths.to?;
    let there = (1..=paths.controllers).filter(|number| paths.takeover != Some(*number));
    let reports = there.zip(targets).map(|(controller, usage)| ControllerReport {
        controller,
        busy_ns: usage.work.spent_ns,
        forwarded_bytes: usage.forwarded_bytes,
        interconnect_ns: usage.interconnect_ns,
    });
    Some(reports.collect())
}

fn lane_report(LaneUse { busy_ns, credits_ns, lost }: LaneUse) -> LaneReport {
    LaneReport { busy_ns, credits_ns, lost }
}

fn process(total_ns: u64) -> ProcessCpu {
    ProcessCpu {
        pid: 0,
        total_ns,
        user_ns: total_ns,
        system_ns: 0,
        guest_ns: 0,
        run_queue_wait_ns: 0,
        max_rss_bytes: 0,
        threads: None,
        events: None,
        no_events: Some("simulated processors have no counters".to_owned()),
    }
}

/// A simulated machine, whose cores are equal and reported as one.
fn core(cpu: u32, busy_ns: u64, cores: u32, window_ns: u64) -> CoreCpu {
    CoreCpu {
        cpu,
        user_ns: busy_ns,
        nice_ns: 0,
        system_ns: 0,
        irq_ns: 0,
        softirq_ns: 0,
        steal_ns: 0,
        idle_ns: (window_ns * u64::from(cores)).saturating_sub(busy_ns),
        iowait_ns: 0,
        guest_ns: 0,
    }
}
