//! The connections of one thread's share of a load, and the control that opens those of its workers.

use std::{collections::VecDeque, net::SocketAddr};

use iotax_proto::{Instant, Transmit, Violation};

use super::super::link::{Control, ControlStep};
use crate::{
    node::{ConnId, Output},
    protocols::AnyInitiator,
};

/// Which connections are open, and what is to be done with them.
pub(super) struct Connections {
    pub(super) open: Vec<bool>,
    pub(super) outputs: VecDeque<Output>,
    /// Connections with bytes to send.
    pub(super) to_send: Vec<ConnId>,
}

impl Connections {
    pub(super) fn new(count: usize) -> Self {
        Self { open: vec![false; count], outputs: VecDeque::new(), to_send: Vec::new() }
    }

    pub(super) fn is_open(&self, conn: ConnId) -> bool {
        self.open[conn.0 as usize]
    }

    pub(super) fn connect(&mut self, conn: ConnId, to: SocketAddr) {
        self.open[conn.0 as usize] = true;
        self.outputs.push_back(Output::Connect { conn, to });
    }

    /// Closes a connection if it is open.
    pub(super) fn close(&mut self, conn: ConnId) {
        if self.is_open(conn) {
            self.outputs.push_back(Output::Close { conn });
        }
    }
}

pub(super) struct ControlLink {
    pub(super) control: Box<dyn Control<AnyInitiator>>,
    /// Where to connect once the current connection is closed.
    pub(super) next: Option<SocketAddr>,
    pub(super) closing: bool,
    /// It may have a next step: something happened to it, or its last step was not `Wait`.
    pub(super) to_ask: bool,
}

impl ControlLink {
    pub(super) fn new(control: Box<dyn Control<AnyInitiator>>) -> Self {
        Self { control, next: None, closing: false, to_ask: true }
    }

    pub(super) fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Violation> {
        self.to_ask = true;
        self.control.receive(now, bytes)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        self.to_ask = true;
        self.control.handle_timeout(now)
    }

    pub(super) fn close(&mut self, now: Instant) {
        (self.closing, self.to_ask) = (true, true);
        self.control.close(now);
    }

    /// The bytes to send on its connection. `None` while they are for the next connection.
    pub(super) fn transmit(&mut self) -> Option<&mut Transmit> {
        if self.next.is_none() { Some(self.control.transmit()) } else { None }
    }

    /// Takes its next step on `conn`, if it is `to_ask`. The caller has to act on `Open`, `Failed` and `Closed` only.
    pub(super) fn step(
        &mut self,
        now: Instant,
        conn: ConnId,
        connections: &mut Connections,
    ) -> ControlStep<AnyInitiator> {
        let step = self.control.step(now);
        self.to_ask = !matches!(step, ControlStep::Wait);
        if self.next.is_none() && !self.control.transmit().is_empty() {
            connections.to_send.push(conn);
        }
        match step {
            ControlStep::Connect(to) if connections.is_open(conn) => {
                connections.close(conn);
                self.next = Some(to);
            }
            ControlStep::Connect(to) => connections.connect(conn, to),
            ControlStep::Open(_) if !self.control.needs_connection() => connections.close(conn),
            ControlStep::Closed => connections.close(conn),
            ControlStep::Open(_) | ControlStep::Wait | ControlStep::Failed(_) => {}
        }
        step
    }
}
