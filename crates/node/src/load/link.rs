//! How a worker reaches its unit.

use std::net::SocketAddr;

use iotax_proto::{Instant, Transmit, Violation};

use super::facts::Facts;
use crate::failure::Failure;

/// A worker's own way to its unit: one connection, or none. `I` is the initiator, of one protocol or of any.
#[derive(Debug)]
pub struct Link<I> {
    pub initiator: I,
    /// Where to connect to; `None` for a unit of this machine.
    pub to: Option<SocketAddr>,
}

/// What comes before the workers' own connections (a mount, a controller's admin queue), on one connection at a time.
pub trait Control<I> {
    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Violation>;
    fn transmit(&mut self) -> &mut Transmit;
    fn poll_timeout(&self) -> Option<Instant>;
    fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation>;
    /// What to do next; asked after every call above until it is to wait, each answer given once.
    fn step(&mut self, now: Instant) -> ControlStep<I>;
    /// Begins the orderly end, when the workers' connections are closed.
    fn close(&mut self, now: Instant);
    /// False while its connection, if there is one, is of no use.
    fn needs_connection(&self) -> bool;
    /// What it found and agreed on, once the links are open.
    fn facts(&self) -> Facts;
}

#[derive(Debug)]
pub enum ControlStep<I> {
    Wait,
    /// Close the connection, if there is one, and go on at this address.
    Connect(SocketAddr),
    /// The workers may connect, each with its own link.
    Open(Vec<Link<I>>),
    Failed(Failure),
    /// The end is done.
    Closed,
}
