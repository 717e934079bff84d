//! The end of a connection arrives after its data, wherever these wait.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use crate::support::peer::Peer;
use iotax_node::{ConnId, Input, ListenerId, Node, Output};
use iotax_proto::{Instant, Transmit};
use iotax_sim::{Choice, Frames, Link, Way, Ways, World};

const PORT: u16 = 7000;
const LIMIT: Instant = Instant(1_000_000_000);
/// At one byte per nanosecond.
const BEFORE_BYTES: usize = 1_000_000;

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

fn port(latency: Duration) -> Link {
    Link { latency, rate_bytes_per_s: Some(1_000_000_000), frames: Some(Frames::ethernet(1500)), ..Link::default() }
}

/// Connects, sends `bytes` bytes, and closes.
fn sender(bytes: usize) -> Rc<RefCell<Peer>> {
    Peer::client(SocketAddr::new(address(1), PORT), bytes, true)
}

/// Records what each connection delivered, and when.
#[derive(Default)]
struct Receiver {
    came: Vec<(Instant, ConnId, usize)>,
    ended: Vec<(Instant, ConnId)>,
}

impl Node for Receiver {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Received { conn, bytes } => self.came.push((now, conn, bytes.len())),
            Input::Closed { conn, .. } => self.ended.push((now, conn)),
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        None
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        None
    }

    fn transmit(&mut self, _: ConnId) -> Option<&mut Transmit> {
        None
    }

    fn is_finished(&self) -> bool {
        false
    }
}

impl Receiver {
    fn of(&self, conn: ConnId) -> (usize, Instant, Instant) {
        let came = self.came.iter().filter(|(_, of, _)| *of == conn);
        let bytes = came.clone().map(|(_, _, bytes)| bytes).sum();
        let first = came.clone().next().map_or(Instant(0), |(at, ..)| *at);
        let end = self.ended.iter().find(|(_, of)| *of == conn).map_or(Instant(0), |(at, _)| *at);
        (bytes, first, end)
    }
}

fn served(world: &mut World, link: usize) -> Rc<RefCell<Receiver>> {
    let receiver = Rc::new(RefCell::new(Receiver::default()));
    let host = world.add_host(receiver.clone(), address(1), None, link, Vec::new());
    world.listen(SocketAddr::new(address(1), PORT), ListenerId(0), &[host]);
    receiver
}

#[test]
fn an_end_waits_at_the_port_for_what_others_sent_before() {
    let mut world = World::new(1);
    let links: Vec<usize> = (0..3).map(|_| world.add_link(port(Duration::from_micros(10)))).collect();
    let receiver = served(&mut world, links[0]);
    let bytes = [BEFORE_BYTES, 1000];
    for (index, bytes) in bytes.into_iter().enumerate() {
        let sender = sender(bytes);
        let host = world.add_host(sender, address(2 + index as u8), None, links[1 + index], Vec::new());
        world.settle(host);
    }
    let both_ended = |_: &mut World| receiver.borrow().ended.len() == 2;
    assert!(world.run_until(LIMIT, both_ended), "{:?}", receiver.borrow().ended);
    let (much, _, _) = receiver.borrow().of(ConnId(0));
    let (little, first, end) = receiver.borrow().of(ConnId(1));
    assert_eq!([much, little], bytes);
    // After everything that had been sent to the port by then.
    assert!(first.0 > BEFORE_BYTES as u64 && end >= first, "data at {first:?}, the end at {end:?}");
}

#[test]
fn an_end_by_a_fast_way_waits_for_data_by_a_slow_one() {
    let mut world = World::new(1);
    let slow = Duration::from_millis(5);
    let (near, far) = (world.add_link(port(Duration::ZERO)), world.add_link(port(Duration::ZERO)));
    let (slow_near, slow_far) = (world.add_link(port(slow)), world.add_link(port(Duration::ZERO)));
    let receiver = served(&mut world, far);
    let host = world.add_host(sender(1000), address(2), None, near, Vec::new());
    let ways = vec![Way { near: slow_near, far: slow_far, by: None }, Way { near, far, by: None }];
    world.set_ways(host, Ways::new(ways, Choice::InTurn));
    world.settle(host);
    assert!(world.run_until(LIMIT, |_| !receiver.borrow().ended.is_empty()));
    let (bytes, first, end) = receiver.borrow().of(ConnId(0));
    assert_eq!(bytes, 1000);
    assert!(first.0 >= slow.as_nanos() as u64 && end >= first, "data at {first:?}, the end at {end:?}");
}
