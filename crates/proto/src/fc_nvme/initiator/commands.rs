//! I/Os as exchanges, whose OX_ID is the command identifier. Also the other commands of a queue, which are sent one at a
//! time in an exchange of their own.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    Geometry, InitiatorEvents, Instant, Io, IoError, Misuse, Payload, Tag, Transmit, Violation,
    fc::{
        Header, Link, OxId,
        exchanges::Exchanges,
        frame::kind,
        login::unexpected,
        sequence::{Moved, TransferReady, send_requested},
    },
    fc_nvme::{Command, ConnectionId},
    nvme::{
        CommandId, Cqe, Sqe, Status,
        command::Sgl,
        fabrics::host::{Answer, Capsules, Connection, ConnectionEvent, ControllerInfo, DataTransfer, IoCommands},
    },
};

/// The outstanding commands.
#[derive(Debug)]
pub(super) struct Commands {
    encoder: IoCommands,
    exchanges: Exchanges<Transfer, AbortedFor>,
    /// I/Os that this controller does not support. They are completed at the next opportunity.
    unsupported: Vec<u16>,
}

/// Why an exchange is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbortedFor {
    /// The caller requested it.
    Caller,
    /// Its association ends. Another session may retry the command.
    Association,
}

/// The data of an outstanding command.
#[derive(Debug)]
enum Transfer {
    /// The I/O was not sent, because the controller does not support it.
    Unsupported,
    None,
    In(u32),
    Out(Payload),
}

impl Commands {
    pub(super) fn new(controller: &ControllerInfo, depth: u16) -> Self {
        Self { encoder: IoCommands::new(controller), exchanges: Exchanges::new(depth), unsupported: Vec::new() }
    }

    pub(super) fn geometry(&self) -> &Geometry {
        self.encoder.geometry()
    }

    pub(super) fn outstanding(&self) -> usize {
        self.exchanges.outstanding()
    }

    pub(super) fn credits(&self) -> usize {
        self.exchanges.slots.len() - self.outstanding()
    }

    #[inline]
    pub(super) fn submit(
        &mut self,
        now: Instant,
        tag: Tag,
        io: Io,
        channel: &mut Channel,
        link: &mut Link,
    ) -> Result<(), Misuse> {
        if self.credits() == 0 {
            return Err(Misuse::NoCredit);
        }
        self.exchanges.check_free(tag)?;
        let transfer = if self.encoder.is_supported(&io) {
            let (mut sqe, moves) = self.encoder.encode(CommandId(tag as u16), io)?;
            let (len, transfer) = match moves {
                DataTransfer::Nothing => (0, Transfer::None),
                DataTransfer::In(len) => (len, Transfer::In(len)),
                DataTransfer::Out(data) => (data.len() as u32, Transfer::Out(data)),
            };
            sqe.set_sgl(Sgl::Transport { len });
            channel.command(OxId(tag as u16), sqe, link);
            transfer
        } else {
            self.unsupported.push(tag as u16);
            Transfer::Unsupported
        };
        self.exchanges.begin(now, tag, transfer);
        Ok(())
    }

    /// When the oldest I/O that the controller does not support was submitted, if one waits for its completion.
    pub(super) fn unsupported_since(&self) -> Option<Instant> {
        self.unsupported.first().map(|tag| self.exchanges.slots[usize::from(*tag)].begun)
    }

    pub(super) fn complete_unsupported(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        while let Some(tag) = self.unsupported.pop() {
            self.exchanges.complete(now, tag.into(), Err(IoError::Unsupported), events);
        }
    }

    /// Checks a frame of a read's data and returns the tag of its command.
    #[inline]
    pub(super) fn data_begin(&mut self, header: &Header, len: u32) -> Result<Tag, Violation> {
        let (tag, slot) = self.exchanges.find(header)?;
        let read_len = if let Some(Transfer::In(len)) = slot.command { len } else { 0 };
        slot.moved.arrive(header, len, read_len)?;
        Ok(tag)
    }

    /// Sends the data that the target requests.
    pub(super) fn transfer_ready(
        &mut self,
        header: &Header,
        ready: TransferReady,
        link: &mut Link,
    ) -> Result<(), Violation> {
        let (_, slot) = self.exchanges.find(header)?;
        let Some(Transfer::Out(data)) = &slot.command else {
            return Err(misbehaved!("FC-NVMe-2 NVMe_XFER_RDY: an NVMe_XFER_RDY for a command without data"));
        };
        slot.moved.ask(ready, data.len())?;
        slot.rx_id = header.rx_id;
        // Data that the target requested before it received the ABTS are not sent.
        if slot.aborted.is_none() {
            send_requested(kind::NVME, header, ready, data, link);
        }
        Ok(())
    }

    /// Processes the response to a command. `None` means success with no further information.
    #[inline]
    pub(super) fn response(
        &mut self,
        now: Instant,
        header: &Header,
        cqe: Option<&Cqe>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let (tag, slot) = self.exchanges.find(header)?;
        if cqe.is_some_and(|cqe| u32::from(cqe.cid.0) != tag) {
            return Err(misbehaved!("FC-NVMe-2 NVMe_ERSP: an answer to another command than its exchange's").at(88));
        }
        let status = cqe.map_or(Status::SUCCESS, |cqe| cqe.status);
        let wanted = match &slot.command {
            Some(Transfer::In(len)) => *len,
            Some(Transfer::Out(data)) => data.len() as u32,
            Some(Transfer::Unsupported) => return Err(unexpected()),
            Some(Transfer::None) | None => 0,
        };
        if status.is_success() && slot.moved.bytes < wanted {
            return Err(misbehaved!("FC-NVMe-2 NVMe_RSP: a command succeeded before all of its data were moved"));
        }
        self.exchanges.complete(now, tag, status.into_result(), events);
        Ok(())
    }

    /// Sends an ABTS for an exchange, and drops what has not been sent. False if the exchange is not outstanding, or was
    /// never opened: then the I/O completes as unsupported.
    pub(super) fn abort(&mut self, why: AbortedFor, now: Instant, tag: Tag, link: &mut Link) -> bool {
        let exchange = self.exchanges.slots.get(tag as usize);
        let was_sent = exchange.is_some_and(|exchange| !matches!(exchange.command, Some(Transfer::Unsupported)));
        was_sent && self.exchanges.abort(why, now, tag, link)
    }

    pub(super) fn abort_all(&mut self, now: Instant, link: &mut Link) {
        for tag in 0..self.exchanges.slots.len() {
            self.abort(AbortedFor::Association, now, tag as Tag, link);
        }
    }

    /// Processes the answer to an ABTS. Whether it was accepted or not, the target no longer knows the exchange.
    pub(super) fn aborted(&mut self, now: Instant, header: &Header, events: &mut dyn InitiatorEvents) {
        // The response may have crossed the ABTS.
        let Ok((tag, slot)) = self.exchanges.find(header) else { return };
        let error = match slot.aborted {
            None => return,
            Some(AbortedFor::Caller) => IoError::Aborted,
            Some(AbortedFor::Association) => IoError::ConnectionLost,
        };
        self.exchanges.complete(now, tag, Err(error), events);
    }

    /// Whether a command is older than `timeout`.
    pub(super) fn is_overdue(&self, now: Instant, timeout: Duration) -> bool {
        self.outstanding() > 0 && self.exchanges.slots.iter().any(|slot| slot.is_late(now, timeout))
    }

    /// Fails all outstanding commands because the connection is lost.
    pub(super) fn lost(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        self.unsupported.clear();
        self.exchanges.fail(now, &IoError::ConnectionLost, events, |_| true);
    }
}

/// The connection of a queue from the queue's point of view: holds what it sends and what it receives, because the
/// stream carries more than one queue.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    out: Option<Capsule>,
    heard: Option<ConnectionEvent>,
    nothing: Transmit,
}

#[derive(Debug)]
pub(super) struct Capsule {
    sqe: Sqe,
    data: Vec<u8>,
    reads: u32,
}

impl Mailbox {
    pub(super) fn tell(&mut self, event: ConnectionEvent) {
        self.heard = Some(event);
    }

    pub(super) fn take(&mut self) -> Option<Capsule> {
        self.out.take()
    }
}

impl Capsules for Mailbox {
    /// Capsules contain no data here, even if the command says so. The target requests the data.
    fn send(&mut self, sqe: &Sqe, data: &[u8], reads: u32) {
        let mut sqe = *sqe;
        if !data.is_empty() {
            sqe.set_sgl(Sgl::Transport { len: data.len() as u32 });
        }
        self.out = Some(Capsule { sqe, data: data.to_vec(), reads });
    }
}

impl Connection for Mailbox {
    fn receive(&mut self, _bytes: &mut &[u8]) -> Result<Option<ConnectionEvent>, Violation> {
        Ok(self.heard.take())
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.nothing
    }
}

/// A connection of the association, and its outstanding command that is not I/O.
#[derive(Debug)]
pub(super) struct Channel {
    ox_id: OxId,
    is_io: bool,
    connection: ConnectionId,
    csn: u32,
    asked: Option<Asked>,
}

#[derive(Debug)]
struct Asked {
    sqe: Sqe,
    out: Payload,
    reads: u32,
    read: Vec<u8>,
    moved: Moved,
}

impl Channel {
    /// `ox_id` is the OX_ID of its exchanges that are not I/O.
    pub(super) fn new(ox_id: OxId, is_io: bool, connection: ConnectionId) -> Self {
        Self { ox_id, is_io, connection, csn: 0, asked: None }
    }

    /// Sends the connection's next command in exchange `ox_id`.
    #[inline]
    pub(super) fn command(&mut self, ox_id: OxId, sqe: Sqe, link: &mut Link) {
        let command = Command::new(self.connection, self.csn, self.is_io, sqe);
        self.csn = self.csn.wrapping_add(1);
        link.send(Header { ox_id, ..Command::header() }, &command.encode());
    }

    pub(super) fn send(&mut self, capsule: Capsule, link: &mut Link) {
        let Capsule { sqe, data, reads } = capsule;
        self.command(self.ox_id, sqe, link);
        let (out, read, moved) = (Payload::from_vec(data), Vec::new(), Moved::default());
        self.asked = Some(Asked { sqe, out, reads, read, moved });
    }

    /// Checks the header of a frame of data.
    pub(super) fn data_begin(&mut self, header: &Header, len: u32) -> Result<(), Violation> {
        let asked = self.asked.as_mut().ok_or_else(unexpected)?;
        asked.moved.arrive(header, len, asked.reads)
    }

    pub(super) fn data(&mut self, bytes: &[u8]) {
        if let Some(asked) = &mut self.asked {
            asked.read.extend_from_slice(bytes);
        }
    }

    /// Sends the data that the target requests.
    pub(super) fn transfer_ready(
        &mut self,
        header: &Header,
        ready: TransferReady,
        link: &mut Link,
    ) -> Result<(), Violation> {
        let asked = self.asked.as_mut().ok_or_else(unexpected)?;
        asked.moved.ask(ready, asked.out.len())?;
        send_requested(kind::NVME, header, ready, &asked.out, link);
        Ok(())
    }

    /// Processes the response to the command. `None` means success with no further information.
    pub(super) fn answer(&mut self, cqe: Option<Cqe>) -> Result<Answer, Violation> {
        let Asked { sqe, reads, read: data, .. } = self.asked.take().ok_or_else(unexpected)?;
        let cqe = cqe.unwrap_or_else(|| Cqe { result: 0, sq_head: 0, cid: sqe.cid(), status: Status::SUCCESS });
        if cqe.cid != sqe.cid() {
            return Err(misbehaved!("FC-NVMe-2 NVMe_ERSP: an answer to another command than its exchange's").at(88));
        }
        if cqe.status.is_success() && data.len() < reads as usize {
            return Err(misbehaved!("FC-NVMe-2 NVMe_RSP: a command succeeded without all of its data"));
        }
        Ok(Answer { cqe, data })
    }
}
