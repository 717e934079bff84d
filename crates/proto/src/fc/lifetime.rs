//! How long a target's connection lives: until its initiator leaves or says nothing for too long, and then until what it is
//! still to be told is sent.
//!
//! A target that says nothing: asked for an ECHO after a while, and given up after as long again.

use core::time::Duration;

use super::{Link, login};
use crate::{Instant, Violation};

/// How often a quiet connection looks whether its login, or commands of it, were ended by another.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Lifetime {
    stage: Stage,
    login_timeout: Duration,
    silence: Duration,
    /// Of the login, or of the end.
    deadline: Instant,
    last_heard: Instant,
    next_look: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// Nothing new starts.
    Leaving,
    Closed,
}

impl Lifetime {
    /// `login_timeout`: from the connection's begin to the end of its login, and as long again for its end. `silence`: an initiator
    /// silent for so long is given up.
    pub fn new(now: Instant, login_timeout: Duration, silence: Duration) -> Self {
        Self {
            stage: Stage::Open,
            login_timeout,
            silence,
            deadline: now + login_timeout,
            last_heard: now,
            next_look: now + LOOK,
        }
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.stage == Stage::Leaving
    }

    /// Whether the next frame may be taken: the connection stands, and there is room for its answer.
    #[inline]
    pub fn may_go_on(&self, link: &Link) -> bool {
        !self.is_closed() && !link.transmit.is_full()
    }

    #[inline]
    pub fn heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// The initiator leaves: the connection closes once what waits for credit is sent, the answer to its logout before all.
    #[cold]
    pub fn leave(&mut self, now: Instant, link: &Link) {
        if self.stage == Stage::Open {
            (self.stage, self.deadline) = (Stage::Leaving, now + self.login_timeout);
        }
        self.settle(link);
    }

    /// Closes where it is leaving and nothing waits for credit any more.
    #[inline]
    pub fn settle(&mut self, link: &Link) {
        if self.is_leaving() && link.waiting() == 0 {
            self.stage = Stage::Closed;
        }
    }

    pub fn close(&mut self) {
        self.stage = Stage::Closed;
    }

    /// Looks again this soon, where something waits to be answered.
    #[inline]
    pub fn look_by(&mut self, when: Instant) {
        self.next_look = self.next_look.min(when);
    }

    pub fn poll_timeout(&self, is_logged_in: bool) -> Option<Instant> {
        match self.stage {
            Stage::Closed => None,
            _ if is_logged_in => Some(self.next_look),
            Stage::Open | Stage::Leaving => Some(self.deadline),
        }
    }

    /// It looks now, and next time in [`LOOK`] unless `look_by` says otherwise.
    pub fn looked(&mut self, now: Instant) {
        self.next_look = now + LOOK;
    }

    /// Whether the initiator takes too long.
    pub fn check(&self, now: Instant, is_logged_in: bool) -> Result<(), Violation> {
        let is_late = match self.stage {
            Stage::Closed => false,
            _ if is_logged_in => now.since(self.last_heard) >= self.silence,
            Stage::Open | Stage::Leaving => now >= self.deadline,
        };
        if is_late { Err(Violation::timed_out("the initiator is silent")) } else { Ok(()) }
    }
}

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
            return Err(Violation::timed_out("the target is silent"));
        }
        self.echoed = true;
        login::echo(link);
        Ok(())
    }
}
