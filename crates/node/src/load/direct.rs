//! The control of a protocol that needs no connections other than the workers' own.

use iotax_proto::{Instant, Transmit, Violation};

use super::{
    facts::Facts,
    link::{Control, ControlStep, Link},
};

/// Opens the links that `open` creates at once, and ends as soon as it is closed.
pub(crate) struct Direct<F> {
    /// `None` once the links are open.
    open: Option<F>,
    closing: bool,
    nothing: Transmit,
}

impl<F> Direct<F> {
    /// What the workers' connections found and negotiated, their initiators report.
    pub(crate) fn new(open: F) -> Self {
        Self { open: Some(open), closing: false, nothing: Transmit::default() }
    }
}

impl<I, F: FnOnce(Instant) -> Vec<Link<I>>> Control<I> for Direct<F> {
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
        self.open.take().map_or(ControlStep::Wait, |open| ControlStep::Open(open(now)))
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
