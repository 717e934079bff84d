//! A command under way, as the transport of a target keeps it: what it waits for, and what comes then.

use alloc::vec::Vec;

use super::{AfterMedium, Command, Next, Nexus, Response, Sense};
use crate::{Backend, Instant, IoId, Payload, Started, Transmit, UnitError, Wait, WaitOutcome};

/// Parameter data that a command may bring. The longest list that a command of ours has fits many times.
const PARAMETERS_LEN_MAX: u32 = 64 * 1024;

/// What a SCSI target asks of the server behind it, whatever its transport.
pub trait ScsiBackend: Backend {
    /// Has every connection to the server, on whatever thread, look soon at what others did to it: its `handle_notification`.
    fn notify_others(&mut self);
}

/// A command under way.
#[derive(Debug, Default)]
pub(crate) struct Task {
    pub(crate) lun: u64,
    pub(crate) cdb: [u8; 16],
    pub(crate) announced: Announced,
    pub(crate) work: Work,
}

/// What a task waits for, and what it does then.
#[derive(Debug, Default)]
pub(crate) enum Work {
    #[default]
    Idle,
    /// Data for the backend, then its `finish`.
    Place(AfterMedium),
    /// The backend's completion.
    Medium(AfterMedium),
    /// Parameters for the command itself.
    Parameters(Vec<u8>),
    /// The end of data that nobody wants; then this answer.
    Answer(Response),
    /// The end of commands of other nexuses; then this answer.
    Await(Wait, Response),
}

impl Work {
    /// Does what the device server says is next for a command: what then is awaited, and how many bytes of data it takes.
    #[inline]
    pub(crate) fn begin<B: ScsiBackend>(
        now: Instant,
        id: IoId,
        next: Next,
        nexus: &mut Nexus,
        transmit: &mut Transmit,
        backend: &mut B,
    ) -> (Self, u32) {
        match next {
            Next::Respond(response) => {
                transmit.charge(Transmit::REQUEST + response.data.len());
                (Self::Answer(response), 0)
            }
            Next::RespondAfter(endings, response) => {
                (Self::Await(Wait::begin(now, endings, || backend.notify_others()), response), 0)
            }
            Next::Parameters { len } if len > PARAMETERS_LEN_MAX => {
                (Self::Answer(Response::check(Sense::PARAMETER_LIST_LENGTH_ERROR)), 0)
            }
            Next::Parameters { len } => (Self::Parameters(Vec::with_capacity(len as usize)), len),
            Next::Medium { unit, op, after } => {
                let want = op.data_len();
                match backend.start(now, id, unit, op) {
                    Started::NeedData => (Self::Place(after), want),
                    Started::Queued => (Self::Medium(after), 0),
                    Started::Done(result) => (Self::Answer(nexus.medium_done(after, result)), 0),
                }
            }
        }
    }

    /// The backend holds an operation for it.
    pub(crate) fn is_with_backend(&self) -> bool {
        matches!(self, Self::Place(_) | Self::Medium(_))
    }

    /// It is to be asked again for its answer: [`Task::answer_awaited`].
    pub(crate) fn is_awaiting(&self) -> bool {
        matches!(self, Self::Await(..))
    }
}

impl Task {
    /// A piece of its data came.
    #[inline]
    pub(crate) fn data<B: Backend>(&mut self, id: IoId, offset: u32, bytes: &[u8], backend: &mut B) {
        match &mut self.work {
            Work::Place(_) => backend.place(id, offset, bytes),
            Work::Parameters(parameters) => parameters.extend_from_slice(bytes),
            _ => {}
        }
    }

    /// Memory for a piece of its data, in place of `data`, where nobody need see them.
    pub(crate) fn memory<B: Backend>(&self, id: IoId, offset: u32, len: u32, backend: &B) -> Option<Payload> {
        matches!(self.work, Work::Place(_)).then(|| backend.memory(id, offset, len)).flatten()
    }

    /// All its data have come: its response, where that ends it.
    #[inline]
    pub(crate) fn collected<B: ScsiBackend>(
        &mut self,
        now: Instant,
        id: IoId,
        nexus: &mut Nexus,
        transmit: &mut Transmit,
        backend: &mut B,
    ) -> Option<Response> {
        if let Work::Parameters(parameters) = &self.work {
            let command = Command {
                lun: self.lun,
                cdb: &self.cdb,
                data_out_len: self.announced.data_out,
                data_in_len: self.announced.data_in,
            };
            let next = nexus.parameters(&command, parameters, &*backend);
            // What follows takes no data: they have been taken.
            (self.work, _) = Work::begin(now, id, next, nexus, transmit, backend);
        }
        match core::mem::take(&mut self.work) {
            Work::Answer(response) => Some(response),
            Work::Place(after) => match backend.finish(now, id) {
                Started::Done(result) => Some(nexus.medium_done(after, result)),
                Started::Queued | Started::NeedData => {
                    self.work = Work::Medium(after);
                    None
                }
            },
            waiting => {
                self.work = waiting;
                if self.work.is_awaiting() { self.answer_awaited(now) } else { None }
            }
        }
    }

    /// Of a command that aborted others: its response, where these have ended or take too long.
    pub(crate) fn answer_awaited(&mut self, now: Instant) -> Option<Response> {
        let Work::Await(mut wait, response) = core::mem::take(&mut self.work) else {
            unreachable!("asked of those that wait only")
        };
        match wait.outcome(now) {
            WaitOutcome::Waits => {
                self.work = Work::Await(wait, response);
                None
            }
            WaitOutcome::Ended => Some(response),
            WaitOutcome::TooLong => {
                let failed = Response::check(Sense::INTERNAL_TARGET_FAILURE);
                Some(Response { data_out_len: response.data_out_len, ..failed })
            }
        }
    }

    /// The backend is done with its operation.
    #[inline]
    pub(crate) fn medium_done(&self, nexus: &mut Nexus, result: Result<Option<Payload>, UnitError>) -> Response {
        let Work::Medium(after) = self.work else { unreachable!("the backend has no such task") };
        nexus.medium_done(after, result)
    }
}

/// Bytes that the initiator announced, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) data_in: u32,
    pub(crate) data_out: u32,
}

impl Announced {
    /// How what a command moved compares with it; `data_in_len` bytes are there for the initiator.
    pub(crate) fn residual(self, data_in_len: u32, data_out_len: u32) -> Residual {
        if self.data_out > 0 || data_out_len > 0 {
            Residual::new(self.data_out, data_out_len)
        } else {
            Residual::new(self.data_in, data_in_len)
        }
    }
}

/// How what a command moved compares with what was announced (RFC 7143 §11.4.5; FCP-4, `FCP_RESID`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Residual {
    pub(crate) overflow: bool,
    pub(crate) underflow: bool,
    pub(crate) count: u32,
}

impl Residual {
    pub(crate) fn new(announced: u32, moved: u32) -> Self {
        Self { overflow: moved > announced, underflow: moved < announced, count: moved.abs_diff(announced) }
    }
}
