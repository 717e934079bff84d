//! I/Os as exchanges. Each tag has a slot; its number is the OX_ID.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    Geometry, InitiatorEvents, Instant, Io, IoError, Misuse, Payload, Refusal, Tag, Violation,
    fc::{
        Header, Link, OxId, RxId, els,
        frame::{f_ctl, kind, r_ctl},
        login::is_command,
        sequence::{Moved, TransferReady, data_header},
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
    slots: Vec<Exchange>,
    outstanding: usize,
    /// The data of WRITE SAME.
    zero_block: Payload,
}

#[derive(Debug, Default)]
struct Exchange {
    /// The command, while it is outstanding.
    job: Option<Job>,
    begun: Instant,
    /// ABTS was sent, for this reason.
    aborted: Option<AbortedFor>,
    tries: u8,
    rx_id: RxId,
    moved: Moved,
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
        Self {
            lun,
            geometry,
            slots: (0..depth.clamp(1, 4096)).map(|_| Exchange::default()).collect(),
            outstanding: 0,
            zero_block,
        }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(super) fn credits(&self) -> usize {
        self.slots.len().min(OUTSTANDING_MAX) - self.outstanding
    }

    pub(super) fn submit(&mut self, now: Instant, tag: Tag, io: Io, link: &mut Link) -> Result<(), Misuse> {
        if self.credits() == 0 {
            return Err(Misuse::NoCredit);
        }
        let slot = self.slots.get_mut(tag as usize).filter(|slot| slot.job.is_none()).ok_or(Misuse::BadTag)?;
        let job = Job::new(io, &self.geometry, &self.zero_block)?;
        *slot = Exchange { job: Some(job), begun: now, ..Exchange::default() };
        self.outstanding += 1;
        self.send(tag, link);
        Ok(())
    }

    /// Checks a frame of `FCP_DATA` and returns the tag of its command.
    #[inline]
    pub(super) fn data(&mut self, header: &Header, len: u32) -> Result<Tag, Violation> {
        let (tag, slot) = self.find(header)?;
        let read_len = slot.job.as_ref().map_or(0, |job| job.read_len);
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
        let (_, slot) = self.find(header)?;
        let Some(data) = slot.job.as_ref().and_then(|job| job.data.clone()) else {
            return Err(misbehaved!("FCP-4 FCP_XFER_RDY: FCP_XFER_RDY for a command without data"));
        };
        slot.moved.ask(ready, data.len())?;
        slot.rx_id = header.rx_id;
        let frame = Header {
            ox_id: header.ox_id,
            rx_id: header.rx_id,
            parameter: ready.offset,
            ..data_header(kind::FCP, false)
        };
        link.send_payload(frame, data.slice(ready.offset as usize, ready.len as usize));
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
        let (tag, slot) = self.find(header)?;
        let read_len = slot.job.as_ref().map_or(0, |job| job.read_len);
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
            CommandOutcome::Retry(_) if slot.tries < TRIES_MAX && slot.aborted.is_none() => {
                self.send(tag, link);
                return Ok(());
            }
            CommandOutcome::Failed(IoError::Failed { status: INVALID_OPCODE, .. }) => Err(IoError::Unsupported),
            CommandOutcome::Retry(error) | CommandOutcome::Failed(error) => Err(error),
        };
        self.complete(now, tag, result, events);
        Ok(())
    }

    /// Sends an ABTS for an exchange, and drops what has not been sent. False if the exchange is not outstanding.
    pub(super) fn abort(&mut self, now: Instant, tag: Tag, link: &mut Link) -> bool {
        self.abort_for(AbortedFor::Caller, now, tag, link)
    }

    fn abort_for(&mut self, why: AbortedFor, now: Instant, tag: Tag, link: &mut Link) -> bool {
        let slot = self.slots.get_mut(tag as usize);
        let Some(slot) = slot.filter(|slot| slot.job.is_some() && slot.aborted.is_none()) else { return false };
        (slot.aborted, slot.begun) = (Some(why), now);
        let ox_id = OxId(tag as u16);
        link.forget(ox_id);
        link.send(els::abts(ox_id, slot.rx_id), &[]);
        true
    }

    /// Processes the answer to an ABTS. Whether it was accepted or not, the target no longer knows the exchange. If it
    /// was accepted, the target does nothing more for it.
    pub(super) fn aborted(&mut self, now: Instant, header: &Header, link: &mut Link, events: &mut dyn InitiatorEvents) {
        // The response may have crossed the ABTS.
        let Ok((tag, slot)) = self.find(header) else { return };
        match slot.aborted {
            None => {}
            Some(AbortedFor::Time) if header.r_ctl == r_ctl::BA_ACC && slot.tries < TRIES_MAX => {
                (slot.aborted, slot.begun) = (None, now);
                self.send(tag, link);
            }
            Some(_) => self.complete(now, tag, Err(IoError::Aborted), events),
        }
    }

    /// Completes all commands that were sent before a task management function.
    pub(super) fn reset(&mut self, now: Instant, events: &mut dyn InitiatorEvents, begun_by: Instant) {
        for tag in 0..self.slots.len() {
            if self.slots[tag].job.is_some() && self.slots[tag].begun <= begun_by {
                self.complete(now, tag as Tag, Err(IoError::Aborted), events);
            }
        }
    }

    /// Aborts commands that are older than `timeout`.
    pub(super) fn overdue(&mut self, now: Instant, timeout: Duration, link: &mut Link) -> Overdue {
        for tag in 0..self.slots.len() {
            let slot = &self.slots[tag];
            if slot.job.is_none() || now.since(slot.begun) < timeout {
                continue;
            }
            if slot.aborted.is_some() {
                return Overdue::Abort;
            }
            self.abort_for(AbortedFor::Time, now, tag as Tag, link);
        }
        Overdue::No
    }

    /// Fails all outstanding commands because the connection is lost.
    pub(super) fn lost(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        for tag in 0..self.slots.len() {
            if self.slots[tag].job.is_some() {
                self.complete(now, tag as Tag, Err(IoError::ConnectionLost), events);
            }
        }
    }

    fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>, events: &mut dyn InitiatorEvents) {
        self.slots[tag as usize].job = None;
        self.outstanding -= 1;
        events.complete(now, tag, result);
    }

    /// The outstanding command that a frame belongs to.
    #[inline]
    fn find(&mut self, header: &Header) -> Result<(Tag, &mut Exchange), Violation> {
        let slot = self.slots.get_mut(usize::from(header.ox_id.0)).filter(|slot| slot.job.is_some());
        let slot = slot.filter(|_| is_command(header.ox_id) && header.has(f_ctl::EXCHANGE_CONTEXT));
        Ok((header.ox_id.0.into(), slot.ok_or(misbehaved!("FC-FS-5 OX_ID: no exchange has this OX_ID").at(48))?))
    }

    fn send(&mut self, tag: Tag, link: &mut Link) {
        let slot = &mut self.slots[tag as usize];
        let job = slot.job.as_ref().expect("what is sent is outstanding");
        slot.tries += 1;
        (slot.moved, slot.rx_id) = (Moved::default(), RxId::UNASSIGNED);
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
