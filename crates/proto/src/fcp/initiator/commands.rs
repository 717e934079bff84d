//! I/Os as exchanges.

use core::time::Duration;

use crate::{
    Geometry, InitiatorEvents, Instant, Io, IoError, Misuse, Payload, Refusal, Tag, Violation,
    fc::{
        Header, Link, OxId, RxId,
        exchanges::Exchanges,
        frame::{kind, r_ctl},
        sequence::{Moved, TransferReady, send_requested},
    },
    fcp::iu::{Command, ResponseIu, response_code},
    scsi::initiator::{self, CommandOutcome, Job},
};

/// How often a command is sent in total, if a unit attention condition or a busy target makes a retry necessary.
const TRIES_MAX: u8 = 4;
/// Maximum outstanding commands. Targets support about as many.
const OUTSTANDING_MAX: usize = 1024;
/// INVALID COMMAND OPERATION CODE: the target does not support the command.
const INVALID_OPCODE: u32 = 0x05_2000;

/// The outstanding commands.
#[derive(Debug)]
pub(super) struct Commands {
    lun: u64,
    geometry: Geometry,
    exchanges: Exchanges<Tried, AbortedFor>,
    /// The data of WRITE SAME.
    zero_block: Payload,
}

#[derive(Debug)]
struct Tried {
    job: Job,
    tries: u8,
}

/// Why an exchange is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AbortedFor {
    /// The caller requested it.
    Caller,
    /// The command took too long, and is retried.
    Time,
}

/// The result of `Commands::overdue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    No,
    /// An abort was not answered in time either.
    Abort,
}

impl Commands {
    pub(super) fn new(lun: u64, geometry: Geometry, depth: u16) -> Self {
        let zero_block = Payload::from_vec(alloc::vec![0; geometry.block_size as usize]);
        Self { lun, geometry, exchanges: Exchanges::new(depth.clamp(1, 4096)), zero_block }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.exchanges.outstanding()
    }

    pub(super) fn credits(&self) -> usize {
        self.exchanges.slots.len().min(OUTSTANDING_MAX) - self.outstanding()
    }

    pub(super) fn submit(&mut self, now: Instant, tag: Tag, io: Io, link: &mut Link) -> Result<(), Misuse> {
        if self.credits() == 0 {
            return Err(Misuse::NoCredit);
        }
        self.exchanges.check_free(tag)?;
        let job = Job::new(io, &self.geometry, &self.zero_block)?;
        self.exchanges.begin(now, tag, Tried { job, tries: 0 });
        self.send(tag, link);
        Ok(())
    }

    /// Checks a frame of `FCP_DATA` and returns the tag of its command.
    #[inline]
    pub(super) fn data(&mut self, header: &Header, len: u32) -> Result<Tag, Violation> {
        let (tag, slot) = self.exchanges.find(header)?;
        let read_len = slot.command.as_ref().map_or(0, |command| command.job.read_len);
        slot.moved.arrive(header, len, read_len)?;
        Ok(tag)
    }

    /// Sends the data that the target requests. Each byte must be requested once, in order.
    pub(super) fn transfer_ready(
        &mut self,
        header: &Header,
        ready: TransferReady,
        link: &mut Link,
    ) -> Result<(), Violation> {
        let (_, slot) = self.exchanges.find(header)?;
        let Some(data) = slot.command.as_ref().and_then(|command| command.job.data.as_ref()) else {
            return Err(misbehaved!("FCP-4 FCP_XFER_RDY: FCP_XFER_RDY for a command without data"));
        };
        slot.moved.ask(ready, data.len())?;
        slot.rx_id = header.rx_id;
        // Data that the target requested before it received the ABTS are not sent.
        if slot.aborted.is_none() {
            send_requested(kind::FCP, header, ready, data, link);
        }
        Ok(())
    }

    /// Processes the response to a command.
    pub(super) fn response(
        &mut self,
        now: Instant,
        header: &Header,
        response: &ResponseIu<'_>,
        link: &mut Link,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let (tag, slot) = self.exchanges.find(header)?;
        let (read_len, tries) = slot.command.as_ref().map_or((0, 0), |command| (command.job.read_len, command.tries));
        let result = match initiator::outcome(response.status, response.sense) {
            _ if response.code.is_some_and(|code| code != response_code::COMPLETE) => {
                let code = response.code.unwrap_or_default();
                let what = response_code::name(code);
                Err(IoError::Failed { status: code.into(), refusal: Refusal::Other, what })
            }
            CommandOutcome::Good if slot.moved.bytes < read_len => {
                let what = "the target sent less than was asked for";
                Err(IoError::Failed { status: 0, refusal: Refusal::Other, what })
            }
            CommandOutcome::Good => Ok(()),
            CommandOutcome::Retry(_) | CommandOutcome::AccessChanged(_)
                if tries < TRIES_MAX && slot.aborted.is_none() =>
            {
                self.send(tag, link);
                return Ok(());
            }
            CommandOutcome::Failed(IoError::Failed { status: INVALID_OPCODE, .. }) => Err(IoError::Unsupported),
            CommandOutcome::Retry(error) | CommandOutcome::AccessChanged(error) | CommandOutcome::Failed(error) => {
                Err(error)
            }
        };
        self.exchanges.complete(now, tag, result, events);
        Ok(())
    }

    /// Sends an ABTS for an exchange, and drops what has not been sent. False if the exchange is not outstanding.
    pub(super) fn abort(&mut self, now: Instant, tag: Tag, link: &mut Link) -> bool {
        self.exchanges.abort(AbortedFor::Caller, now, tag, link)
    }

    /// Processes the answer to an ABTS. Whether it was accepted or not, the target no longer knows the exchange. If it
    /// was accepted, the target does nothing more for it.
    pub(super) fn aborted(&mut self, now: Instant, header: &Header, link: &mut Link, events: &mut dyn InitiatorEvents) {
        // The response may have crossed the ABTS.
        let Ok((tag, slot)) = self.exchanges.find(header) else { return };
        let tries = slot.command.as_ref().map_or(0, |command| command.tries);
        match slot.aborted {
            None => {}
            Some(AbortedFor::Time) if header.r_ctl == r_ctl::BA_ACC && tries < TRIES_MAX => {
                (slot.aborted, slot.begun) = (None, now);
                self.send(tag, link);
            }
            Some(_) => self.exchanges.complete(now, tag, Err(IoError::Aborted), events),
        }
    }

    /// Completes all commands that were sent before a task management function.
    pub(super) fn reset(&mut self, now: Instant, events: &mut dyn InitiatorEvents, begun_by: Instant) {
        self.exchanges.fail(now, &IoError::Aborted, events, |exchange| exchange.begun <= begun_by);
    }

    /// Aborts commands that are older than `timeout`.
    pub(super) fn overdue(&mut self, now: Instant, timeout: Duration, link: &mut Link) -> Overdue {
        for tag in 0..self.exchanges.slots.len() {
            let slot = &self.exchanges.slots[tag];
            if slot.is_late(now, timeout) && slot.aborted.is_some() {
                return Overdue::Abort;
            }
            if slot.is_late(now, timeout) {
                self.exchanges.abort(AbortedFor::Time, now, tag as Tag, link);
            }
        }
        Overdue::No
    }

    /// Fails all outstanding commands because the connection is lost.
    pub(super) fn lost(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        self.exchanges.fail(now, &IoError::ConnectionLost, events, |_| true);
    }

    fn send(&mut self, tag: Tag, link: &mut Link) {
        let slot = &mut self.exchanges.slots[tag as usize];
        (slot.moved, slot.rx_id) = (Moved::default(), RxId::UNASSIGNED);
        let Tried { job, tries } = slot.command.as_mut().expect("what is sent is outstanding");
        *tries += 1;
        let data_len = job.data.as_ref().map_or(0, |data| data.len() as u32);
        let command = Command {
            lun: self.lun,
            reads: job.read_len > 0,
            writes: data_len > 0,
            cdb: job.cdb,
            data_len: job.read_len.max(data_len),
            ..Command::default()
        };
        link.send(Header { ox_id: OxId(tag as u16), ..Command::header() }, &command.encode());
    }
}
