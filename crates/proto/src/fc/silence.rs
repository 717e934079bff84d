//! A target that says nothing: asked for an ECHO after a while, and given up after as long again.

use core::time::Duration;

use super::{Link, login};
use crate::{Instant, Violation, ViolationKind};

#[derive(Debug)]
pub struct Silence {
    interval: Duration,
    last_heard: Instant,
    echoed: bool,
}

impl Silence {
    pub fn new(now: Instant, interval: Duration) -> Self {
        Self { interval, last_heard: now, echoed: false }
    }

    #[inline]
    pub fn heard(&mut self, now: Instant) {
        (self.last_heard, self.echoed) = (now, false);
    }

    /// When the target is asked, or given up.
    pub fn ends(&self) -> Instant {
        self.last_heard + self.interval * if self.echoed { 2 } else { 1 }
    }

    /// Asks it, or gives it up, where it is time.
    pub fn check(&mut self, now: Instant, link: &mut Link) -> Result<(), Violation> {
        if now < self.ends() {
            return Ok(());
        }
        if self.echoed {
            return Err(Violation::new(ViolationKind::TimedOut, "the target is silent"));
        }
        self.echoed = true;
        login::echo(link);
        Ok(())
    }
}
