//! Measures the accounting of an I/O: latency histograms, the series of intervals, outstanding I/Os over time, and the
//! ledger of writes for verification. Prints one line of JSON, nanoseconds per I/O.
//!
//! `cargo run --release --example accounting`
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a measurement, not a service")]

use std::{hint::black_box, time::Duration};

use iotax_node::load::{
    Direction, StreamConfig,
    ledger::Ledger,
    pacing::Schedule,
    recorder::{Completion, Recorder},
};
use iotax_proto::Instant;

const IOS: u64 = 4_000_000;
/// Virtual time between completions: a million I/Os per second.
const STEP: Duration = Duration::from_micros(1);
const BLOCK_BYTES: u32 = 4096;
const BLOCKS: u64 = (512 << 20) / BLOCK_BYTES as u64;

fn main() {
    println!("{{\"recorder_ns\":{:.1},\"ledger_ns\":{:.1}}}", recorder_ns(), ledger_ns());
}

fn recorder_ns() -> f64 {
    let begin = Instant(1_000);
    let runtime = STEP * u32::try_from(IOS).unwrap_or(u32::MAX);
    let schedule = Schedule::new(begin, Duration::ZERO, runtime, Duration::from_millis(100));
    let access = StreamConfig {
        name: String::new(),
        share: 1.0,
        block_size_bytes: BLOCK_BYTES,
        read_percent: 100.0,
        random_percent: 100.0,
        shared: None,
    };
    let mut recorder = Recorder::new(schedule, [(access, 1)], false);
    let started = std::time::Instant::now();
    for io in 0..IOS {
        let completed = begin + STEP * u32::try_from(io).unwrap_or(u32::MAX);
        // Latencies of 30 to 94 µs, in an order without a pattern.
        let latency_ns = 30_000 + (io.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48);
        let submitted = Instant(completed.0.saturating_sub(latency_ns));
        recorder.advance(completed);
        recorder.complete(black_box(Completion {
            stream: 0,
            direction: Direction::Read,
            bytes: BLOCK_BYTES,
            intended: submitted,
            possible: submitted,
            submitted,
            completed,
        }));
        recorder.outstanding(completed, 32);
    }
    black_box(&recorder);
    started.elapsed().as_nanos() as f64 / IOS as f64
}

fn ledger_ns() -> f64 {
    let mut ledger = Ledger::new(1, 1, 0, BLOCKS, u64::from(BLOCK_BYTES));
    let started = std::time::Instant::now();
    for io in 0..IOS {
        let block = io.wrapping_mul(0x9E37_79B9_7F4A_7C15) % BLOCKS;
        let stamp = ledger.issue();
        ledger.written(black_box(block * u64::from(BLOCK_BYTES)), stamp.sequence);
    }
    black_box(&ledger);
    started.elapsed().as_nanos() as f64 / IOS as f64
}
