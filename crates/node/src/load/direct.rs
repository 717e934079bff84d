//! The control of a protocol that needs no connections other than the workers' own.

use std::net::SocketAddr;

use iotax_proto::{Instant, Transmit, Violation};

use super::{
    config::Facts,
    link::{Control, ControlStep, Link},
    settings::Workers,
};

/// Opens a link for each worker at once, and ends as soon as it is closed.
pub(crate) struct Direct<F> {
    to: SocketAddr,
    /// `None` once their links are open.
    workers: Option<Workers>,
    initiator: F,
    closing: bool,
    nothing: Transmit,
}

impl<F> Direct<F> {
    /// `initiator` creates that of the worker with a number. It also reports what the connection found and negotiated.
    pub(crate) fn new(to: SocketAddr, workers: Workers, initiator: F) -> Self {
        Self { to, workers: Some(workers), initiator, closing: false, nothing: Transmit::default() }
    }
}

impl<I, F: Fn(Instant, u32) -> I> Control<I> for Direct<F> {
    fn receive(&mut self, _: Instant, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.nothing
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) -> Result<(), Violation> {
        Ok(())
    }

    fn step(&mut self, now: Instant) -> ControlStep<I> {
        if self.closing {
            return ControlStep::Closed;
        }
        let Some(workers) = self.workers.take() else { return ControlStep::Wait };
        let link = |worker| Link { initiator: (self.initiator)(now, worker), to: Some(self.to) };
        ControlStep::Open(workers.numbers().map(link).collect())
    }

    fn close(&mut self, _: Instant) {
        self.closing = true;
    }

    fn needs_connection(&self) -> bool {
        false
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }
}
