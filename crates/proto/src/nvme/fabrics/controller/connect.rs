//! The Connect command (NVMe base 2.1 §6.3), which decides what the connection becomes.
//!
//! Also in-band authentication, between Connect and the first command of a queue that requires it.

use alloc::{boxed::Box, rc::Rc};
use core::net::IpAddr;

use super::{Destination, IoQueueState, Phase, Queue, SqHead, Transport, check_controller_data, slots::Control};
use crate::{
    Instant, Shared,
    nvme::{
        Admission, CommandId, ControllerId, NvmeBackend, QueueId, Refusal, Sqe, Status, Subsystem,
        admin::AdminController,
        auth::{self, Progress},
        command::{Connect, ConnectData, fabrics},
        discovery::ADMIN_QUEUE_ENTRIES,
        fabrics::Data,
        subsystem::{AttachError, HostIdentity, with_subsystem},
    },
};

/// SQHD of a successful Connect that disables SQ flow control (NVMe base 2.1 §6.3).
const FLOW_CONTROL_DISABLED: u16 = 0xffff;

/// AUTHREQ in the result of Connect: the host must authenticate itself on this queue (NVMe base 2.1 §6.3).
const AUTHENTICATION_REQUIRED: u64 = 1 << 17;

/// Result and status of a rejected Connect.
type Refused = (u64, Status);

/// The result of a successful Connect.
struct Connected {
    next: Next,
    cntlid: ControllerId,
    /// Maximum bytes of data in a capsule.
    max_command_data: u32,
}

enum Next {
    Ready(Phase),
    /// The host must authenticate itself first.
    Prove(Box<Unproven>),
}

impl Queue {
    /// Before a queue is connected, Connect is the only valid command.
    pub(super) fn on_first_command<T: Transport>(
        &mut self,
        sqe: &Sqe,
        data_len: u32,
        transport: &mut T,
    ) -> Destination {
        if sqe.is_fabrics() && sqe.fabrics_type() == fabrics::CONNECT {
            return self.take_control_data(sqe, data_len, ConnectData::LEN as u32, transport);
        }
        self.respond(sqe.cid(), Status::SEQUENCE_ERROR.do_not_retry(), transport);
        Destination::Nowhere
    }

    pub(super) fn on_connect<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        control: &Control,
        transport: &mut T,
        backend: &mut B,
    ) {
        let Some(data) = control.data.first_chunk() else {
            debug_assert!(false, "as many bytes as were asked for");
            return;
        };
        let connect = Connect::parse(&control.sqe);
        match self.connect(now, &connect, &ConnectData::parse(data), backend) {
            Ok(Connected { next, cntlid, max_command_data }) => {
                let mut result = u64::from(cntlid.0);
                match next {
                    Next::Ready(phase) => {
                        self.phase = phase;
                        self.deadline = None;
                        transport.set_max_command_data(max_command_data);
                    }
                    Next::Prove(unproven) => {
                        // NVMe base 2.1 §6.3: AUTHREQ, an authentication transaction is required.
                        result |= AUTHENTICATION_REQUIRED;
                        self.phase = Phase::Authenticating(unproven);
                        self.deadline = Some(now + self.config.connect_timeout);
                    }
                }
                let entries = connect.sq_size + 1;
                self.slots.resize(entries);
                self.sq = SqHead { is_disabled: connect.disable_sq_flow_control, head: 1, entries };
                let sq_head = if self.sq.is_disabled { FLOW_CONTROL_DISABLED } else { self.sq.head };
                let cid = control.sqe.cid();
                let cqe = crate::nvme::Cqe { result, sq_head, cid, status: Status::SUCCESS };
                transport.respond(&cqe);
            }
            Err((result, status)) => {
                // A busy subsystem may have a free controller later. Every other rejection would be repeated.
                let is_busy = status == Status::CONNECT_CONTROLLER_BUSY;
                let status = if is_busy { status } else { status.do_not_retry() };
                self.respond_with(control.sqe.cid(), result, status, transport);
                self.end(backend);
            }
        }
    }

    fn connect<B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        connect: &Connect,
        data: &ConnectData,
        backend: &mut B,
    ) -> Result<Connected, Refused> {
        if connect.record_format != 0 {
            return Err((0, Status::CONNECT_INCOMPATIBLE_FORMAT));
        }
        let Admission { subsystem, auth, address, port } = match backend.subsystem(&data.subnqn, &data.hostnqn) {
            Ok(admission) => admission,
            Err(Refusal::NoSubsystem) => return Err(wrong_data(ConnectData::SUBNQN_AT)),
            Err(Refusal::HostNotAllowed) => return Err((0, Status::CONNECT_INVALID_HOST)),
        };
        if !with_subsystem(&*subsystem, |subsystem| subsystem.admits(&data.hostnqn)) {
            return Err((0, Status::CONNECT_INVALID_HOST));
        }
        // Some hosts send no name if none is required. They are admitted if every host is. A secret always belongs to a
        // name.
        if data.hostnqn.is_empty() && auth.is_some() {
            return Err(wrong_data(ConnectData::HOSTNQN_AT));
        }
        let host = HostIdentity { nqn: data.hostnqn.clone(), id: data.host_id };
        let auth = auth.map(|policy| auth::Controller::new(policy, &data.hostnqn, &data.subnqn));
        let (behind, cntlid, max_command_data) = if connect.qid == QueueId::ADMIN {
            self.connect_admin(now, connect, data.cntlid, subsystem, (host, (address, port)), auth.is_some())?
        } else {
            self.connect_io(connect, data.cntlid, subsystem, host)?
        };
        let next = match auth {
            None => Next::Ready(behind.begin(now).map_err(not_attached)?),
            Some(auth) => Next::Prove(Box::new(Unproven { auth, behind, max_command_data, working: None })),
        };
        Ok(Connected { next, cntlid, max_command_data })
    }

    fn connect_admin(
        &self,
        now: Instant,
        connect: &Connect,
        cntlid: ControllerId,
        subsystem: Rc<dyn Shared<Subsystem>>,
        host: (HostIdentity, (IpAddr, u16)),
        must_prove: bool,
    ) -> Result<(Behind, ControllerId, u32), Refused> {
        if connect.sq_size == 0 || connect.sq_size >= ADMIN_QUEUE_ENTRIES {
            return Err(wrong_field(Connect::SQ_SIZE_AT));
        }
        // All controllers are dynamic (NVMe base 2.1 §3.1.2).
        if cntlid != ControllerId::ANY {
            return Err(wrong_data(ConnectData::CNTLID_AT));
        }
        let limits = self.config.limits;
        let admin = AdminController::connect(now, subsystem, host, must_prove, connect.keep_alive_ms, limits)
            .ok_or((0, Status::CONNECT_CONTROLLER_BUSY))?;
        let cntlid = admin.cntlid();
        Ok((Behind::Admin(Box::new(admin)), cntlid, self.config.admin_in_capsule_bytes))
    }

    fn connect_io(
        &self,
        connect: &Connect,
        cntlid: ControllerId,
        subsystem: Rc<dyn Shared<Subsystem>>,
        host: HostIdentity,
    ) -> Result<(Behind, ControllerId, u32), Refused> {
        if connect.sq_size == 0 || connect.sq_size >= self.config.limits.max_queue_entries {
            return Err(wrong_field(Connect::SQ_SIZE_AT));
        }
        let request = IoRequest { subsystem, cntlid, qid: connect.qid, host };
        request.check().map_err(not_attached)?;
        Ok((Behind::Io(request), cntlid, self.config.limits.in_capsule_bytes))
    }
}

fn not_attached(error: AttachError) -> Refused {
    match error {
        AttachError::NoController => wrong_data(ConnectData::CNTLID_AT),
        AttachError::OtherHostNqn => wrong_data(ConnectData::HOSTNQN_AT),
        AttachError::OtherHostId => wrong_data(ConnectData::HOST_ID_AT),
        AttachError::NotReady => (0, Status::SEQUENCE_ERROR),
        AttachError::QidTooHigh => wrong_field(Connect::QID_AT),
        AttachError::QidInUse => (0, Status::INVALID_QUEUE),
    }
}

fn wrong_field(at: u16) -> Refused {
    (Connect::wrong_field(at), Status::CONNECT_INVALID_PARAMETERS)
}

fn wrong_data(at: u16) -> Refused {
    (Connect::wrong_data(at), Status::CONNECT_INVALID_PARAMETERS)
}

/// A queue whose host has not authenticated itself, and what it becomes afterwards.
pub(super) struct Unproven {
    pub(super) auth: auth::Controller,
    pub(super) behind: Behind,
    /// Maximum bytes of data in a capsule after authentication.
    pub(super) max_command_data: u32,
    /// The Authentication Send that is answered when its computation is done.
    pub(super) working: Option<CommandId>,
}

/// The queue that a connection gets once its host has authenticated itself.
pub(super) enum Behind {
    Admin(Box<AdminController>),
    Io(IoRequest),
}

/// A requested I/O queue. It holds nothing before it is attached, so an unauthenticated peer cannot block a QID.
pub(super) struct IoRequest {
    pub(super) subsystem: Rc<dyn Shared<Subsystem>>,
    pub(super) cntlid: ControllerId,
    pub(super) qid: QueueId,
    pub(super) host: HostIdentity,
}

impl Behind {
    pub(super) fn begin(self, now: Instant) -> Result<Phase, AttachError> {
        match self {
            Self::Admin(admin) => Ok(Phase::Admin(admin)),
            Self::Io(request) => request.attach(now).map(|io| Phase::Io(Box::new(io))),
        }
    }

    pub(super) fn end<B: NvmeBackend + ?Sized>(self, backend: &mut B) {
        if let Self::Admin(admin) = self {
            Phase::Admin(admin).end(backend);
        }
    }
}

impl IoRequest {
    pub(super) fn check(&self) -> Result<(), AttachError> {
        with_subsystem(&*self.subsystem, |subsystem| subsystem.check_io_queue(self.cntlid, self.qid, &self.host))
    }

    fn attach(self, now: Instant) -> Result<IoQueueState, AttachError> {
        let Self { subsystem, cntlid, qid, host } = self;
        let attached = with_subsystem(&*subsystem, |subsystem| subsystem.attach_io_queue(cntlid, qid, &host))?;
        Ok(IoQueueState::new(now, subsystem, cntlid, (qid, host.id), attached))
    }
}

impl Queue {
    /// Before authentication has passed, its two commands are the only valid ones (NVMe base 2.1 §6.3, AUTHREQ).
    pub(super) fn on_authentication_command<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data_len: u32,
        transport: &mut T,
        backend: &mut B,
    ) -> Destination {
        let kind = sqe.is_fabrics().then(|| sqe.fabrics_type());
        if !matches!(kind, Some(fabrics::AUTHENTICATION_SEND | fabrics::AUTHENTICATION_RECEIVE)) {
            self.respond(sqe.cid(), Status::AUTHENTICATION_REQUIRED.do_not_retry(), transport);
            return Destination::Nowhere;
        }
        // The host must wait for the answer to its last message.
        if matches!(&self.phase, Phase::Authenticating(unproven) if unproven.working.is_some()) {
            self.respond(sqe.cid(), Status::SEQUENCE_ERROR.do_not_retry(), transport);
            return Destination::Nowhere;
        }
        let Some(len) = auth::len_of(sqe).filter(|len| (1..=auth::MESSAGE_LEN_MAX).contains(len)) else {
            self.respond(sqe.cid(), Status::INVALID_FIELD.do_not_retry(), transport);
            return Destination::Nowhere;
        };
        if kind == Some(fabrics::AUTHENTICATION_SEND) {
            return self.take_control_data(sqe, data_len, len, transport);
        }
        self.on_authentication_receive(now, sqe, len, transport, backend);
        Destination::Nowhere
    }

    /// Processes the data of an Authentication Send.
    pub(super) fn on_authentication_data<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        control: &Control,
        transport: &mut T,
        backend: &mut B,
    ) {
        let Phase::Authenticating(unproven) = &mut self.phase else {
            unreachable!("asked only while the host has not proved itself")
        };
        let cid = control.sqe.cid();
        if let Some(work) = unproven.auth.take(&control.data, &mut |bytes| backend.random(bytes)) {
            unproven.working = Some(cid);
            self.slots.mark_cid(cid);
            if let Some(worked) = backend.work(work) {
                self.worked(now, worked, transport, backend);
            }
            return;
        }
        self.respond(cid, Status::SUCCESS, transport);
        self.conclude(now, transport, backend);
    }

    /// Continues when the work given to `NvmeBackend::work` is done.
    pub fn worked<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        worked: auth::Worked,
        transport: &mut T,
        backend: &mut B,
    ) {
        // The connection may have ended during the computation. A response that was not requested has no effect.
        let Phase::Authenticating(unproven) = &mut self.phase else { return };
        let Some(cid) = unproven.working.take() else { return };
        unproven.auth.worked(worked);
        self.slots.clear_cid(cid);
        self.respond(cid, Status::SUCCESS, transport);
        self.conclude(now, transport, backend);
    }

    fn on_authentication_receive<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        len: u32,
        transport: &mut T,
        backend: &mut B,
    ) {
        if let Err(status) = check_controller_data(sqe, len) {
            self.respond(sqe.cid(), status, transport);
            return;
        }
        let Phase::Authenticating(unproven) = &mut self.phase else {
            unreachable!("asked only while the host has not proved itself")
        };
        let Some(mut message) = unproven.auth.give() else {
            self.respond(sqe.cid(), Status::SEQUENCE_ERROR.do_not_retry(), transport);
            return;
        };
        // The rest of the buffer is zeros. A buffer that is too short is an error of the host and ends the transaction.
        if message.len() > len as usize {
            self.respond(sqe.cid(), Status::INVALID_FIELD.do_not_retry(), transport);
            self.end(backend);
            return;
        }
        message.resize(len as usize, 0);
        self.give_data(sqe.cid(), Data::Bytes(&message), transport);
        self.conclude(now, transport, backend);
    }

    /// Admits the host if authentication has passed; closes the connection if it has failed.
    fn conclude<T: Transport, B: NvmeBackend + ?Sized>(&mut self, now: Instant, transport: &mut T, backend: &mut B) {
        let Phase::Authenticating(unproven) = &mut self.phase else {
            unreachable!("asked only while the host has not proved itself")
        };
        match unproven.auth.progress() {
            Progress::Open => {}
            Progress::Failed => self.end(backend),
            Progress::Passed => {
                transport.set_max_command_data(unproven.max_command_data);
                self.deadline = None;
                let Phase::Authenticating(unproven) = core::mem::replace(&mut self.phase, Phase::Closing) else {
                    return;
                };
                // Meanwhile another connection may have taken this QID, or the controller may have ended. Then this
                // connection ends.
                let Ok(phase) = unproven.behind.begin(now) else { return self.end(backend) };
                self.phase = phase;
                if let Phase::Admin(admin) = &mut self.phase {
                    admin.heard(now);
                    // Only now does the controller count against the limits: unauthenticated ones do not.
                    if !admin.prove() {
                        self.end(backend);
                    }
                }
            }
        }
    }
}
