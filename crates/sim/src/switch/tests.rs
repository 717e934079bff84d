//! Switches alone, with frames, compared with what follows from rates, delays and credits.

use super::*;
use crate::{events::Events, link::Loss};

/// One byte per nanosecond, so that a frame of 1,000 bytes takes 1 µs.
const RATE: Option<u64> = Some(1_000_000_000);
const FRAME: usize = 1000;

fn link(latency_ns: u64, credits: Option<u32>) -> Link {
    let frames = Some(Frames::of_bytes(FRAME as u32));
    Link { latency: Duration::from_nanos(latency_ns), rate_bytes_per_s: RATE, frames, credits, ..Link::default() }
}

/// Runs shipments that leave at given times; records each arrival with its time.
struct Bench {
    switching: Switching,
    events: Events<Step>,
    now: u64,
    shipped: Vec<(u64, Shipped)>,
}

impl Bench {
    /// The initiators' ports come first, from 0 on, then those of the targets; each has its own link.
    fn new(trunk: Option<Link>, initiators: &[Link], targets: &[Link]) -> Self {
        let mut bench = Self { switching: Switching::default(), events: Events::new(), now: 0, shipped: Vec::new() };
        bench.switching.add_fabric(trunk);
        for (port, link) in initiators.iter().enumerate() {
            bench.switching.attach(0, Edge::Initiators, port, link);
        }
        for (port, link) in targets.iter().enumerate() {
            bench.switching.attach(0, Edge::Targets, initiators.len() + port, link);
        }
        bench
    }

    fn ship(&mut self, at: u64, from: usize, to: usize, frames: usize) {
        let shipment = Shipment {
            pipe: PipeId { slot: from as u32, generation: 0 },
            side: Side::Client,
            end: 0,
            bytes: frames * FRAME,
            fills: false,
            sent_at: Instant(at),
            from,
            way: Way { near: from, far: to, by: None },
        };
        let number = self.switching.ship(shipment, self.switching.route(from, to).expect("a way"));
        self.events.push(Instant(at), Step::Leaves { shipment: number });
    }

    fn run(&mut self, until: u64) -> &mut Self {
        while self.events.next_at().is_some_and(|at| at.0 <= until) {
            let Some((now, step)) = self.events.pop() else { break };
            self.now = now.0;
            match step {
                Step::Leaves { shipment } => self.switching.leaves(shipment, now, || false),
                Step::Comes(frame) => self.shipped.extend(self.switching.comes(frame, now).map(|each| (now.0, each))),
                Step::Goes { lane } => self.switching.goes(lane, now),
            }
            for (at, step) in self.switching.steps.drain(..) {
                self.events.push(at, step);
            }
        }
        self
    }

    /// Number of shipments from a port that have arrived.
    fn come_from(&self, from: usize) -> usize {
        self.shipped.iter().filter(|(_, each)| each.shipment.from == from).count()
    }
}

#[test]
fn frame_is_sent_anew_by_each_link_of_its_way() {
    for (trunk, links) in [(None, 2), (Some(link(100, None)), 3)] {
        let mut bench = Bench::new(trunk, &[link(100, None)], &[link(100, None)]);
        bench.ship(0, 0, 1, 1);
        bench.ship(0, 1, 0, 3);
        let shipped: Vec<_> = bench.run(u64::MAX).shipped.iter().map(|(at, _)| *at).collect();
        // The later frames follow the first, link by link.
        assert_eq!(shipped, [links * 1100, links * 1100 + 2000]);
    }
}

#[test]
fn credits_of_a_link_carry_as_many_frames_in_each_round_trip() {
    for credits in [1, 4, 16] {
        // A frame takes 1 µs to send and 10 µs to reach the switch, leaves it in 1 µs, and its buffer takes 10 µs to
        // return.
        let mut bench = Bench::new(None, &[link(10_000, Some(credits))], &[link(0, None)]);
        for _ in 0..2000 {
            bench.ship(0, 0, 1, 1);
        }
        let come = bench.run(1_000_000).come_from(0);
        let expected = (1_000_000 / 22_000 * credits as usize).min(1000);
        assert!(come.abs_diff(expected) <= credits as usize + 10, "{credits}: {come}, not {expected}");
        let [sent, _] = bench.switching.used_by(0, Instant(bench.now)).expect("a port");
        assert!((sent.busy_ns + sent.credits_ns).abs_diff(bench.now) < 12_000, "{credits}: {sent:?}");
    }
}

#[test]
fn trunk_carries_its_rate_whatever_number_of_ports_share_it() {
    for ports in [2, 3, 8] {
        for credits in [None, Some(8)] {
            let ends = vec![link(0, credits); ports];
            let mut bench = Bench::new(Some(link(0, credits)), &ends, &ends);
            for port in 0..ports {
                for _ in 0..1000 {
                    bench.ship(0, port, ports + port, 1);
                }
            }
            bench.run(900_000);
            let each: Vec<_> = (0..ports).map(|port| bench.come_from(port)).collect();
            let all: usize = each.iter().sum();
            assert!((895..=900).contains(&all), "{ports} ports, {credits:?}: {all} frames in 900 µs");
            if credits.is_some() {
                assert!(each.iter().all(|frames| frames.abs_diff(all / ports) <= 3), "{each:?}");
            }
        }
    }
}

/// One of two ports has a tenth of the rate. Frames that wait for it hold the trunk's buffers.
#[test]
fn slow_port_holds_buffers_and_slows_what_another_port_is_sent() {
    let fast_frames = |trunk_credits| {
        let fast = link(1000, Some(8));
        let slow = Link { rate_bytes_per_s: RATE.map(|rate| rate / 10), ..fast.clone() };
        let trunk = link(1000, Some(trunk_credits));
        let mut bench = Bench::new(Some(trunk), &[fast.clone(), fast.clone()], &[slow, fast]);
        // Each keeps 64 frames under way, and sends another for each that arrived.
        for _ in 0..64 {
            bench.ship(0, 0, 2, 1);
            bench.ship(0, 1, 3, 1);
        }
        for at in 1..2000_u64 {
            let had = bench.shipped.len();
            bench.run(at * 1000);
            let come: Vec<_> = bench.shipped.iter().skip(had).map(|(_, each)| each.shipment.from).collect();
            for from in come {
                bench.ship(at * 1000, from, from + 2, 1);
            }
        }
        let [out, _] = bench.switching.trunk_used(0, Instant(bench.now)).expect("a trunk");
        (bench.come_from(0), bench.come_from(1), 100 * out.credits_ns / bench.now)
    };
    let (slow, fast, starved) = fast_frames(8);
    assert!((195..=200).contains(&slow), "{slow}");
    assert!(
        fast < 300 && starved > 70,
        "with 8 credits {fast} frames, for {slow} of the slow port; starved {starved} %"
    );
    let (slow, fast, starved) = fast_frames(256);
    assert!((195..=200).contains(&slow), "{slow}");
    assert!(fast > 1700 && starved < 1, "with 256 credits {fast} frames; starved {starved} %");
}

#[test]
fn frames_without_room_in_front_of_a_link_are_lost_and_those_behind_them_are_told() {
    let buffer = Some(Loss { per_million: 0, buffer_bytes: Some(3 * FRAME as u64) });
    let port = Link { loss: buffer, ..link(0, None) };
    let slow = Link { rate_bytes_per_s: RATE.map(|rate| rate / 4), ..port.clone() };
    let mut bench = Bench::new(None, &[port.clone(), port], &[slow]);
    bench.ship(0, 0, 2, 12);
    bench.ship(0, 1, 2, 1);
    bench.run(u64::MAX);
    let lost: Vec<_> = bench.shipped.iter().map(|(_, each)| (each.shipment.from, each.lost_segments)).collect();
    // One is being sent while three wait; then one finds room for each that leaves, every 4 µs.
    assert_eq!(lost, [(1, 0), (0, 7)]);
    let first = bench.shipped.last().expect("the long one").1;
    assert_eq!((first.lost_bytes, first.behind), (7 * FRAME, 2));
    let [_, down] = bench.switching.used_by(2, Instant(bench.now)).expect("a port");
    assert_eq!((down.lost, down.busy_ns), (7, 6 * 4000));
}

#[test]
fn what_a_failed_port_had_under_way_does_not_come_and_gives_its_buffers_back() {
    let port = link(1000, Some(4));
    let mut bench = Bench::new(Some(port.clone()), &[port.clone(), port.clone()], &[port]);
    bench.ship(0, 0, 2, 100);
    bench.run(20_000);
    let failed = bench.switching.fail(0);
    assert_eq!((failed.len(), failed[0].bytes, bench.switching.fail(0).len()), (1, 100 * FRAME, 0));
    bench.ship(20_000, 1, 2, 50);
    bench.run(u64::MAX);
    assert_eq!((bench.come_from(0), bench.come_from(1)), (0, 1));
    assert!(bench.switching.lanes.iter().all(|lane| lane.held == 0 && lane.pending_bytes == 0), "nothing is left");
    assert!(bench.switching.under_way.is_empty());
}

#[test]
fn end_of_a_stream_comes_behind_all_before_it_and_takes_no_time() {
    let mut bench = Bench::new(None, &[link(100, Some(1))], &[link(100, Some(1))]);
    bench.ship(0, 0, 1, 2);
    bench.ship(0, 0, 1, 0);
    let shipped = &bench.run(u64::MAX).shipped;
    let come: Vec<_> = shipped.iter().map(|(at, each)| (*at, each.shipment.bytes)).collect();
    assert_eq!(come[0].1, 2 * FRAME);
    assert_eq!(come[0].0, come[1].0);
}
