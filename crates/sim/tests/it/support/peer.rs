//! A node with one connection that sends, counts what it receives, and replies if requested.
#![allow(dead_code)] // not each test needs all

use std::{cell::RefCell, collections::VecDeque, net::SocketAddr, rc::Rc};

use iotax_node::{ConnId, Input, Node, Output};
use iotax_proto::{Instant, Transmit};

const CONN: ConnId = ConnId(0);

#[derive(Default)]
pub(crate) struct Peer {
    /// Bytes sent once it is connected, before it closes if `closes`.
    bytes: usize,
    closes: bool,
    /// It replies to each arrival with one byte; it accepts this many pieces and no more.
    answers: Option<usize>,
    outputs: VecDeque<Output>,
    transmit: Transmit,
    sends: bool,
    /// Number of bytes of each piece.
    pub(crate) received: Vec<usize>,
}

impl Peer {
    pub(crate) fn client(to: SocketAddr, bytes: usize, closes: bool) -> Rc<RefCell<Self>> {
        let outputs = [Output::Connect { conn: CONN, to }].into();
        Rc::new(RefCell::new(Self { bytes, closes, outputs, ..Self::default() }))
    }

    pub(crate) fn server(answers: usize) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self { answers: Some(answers), ..Self::default() }))
    }

    fn send(&mut self, bytes: usize) {
        self.transmit.put(&vec![1; bytes]);
        self.sends = true;
    }
}

impl Node for Peer {
    fn handle(&mut self, _: Instant, input: Input<'_>) {
        match input {
            Input::Connected { .. } => {
                self.send(self.bytes);
                self.outputs.extend(self.closes.then_some(Output::Close { conn: CONN }));
            }
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
        std::mem::take(&mut self.sends).then_some(CONN)
    }

    fn transmit(&mut self, _: ConnId) -> Option<&mut Transmit> {
        Some(&mut self.transmit)
    }

    fn is_finished(&self) -> bool {
        false
    }
}
