//! What a thread receives at once is answered together, and no reply is lost.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use crate::support::peer::Peer;
use iotax_node::ListenerId;
use iotax_proto::Instant;
use iotax_sim::{Costs, Link, Wake, World};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 7000);
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const LIMIT: Instant = Instant(1_000_000_000);
const PIECE_BYTES: usize = 50;

/// A client sends two pieces to a server whose thread wakes slowly, so that both have arrived when it works.
fn two_pieces_come_at_once(wanted: usize) -> (Rc<RefCell<Peer>>, Rc<RefCell<Peer>>) {
    let mut world = World::new(1);
    let link = Link { latency: Duration::from_micros(1), piece_bytes: PIECE_BYTES, ..Link::default() };
    let links = [world.add_link(link.clone()), world.add_link(link)];
    let server = Peer::server(wanted);
    let serving = world.add_host(server.clone(), SERVER.ip(), None, links[0], Vec::new());
    world.listen(SERVER, ListenerId(0), &[serving]);
    let machine = world.add_machine(1);
    let costs = Costs { wake: Wake::always(100_000), ..Costs::default() };
    world.run_on(serving, machine, costs, Box::new(|| 0));
    let client = Peer::client(SERVER, 2 * PIECE_BYTES, false);
    let host = world.add_host(client.clone(), CLIENT, None, links[1], Vec::new());
    world.settle(host);
    world.run_until(LIMIT, |_| false);
    (server, client)
}

#[test]
fn pieces_received_at_once_are_answered_together() {
    let (server, client) = two_pieces_come_at_once(2);
    assert_eq!(server.borrow().received, [PIECE_BYTES, PIECE_BYTES]);
    assert_eq!(client.borrow().received, [2]);
}

#[test]
fn what_was_received_is_answered_where_the_node_wants_no_more() {
    let (server, client) = two_pieces_come_at_once(1);
    assert_eq!(server.borrow().received, [PIECE_BYTES]);
    assert_eq!(client.borrow().received, [1]);
}
