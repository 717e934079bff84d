//! The steps from a new connection to a file ready for I/O, and the steps of closing.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use super::{
    Client, MAX_CONTROL_LEN, MAX_IO_BYTES,
    io::Templates,
    slot_table::{Sequenced, Slots, foreign, is_of_lost_session, lost_session, malformed, result_of, skip_head},
};
use crate::{
    InitiatorEvents, Instant, Refusal, Violation,
    nfs::{
        PROGRAM,
        common::{CONTROL_TAG, FileType},
        v41::{
            MINOR_VERSION, PROC_COMPOUND, VERSION,
            codec::{
                ChangeInfo, ChannelAttributes, CompoundHead, MAX_HANDLE_LEN, OpCode, SessionId, StateId, Status,
                exchange, share,
            },
            fattr::{Bitmap, Known, RawAttributes, set_values},
            operations::{Claim, CreateSessionArguments, ExchangeArguments, OpenArguments, OpenHow, Operation, Owner},
        },
    },
    rpc::{Garbage, RpcError, message::encode_call, xdr},
    wire::Reader,
};

/// Delay before a deferred call is resent, and the maximum total time. After a restart a server opens no files before
/// its grace period is over, which lasts about one lease.
const AGAIN: Duration = Duration::from_millis(500);
const PUT_OFF_AT_MOST: Duration = Duration::from_secs(150);
/// Maximum new sessions without a completed I/O in between.
const NEW_SESSIONS: u32 = 3;
/// Maximum length of what surrounds the data of a READ or WRITE.
const AROUND_DATA: u32 = 2048;
/// Maximum operations in one of our COMPOUNDs.
const MAX_OPERATIONS: u32 = 8;
/// The owner of our open.
const OPEN_OWNER: &[u8] = b"load";
/// Maximum length of a cached reply, as requested from the server. Our requests never ask for a cached reply.
const KEEP_NOTHING: u32 = 1024;
/// `NFS4_OPAQUE_LIMIT` (RFC 8881 §3.2).
const MAX_OPAQUE_LEN: usize = 1024;

/// The state of a client: the call in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Exchange,
    CreateSession {
        sequence: u32,
    },
    ReclaimComplete,
    Root,
    /// Looks up the part of the path that ends before byte `end`.
    Lookup {
        directory: Vec<u8>,
        end: usize,
    },
    /// Opens the last part of the path, for reading and writing or only for reading.
    Open {
        directory: Vec<u8>,
        read_only: bool,
    },
    Grow {
        to: u64,
    },
    Ready,
    /// The server has lost the session. First wait for the answers to outstanding calls.
    Lost,
    /// No I/O is accepted any more; outstanding ones are completed.
    Draining,
    Close,
    DestroySession,
    DestroyClient,
    Closed,
}

impl Step {
    /// Whether a control call is in progress.
    pub(super) fn awaits_reply(&self) -> bool {
        !matches!(self, Self::Ready | Self::Lost | Self::Draining | Self::Closed)
    }

    fn is_way_back(&self) -> bool {
        matches!(self, Self::Close | Self::DestroySession | Self::DestroyClient)
    }
}

impl Client {
    pub(super) fn begin_step(&mut self, now: Instant, step: Step) {
        self.step = step;
        self.step_limit = now + PUT_OFF_AT_MOST;
        self.send_step();
    }

    /// Sends the call of the current step, for the first time or again.
    pub(super) fn send_step(&mut self) {
        let step = self.step.clone();
        match &step {
            Step::Exchange => {
                let (verifier, owner) = (self.instance, self.config.owner.clone());
                let flags = exchange::USE_NON_PNFS;
                let asked = ExchangeArguments { verifier, owner: &owner, flags, wants_protection: false };
                self.call(false, &[Operation::ExchangeId(asked)]);
            }
            Step::CreateSession { sequence } => {
                let fore = ChannelAttributes {
                    header_pad: 0,
                    max_request: MAX_IO_BYTES + MAX_CONTROL_LEN,
                    max_response: MAX_IO_BYTES + MAX_CONTROL_LEN,
                    max_response_cached: KEEP_NOTHING,
                    max_operations: MAX_OPERATIONS,
                    max_requests: self.config.depth as u32 + 1,
                };
                let back = ChannelAttributes {
                    header_pad: 0,
                    max_request: 4096,
                    max_response: 4096,
                    max_response_cached: 0,
                    max_operations: 2,
                    max_requests: 1,
                };
                let (client, sequence) = (self.id.unwrap_or_default(), *sequence);
                let asked = CreateSessionArguments { client, sequence, flags: 0, fore, back, callback_program: 0 };
                self.call(false, &[Operation::CreateSession(asked)]);
            }
            Step::ReclaimComplete => self.call(true, &[Operation::ReclaimComplete { of_one_file_system: false }]),
            Step::Root => self.call(true, &[Operation::PutRootFh, Operation::GetFh]),
            Step::Lookup { directory, end } => {
                let name = self.name_before(*end);
                let name = name.as_bytes();
                self.call(true, &[Operation::PutFh(directory), Operation::Lookup { name }, Operation::GetFh]);
            }
            Step::Open { directory, read_only } => self.send_open(directory, *read_only),
            Step::Grow { to } => {
                let (present, values) = set_values(Some(*to), None);
                let attributes = RawAttributes { present, values: &values };
                let (handle, state) = (self.handle.clone(), self.state.unwrap_or_default());
                self.call(
                    true,
                    &[
                        Operation::PutFh(&handle),
                        Operation::SetAttr { state, attributes },
                        Operation::GetAttr(Known::WANTED),
                    ],
                );
            }
            Step::Close => {
                let (handle, state) = (self.handle.clone(), self.state.unwrap_or_default());
                self.call(true, &[Operation::PutFh(&handle), Operation::Close { state }]);
            }
            Step::DestroySession => self.call(false, &[Operation::DestroySession(self.slots.session)]),
            Step::DestroyClient => {
                self.call(false, &[Operation::DestroyClientId(self.id.unwrap_or_default())]);
            }
            Step::Ready | Step::Lost | Step::Draining | Step::Closed => {}
        }
    }

    fn send_open(&mut self, directory: &[u8], read_only: bool) {
        let name = self.name_before(self.config.file.trim_end_matches('/').len());
        let (present, values) = set_values(self.config.create, Some(0o644));
        let how = match self.config.create {
            Some(_) => OpenHow::Unchecked(RawAttributes { present, values: &values }),
            None => OpenHow::NoCreate,
        };
        let access = if read_only { share::READ } else { share::BOTH };
        let open = OpenArguments {
            access: access | share::WANT_NO_DELEGATION,
            deny: 0,
            owner: Owner { client: self.id.unwrap_or_default(), name: OPEN_OWNER },
            how,
            claim: Claim::Name(name.as_bytes()),
        };
        self.call(
            true,
            &[Operation::PutFh(directory), Operation::Open(open), Operation::GetFh, Operation::GetAttr(Known::WANTED)],
        );
    }

    pub(super) fn process_control_reply(
        &mut self,
        now: Instant,
        outcome: Result<(), RpcError>,
        reader: &mut Reader<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let slot = self.control_slot.take();
        let sequenced = match outcome {
            Ok(()) => self.take_sequence(slot, reader)?,
            Err(_) => Ok(()),
        };
        if let Some(slot) = slot {
            self.slots.give_back(slot);
        }
        if core::mem::take(&mut self.calls.pinging) {
            return match sequenced {
                Ok(()) | Err(Status::Delay) => {
                    self.renew_if_answered(now);
                    self.leave_if_drained(now);
                    Ok(())
                }
                Err(status) if is_of_lost_session(status) => self.lose_session(now, status),
                Err(status) => Err(lost_session(status)),
            };
        }
        if self.step.is_way_back() {
            self.go_back(now, events);
            return Ok(());
        }
        outcome.map_err(refused_call)?;
        let status = match sequenced {
            Ok(()) => self.take_step(now, reader, events)?,
            Err(status) => Err(status),
        };
        let Err(status) = status else { return Ok(()) };
        let is_left = self.closing && !self.was_ready;
        if matches!(status, Status::Delay | Status::Grace) && now < self.step_limit && !is_left {
            self.step_again_at = Some(now + AGAIN);
            return Ok(());
        }
        if is_left {
            self.go_back(now, events);
            return Ok(());
        }
        self.refused_step(now, status)
    }

    /// Processes what precedes the results of a step.
    fn take_sequence(&mut self, slot: Option<u32>, reader: &mut Reader<'_>) -> Result<Result<(), Status>, Violation> {
        if let Err(status) = skip_head(reader).map_err(malformed)? {
            if let Some(slot) = slot {
                self.slots.take_back(slot);
            }
            return Ok(Err(status));
        }
        let Some(slot) = slot else { return Ok(Ok(())) };
        match self.slots.check(slot, reader).map_err(malformed)? {
            Sequenced::Done => Ok(Ok(())),
            Sequenced::Foreign => Err(foreign()),
            Sequenced::Refused(status) => {
                self.slots.take_back(slot);
                Ok(Err(status))
            }
        }
    }

    /// Processes the results of a step and starts the next. Returns the status of the operation that failed.
    fn take_step(
        &mut self,
        now: Instant,
        reader: &mut Reader<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<Result<(), Status>, Violation> {
        let step = self.step.clone();
        let next = match self.read_step(&step, reader).map_err(malformed)? {
            Ok(next) => next?,
            Err(status) => return Ok(Err(status)),
        };
        if self.closing && !self.was_ready {
            self.go_back(now, events);
        } else if next == Step::Ready {
            self.file_ready(now, events);
        } else {
            self.begin_step(now, next);
        }
        Ok(Ok(()))
    }

    fn file_ready(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        self.step = if self.closing { Step::Draining } else { Step::Ready };
        if !core::mem::replace(&mut self.was_ready, true) {
            events.ready(now, &self.geometry);
        }
        self.send_delayed(now);
        self.leave_if_drained(now);
    }

    /// Decodes the results of a step and returns the next step.
    #[allow(clippy::type_complexity)] // Garbage, a status after which a retry is possible, a violation.
    fn read_step(
        &mut self,
        step: &Step,
        reader: &mut Reader<'_>,
    ) -> Result<Result<Result<Step, Violation>, Status>, Garbage> {
        macro_rules! expect {
            ($code:ident) => {
                if let Err(status) = result_of(OpCode::$code, reader)? {
                    return Ok(Err(status));
                }
            };
        }
        Ok(Ok(match step {
            Step::Exchange => {
                expect!(ExchangeId);
                self.id = Some(reader.u64_be()?);
                let sequence = reader.u32_be()?;
                // Flags, no state protection, the server's minor ID.
                reader.skip(16)?;
                self.server = xdr::opaque(reader, MAX_OPAQUE_LEN)?.to_vec();
                Ok(Step::CreateSession { sequence })
            }
            Step::CreateSession { .. } => {
                expect!(CreateSession);
                let session = SessionId(reader.array()?);
                reader.skip(8)?;
                let fore = ChannelAttributes::decode(reader)?;
                self.take_session(session, fore).map(|()| Step::ReclaimComplete)
            }
            Step::ReclaimComplete => {
                match result_of(OpCode::ReclaimComplete, reader)? {
                    Ok(()) | Err(Status::CompleteAlready) => {}
                    Err(status) => return Ok(Err(status)),
                }
                Ok(Step::Root)
            }
            Step::Root => {
                expect!(PutRootFh);
                expect!(GetFh);
                Ok(self.look_up(xdr::opaque(reader, MAX_HANDLE_LEN)?, 0))
            }
            Step::Lookup { end, .. } => {
                expect!(PutFh);
                expect!(Lookup);
                expect!(GetFh);
                Ok(self.look_up(xdr::opaque(reader, MAX_HANDLE_LEN)?, *end))
            }
            Step::Open { read_only, .. } => {
                expect!(PutFh);
                expect!(Open);
                self.state = Some(StateId::decode(reader)?);
                ChangeInfo::decode(reader)?;
                reader.skip(4)?;
                Bitmap::decode(reader)?;
                if !skip_no_delegation(reader)? {
                    return Ok(Ok(Err(unsupported!("RFC 8881 §18.16: a delegation that was not wanted"))));
                }
                expect!(GetFh);
                self.handle = xdr::opaque(reader, MAX_HANDLE_LEN)?.to_vec();
                expect!(GetAttr);
                self.geometry.read_only = *read_only;
                let known = RawAttributes::decode(reader)?.known()?;
                self.take_file(&known)
            }
            Step::Grow { .. } => {
                expect!(PutFh);
                let grown = result_of(OpCode::SetAttr, reader)?;
                Bitmap::decode(reader)?;
                if let Err(status) = grown {
                    return Ok(Err(status));
                }
                expect!(GetAttr);
                self.config.create = None;
                let known = RawAttributes::decode(reader)?.known()?;
                self.take_file(&known)
            }
            _ => unreachable!("the way back reads no results, and the others await none"),
        }))
    }

    fn take_session(&mut self, session: SessionId, fore: ChannelAttributes) -> Result<(), Violation> {
        if fore.max_requests == 0 || fore.max_operations < 5 {
            return Err(unsupported!(
                "RFC 8881 §18.36: a session with fewer slots or operations than opening a file takes"
            ));
        }
        if fore.max_requests > self.config.depth as u32 + 1 {
            return Err(misbehaved!("RFC 8881 §18.36: more slots than were asked for"));
        }
        // If the server granted more than one.
        self.kept_slots = usize::from(self.config.keep_alive.is_some() && fore.max_requests > 1);
        self.channel = fore;
        self.slots = Slots::new(session, fore.max_requests);
        Ok(())
    }

    fn take_file(&mut self, known: &Known) -> Result<Step, Violation> {
        let Known { kind: Some(kind), size: Some(size), lease_seconds: Some(lease), max_read, max_write } = *known
        else {
            return Err(misbehaved!("RFC 8881 §5.6: attributes that every file has are missing"));
        };
        if kind != FileType::Regular {
            return Err(Violation::refused(Refusal::WrongKind, "RFC 8881 §18.16: not a regular file"));
        }
        if let Some(to) = self.config.create.filter(|wanted| *wanted > size) {
            return Ok(Step::Grow { to });
        }
        self.follow_lease(Duration::from_secs(u64::from(lease.max(1))));
        let longest = [max_read, max_write].into_iter().flatten().fold(u64::from(MAX_IO_BYTES), u64::min);
        let channel = self.channel.max_request.min(self.channel.max_response).saturating_sub(AROUND_DATA);
        self.geometry.max_io_bytes = channel.min(longest as u32);
        if self.geometry.max_io_bytes == 0 {
            return Err(misbehaved!("RFC 8881 §5.8.2.20: maxread, maxwrite or the session leave no room for data"));
        }
        self.geometry.size_bytes = size;
        let state = StateId { seqid: 0, ..self.state.unwrap_or_default() };
        self.templates = Templates::new(&self.handle, state, &self.identity, &self.slots, self.config.stability);
        Ok(Step::Ready)
    }

    /// Handles a step that the server rejected: tries another way if there is one.
    fn refused_step(&mut self, now: Instant, status: Status) -> Result<(), Violation> {
        if let Step::Open { directory, read_only: false } = &self.step
            && matches!(status, Status::Access | Status::ReadOnly | Status::NotOwner)
        {
            let directory = directory.clone();
            self.config.create = None;
            self.begin_step(now, Step::Open { directory, read_only: true });
            return Ok(());
        }
        let rule = match (&self.step, status) {
            (_, Status::MinorVersionMismatch) => "RFC 8881 §15.1: the server does not speak version 4.1",
            (_, Status::NoEntry) => "RFC 8881 §15.1: no such file or directory",
            (_, Status::Access | Status::NotOwner) => "RFC 8881 §15.1: permission denied",
            (_, Status::WrongSecurity) => "RFC 8881 §15.1: the export wants another kind of credential",
            (_, Status::ReadOnly) => "RFC 8881 §15.1: the export is read-only",
            (_, Status::NoSpace) => "RFC 8881 §15.1: no space left on the server",
            (_, Status::NotDirectory) => "RFC 8881 §15.1: not a directory",
            (_, Status::IsDirectory) => "RFC 8881 §15.1: a directory and no file",
            (_, Status::Grace) => "RFC 8881 §15.1: the server's grace period does not end",
            (_, Status::ShareDenied) => "RFC 8881 §15.1: somebody else has the file and does not share it",
            (Step::Exchange, _) => "RFC 8881 §18.35: the server does not know this client",
            (Step::CreateSession { .. }, _) => "RFC 8881 §18.36: the server grants no session",
            (Step::Grow { .. }, _) => "RFC 8881 §18.30: the file cannot be made larger",
            (Step::Open { .. }, _) => "RFC 8881 §18.16: the file cannot be opened",
            _ => "RFC 8881 §18.13: the file cannot be reached",
        };
        Err(Violation::refused(status.refusal(), rule))
    }

    /// Stops accepting I/O. Outstanding I/Os are completed.
    pub(super) fn begin_close(&mut self, now: Instant) {
        match self.step {
            Step::Ready => {
                self.step = Step::Draining;
                self.leave_if_drained(now);
            }
            Step::Draining | Step::Close | Step::DestroySession | Step::DestroyClient | Step::Closed => {}
            // Outstanding I/Os must still be completed.
            _ if self.was_ready => self.closing = true,
            // The reply to a call in progress will come, so wait for it. A deferred call is not resent.
            _ => {
                self.closing = true;
                if self.step_again_at.take().is_some() {
                    self.leave(now);
                }
            }
        }
    }

    pub(super) fn leave_if_drained(&mut self, now: Instant) {
        if self.step == Step::Draining && self.calls.is_drained() {
            self.leave(now);
        }
    }

    /// Starts the first step of closing.
    fn leave(&mut self, now: Instant) {
        let step = if self.state.is_some() {
            Step::Close
        } else if self.slots.stand() {
            Step::DestroySession
        } else {
            Step::DestroyClient
        };
        self.begin_step(now, step);
    }

    /// Starts the next step of closing, whatever the result of the last one was.
    fn go_back(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        match self.step {
            Step::Close => {
                self.state = None;
                self.leave(now);
            }
            Step::DestroySession => {
                self.slots = Slots::default();
                self.leave(now);
            }
            Step::DestroyClient => {
                self.step = Step::Closed;
                events.closed(now);
            }
            _ if self.id.is_some() => self.leave(now),
            _ => {
                self.step = Step::Closed;
                events.closed(now);
            }
        }
    }

    /// Handles the loss of the session. A new one is created when all outstanding calls have been answered.
    pub(super) fn lose_session(&mut self, now: Instant, status: Status) -> Result<(), Violation> {
        if self.step == Step::Ready {
            if self.new_sessions == NEW_SESSIONS {
                return Err(lost_session(status));
            }
            self.new_sessions += 1;
            self.step = Step::Lost;
        } else if self.step != Step::Lost {
            return Err(lost_session(status));
        }
        self.renew_if_answered(now);
        Ok(())
    }

    pub(super) fn renew_if_answered(&mut self, now: Instant) {
        if self.step == Step::Lost && self.calls.outstanding == self.calls.delayed && !self.calls.pinging {
            self.give_up_slots();
            self.begin_step(now, Step::Exchange);
        }
    }

    pub(super) fn ping(&mut self, now: Instant) {
        self.calls.pinging = true;
        self.calls.last_progress = now;
        self.call(true, &[]);
    }

    /// The step for the next part of the path, from byte `at` on, below a directory.
    fn look_up(&self, directory: &[u8], at: usize) -> Step {
        let path = &self.config.file;
        let directory = directory.to_vec();
        let start = at + path[at..].bytes().take_while(|byte| *byte == b'/').count();
        let end = path[start..].find('/').map_or(path.len(), |slash| start + slash);
        if path[end..].bytes().all(|byte| byte == b'/') {
            Step::Open { directory, read_only: false }
        } else {
            Step::Lookup { directory, end }
        }
    }

    /// The part of the path that ends before byte `end`.
    fn name_before(&self, end: usize) -> String {
        self.config.file[..end].rsplit('/').next().map(String::from).unwrap_or_default()
    }

    /// Sends a COMPOUND, with SEQUENCE first if it is `in_session`.
    fn call(&mut self, in_session: bool, operations: &[Operation<'_>]) {
        self.calls.control_xid = self.calls.next_xid(CONTROL_TAG);
        let slot = if in_session { self.slots.take() } else { None };
        let encoder = self.scratch.begin_record();
        encode_call(encoder, self.calls.control_xid, PROGRAM, VERSION, PROC_COMPOUND, &self.identity);
        let count = operations.len() as u32 + u32::from(in_session);
        CompoundHead { tag: b"", minor: MINOR_VERSION, operations: count }.encode(encoder);
        if in_session {
            let slot = slot.expect("a slot is free for it");
            Operation::Sequence(self.slots.arguments(slot)).encode(encoder);
        }
        for operation in operations {
            operation.encode(encoder);
        }
        self.control_slot = slot;
        self.transmit.put(self.scratch.end_record(0));
    }
}

/// Skips the `open_delegation4` of a server that grants no delegation; false if it grants one.
fn skip_no_delegation(reader: &mut Reader<'_>) -> Result<bool, Garbage> {
    const CONTENTION: u32 = 1;
    const RESOURCE: u32 = 2;
    match reader.u32_be()? {
        0 => Ok(true),
        3 => {
            if matches!(reader.u32_be()?, CONTENTION | RESOURCE) {
                reader.skip(4)?;
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn refused_call(error: RpcError) -> Violation {
    let rule = match error {
        RpcError::Authentication(_) => "RFC 5531 §9: the server refuses the credential",
        RpcError::ProgramUnavailable => "RFC 5531 §9: no NFS on this port",
        RpcError::ProgramMismatch { .. } => "RFC 5531 §9: the server does not speak version 4",
        _ => "RFC 5531 §9: the server could not carry out the call",
    };
    Violation::refused(error.refusal(), rule)
}
