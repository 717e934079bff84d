//! What a thread receives at once is answered together, and no answer is lost for it.

use std::{
    cell::RefCell,
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use iotax_node::{ConnId, Input, ListenerId, Node, Output};
use iotax_proto::{Instant, Transmit};
use iotax_sim::{Costs, Link, Wake, World};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 7000);
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const LIMIT: Instant = Instant(1_000_000_000);
const PIECE_BYTES: usize = 50;

/// Sends `bytes` once it is connected, and counts what comes. With `answers`, each time when something comes it sends a byte, and
/// wants so many pieces and no more.
struct Peer {
    bytes: usize,
    answers: Option<usize>,
    outputs: VecDeque<Output>,
    transmit: Transmit,
    sends: bool,
    received: Vec<usize>,
}

impl Peer {
    fn new(bytes: usize, answers: Option<usize>, outputs: Vec<Output>) -> Rc<RefCell<Self>> {
        let transmit = Transmit::default();
        Rc::new(RefCell::new(Self {
            bytes,
            answers,
            outputs: outputs.into(),
            transmit,
            sends: false,
            received: vec![],
        }))
    }

    fn send(&mut self, bytes: usize) {
        self.transmit.put(&vec![1; bytes]);
        self.sends = true;
    }
}

impl Node for Peer {
    fn handle(&mut self, _: Instant, input: Input<'_>) {
        match input {
            Input::Connected { .. } => self.send(self.bytes),
            Input::Received { bytes, .. } => {
                self.received.push(bytes.len());
                if self.answers.is_some() {
                    self.send(1);
                }
            }
            _ => {}
        }
    }

    fn wants_receive(&self, _: ConnId) -> bool {
        self.answers.is_none_or(|most| self.received.len() < most)
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        std::mem::take(&mut self.sends).then_some(ConnId(0))
    }

    fn transmit(&mut self, _: ConnId) -> Option<&mut Transmit> {
        Some(&mut self.transmit)
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// A client sends two pieces to a server whose thread takes long to wake, so that both are there when it is at work.
fn two_pieces_come_at_once(wanted: usize) -> (Rc<RefCell<Peer>>, Rc<RefCell<Peer>>) {
    let mut world = World::new(1);
    let link = Link { latency: Duration::from_micros(1), piece_bytes: PIECE_BYTES, ..Link::default() };
    let links = [world.add_link(link.clone()), world.add_link(link)];
    let server = Peer::new(0, Some(wanted), vec![]);
    let serving = world.add_host(server.clone(), SERVER.ip(), None, links[0], Vec::new());
    world.listen(SERVER, ListenerId(0), &[serving]);
    let machine = world.add_machine(1);
    let costs = Costs { wake: Wake::always(100_000), ..Costs::default() };
    world.run_on(serving, machine, costs, Box::new(|| 0));
    let connect = Output::Connect { conn: ConnId(0), to: SERVER };
    let client = Peer::new(2 * PIECE_BYTES, None, vec![connect]);
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
