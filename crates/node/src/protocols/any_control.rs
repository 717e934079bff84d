//! Wraps one protocol's `Control` as a control of any protocol.

use iotax_proto::{Instant, Transmit, Violation};

use super::AnyInitiator;
use crate::{
    access::Access,
    load::{
        Facts,
        link::{Control, ControlStep, Link},
    },
};

struct Wrapped<I> {
    control: Box<dyn Control<I>>,
    wrap: fn(I) -> AnyInitiator,
}

pub(super) fn any_control<I: 'static>(
    control: Box<dyn Control<I>>,
    wrap: fn(I) -> AnyInitiator,
) -> Box<dyn Control<AnyInitiator>> {
    Box::new(Wrapped { control, wrap })
}

impl<I> Control<AnyInitiator> for Wrapped<I> {
    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Violation> {
        self.control.receive(now, bytes)
    }

    fn transmit(&mut self) -> &mut Transmit {
        self.control.transmit()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.control.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        self.control.handle_timeout(now)
    }

    fn step(&mut self, now: Instant) -> ControlStep<AnyInitiator> {
        match self.control.step(now) {
            ControlStep::Open(links) => {
                let wrap = |Link { initiator, to }| Link { initiator: (self.wrap)(initiator), to };
                ControlStep::Open(links.into_iter().map(wrap).collect())
            }
            ControlStep::Wait => ControlStep::Wait,
            ControlStep::Connect(to) => ControlStep::Connect(to),
            ControlStep::Failed(failure) => ControlStep::Failed(failure),
            ControlStep::Closed => ControlStep::Closed,
        }
    }

    fn close(&mut self, now: Instant) {
        self.control.close(now);
    }

    fn needs_connection(&self) -> bool {
        self.control.needs_connection()
    }

    fn facts(&self) -> Facts {
        self.control.facts()
    }

    fn access(&self) -> Option<Access> {
        self.control.access()
    }

    fn check_access(&mut self, now: Instant) {
        self.control.check_access(now);
    }
}
