//! An I/O queue of a session: one connection. The caller's tags are the command identifiers.

use alloc::vec::Vec;
use core::{fmt, mem, time::Duration};

use super::{ConnectConfig, Link, admin_connection::NO_COMMAND};
use crate::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Misuse, Payload, Tag, Transmit, Violation,
    nvme::{
        CommandId, Cqe, QueueId, Status,
        command::Sgl,
        fabrics::{
            Data,
            host::{self, ControlOutcome, ControllerInfo, DataTransfer, IoCommands, IoControl},
        },
    },
    nvme_tcp::{
        pdu::{DataHeader, Fault, Header, R2t},
        receiver::Fragment,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Handshake, Connect, authentication.
    SetUp,
    Ready,
    /// `close` was called. Disconnect follows after the last completion.
    Draining,
    Disconnect,
    Closed,
}

/// The data of an outstanding command.
#[derive(Clone, Debug, Default)]
enum Transfer {
    #[default]
    Free,
    /// The I/O was not sent, because the controller does not support it.
    Unsupported,
    /// No data, or they were in the capsule.
    None,
    /// Length of a read, and bytes received.
    In { len: u32, received: u32 },
    /// Data that wait for an R2T, and bytes sent.
    Out { data: Payload, sent: u32 },
}

impl Transfer {
    /// Whether a command was sent, which the controller answers.
    #[inline]
    fn was_sent(&self) -> bool {
        !matches!(self, Self::Free | Self::Unsupported)
    }
}

#[derive(Debug, Default)]
struct IoSlot {
    transfer: Transfer,
    /// A data digest was wrong.
    is_spoilt: bool,
}

/// One I/O queue as an `Initiator`.
pub struct IoQueue {
    link: Link,
    config: host::SessionConfig,
    stage: Stage,
    control: IoControl,
    commands: IoCommands,
    in_capsule_bytes: u32,
    quiet_after: Duration,
    /// Indexed by tag, which is also the command identifier.
    slots: Vec<IoSlot>,
    outstanding: usize,
    /// The read whose data are arriving: its tag, and whether the end of the data completes it.
    reading: Option<(CommandId, bool)>,
    /// Deadline of set-up, of the next response, or of the shutdown.
    deadline: Option<Instant>,
    /// When to report something that does not depend on the controller: `unsupported` I/Os, or `closed`.
    due: Option<Instant>,
    closes: bool,
    /// Why set-up failed: the controller rejected Connect or our authentication, or did not authenticate itself.
    refused: Option<Violation>,
    /// I/Os that this controller does not support. They are completed at the next opportunity.
    unsupported: Vec<u16>,
}

impl IoQueue {
    /// Creates queue `qid` (1 to `controller.io_queues`). The first bytes of the handshake are in `transmit` at once.
    pub fn new(now: Instant, config: &ConnectConfig, controller: &ControllerInfo, qid: QueueId) -> Self {
        let depth = config.session.depth.min(controller.max_sq_size);
        let mut slots = Vec::new();
        slots.resize_with(usize::from(depth), IoSlot::default);
        Self {
            link: Link::new(config.digests),
            deadline: Some(now + config.session.admin_timeout),
            config: config.session.clone(),
            stage: Stage::SetUp,
            control: IoControl::new(controller, qid, CommandId(depth)),
            commands: IoCommands::new(controller),
            in_capsule_bytes: controller.in_capsule_bytes,
            quiet_after: controller.quiet_after,
            slots,
            outstanding: 0,
            reading: None,
            due: None,
            closes: false,
            refused: None,
            unsupported: Vec::new(),
        }
    }

    pub fn geometry(&self) -> &Geometry {
        self.commands.geometry()
    }

    /// See `ControllerInfo`.
    pub fn quiet_after(&self) -> Duration {
        self.quiet_after
    }

    // --------------------------------------------------------------------------------------------------------- sending

    /// Sends an I/O. Its data are in the capsule if they fit, and otherwise wait for an R2T.
    #[inline]
    fn send(&mut self, tag: u16, io: Io) -> Result<Transfer, Misuse> {
        let (mut sqe, moves) = self.commands.encode(CommandId(tag), io)?;
        let (data, transfer) = match moves {
            DataTransfer::Nothing => (Data::None, Transfer::None),
            DataTransfer::In(len) => {
                sqe.set_sgl(Sgl::Transport { len });
                (Data::None, Transfer::In { len, received: 0 })
            }
            DataTransfer::Out(data) if data.len() as u32 <= self.in_capsule_bytes => {
                sqe.set_sgl(Sgl::InCapsule { offset: 0, len: data.len() as u32 });
                (Data::Payload(data), Transfer::None)
            }
            DataTransfer::Out(data) => {
                sqe.set_sgl(Sgl::Transport { len: data.len() as u32 });
                (Data::None, Transfer::Out { data, sent: 0 })
            }
        };
        self.link.sender.command(&sqe, data);
        Ok(transfer)
    }

    /// Processes an R2T, which requests data of a write (NVMe/TCP transport 1.1 §3.6.2.10).
    fn on_r2t(&mut self, r2t: &R2t) -> Result<(), Fault> {
        let slot = self.slots.get_mut(usize::from(r2t.cid.0));
        let Some(IoSlot { transfer: Transfer::Out { data, sent }, .. }) = slot else {
            return Err(Fault::field(
                8,
                rule!("NVMe/TCP 1.1 §3.6.2.10: R2T for no write outstanding that waits for one"),
            ));
        };
        let left = data.len() as u32 - *sent;
        if r2t.offset != *sent || r2t.len == 0 || r2t.len > left {
            return Err(Fault::out_of_range(rule!(
                "NVMe/TCP 1.1 §3.6.2.10: R2T outside the write's data, or out of order"
            )));
        }
        let end = *sent + r2t.len;
        while *sent < end {
            let len = self.link.max_h2c_data_bytes().min(end - *sent);
            let piece = data.slice(*sent as usize, len as usize);
            self.link.sender.h2c_data(r2t.cid, r2t.ttag, *sent, *sent + len == end, piece);
            *sent += len;
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------------------------- receiving

    #[inline]
    fn on_step(&mut self, now: Instant, step: &Fragment<'_>, events: &mut dyn InitiatorEvents) -> Result<(), Fault> {
        match step {
            Fragment::Data(piece) => {
                if let Some((cid, _)) = self.reading
                    && let Some(IoSlot { transfer: Transfer::In { received, .. }, .. }) =
                        self.slots.get_mut(usize::from(cid.0))
                {
                    events.data(Tag::from(cid.0), *received, piece);
                    *received += piece.len() as u32;
                } else {
                    self.link.on_exchange_data(piece);
                }
            }
            Fragment::Header { header: Header::ControllerData(data), data_len } => {
                self.on_controller_data(data, *data_len)?;
            }
            Fragment::End { digest_ok } => {
                if let Some((cid, completes)) = self.reading.take() {
                    if let Some(slot) = self.slots.get_mut(usize::from(cid.0)) {
                        slot.is_spoilt |= !*digest_ok;
                    }
                    if completes {
                        // All data have arrived, because otherwise the header would have been rejected.
                        return self.end(now, cid, Status::SUCCESS, events);
                    }
                } else if let Some(cqe) = self.link.on_exchange_data_end(*digest_ok) {
                    self.on_control_response(now, cqe, events)?;
                }
            }
            Fragment::Header { header: Header::Response(cqe), .. } => return self.on_response(now, cqe, events),
            Fragment::Header { header: Header::R2t(r2t), .. } => self.on_r2t(r2t)?,
            Fragment::Header { header: Header::IcResp(resp), .. } => {
                self.link.on_ic_resp(resp)?;
                self.control.connect(&self.config, &mut self.link);
            }
            Fragment::Header { .. } => {
                return Err(Fault::field(0, rule!("NVMe/TCP 1.1 §3.6.2.1: the PDU is not for a host")));
            }
        }
        Ok(())
    }

    /// Checks the header of a C2HData PDU (NVMe/TCP transport 1.1 §3.6.2.9).
    #[inline]
    fn on_controller_data(&mut self, data: &DataHeader, data_len: u32) -> Result<(), Fault> {
        let slot = self.slots.get(usize::from(data.cid.0));
        let Some(IoSlot { transfer: Transfer::In { len, received }, .. }) = slot else {
            return self.link.on_exchange_data_header(data, data_len);
        };
        if data.len != data_len || data_len == 0 {
            return Err(Fault::field(16, rule!("NVMe/TCP 1.1 §3.6.2.9: DATAL is not the length of the PDU's data")));
        }
        let left = len - received;
        if data.offset != *received || data_len > left {
            return Err(Fault::out_of_range(rule!(
                "NVMe/TCP 1.1 §3.6.2.9: C2HData outside what the read asked for, or out of order"
            )));
        }
        if data.is_success && !(data.is_last && data_len == left) {
            return Err(Fault::field(
                1,
                rule!("NVMe/TCP 1.1 §3.6.2.9: SUCCESS on a PDU that is not the last of the read"),
            ));
        }
        self.reading = Some((data.cid, data.is_success));
        Ok(())
    }

    #[inline]
    fn on_response(&mut self, now: Instant, cqe: &Cqe, events: &mut dyn InitiatorEvents) -> Result<(), Fault> {
        // The identifier of commands that are not I/O is above those of I/Os.
        if usize::from(cqe.cid.0) == self.slots.len() {
            return self.on_control_response(now, *cqe, events);
        }
        self.complete(now, cqe.cid, cqe.status, events)
    }

    #[inline]
    fn complete(
        &mut self,
        now: Instant,
        cid: CommandId,
        status: Status,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Fault> {
        let is_short = match self.slots.get(usize::from(cid.0)).map(|slot| &slot.transfer) {
            Some(Transfer::In { len, received }) => received < len,
            Some(Transfer::Out { data, sent }) => (*sent as usize) < data.len(),
            Some(Transfer::Free | Transfer::Unsupported | Transfer::None) | None => false,
        };
        if is_short && status.is_success() {
            return Err(Fault::sequence(rule!(
                "NVMe/TCP 1.1 §3.6.2.7: a command succeeded before all of its data were moved"
            )));
        }
        self.end(now, cid, status, events)
    }

    #[allow(clippy::inline_always)] // If not inlined, a call costs 50 instructions per I/O.
    #[inline(always)]
    fn end(
        &mut self,
        now: Instant,
        cid: CommandId,
        status: Status,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Fault> {
        let slot = self.slots.get_mut(usize::from(cid.0)).filter(|slot| slot.transfer.was_sent());
        let Some(slot) = slot else {
            return Err(NO_COMMAND);
        };
        slot.transfer = Transfer::Free;
        let is_spoilt = mem::take(&mut slot.is_spoilt);
        let status = if is_spoilt { Status::TRANSIENT_TRANSPORT_ERROR } else { status };
        self.outstanding -= 1;
        events.complete(now, Tag::from(cid.0), status.into_result());
        if self.stage == Stage::Draining {
            self.disconnect_when_drained(now);
        }
        Ok(())
    }

    /// Processes the response to a command that is not I/O.
    fn on_control_response(&mut self, now: Instant, cqe: Cqe, events: &mut dyn InitiatorEvents) -> Result<(), Fault> {
        let Some(exchange) = self.link.take_exchange(cqe.cid) else { return Err(NO_COMMAND) };
        let answer = exchange.answer(cqe);
        match answer.and_then(|answer| self.control.on_answer(&self.config, &answer, &mut self.link)) {
            Ok(ControlOutcome::Wait) => {}
            Ok(ControlOutcome::Ready) => self.set_ready(now, events),
            Ok(ControlOutcome::Closed) => {
                self.stage = Stage::Closed;
                self.deadline = None;
                events.closed(now);
            }
            Err(violation) => self.refused = Some(violation),
        }
        Ok(())
    }

    fn set_ready(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        self.stage = Stage::Ready;
        self.deadline = None;
        events.ready(now, self.commands.geometry());
    }

    /// Sends Disconnect when no command is outstanding. If the controller does not support Disconnect, closes the
    /// queue.
    fn disconnect_when_drained(&mut self, now: Instant) {
        if self.outstanding > 0 {
            return;
        }
        if self.control.disconnect(&mut self.link) {
            self.stage = Stage::Disconnect;
            self.deadline = Some(now + self.config.admin_timeout);
        } else {
            self.close_soon(now);
        }
    }

    fn close_soon(&mut self, now: Instant) {
        self.closes = true;
        self.due = Some(now);
    }

    fn give_up(&mut self, now: Instant, error: &IoError, events: &mut dyn InitiatorEvents) {
        self.stage = Stage::Closed;
        self.reading = None;
        self.deadline = None;
        self.due = None;
        self.unsupported.clear();
        self.outstanding = 0;
        for (tag, slot) in self.slots.iter_mut().enumerate() {
            if !matches!(mem::take(&mut slot.transfer), Transfer::Free) {
                events.complete(now, tag as Tag, Err(error.clone()));
            }
        }
    }

    fn io_deadline(&self, now: Instant) -> Option<Instant> {
        let is_watched = self.outstanding > 0 && self.config.io_timeout > Duration::ZERO;
        is_watched.then(|| now + self.config.io_timeout)
    }
}

impl Initiator for IoQueue {
    fn receive(&mut self, now: Instant, mut bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        loop {
            let before = bytes;
            let Some(step) = self.link.step(&mut bytes)? else { break };
            if let Err(fault) = self.on_step(now, &step, events) {
                return Err(self.link.fail(&fault, before));
            }
            if let Some(violation) = self.refused.take() {
                return Err(violation);
            }
        }
        if matches!(self.stage, Stage::Ready | Stage::Draining) {
            self.deadline = self.io_deadline(now);
        }
        Ok(())
    }

    fn credits(&self) -> usize {
        if self.stage == Stage::Ready { self.slots.len() - self.outstanding } else { 0 }
    }

    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        if self.credits() == 0 {
            return Err(Misuse::NoCredit);
        }
        let index = tag as usize;
        if !self.slots.get(index).is_some_and(|slot| matches!(slot.transfer, Transfer::Free)) {
            return Err(Misuse::BadTag);
        }
        self.slots[index].transfer = if self.commands.is_supported(&io) {
            self.send(tag as u16, io)?
        } else {
            self.unsupported.push(tag as u16);
            self.due = Some(now);
            Transfer::Unsupported
        };
        self.outstanding += 1;
        if self.outstanding == 1 {
            self.deadline = self.io_deadline(now);
        }
        Ok(())
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.sender.tx
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.deadline, self.due].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        if self.due.take_if(|at| now >= *at).is_some() {
            while let Some(tag) = self.unsupported.pop() {
                self.slots[usize::from(tag)].transfer = Transfer::Free;
                self.outstanding -= 1;
                events.complete(now, Tag::from(tag), Err(IoError::Unsupported));
            }
            if self.stage == Stage::Draining {
                self.disconnect_when_drained(now);
            }
            if self.closes {
                self.give_up(now, &IoError::Aborted, events);
                events.closed(now);
            }
        } else if self.deadline.is_some_and(|deadline| now >= deadline) {
            return Err(Violation::timed_out("the controller was silent for too long with commands outstanding"));
        }
        Ok(())
    }

    fn close(&mut self, now: Instant) {
        match self.stage {
            Stage::SetUp => self.close_soon(now),
            Stage::Ready => {
                self.stage = Stage::Draining;
                self.disconnect_when_drained(now);
            }
            Stage::Draining | Stage::Disconnect | Stage::Closed => {}
        }
    }

    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        self.give_up(now, &IoError::ConnectionLost, events);
    }
}

impl fmt::Debug for IoQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoQueue")
            .field("qid", &self.control.qid())
            .field("stage", &self.stage)
            .field("outstanding", &self.outstanding)
            .finish_non_exhaustive()
    }
}
