//! Modelled media behind operations in real time: completion times compared with queueing theory, and over every
//! protocol. The tests determine the time.
#![allow(clippy::cast_precision_loss)] // figures far below 2^53

use std::{cell::RefCell, rc::Rc, time::Duration};

use crate::support::{
    Heap, RUN,
    server::{Bench, PROTOCOLS},
};
use iotax_node::{
    ConnId, RunConfig,
    seeded::SeededRng,
    volume::{
        Buffers, Disks, Media, MediaModel, ModelledMedia, Operations, Shape, Spindles, VolumeSpec, Volumes, unit_of,
    },
};
use iotax_proto::{Instant, Started, UnitOp};

const SIZE: u64 = 1 << 20;
const SERVICE: Duration = Duration::from_micros(100);

fn model(servers: usize) -> MediaModel {
    MediaModel {
        service: SERVICE,
        spread: Duration::ZERO,
        shape: Shape::Even,
        slow_chance: 0,
        slow: Duration::ZERO,
        servers,
        spindles: None,
        collecting: None,
    }
}

/// One connection of one thread of a server whose volume has these media.
fn connection(media: &ModelledMedia, conn: u32) -> Operations {
    let mut spec = VolumeSpec::new("v", SIZE, Media::Memory);
    spec.model = Some(media.clone());
    let volumes = Volumes::new(&[spec], &mut |_| Heap::new(SIZE as usize), None);
    let disks = Disks::new(Buffers::new(Box::new(|len| Some(Heap::new(len)))));
    Operations::new(ConnId(conn), Rc::new(volumes), Rc::new(RefCell::new(disks)))
}

fn read(offset: u64) -> UnitOp {
    UnitOp::Read { offset, len: 4096, durable: false }
}

fn start(operations: &mut Operations, at_ns: u64, id: u32, op: UnitOp) -> Started {
    operations.start(Instant(at_ns), id, unit_of(0, false), op)
}

/// The mean response time of 20,000 reads that arrive as a Poisson process, ns.
fn response_ns(model: MediaModel, rate_per_s: f64, seed: u64) -> f64 {
    const READS: u32 = 20_000;
    let media = ModelledMedia::new(model, seed);
    let mut operations = connection(&media, 0);
    let mut arrivals = SeededRng::new(seed, "arrivals", 0);
    let (mut clock_s, mut sum_ns, mut at_once) = (0.0, 0.0, 0);
    let mut came_at_ns = vec![0; READS as usize];
    for id in 0..READS {
        clock_s += arrivals.exponential() / rate_per_s;
        let at_ns = Duration::from_secs_f64(clock_s).as_nanos() as u64;
        came_at_ns[id as usize] = at_ns;
        // A service time can be 0 ns.
        at_once += u64::from(matches!(start(&mut operations, at_ns, id, read(0)), Started::Done(_)));
        let last = id + 1 == READS;
        while let Some(due) = operations.next_due().filter(|due| last || due.0 <= at_ns) {
            let (told, _) = operations.take_due(due).expect("one that is due");
            sum_ns += (due.0 - came_at_ns[told as usize]) as f64;
        }
    }
    let work = media.take_work();
    assert_eq!((work.told + at_once, work.late_sum_ns), (u64::from(READS), 0));
    sum_ns / f64::from(READS)
}

/// Erlang C (Kleinrock, Queueing Systems I, §3.5); for constant and uniform service times Pollaczek-Khinchine (§5.6).
#[test]
fn response_times_are_those_of_theory() {
    const SEEDS: u64 = 30;
    // Student's t at 99.9 % for 29 degrees of freedom.
    const T: f64 = 3.659;
    let exponential = |servers| MediaModel { shape: Shape::Exponential, ..model(servers) };
    let uniform = MediaModel { service: Duration::ZERO, spread: 2 * SERVICE, ..model(1) };
    for (name, model, expected_us) in [
        ("M/M/1, 50 %", exponential(1), 200.0),
        ("M/M/4, 70 %", exponential(4), 135.7),
        ("M/D/1, 70 %", model(1), 216.7),
        ("M/U/1, 70 %", uniform, 255.6),
    ] {
        let utilisation = if name.contains("50") { 0.5 } else { 0.7 };
        let rate_per_s = model.servers as f64 * utilisation / SERVICE.as_secs_f64();
        let of = |seed| response_ns(model.clone(), rate_per_s, seed) / 1e3;
        let means: Vec<f64> = (0..SEEDS).map(of).collect();
        let mean = means.iter().sum::<f64>() / SEEDS as f64;
        let variance = means.iter().map(|each| (each - mean).powi(2)).sum::<f64>() / (SEEDS - 1) as f64;
        let half_width = T * (variance / SEEDS as f64).sqrt();
        assert!((mean - expected_us).abs() < half_width, "{name}: {mean} ± {half_width} µs");
    }
}

#[test]
fn threads_of_a_server_wait_for_the_same_media() {
    let media = ModelledMedia::new(model(1), 1);
    let (mut one, mut other) = (connection(&media, 0), connection(&media, 1));
    start(&mut one, 0, 0, read(0));
    start(&mut other, 0, 0, read(0));
    start(&mut one, 0, 1, read(0));
    assert_eq!((one.next_due(), other.next_due()), (Some(Instant(100_000)), Some(Instant(200_000))));
    assert!(one.take_due(Instant(100_000)).is_some());
    assert_eq!(one.next_due(), Some(Instant(300_000)));
}

#[test]
fn write_comes_to_the_media_when_its_data_are_there() {
    let mut operations = connection(&ModelledMedia::new(model(1), 1), 0);
    let write = UnitOp::Write { offset: 0, len: 512, durable: false };
    assert!(matches!(start(&mut operations, 0, 0, write), Started::NeedData));
    start(&mut operations, 10, 1, read(4096));
    operations.place(0, 0, &[7; 512]);
    assert!(matches!(operations.finish(Instant(30), 0), Started::Queued));
    let told = |operations: &mut Operations, at| operations.take_due(Instant(at)).map(|(id, _)| id);
    assert_eq!((told(&mut operations, 100_010), told(&mut operations, 200_009)), (Some(1), None));
    assert_eq!(told(&mut operations, 200_010), Some(0));
    start(&mut operations, 300_000, 0, UnitOp::Read { offset: 0, len: 512, durable: false });
    let (_, result) = operations.take_due(Instant(400_000)).expect("due");
    assert_eq!(result.expect("read").expect("data").to_vec(), [7; 512]);
}

#[test]
fn what_a_cache_answers_is_told_at_once_and_is_no_operation_of_a_disk() {
    let spindles = Spindles {
        seek: Duration::from_millis(3),
        turn: Duration::from_millis(4),
        read_hits: 1_000_000,
        destage: Some(250_000),
        parity: None,
    };
    let media = ModelledMedia::new(MediaModel { spindles: Some(spindles), ..model(2) }, 1);
    let mut operations = connection(&media, 0);
    assert!(matches!(start(&mut operations, 0, 0, read(0)), Started::Done(Ok(Some(_)))));
    assert!(matches!(start(&mut operations, 0, 1, UnitOp::Flush), Started::Done(Ok(None))));
    assert_eq!(media.take_work().operations, 0);
    start(&mut operations, 0, 2, UnitOp::Write { offset: 0, len: 512, durable: true });
    assert!(matches!(operations.finish(Instant(0), 2), Started::Done(Ok(None))));
    let work = media.take_work();
    assert_eq!((work.operations, work.told), (1, 0));
    assert!(work.busy_ns > 0, "the disk has it to do");
}

#[test]
fn lateness_is_what_passes_after_the_time_that_the_model_says() {
    let media = ModelledMedia::new(model(4), 1);
    let mut operations = connection(&media, 0);
    for id in 0..3 {
        start(&mut operations, 0, id, read(0));
    }
    operations.abort(2, None);
    for at in [100_000, 100_700] {
        assert!(operations.take_due(Instant(at)).is_some());
    }
    assert!(operations.take_due(Instant(200_000)).is_none(), "it was aborted");
    let work = media.take_work();
    assert_eq!((work.operations, work.busy_ns), (3, 300_000));
    assert_eq!((work.told, work.late_sum_ns, work.late_max_ns), (2, 700, 700));
    assert_eq!(media.take_work().late_max_ns, 0, "none since it was asked");
}

#[test]
fn closed_loop_over_every_protocol_keeps_the_media_busy() {
    for protocol in PROTOCOLS {
        let media = ModelledMedia::new(model(1), 1);
        let mut bench = Bench::with(|volume| volume.model = Some(media.clone()), |_| {});
        let run = RunConfig { runtime: Duration::from_millis(200), ..RUN };
        let measured = bench.run(protocol, run, 1).expect("right data");
        let ios = measured.read.ios + measured.write.ios;
        assert!(ios.abs_diff(2_000) <= u64::from(RUN.outstanding), "{protocol:?}: {ios}");
    }
}
