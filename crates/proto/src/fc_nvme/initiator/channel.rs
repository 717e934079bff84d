//! What a queue sends beside I/O: one command at a time, in an exchange of its own.

use alloc::vec::Vec;

use crate::{
    Payload, Transmit, Violation,
    fc::{
        Header, Link, OxId,
        frame::kind,
        login::unexpected,
        sequence::{Moved, TransferReady, data_header},
    },
    fc_nvme::{Command, ConnectionId},
    nvme::{
        Cqe, Sqe, Status,
        command::Sgl,
        fabrics::host::{Answer, Capsules, Connection, ConnectionEvent},
    },
};

/// Where a queue puts what it sends and finds what it is told: the stream carries more than one queue.
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
    /// No data lie in a capsule here, whatever the command says: they are asked for.
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

/// A connection of the association, and its command outstanding that is no I/O.
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
    /// `ox_id`: of its exchanges.
    pub(super) fn new(ox_id: OxId, is_io: bool, connection: ConnectionId) -> Self {
        Self { ox_id, is_io, connection, csn: 0, asked: None }
    }

    /// Sends a command in exchange `ox_id`, the next of its connection.
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

    /// A frame of data begins.
    pub(super) fn data_begin(&mut self, header: &Header, len: u32) -> Result<(), Violation> {
        let asked = self.asked.as_mut().ok_or_else(unexpected)?;
        asked.moved.arrive(header, len, asked.reads)
    }

    pub(super) fn data(&mut self, bytes: &[u8]) {
        if let Some(asked) = &mut self.asked {
            asked.read.extend_from_slice(bytes);
        }
    }

    /// The target asks for data.
    pub(super) fn transfer_ready(
        &mut self,
        header: &Header,
        ready: TransferReady,
        link: &mut Link,
    ) -> Result<(), Violation> {
        let asked = self.asked.as_mut().ok_or_else(unexpected)?;
        asked.moved.ask(ready, asked.out.len())?;
        send_data(header, ready, &asked.out, link);
        Ok(())
    }

    /// The command is answered; `None` stands for success and nothing else to say.
    pub(super) fn answer(&mut self, cqe: Option<Cqe>) -> Result<Answer, Violation> {
        let Asked { sqe, reads, read: data, .. } = self.asked.take().ok_or_else(unexpected)?;
        let cqe = cqe.unwrap_or_else(|| Cqe { result: 0, sq_head: 0, cid: sqe.cid(), status: Status::SUCCESS });
        if cqe.cid != sqe.cid() {
            return Err(Violation::misbehaved("FC-NVMe-2: an answer to another command than its exchange's").at(88));
        }
        if cqe.status.is_success() && data.len() < reads as usize {
            return Err(Violation::misbehaved("FC-NVMe-2: a command succeeded without all of its data"));
        }
        Ok(Answer { cqe, data })
    }
}

/// Sends the data that the target asks for.
pub(super) fn send_data(header: &Header, ready: TransferReady, data: &Payload, link: &mut Link) {
    let (ox_id, rx_id, parameter) = (header.ox_id, header.rx_id, ready.offset);
    let frame = Header { ox_id, rx_id, parameter, ..data_header(kind::NVME, false) };
    link.send_payload(frame, data.slice(ready.offset as usize, ready.len as usize));
}
