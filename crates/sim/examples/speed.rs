//! Measures how many I/Os one core simulates per second of real time. `speed` runs 4 KiB reads through the whole stack
//! of each protocol. `speed PROTOCOL LOADS OUTSTANDING MILLISECONDS` runs that much virtual time of one protocol, and
//! prints only its I/Os.
#![allow(clippy::print_stdout, clippy::cast_precision_loss)]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use iotax_node::{Failure, Protocol, RunConfig};
use iotax_sim::{
    Costs, Frames, Link, PROTOCOLS, Wake,
    lab::{Lab, Simulated, Site},
    protocol_named,
};
use support::{lab, reads};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        all();
        return ExitCode::SUCCESS;
    }
    match one(&arguments) {
        Ok(ios) => {
            println!("{ios}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            println!("speed: {message}");
            ExitCode::from(2)
        }
    }
}

fn all() {
    println!("protocol   loads outstanding  simulated I/Os  I/Os a second");
    for (protocol, name) in PROTOCOLS {
        for (loads, outstanding) in [(1, 32), (16, 4), (160, 4)] {
            let began = Instant::now();
            match simulate(protocol, loads, outstanding, Duration::from_secs(2)) {
                Ok(simulated) => {
                    let ios = simulated.measured.read.ios;
                    let rate = ios as f64 / began.elapsed().as_secs_f64();
                    println!("{name:<10} {loads:>5} {outstanding:>11} {ios:>15} {rate:>14.0}");
                }
                Err(failure) => println!("{name}: {}", failure.message),
            }
        }
    }
}

fn one(arguments: &[String]) -> Result<u64, String> {
    let [protocol, loads, outstanding, milliseconds] = arguments else {
        return Err("usage: speed [PROTOCOL LOADS OUTSTANDING MILLISECONDS]".to_owned());
    };
    let number = |text: &String| text.parse::<u32>().map_err(|_| format!("'{text}' is not a number"));
    let runtime = Duration::from_millis(number(milliseconds)?.into());
    let simulated = simulate(protocol_named(protocol)?, number(loads)?, number(outstanding)?, runtime);
    simulated.map(|simulated| simulated.measured.read.ios).map_err(|failure| failure.message)
}

fn simulate(protocol: Protocol, loads: u32, outstanding: u32, runtime: Duration) -> Result<Simulated, Failure> {
    let wake = Wake::always(20_000);
    let costs = Costs { wake, turn_ns: 500, send_ns: 500, kib_ns: 100, kib_sent_ns: 100, ..Costs::default() };
    let site = Site { cores: 2, costs, io_ns: 200 };
    let link = Link { rate_bytes_per_s: Some(12_500_000_000), frames: Some(Frames::ethernet(9000)), ..Link::default() };
    let lab = Lab { initiator: site.clone(), target: site, loads, size_bytes: 64 << 20, ..lab(protocol, link) };
    let sample = Duration::from_millis(500);
    let run = RunConfig { warmup: Duration::ZERO, sample, ..reads(outstanding, runtime) };
    lab.run(&run, 1, None, Ok, |_| {})
}
