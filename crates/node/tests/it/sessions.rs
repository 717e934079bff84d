//! A session: one load whose connections stay open while it is measured in slices.

use std::{rc::Rc, time::Duration};

use crate::support::{
    Heap, RUN, load,
    server::{Bench, PROTOCOLS, SIZE},
};
use iotax_node::{
    TaskConfig,
    load::{Arrivals, Measured, Open, Pacing, RunConfig},
    pattern::Pool,
    server::Protocol,
    volume,
};

const WARMUP: Duration = Duration::from_millis(2);
const SLICE: Duration = Duration::from_millis(10);

/// Measures `count` slices of one load. `before` is called with the volume's memory before each.
fn slices(protocol: Protocol, config: RunConfig, count: usize, before: impl Fn(&Heap, usize)) -> Vec<Measured> {
    let mut bench = Bench::new();
    bench.fill();
    let endpoint = bench.endpoint(protocol);
    let mut node = bench.load(&endpoint, load(TaskConfig::Run(config), 2)).expect("config");
    node.stay();
    let memory = Rc::clone(&bench.memory);
    let (mut measured, mut begun) = (Vec::new(), 0);
    let outcome = bench.drive_session(node, |node, now| {
        measured.extend(node.take_slice());
        if !node.is_ready() || measured.len() < begun {
            return;
        }
        if begun == count {
            return node.release(now);
        }
        before(&memory, begun);
        begun += 1;
        node.begin_slice(now + Duration::from_millis(1), WARMUP, SLICE, 1000 + begun as u64);
    });
    assert!(!matches!(outcome, Some(Err(_))), "{outcome:?}");
    assert_eq!(measured.len(), count);
    measured
}

#[test]
fn slices_of_a_session_are_measured_one_by_one() {
    for protocol in PROTOCOLS {
        for slice in slices(protocol, RUN, 3, |_, _| {}) {
            assert!(slice.read.ios > 20 && slice.write.ios > 20, "{protocol:?}: {slice:?}");
            assert_eq!(slice.read.ios, slice.read.latency.count(), "{protocol:?}");
            assert!(slice.verify.checked_blocks > 0 && slice.verify.wrong_blocks == 0, "{protocol:?}");
            let window: Vec<_> = slice.series.iter().filter(|sample| sample.in_window).collect();
            assert_eq!(window.len() as u128, SLICE.as_nanos() / RUN.sample.as_nanos(), "{protocol:?}");
            let together_ns: u64 = window.iter().map(|sample| sample.duration_ns).sum();
            assert_eq!(together_ns, SLICE.as_nanos() as u64, "{protocol:?}");
            assert_eq!(window.iter().map(|sample| sample.reads).sum::<u64>(), slice.read.ios, "{protocol:?}");
        }
    }
}

#[test]
fn what_a_slice_wrote_is_read_back_before_the_next() {
    let rewrite =
        |memory: &Heap, slice: usize| volume::fill(memory, &Pool::default(), 0, SIZE as u64, 50 + slice as u64);
    for slice in slices(Protocol::NvmeTcp, RunConfig { read_back: true, ..RUN }, 3, rewrite) {
        let verify = slice.verify;
        assert!(verify.read_back_blocks > 8 * 20 && verify.wrong_blocks == 0, "{verify:?}");
    }
}

#[test]
fn what_others_wrote_between_slices_is_no_loss() {
    for protocol in PROTOCOLS {
        let rewrite =
            |memory: &Heap, slice: usize| volume::fill(memory, &Pool::default(), 0, SIZE as u64, 50 + slice as u64);
        for slice in slices(protocol, RUN, 3, rewrite) {
            assert_eq!(slice.verify.wrong_blocks, 0, "{protocol:?}");
        }
    }
}

#[test]
fn open_loop_of_each_slice_is_offered_its_own_arrivals() {
    let pacing = Pacing::Open(Open { rate_iops: 4000.0, arrivals: Arrivals::Constant, backlog_max: 64 });
    for protocol in PROTOCOLS {
        for slice in slices(protocol, RunConfig { pacing, ..RUN }, 3, |_, _| {}) {
            let arrived = slice.streams[0].arrived.expect("an open loop");
            assert_eq!((arrived.offered, arrived.dropped), (40, 0), "{protocol:?}");
        }
    }
}
