//! An image pair (FCP-4): commands and their data, aborts of exchanges, task management functions.
//!
//! The slot of a command is its `IoId` and its RX_ID. A command ends with its data as one sequence, then its response.

use alloc::{rc::Rc, vec::Vec};

use super::FcpBackend;
use crate::{
    Instant, IoId, Payload, Shared, Transmit, Violation,
    fc::{
        Header, Link, OxId, ProcessLogin, RxId, els,
        frame::{f_ctl, kind, r_ctl},
        login::is_command,
        sequence::{Collect, DataFault, TransferReady, data_header},
    },
    fcp::iu::{Command, encode_response, encode_sense, function, response_code, response_header},
    scsi::{
        DataIn, Device, Nexus, Response, TaskManagement, TaskManagementResponse, status,
        target::{self, Announced, Issued, Progress, Residual, ScsiTransport, TaskId, TaskManager, Tasks, Work},
    },
};

/// Maximum sequences that wait for credit, in addition to two per command: answers to aborts, task management and
/// link services.
pub(super) const WAITING_MAX: usize = 64;
/// Maximum waiting aborts, in addition to one per command.
const ABORTS_MAX: usize = 16;

type Login = ProcessLogin<Rc<dyn Shared<Device>>>;

pub(super) struct Image {
    pub(super) manager: TaskManager<Link>,
    pub(super) login: Login,
    burst_len: u32,
    current: Current,
}

/// The destination of the data of the frame that is being received.
#[derive(Clone, Copy, Debug)]
enum Current {
    /// Nothing: they are dropped.
    Drop,
    /// A command, which may have ended meanwhile. No other command takes its slot before the end of the frame.
    Data { id: IoId, offset: u32, len: u32, last: bool },
    /// A unit, whose bytes are collected.
    Unit(Header),
}

impl Image {
    pub(super) fn new(nexus: Nexus, login: Login, tasks: u16, burst_len: u32) -> Self {
        Self {
            manager: TaskManager::new(nexus, tasks.clamp(1, 1024)),
            login,
            burst_len: burst_len.max(4),
            current: Current::Drop,
        }
    }

    /// Processes a header. Its data follow.
    #[inline]
    pub(super) fn header(&mut self, header: &Header, len: u32) -> Result<(), Violation> {
        self.current = Current::Drop;
        if (header.kind, header.r_ctl) != (kind::FCP, r_ctl::SOLICITED_DATA) {
            if !header.is_whole_sequence() {
                return Err(misbehaved!("FC-FS-5 SEQ_CNT: a unit in more frames than one").at(46));
            }
            self.current = Current::Unit(*header);
            return Ok(());
        }
        // Data of a task that was aborted meanwhile may still arrive. They are dropped.
        if let Some(id) = find_exchange(&self.manager.tasks, header.ox_id, header.rx_id)
            && let Some(task) = self.manager.tasks.get_mut(id)
        {
            if !task.collect.begin(header, len) {
                return Err(misbehaved!("FC-FS-5 SEQ_CNT: a frame of a sequence is missing").at(46));
            }
            let last = header.has(f_ctl::END_SEQUENCE);
            self.current = Current::Data { id, offset: header.parameter, len, last };
        }
        Ok(())
    }

    /// Processes a piece of data. Units are collected in `unit`.
    #[inline]
    pub(super) fn data<B: FcpBackend>(&mut self, at: u32, bytes: &[u8], unit: &mut Vec<u8>, backend: &mut B) {
        match self.current {
            Current::Drop => {}
            Current::Unit(_) => unit.extend_from_slice(bytes),
            Current::Data { id, offset, .. } => {
                if let Some(task) = self.manager.tasks.get_mut(id).filter(|task| task.collect.fault().is_none()) {
                    task.data(id, offset + at, bytes, backend);
                }
            }
        }
    }

    /// Processes the end of a frame. If it is not data, returns its header to the caller.
    #[inline]
    pub(super) fn end<B: FcpBackend>(&mut self, now: Instant, link: &mut Link, backend: &mut B) -> Option<Header> {
        match core::mem::replace(&mut self.current, Current::Drop) {
            Current::Drop => None,
            Current::Unit(header) => Some(header),
            Current::Data { id, len, last, .. } => {
                if let Some(task) = self.manager.tasks.get_mut(id) {
                    task.collect.end(len, last);
                    if last {
                        self.manager.advance(now, id, link, backend);
                    }
                }
                None
            }
        }
    }

    pub(super) fn command<B: FcpBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        unit: &[u8],
        link: &mut Link,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let command = Command::parse(unit)?;
        let ox_id = header.ox_id;
        if command.function != 0 {
            self.task_management(now, ox_id, &command, link, backend);
            return Ok(());
        }
        let manager = &mut self.manager;
        if !is_command(ox_id) && ox_id != crate::fc::login::ox_id::PROBE || manager.tasks.find(ox_id).is_some() {
            return Err(misbehaved!("FC-FS-5 OX_ID: an OX_ID of an open exchange").at(48));
        }
        if command.additional_cdb_words > 0 || command.reads && command.writes {
            respond_code(link, ox_id, RxId::UNASSIGNED, response_code::COMMAND_FIELDS);
            return Ok(());
        }
        let announced = Announced::new(command.reads, command.writes, command.data_len);
        let answered = Answered { ox_id, rx_id: RxId::UNASSIGNED, announced };
        let Some(id) = manager.tasks.next_free() else {
            respond(link, answered, &Response::status(status::TASK_SET_FULL));
            return Ok(());
        };
        let issued = Issued { lun: command.lun, cdb: command.cdb, announced };
        match manager.begin(now, id, &issued, link, backend) {
            // Already complete, e.g. a read of a memory volume, so it needs no task.
            (Work::Answer(response), _) => respond(link, answered, &response),
            (work, want) => {
                let collect = Collect::new(want, self.burst_len);
                manager.tasks.insert(id, ox_id, Task { issued, work, collect });
                manager.advance(now, id, link, backend);
            }
        }
        Ok(())
    }

    /// ABTS: aborts an exchange. After the answer its initiator may reuse the OX_ID, so nothing of the exchange may
    /// happen after that.
    pub(super) fn abort_exchange<B: FcpBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        link: &mut Link,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let (ox_id, rx_id) = (header.ox_id, header.rx_id);
        if self.manager.requests() > self.manager.tasks.capacity() + ABORTS_MAX {
            return Err(misbehaved!("iotax limit: aborts without end"));
        }
        let waited = link.waiting();
        link.forget(ox_id);
        let of_function = |request| matches!(request, Request::Function(of) if of == ox_id);
        let was_answered = link.waiting() < waited || self.manager.forget_request(of_function);
        match find_exchange(&self.manager.tasks, ox_id, rx_id) {
            Some(id) => self.manager.abort(now, id, Request::Abort(ox_id, rx_id), link, backend),
            None if was_answered => accept(ox_id, rx_id, link),
            None => link.send(els::answer(r_ctl::BA_RJT, ox_id, rx_id), &els::NO_EXCHANGE),
        }
        Ok(())
    }

    fn task_management<B: FcpBackend>(
        &mut self,
        now: Instant,
        ox_id: OxId,
        command: &Command,
        link: &mut Link,
        backend: &mut B,
    ) {
        let function = match command.function {
            function::ABORT_TASK_SET => TaskManagement::AbortTaskSet,
            function::CLEAR_TASK_SET => TaskManagement::ClearTaskSet,
            function::LOGICAL_UNIT_RESET => TaskManagement::LogicalUnitReset,
            function::TARGET_RESET => TaskManagement::TargetReset,
            function::CLEAR_ACA => TaskManagement::ClearAca,
            _ => return respond_code(link, ox_id, RxId::UNASSIGNED, response_code::REJECTED),
        };
        self.manager.manage(now, (function, command.lun, None), Request::Function(ox_id), link, backend);
    }
}

/// Finds the slot of an exchange. Its originator may not know the RX_ID yet.
#[inline]
fn find_exchange<T>(tasks: &Tasks<OxId, T>, ox_id: OxId, rx_id: RxId) -> Option<IoId> {
    if rx_id == RxId::UNASSIGNED {
        return tasks.find(ox_id);
    }
    (tasks.id(rx_id.0.into()) == Some(ox_id)).then(|| rx_id.0.into())
}

/// The command that a response answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) ox_id: OxId,
    pub(super) rx_id: RxId,
    pub(super) announced: Announced,
}

pub(super) fn respond(link: &mut Link, answered: Answered, response: &Response) {
    let data_len = u32::try_from(response.data.len()).unwrap_or(u32::MAX);
    let residual = answered.announced.residual(data_len, response.data_out_len);
    let send_len = data_len.min(answered.announced.data_in) as usize;
    if send_len > 0 {
        let header = ids(data_header(kind::FCP, true), answered);
        match &response.data {
            DataIn::Payload(payload) => link.send_payload(header, payload.slice(0, send_len)),
            DataIn::Inline(bytes) => link.send_payload(header, Payload::from_vec(bytes[..send_len].to_vec())),
            DataIn::None => {}
        }
    }
    let header = ids(response_header(), answered);
    match &response.sense {
        None => {
            let (bytes, len) = encode_response(response.status, residual, None);
            link.send(header, &bytes[..len]);
        }
        Some(sense) => link.send(header, &encode_sense(response.status, residual, sense)),
    }
}

/// Ends a command or task management function with only an `RSP_CODE`.
pub(super) fn respond_code(link: &mut Link, ox_id: OxId, rx_id: RxId, code: u8) {
    let (bytes, len) = encode_response(0, Residual::default(), Some(code));
    link.send(Header { ox_id, rx_id, ..response_header() }, &bytes[..len]);
}

fn ids(header: Header, answered: Answered) -> Header {
    debug_assert!(header.has(f_ctl::EXCHANGE_CONTEXT));
    Header { ox_id: answered.ox_id, rx_id: answered.rx_id, ..header }
}

fn accept(ox_id: OxId, rx_id: RxId, link: &mut Link) {
    link.send(els::answer(r_ctl::BA_ACC, ox_id, rx_id), &els::accept(ox_id, rx_id));
}

/// A command in progress.
type Task = target::Task<Collect>;

impl TaskId for OxId {
    /// The value that no command has.
    const NONE: Self = Self(0xffff);
}

/// A request that waits for commands to end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Abort(OxId, RxId),
    Function(OxId),
}

impl ScsiTransport for Link {
    type Id = OxId;
    type Collect = Collect;
    type Request = Request;

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    #[inline]
    fn ask(&mut self, slot: IoId, ox_id: OxId, task: &mut Task) -> Progress {
        if let Some(ready) = task.collect.next_burst() {
            let header = Header { ox_id, rx_id: RxId(slot as u16), ..TransferReady::header(kind::FCP) };
            self.send(header, &ready.encode());
            return Progress::Open;
        }
        match task.collect.fault() {
            _ if !task.collect.is_over() => Progress::Open,
            None => Progress::Complete,
            Some(_) => Progress::Wrong,
        }
    }

    #[inline]
    fn respond(&mut self, slot: IoId, ox_id: OxId, task: &Task, response: &Response) {
        respond(self, Answered { ox_id, rx_id: RxId(slot as u16), announced: task.issued.announced }, response);
    }

    fn respond_to_wrong_data(&mut self, slot: IoId, ox_id: OxId, task: &Task) {
        self.drop_task(ox_id, task);
        let is_offset = task.collect.fault() == Some(DataFault::Offset);
        let code = if is_offset { response_code::DATA_OFFSET } else { response_code::DATA_LENGTH };
        respond_code(self, ox_id, RxId(slot as u16), code);
    }

    fn drop_task(&mut self, ox_id: OxId, _task: &Task) {
        self.forget(ox_id);
    }

    fn respond_to_request(&mut self, request: Request, response: TaskManagementResponse) {
        let ox_id = match request {
            Request::Abort(ox_id, rx_id) => return accept(ox_id, rx_id, self),
            Request::Function(ox_id) => ox_id,
        };
        let code = match response {
            TaskManagementResponse::Complete => response_code::COMPLETE,
            TaskManagementResponse::NoLun => response_code::INCORRECT_LUN,
            TaskManagementResponse::Unsupported => response_code::REJECTED,
            TaskManagementResponse::Failed => response_code::FAILED,
        };
        respond_code(self, ox_id, RxId::UNASSIGNED, code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_found_by_either_id() {
        let mut tasks = Tasks::new(3);
        for (slot, ox_id) in [(0, 7), (1, 8)] {
            tasks.insert(slot, OxId(ox_id), ());
        }
        let find = |rx_id| find_exchange(&tasks, OxId(8), rx_id);
        assert_eq!((find(RxId::UNASSIGNED), find(RxId(1))), (Some(1), Some(1)));
        assert_eq!((find(RxId(0)), find(RxId(2)), find(RxId(700))), (None, None, None));
    }
}
