//! How a worker reaches its unit.

use std::net::SocketAddr;

use iotax_proto::{Instant, Transmit, Violation};

use super::config::Facts;
use crate::{access::Access, failure::Failure};

/// A worker's own path to its unit: one connection, or none. `I` is the initiator, of one protocol or of any.
#[derive(Debug)]
pub struct Link<I> {
    pub initiator: I,
    /// Address to connect to; `None` for a unit on this machine.
    pub to: Option<SocketAddr>,
}

/// The steps before the workers' own connections (a mount, a controller's admin queue), on one connection at a time.
pub trait Control<I> {
    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Violation>;
    fn transmit(&mut self) -> &mut Transmit;
    fn poll_timeout(&self) -> Option<Instant>;
    fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation>;
    /// What to do next. To be called after every call above until it returns `Wait`; it returns each step once.
    fn step(&mut self, now: Instant) -> ControlStep<I>;
    /// Begins to end in order, once the workers' connections are closed.
    fn close(&mut self, now: Instant);
    /// False while its connection, if there is one, is not needed.
    fn needs_connection(&self) -> bool;
    /// What it found and negotiated, once the links are open.
    fn facts(&self) -> Facts;
    /// How the unit can be accessed over this path, as far as it is known; `None` if the target does not say.
    fn access(&self) -> Option<Access> {
        None
    }
    /// Asks for the access again, because an I/O was refused. Until it is known, it is `Inaccessible`.
    fn check_access(&mut self, _now: Instant) {}
}

#[derive(Debug)]
pub enum ControlStep<I> {
    Wait,
    /// Close the connection, if there is one, and continue at this address.
    Connect(SocketAddr),
    /// The workers may connect, each with its own link.
    Open(Vec<Link<I>>),
    Failed(Failure),
    /// It has ended.
    Closed,
}
