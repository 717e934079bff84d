//! In-band authentication: between Connect and the first command of a queue that asks for it.

use alloc::{boxed::Box, rc::Rc};

use super::{Destination, IoQueueState, Phase, Queue, Transport, check_controller_data, slots::Control};
use crate::{
    Instant, Shared,
    nvme::{
        CommandId, ControllerId, NvmeBackend, QueueId, Sqe, Status, Subsystem,
        admin::AdminController,
        auth::{self, Progress},
        command::fabrics,
        fabrics::Data,
        subsystem::{AttachError, HostIdentity, with_subsystem},
    },
};

/// A queue whose host has not proved itself, and what it becomes then.
pub(super) struct Unproven {
    pub(super) auth: auth::Controller,
    pub(super) behind: Behind,
    /// Most bytes of data in a capsule, once it has.
    pub(super) max_command_data: u32,
    /// The Authentication Send that is answered when its arithmetic is done.
    pub(super) working: Option<CommandId>,
}

/// What a connection becomes once its host has proved itself.
pub(super) enum Behind {
    Admin(Box<AdminController>),
    Io(IoRequest),
}

/// An I/O queue that is asked for. It holds nothing before it is attached, so who proves nothing keeps nobody from a QID.
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
    /// Until authentication has passed, its two commands are the only ones that may come (NVMe base 2.1 §6.3, AUTHREQ).
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
        // The host's turn comes when its last message is answered.
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

    /// The data of an Authentication Send.
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

    /// What `NvmeBackend::work` was asked for is done.
    pub fn worked<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        worked: auth::Worked,
        transport: &mut T,
        backend: &mut B,
    ) {
        // The connection may have ended while others did the arithmetic; what nobody asked for changes nothing.
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
        // Room that is left is zeros; less than the message needs is the host's mistake, and its transaction is over.
        if message.len() > len as usize {
            self.respond(sqe.cid(), Status::INVALID_FIELD.do_not_retry(), transport);
            self.end(backend);
            return;
        }
        message.resize(len as usize, 0);
        self.give_data(sqe.cid(), Data::Bytes(&message), transport);
        self.conclude(now, transport, backend);
    }

    /// Lets the host in, or closes the connection, where authentication has come to its end.
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
                // Another may have taken the queue's place meanwhile, or its controller may have ended: the connection ends.
                let Ok(phase) = unproven.behind.begin(now) else { return self.end(backend) };
                self.phase = phase;
                if let Phase::Admin(admin) = &mut self.phase {
                    admin.heard(now);
                    // Only now does it count: those that proved nothing take nobody's place.
                    if !admin.prove() {
                        self.end(backend);
                    }
                }
            }
        }
    }
}
