//! The raw limit of the socket path: requests of 72 bytes, replies with a header of 24 bytes and a block in place, one
//! connection, no other work. Prints one line of JSON for each depth. The cost of a protocol is the difference from
//! this.
//!
//! `cargo run --release --example raw_limit -- [--driver auto|io_uring|epoll] [--depth 1,32,128] [--seconds 1]
//! [--repeat 3] [--block-bytes 4096] [--region-mib 64] [--polling never] [--cpus SERVER,CLIENT]
//! [--without pieces|prefetch|reno]`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measurement, not a service"
)]

use std::{collections::VecDeque, net::SocketAddr, rc::Rc, time::Duration};

use iotax_node::{ConnId, Input, Node, Output};
use iotax_proto::{Instant, Payload, Region, Transmit};
use iotax_runtime::{
    Clock, Driver, DriverChoice, DriverConfig, Flow,
    cpu::pin_thread,
    driver::{Optimisations, Polling, listen},
    memory::SharedRegion,
};
use rustix::time::{ClockId, clock_gettime};

const REQUEST_BYTES: usize = 72;
const HEADER_BYTES: usize = 24;

struct Settings {
    driver: DriverChoice,
    depths: Vec<usize>,
    seconds: f64,
    repeat: usize,
    block_bytes: usize,
    region_bytes: usize,
    polling: Polling,
    cpus: Option<(usize, usize)>,
    optimisations: Optimisations,
}

fn main() {
    let settings = parse(std::env::args().skip(1));
    for &depth in &settings.depths {
        // Other work on the machine only slows a run down, so the best run is closest to the limit.
        let runs = (0..settings.repeat).map(|_| measure(&settings, depth));
        let best = runs.max_by(|a, b| a.rate.total_cmp(&b.rate)).unwrap();
        println!(
            "{{\"driver\":\"{}\",\"depth\":{depth},\"rate_iops\":{:.0},\"latency_p50_ns\":{},\"latency_p99_ns\":{},\
             \"client_cpu_ns_an_io\":{:.0},\"server_cpu_ns_an_io\":{:.0},\"polling\":\"{:?}\"}}",
            best.driver, best.rate, best.p50_ns, best.p99_ns, best.client_cpu_ns, best.server_cpu_ns, settings.polling,
        );
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Settings {
    let mut settings = Settings {
        driver: DriverChoice::Auto,
        depths: vec![1, 32, 128],
        seconds: 1.0,
        repeat: 3,
        block_bytes: 4096,
        region_bytes: 64 << 20,
        polling: Polling::Never,
        cpus: Some((0, 1)),
        optimisations: Optimisations::default(),
    };
    let numbers = |text: &str| text.split(',').map(|number| number.parse().unwrap()).collect::<Vec<usize>>();
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_else(|| panic!("{name} wants a value"));
        match name.as_str() {
            "--driver" => settings.driver = value.parse().unwrap(),
            "--depth" => settings.depths = numbers(&value),
            "--seconds" => settings.seconds = value.parse().unwrap(),
            "--repeat" => settings.repeat = value.parse().unwrap(),
            "--block-bytes" => settings.block_bytes = value.parse().unwrap(),
            "--region-mib" => settings.region_bytes = value.parse::<usize>().unwrap() << 20,
            "--polling" => {
                settings.polling = match value.as_str() {
                    "never" => Polling::Never,
                    "auto" => Polling::Auto,
                    "always" => Polling::Always,
                    _ => panic!("--polling {value}: never, auto or always"),
                }
            }
            "--without" => settings.optimisations = value.parse().unwrap(),
            "--cpus" => {
                settings.cpus = match numbers(&value)[..] {
                    [server, client] => Some((server, client)),
                    _ => None,
                }
            }
            _ => panic!("there is no {name}"),
        }
    }
    settings
}

struct Outcome {
    driver: &'static str,
    rate: f64,
    p50_ns: u64,
    p99_ns: u64,
    client_cpu_ns: f64,
    server_cpu_ns: f64,
}

fn measure(settings: &Settings, depth: usize) -> Outcome {
    let listener = listen("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = |cpu: Option<usize>| {
        if let Some(cpu) = cpu {
            pin_thread(&[cpu]).unwrap();
        }
        let mut config = DriverConfig::new(settings.driver, Clock::start()).unwrap();
        config.polling = settings.polling;
        config.optimisations = settings.optimisations;
        config
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut config = config(settings.cpus.map(|cpus| cpus.0));
            config.listeners.push(listener);
            let mut node = Server::new(settings.block_bytes, settings.region_bytes);
            let before_ns = cpu_ns(); // the time to fill the region does not count
            Driver::new(config).unwrap().run(&mut node, |_, _| Flow::Continue).unwrap();
            (cpu_ns() - before_ns, node.answered)
        });
        let client = scope.spawn(move || {
            let config = config(settings.cpus.map(|cpus| cpus.1));
            let driver = Driver::new(config).unwrap();
            let kind = driver.kind();
            let mut node = Client::new(address, depth, settings.block_bytes, Duration::from_secs_f64(settings.seconds));
            driver.run(&mut node, |_, _| Flow::Continue).unwrap();
            (cpu_ns(), kind, node.latencies_ns)
        });
        let (client_ns, kind, mut latencies) = client.join().unwrap();
        let (server_ns, answered) = server.join().unwrap();
        latencies.sort_unstable();
        let percentile = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
        Outcome {
            driver: kind.name(),
            rate: latencies.len() as f64 / settings.seconds,
            p50_ns: percentile(50).into(),
            p99_ns: percentile(99).into(),
            client_cpu_ns: client_ns as f64 / answered as f64,
            server_cpu_ns: server_ns as f64 / answered as f64,
        }
    })
}

/// CPU time of the calling thread.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Answers every 72 bytes with a header and a block of a memory region, in place.
struct Server {
    queue: Transmit,
    told: Option<ConnId>,
    partial: usize,
    region: Rc<dyn Region>,
    blocks: usize,
    block_bytes: usize,
    block: usize,
    answered: u64,
    over: bool,
}

impl Server {
    fn new(block_bytes: usize, region_bytes: usize) -> Self {
        let region = SharedRegion::anonymous(region_bytes, true).unwrap().region();
        Self {
            queue: Transmit::default(),
            told: None,
            partial: 0,
            region,
            blocks: region_bytes / block_bytes,
            block_bytes,
            block: 0,
            answered: 0,
            over: false,
        }
    }
}

impl Node for Server {
    fn handle(&mut self, _now: Instant, input: Input<'_>) {
        match input {
            Input::Received { conn, bytes } => {
                self.partial += bytes.len();
                if self.queue.is_empty() && self.partial >= REQUEST_BYTES {
                    self.told = Some(conn);
                }
                while self.partial >= REQUEST_BYTES {
                    self.partial -= REQUEST_BYTES;
                    self.answered += 1;
                    // A stride that visits all blocks in an order that no prefetcher predicts.
                    self.block = (self.block + 7919) % self.blocks;
                    self.queue.put(&[7; HEADER_BYTES]);
                    let offset = self.block * self.block_bytes;
                    self.queue.payload(Payload::new(Rc::clone(&self.region), offset, self.block_bytes));
                }
            }
            Input::Closed { .. } => self.over = true,
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        None
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        self.told.take()
    }

    fn transmit(&mut self, _conn: ConnId) -> Option<&mut Transmit> {
        Some(&mut self.queue)
    }

    fn is_finished(&self) -> bool {
        self.over
    }
}

/// Keeps `depth` requests under way and times them; replies arrive in order.
struct Client {
    queue: Transmit,
    told: Option<ConnId>,
    outputs: VecDeque<Output>,
    depth: usize,
    answer_bytes: usize,
    runtime: Duration,
    /// When the requests under way were sent.
    begun: VecDeque<Instant>,
    partial: usize,
    measure_from: Option<Instant>,
    latencies_ns: Vec<u32>,
    closing: bool,
    over: bool,
}

/// Not measured, at the start of a run.
const WARMUP: Duration = Duration::from_millis(100);

impl Client {
    fn new(to: SocketAddr, depth: usize, block_bytes: usize, runtime: Duration) -> Self {
        Self {
            queue: Transmit::default(),
            told: None,
            outputs: [Output::Connect { conn: ConnId(0), to }].into(),
            depth,
            answer_bytes: HEADER_BYTES + block_bytes,
            runtime,
            begun: VecDeque::with_capacity(depth),
            partial: 0,
            measure_from: None,
            latencies_ns: Vec::with_capacity(1 << 22),
            closing: false,
            over: false,
        }
    }

    fn request(&mut self, now: Instant) {
        if self.queue.is_empty() {
            self.told = Some(ConnId(0));
        }
        self.queue.put(&[3; REQUEST_BYTES]);
        self.begun.push_back(now);
    }
}

impl Node for Client {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Connected { .. } => {
                self.measure_from = Some(now + WARMUP);
                for _ in 0..self.depth {
                    self.request(now);
                }
            }
            Input::Received { bytes, .. } if !self.closing => {
                self.partial += bytes.len();
                let from = self.measure_from.unwrap();
                while self.partial >= self.answer_bytes {
                    self.partial -= self.answer_bytes;
                    let begun = self.begun.pop_front().unwrap();
                    if now >= from {
                        self.latencies_ns.push(u32::try_from(now.since(begun).as_nanos()).unwrap_or(u32::MAX));
                    }
                    self.request(now);
                }
                if now >= from + self.runtime {
                    self.closing = true;
                    self.outputs.push_back(Output::Close { conn: ConnId(0) });
                }
            }
            Input::Closed { .. } => self.over = true,
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        self.told.take()
    }

    fn transmit(&mut self, _conn: ConnId) -> Option<&mut Transmit> {
        Some(&mut self.queue)
    }

    fn is_finished(&self) -> bool {
        self.over
    }
}
