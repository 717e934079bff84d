//! The outstanding commands of an initiator. Each tag has a slot; its number is the OX_ID.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Header, Link, OxId, RxId, els, frame::f_ctl, login::is_command, sequence::Moved};
use crate::{InitiatorEvents, Instant, IoError, Misuse, Tag, Violation};

/// `C` is an FC-4's command, and `A` is why it aborts one.
#[derive(Debug)]
pub struct Exchanges<C, A> {
    pub slots: Vec<Exchange<C, A>>,
    outstanding: usize,
}

#[derive(Debug)]
pub struct Exchange<C, A> {
    /// The command, while it is outstanding.
    pub command: Option<C>,
    pub begun: Instant,
    pub rx_id: RxId,
    pub moved: Moved,
    /// ABTS was sent, for this reason.
    pub aborted: Option<A>,
}

impl<C, A> Exchange<C, A> {
    fn new(now: Instant, command: Option<C>) -> Self {
        Self { command, begun: now, rx_id: RxId::UNASSIGNED, moved: Moved::default(), aborted: None }
    }

    /// Whether the command, or its abort, has taken longer than `timeout`.
    pub fn is_late(&self, now: Instant, timeout: Duration) -> bool {
        self.command.is_some() && now.since(self.begun) >= timeout
    }
}

impl<C, A> Exchanges<C, A> {
    pub fn new(depth: u16) -> Self {
        Self { slots: (0..depth).map(|_| Exchange::new(Instant(0), None)).collect(), outstanding: 0 }
    }

    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Checks whether a command with this tag may be sent.
    #[inline]
    pub fn check_free(&self, tag: Tag) -> Result<(), Misuse> {
        let is_free = self.slots.get(tag as usize).is_some_and(|exchange| exchange.command.is_none());
        if is_free { Ok(()) } else { Err(Misuse::BadTag) }
    }

    #[inline]
    pub fn begin(&mut self, now: Instant, tag: Tag, command: C) {
        self.slots[tag as usize] = Exchange::new(now, Some(command));
        self.outstanding += 1;
    }

    /// The outstanding command that a frame belongs to.
    #[inline]
    pub fn find(&mut self, header: &Header) -> Result<(Tag, &mut Exchange<C, A>), Violation> {
        let exchange = self.slots.get_mut(usize::from(header.ox_id.0)).filter(|exchange| exchange.command.is_some());
        let exchange = exchange.filter(|_| is_command(header.ox_id) && header.has(f_ctl::EXCHANGE_CONTEXT));
        let exchange = exchange.ok_or(misbehaved!("FC-FS-5 OX_ID: no exchange has this OX_ID").at(48))?;
        Ok((header.ox_id.0.into(), exchange))
    }

    /// Sends an ABTS for an exchange, and drops what has not been sent. False if the exchange is not outstanding.
    pub fn abort(&mut self, why: A, now: Instant, tag: Tag, link: &mut Link) -> bool {
        let exchange = self.slots.get_mut(tag as usize);
        let exchange = exchange.filter(|exchange| exchange.command.is_some() && exchange.aborted.is_none());
        let Some(exchange) = exchange else { return false };
        (exchange.aborted, exchange.begun) = (Some(why), now);
        let ox_id = OxId(tag as u16);
        link.forget(ox_id);
        link.send(els::abts(ox_id, exchange.rx_id), &[]);
        true
    }

    #[inline]
    pub fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>, events: &mut dyn InitiatorEvents) {
        self.slots[tag as usize].command = None;
        self.outstanding -= 1;
        events.complete(now, tag, result);
    }

    /// Fails the outstanding commands of which `which` is true. Clocks can step back: one may have started after `now`.
    pub fn fail(
        &mut self,
        now: Instant,
        error: &IoError,
        events: &mut dyn InitiatorEvents,
        which: impl Fn(&Exchange<C, A>) -> bool,
    ) {
        for tag in 0..self.slots.len() {
            if self.slots[tag].command.is_some() && which(&self.slots[tag]) {
                self.complete(now, tag as Tag, Err(error.clone()), events);
            }
        }
    }
}
