//! Known results about queues and links, compared with the full stacks in virtual time. Each seed has its own
//! confidence interval, from the means of its window's batches.
//! `cargo test --release -p iotax-sim --test it theory -- --ignored --nocapture` is the long form: 100 seeds of each,
//! as a table.
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // figures of a run, far below 2^53

use std::time::Duration;

use iotax_node::{
    RunConfig,
    load::{Arrivals, Measured, Open, Pacing},
    server::Protocol,
    volume::{MediaModel, Shape},
};
use iotax_sim::{
    Frames, Link, Media, Wake,
    lab::{Lab, PathPolicy, Paths},
};

const SERVICE: Duration = Duration::from_micros(100);
const BATCHES: u32 = 20;
/// Student's t at 99.5 % for 19 degrees of freedom.
const T: f64 = 2.861;
/// Length of a batch: 75 times the relaxation time 1/(μ(1 − √ρ)²) of M/M/1 at the highest utilisation used here (Cohen,
/// The Single Server Queue, §II.2.1), so that batches are practically independent.
const BATCH: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug)]
struct Queue {
    name: &'static str,
    servers: u32,
    exponential: bool,
    utilisation: f64,
}

const QUEUES: [Queue; 5] = [
    Queue { name: "M/M/1, 50 %", servers: 1, exponential: true, utilisation: 0.5 },
    Queue { name: "M/M/1, 70 %", servers: 1, exponential: true, utilisation: 0.7 },
    Queue { name: "M/M/4, 50 %", servers: 4, exponential: true, utilisation: 0.5 },
    Queue { name: "M/M/4, 70 %", servers: 4, exponential: true, utilisation: 0.7 },
    Queue { name: "M/D/1, 70 %", servers: 1, exponential: false, utilisation: 0.7 },
];

fn servers(count: usize) -> MediaModel {
    MediaModel { service: SERVICE, spread: Duration::ZERO, servers: count, ..Media::default().model }
}

fn media(model: MediaModel) -> Media {
    Media { model, write_through: true, ..Media::default() }
}

impl Queue {
    /// Mean response time: Erlang C (Kleinrock, Queueing Systems I, §3.5), for M/D/1 Pollaczek-Khinchine (§5.6).
    fn expected_ns(self) -> f64 {
        let (service_ns, servers) = (SERVICE.as_nanos() as f64, f64::from(self.servers));
        let load = servers * self.utilisation;
        // Erlang B by its recursion, then C.
        let blocked = (1..=self.servers).fold(1.0, |b, k| load * b / (f64::from(k) + load * b));
        let waits = blocked / (1.0 - self.utilisation * (1.0 - blocked));
        let wait_ns = waits * service_ns / (servers * (1.0 - self.utilisation));
        service_ns + if self.exponential { wait_ns } else { wait_ns / 2.0 }
    }

    fn measure(self, protocol: Protocol, seed: u64) -> Measured {
        let rate_iops = f64::from(self.servers) * self.utilisation / SERVICE.as_secs_f64();
        let open = Open { rate_iops, arrivals: Arrivals::Poisson, backlog_max: 65536 };
        let shape = if self.exponential { Shape::Exponential } else { Shape::Even };
        let media = media(MediaModel { shape, ..servers(self.servers as usize) });
        let lab =
            Lab { media: Some(media), ..lab(protocol, Link { latency: Duration::ZERO, ..Link::default() }, seed) };
        simulate(&lab, &RunConfig { pacing: Pacing::Open(open), outstanding: 128, ..run(BATCH * BATCHES, seed) })
    }
}

fn lab(protocol: Protocol, link: Link, seed: u64) -> Lab {
    Lab { seed, ..crate::support::lab(protocol, link) }
}

fn run(runtime: Duration, seed: u64) -> RunConfig {
    RunConfig { warmup: BATCH, sample: BATCH, seed, ..crate::support::reads(1, runtime) }
}

fn simulate(lab: &Lab, run: &RunConfig) -> Measured {
    lab.run(run, 1, None, Ok, |_| {}).expect("a run").measured
}

/// Mean of the window's batches, and half of its 99 % confidence interval.
fn interval(measured: &Measured) -> (f64, f64) {
    let batches: Vec<f64> = measured
        .series
        .iter()
        .filter(|sample| sample.in_window)
        .map(|sample| {
            let (sum, count) =
                sample.latency.0.iter().fold((0, 0), |(sum, n), (value, count)| (sum + value * count, n + count));
            sum as f64 / count as f64
        })
        .collect();
    assert_eq!(batches.len(), BATCHES as usize);
    let mean = batches.iter().sum::<f64>() / f64::from(BATCHES);
    let variance = batches.iter().map(|each| (each - mean).powi(2)).sum::<f64>() / f64::from(BATCHES - 1);
    (mean, T * (variance / f64::from(BATCHES)).sqrt())
}

struct Agreement {
    inside: u32,
    mean_ns: f64,
    half_width: f64,
}

/// A queue or a network of queues whose mean response time is known.
trait Known: std::fmt::Debug {
    fn name(&self) -> &'static str;
    fn expected_ns(&self) -> f64;
    fn measure(&self, protocol: Protocol, seed: u64) -> Measured;
}

impl Known for Queue {
    fn name(&self) -> &'static str {
        self.name
    }

    fn expected_ns(&self) -> f64 {
        (*self).expected_ns()
    }

    fn measure(&self, protocol: Protocol, seed: u64) -> Measured {
        (*self).measure(protocol, seed)
    }
}

/// One server with Poisson arrivals whose service times are neither constant nor exponential: uniform, and some of 1000
/// longer.
#[derive(Clone, Copy, Debug)]
struct General {
    name: &'static str,
    shortest: Duration,
    spread: Duration,
    slow_chance: u64,
    slow: Duration,
    utilisation: f64,
}

const GENERAL: [General; 2] = [
    General {
        name: "M/G/1, uniform, 70 %",
        shortest: Duration::from_micros(50),
        spread: Duration::from_micros(100),
        slow_chance: 0,
        slow: Duration::ZERO,
        utilisation: 0.7,
    },
    General {
        name: "M/G/1, 5 % slow, 50 %",
        shortest: Duration::from_micros(80),
        spread: Duration::ZERO,
        slow_chance: 50,
        slow: Duration::from_micros(400),
        utilisation: 0.5,
    },
];

impl General {
    /// Mean and second moment of the service time, ns and ns²; its two parts are drawn independently.
    fn moments(&self) -> (f64, f64) {
        let (spread, slow, chance) =
            (self.spread.as_nanos() as f64, self.slow.as_nanos() as f64, self.slow_chance as f64 / 1000.0);
        let mean = self.shortest.as_nanos() as f64 + spread / 2.0 + chance * slow;
        let variance = spread * spread / 12.0 + chance * (1.0 - chance) * slow * slow;
        (mean, variance + mean * mean)
    }
}

impl Known for General {
    fn name(&self) -> &'static str {
        self.name
    }

    /// Pollaczek-Khinchine (Kleinrock, Queueing Systems I, §5.6).
    fn expected_ns(&self) -> f64 {
        let (mean, second) = self.moments();
        mean + self.utilisation / mean * second / (2.0 * (1.0 - self.utilisation))
    }

    fn measure(&self, protocol: Protocol, seed: u64) -> Measured {
        let rate_iops = self.utilisation / self.moments().0 * 1e9;
        let open = Open { rate_iops, arrivals: Arrivals::Poisson, backlog_max: 65536 };
        let media = media(MediaModel {
            service: self.shortest,
            spread: self.spread,
            slow_chance: self.slow_chance,
            slow: self.slow,
            ..servers(1)
        });
        let lab =
            Lab { media: Some(media), ..lab(protocol, Link { latency: Duration::ZERO, ..Link::default() }, seed) };
        simulate(&lab, &RunConfig { pacing: Pacing::Open(open), outstanding: 128, ..run(BATCH * BATCHES, seed) })
    }
}

/// A closed network: `loads` loads with one outstanding I/O each visit their own processors, the links, and exponential
/// media. The times of processors and links are constant and without waiting, so they are think time. Of such a station
/// only the mean matters (Baskett, Chandy, Muntz and Palacios, J. ACM 22 (1975), type 3).
#[derive(Clone, Copy, Debug)]
struct Network {
    name: &'static str,
    loads: u32,
    processor: Duration,
    link: Duration,
    servers: u32,
}

const NETWORKS: [Network; 3] = [
    Network {
        name: "machine repairman, 8 and 1 server",
        loads: 8,
        processor: Duration::ZERO,
        link: Duration::from_micros(250),
        servers: 1,
    },
    Network {
        name: "machine repairman, 16 and 4 servers",
        loads: 16,
        processor: Duration::ZERO,
        link: Duration::from_micros(150),
        servers: 4,
    },
    Network {
        name: "processors, link and 2 servers, 6 loads",
        loads: 6,
        processor: Duration::from_micros(60),
        link: Duration::from_micros(40),
        servers: 2,
    },
];

/// Closed networks have a shorter memory than an open queue of the same utilisation.
const NETWORK_BATCH: Duration = Duration::from_millis(100);

impl Network {
    fn thinks_ns(&self) -> f64 {
        (self.processor + 2 * self.link).as_nanos() as f64
    }

    /// The same as `expected_ns` in closed form: the states of the machine repairman (Kleinrock, Queueing Systems I,
    /// §3.8).
    fn repairman_ns(&self) -> f64 {
        let (service_ns, ratio) = (SERVICE.as_nanos() as f64, SERVICE.as_nanos() as f64 / self.thinks_ns());
        let (mut weight, mut total, mut busy) = (1.0, 1.0, 0.0);
        for at_media in 1..=self.loads {
            let working = f64::from(at_media.min(self.servers));
            weight *= f64::from(self.loads - at_media + 1) * ratio / working;
            total += weight;
            busy += weight * working;
        }
        f64::from(self.loads) * service_ns / (busy / total)
    }
}

impl Known for Network {
    fn name(&self) -> &'static str {
        self.name
    }

    /// Time of a whole round, by exact mean value analysis with a multi-server station (Reiser and Lavenberg, J. ACM 27
    /// (1980)).
    fn expected_ns(&self) -> f64 {
        let (service_ns, servers) = (SERVICE.as_nanos() as f64, self.servers as usize);
        // Probability of each number of loads at the media, in a network with one load fewer.
        let mut at_media = vec![1.0];
        let mut round_ns = 0.0;
        for loads in 1..=self.loads as usize {
            let rate = |there: usize| there.min(servers) as f64 / service_ns;
            let waits_ns: f64 = (1..=loads).map(|there| there as f64 / rate(there) * at_media[there - 1]).sum();
            round_ns = self.thinks_ns() + waits_ns;
            let throughput = loads as f64 / round_ns;
            let mut next: Vec<f64> = (0..=loads)
                .map(|there| if there == 0 { 0.0 } else { throughput / rate(there) * at_media[there - 1] })
                .collect();
            next[0] = 1.0 - next.iter().sum::<f64>();
            at_media = next;
        }
        round_ns
    }

    fn measure(&self, protocol: Protocol, seed: u64) -> Measured {
        let media = media(MediaModel { shape: Shape::Exponential, ..servers(self.servers as usize) });
        let mut lab = Lab { media: Some(media), ..lab(protocol, Link { latency: self.link, ..Link::default() }, seed) };
        (lab.loads, lab.initiator.cores) = (self.loads, self.loads as usize);
        lab.initiator.io_ns = self.processor.as_nanos() as u64;
        let run = RunConfig { warmup: NETWORK_BATCH, sample: NETWORK_BATCH, ..run(NETWORK_BATCH * BATCHES, seed) };
        simulate(&lab, &run)
    }
}

#[test]
fn mean_value_analysis_and_the_machine_repairman_are_one_theory() {
    for network in NETWORKS {
        let (analysis, repairman) = (network.expected_ns(), network.repairman_ns());
        assert!((analysis / repairman - 1.0).abs() < 1e-9, "{network:?}: {analysis}, {repairman}");
    }
}

/// In how many seeds the theoretical value lies in the seed's own interval.
fn agree(known: &dyn Known, protocol: Protocol, seeds: u32) -> Agreement {
    let (mut inside, mut mean_ns, mut half_width) = (0, 0.0, 0.0);
    for seed in 0..u64::from(seeds) {
        let (mean, half) = interval(&known.measure(protocol, seed));
        inside += u32::from((mean - known.expected_ns()).abs() <= half);
        mean_ns += mean / f64::from(seeds);
        half_width += half / mean / f64::from(seeds);
    }
    Agreement { inside, mean_ns, half_width }
}

fn queues() -> Vec<Box<dyn Known>> {
    QUEUES.into_iter().map(|queue| Box::new(queue) as Box<dyn Known>).collect()
}

fn general_and_networks() -> Vec<Box<dyn Known>> {
    let general = GENERAL.into_iter().map(|queue| Box::new(queue) as Box<dyn Known>);
    general.chain(NETWORKS.into_iter().map(|network| Box::new(network) as Box<dyn Known>)).collect()
}

const OVER: [(Protocol, &str); 3] =
    [(Protocol::NvmeTcp, "nvme-tcp"), (Protocol::Iscsi, "iscsi"), (Protocol::Nfs3, "nfs3")];

#[test]
fn loads_respond_as_queueing_theory_says() {
    let known = queues().into_iter().chain(general_and_networks());
    for (known, (protocol, name)) in known.zip(OVER.into_iter().cycle()) {
        let found = agree(&*known, protocol, 3);
        let expected_ns = known.expected_ns();
        assert!(
            found.inside >= 2,
            "{known:?} over {name}: {} of 3, {} ns, {expected_ns} ns",
            found.inside,
            found.mean_ns
        );
    }
}

#[test]
#[ignore = "long: 1,500 runs"]
fn hundred_seeds_of_queues_respond_as_theory_says() {
    hundred_seeds(&queues());
}

#[test]
#[ignore = "long: 1,500 runs"]
fn hundred_seeds_of_general_service_and_closed_networks_respond_as_theory_says() {
    hundred_seeds(&general_and_networks());
}

#[allow(clippy::print_stdout)]
fn hundred_seeds(all: &[Box<dyn Known>]) {
    println!(
        "| queue | protocol | theory µs | mean of 100 seeds µs | half-width of a seed's 99 % interval | seeds inside |"
    );
    println!("|---|---|---|---|---|---|");
    let mut inside = 0;
    for known in all {
        for (protocol, name) in OVER {
            let found = agree(&**known, protocol, 100);
            let (theory, mean) = (known.expected_ns() / 1e3, found.mean_ns / 1e3);
            println!(
                "| {} | {name} | {theory:.1} | {mean:.1} | {:.1} % | {} |",
                known.name(),
                found.half_width * 100.0,
                found.inside
            );
            // If each is inside with 99 %, the probability of fewer than 95 of 100 is 1 in 2,000.
            assert!(found.inside >= 95, "{known:?} over {name}");
            inside += found.inside;
        }
    }
    println!("\n{inside} of {}", 100 * OVER.len() * all.len());
}

#[test]
fn closed_loop_keeps_every_server_busy() {
    for protocol in [Protocol::NvmeTcp, Protocol::Iscsi, Protocol::Nfs3] {
        let media = media(servers(4));
        let lab = Lab { media: Some(media), ..lab(protocol, Link { latency: Duration::ZERO, ..Link::default() }, 1) };
        let measured = simulate(&lab, &RunConfig { outstanding: 16, ..run(Duration::from_secs(1), 1) });
        // Four servers of 100 µs: by Little's law, with 16 outstanding each takes 400 µs.
        assert!(measured.read.ios.abs_diff(40_000) <= 16, "{protocol:?}: {}", measured.read.ios);
        let mean_ns = measured.read.latency_sum_ns / measured.read.ios;
        assert!(mean_ns.abs_diff(400_000) < 400, "{protocol:?}: {mean_ns}");
    }
}

#[test]
fn link_carries_its_rate_less_headers() {
    for (protocol, most) in [(Protocol::NvmeTcp, 48), (Protocol::Iscsi, 96), (Protocol::Nfs3, 160)] {
        for mtu in [1500_u32, 9000] {
            let link =
                Link { rate_bytes_per_s: Some(1_250_000_000), frames: Some(Frames::ethernet(mtu)), ..Link::default() };
            let measured =
                simulate(&lab(protocol, link, 1), &RunConfig { outstanding: 64, ..run(Duration::from_millis(200), 1) });
            let rate = measured.read.bytes as f64 / 0.2 / 1.25e9;
            let bound = f64::from(mtu - 52) / f64::from(mtu + 38);
            // Each I/O has protocol headers, and its last segment is not full.
            let segments = f64::from(4096 + most).div_euclid(f64::from(mtu - 52)) + 1.0;
            let least = 4096.0 / (f64::from(4096 + most) + segments * 90.0);
            assert!(rate < bound && rate >= least * 0.99, "{protocol:?} at {mtu}: {rate}, {least} to {bound}");
        }
    }
}

#[test]
fn processor_that_is_charged_for_each_io_bounds_the_rate() {
    for protocol in [Protocol::NvmeTcp, Protocol::Iscsi, Protocol::Nfs3] {
        let mut lab = lab(protocol, Link { latency: Duration::from_micros(1), ..Link::default() }, 1);
        lab.target.io_ns = 10_000;
        let simulated =
            lab.run(&RunConfig { outstanding: 32, ..run(Duration::from_millis(200), 1) }, 1, None, Ok, |_| {}).unwrap();
        let ios = simulated.measured.read.ios;
        // Commands received together are answered together: the processor waits for both directions of the link once
        // per 32.
        assert!((19_800..=20_064).contains(&ios), "{protocol:?}: {ios}");
        // The time charged is the cost of the I/Os, except for those under way at the window's edges.
        assert!(
            simulated.targets[0].work.spent_ns.abs_diff(ios * 10_000) <= 64 * 10_000,
            "{protocol:?}: {}",
            simulated.targets[0].work.spent_ns
        );
        assert_eq!(simulated.initiators[0].work.spent_ns, 0);
    }
}

#[test]
fn thread_that_sleeps_is_woken_for_each_io_and_one_that_has_work_is_not() {
    let wakes = |outstanding| {
        let mut lab = lab(Protocol::NvmeTcp, Link { latency: Duration::from_micros(5), ..Link::default() }, 1);
        (lab.target.costs.wake, lab.target.io_ns) = (Wake::always(20_000), 2_000);
        let simulated =
            lab.run(&RunConfig { outstanding, ..run(Duration::from_millis(100), 1) }, 1, None, Ok, |_| {}).unwrap();
        simulated.targets[0].work.spent_ns / simulated.measured.read.ios
    };
    assert_eq!(wakes(1), 22_000);
    assert!(wakes(64) < 4_000, "{}", wakes(64));
}

#[test]
fn machines_share_the_servers_port_and_loads_their_machines_cores() {
    let link = Link { rate_bytes_per_s: Some(125_000_000), frames: Some(Frames::ethernet(1500)), ..Link::default() };
    let write = RunConfig { outstanding: 16, read_percent: 0.0, ..run(Duration::from_millis(200), 1) };
    let many = Lab { machines: 4, loads: 2, ..lab(Protocol::NvmeTcp, link, 1) };
    let rate = simulate(&many, &write).write.bytes as f64 / 0.2 / 125e6;
    assert!((0.85..1.0).contains(&rate), "{rate} of the server's port, from four of them");

    let mut crowded = lab(Protocol::NvmeTcp, Link::default(), 1);
    (crowded.loads, crowded.initiator.io_ns) = (4, 10_000);
    let read = RunConfig { outstanding: 8, ..run(Duration::from_millis(200), 1) };
    let one = simulate(&crowded, &read).read.ios;
    crowded.initiator.cores = 2;
    let two = simulate(&crowded, &read).read.ios;
    assert!(one.abs_diff(20_000) <= 64 && two.abs_diff(40_000) <= 64, "{one} {two}");
}

#[test]
fn controllers_share_out_machines_and_round_robin_uses_every_port() {
    // Writes are limited by the ports that send them.
    let rate = |paths, protocol, frames| {
        let link = Link { rate_bytes_per_s: Some(125_000_000), frames: Some(frames), ..Link::default() };
        let write = RunConfig { outstanding: 16, read_percent: 0.0, ..run(Duration::from_millis(200), 1) };
        let lab = Lab { machines: 4, loads: 2, paths, ..lab(protocol, link, 1) };
        simulate(&lab, &write).write.bytes as f64 / 0.2 / 125e6
    };
    let one = Paths::default();
    for (paths, ports) in [
        (one.clone(), 1.0),
        (Paths { controllers: 2, ..one.clone() }, 2.0),
        (Paths { controllers: 2, target_ports: 2, ..one.clone() }, 4.0),
        // A standby second path carries nothing.
        (Paths { target_ports: 2, ports: 2, ..one.clone() }, 2.0),
        (Paths { target_ports: 8, ports: 2, policy: PathPolicy::RoundRobin, ..one.clone() }, 8.0),
        (Paths { target_ports: 8, ports: 2, policy: PathPolicy::QueueDepth, ..one.clone() }, 8.0),
        (Paths { target_ports: 8, ports: 2, policy: PathPolicy::Numa, ..one.clone() }, 8.0),
    ] {
        let rate = rate(paths.clone(), Protocol::Fcp, Frames::FIBRE_CHANNEL);
        assert!(rate > 0.85 * ports && rate < ports, "{paths:?}: {rate} of {ports} ports");
    }
    let ethernet = rate(Paths { controllers: 4, ..one }, Protocol::Iscsi, Frames::ethernet(9000));
    assert!((3.4..4.0).contains(&ethernet), "{ethernet}");
}

#[test]
fn same_seed_gives_the_same_figures_and_trace() {
    for protocol in [Protocol::NvmeTcp, Protocol::Iscsi, Protocol::Nfs3] {
        let of = |seed| {
            let media = media(MediaModel { shape: Shape::Exponential, ..servers(2) });
            let mut lab = Lab { media: Some(media), loads: 2, filled: true, ..lab(protocol, Link::default(), seed) };
            (lab.target.costs.wake, lab.target.io_ns) = (Wake::always(5_000), 1_000);
            let run =
                RunConfig { outstanding: 4, read_percent: 50.0, verify: true, ..run(Duration::from_millis(100), seed) };
            lab.run(&run, 2, None, Ok, |_| {}).expect("a run")
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1).trace, of(2).trace);
        assert_eq!((of(1).measured.verify.wrong_blocks, of(1).measured.write.errors), (0, 0));
        assert!(of(1).measured.verify.checked_blocks > 0);
    }
}
