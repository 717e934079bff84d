//! The client's side of a connection: creates a session, opens one file (which it may create), and does I/O on that
//! file.

mod establish;
mod io;
mod slot_table;

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use self::{establish::Step, io::Templates, slot_table::Slots};
use super::{
    MAX_CONTROL_LEN, MAX_IO_BYTES,
    codec::{ChannelAttributes, StateId, Status},
};
use crate::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Misuse, Tag, Violation,
    nfs::common::{Calls, FileClient as _, Replies, Stability},
    rpc::{Encoder, Xid, auth::Identity},
    wire::Transmit,
};

/// Configuration of an initiator: the file to open, and how to use it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the file from the root of the server, including the export.
    pub file: String,
    pub identity: Identity,
    /// Identifies this client to the server. It is the same whenever the client reconnects.
    pub owner: Vec<u8>,
    /// Maximum outstanding I/Os; less than 65535. The server may grant fewer.
    pub depth: usize,
    /// The stability that WRITE requests.
    pub stability: Stability,
    /// Creates the file if it does not exist, and extends it to at least this many bytes.
    pub create: Option<u64>,
    /// Verifier of an earlier connection to the same server. It shows whether uncommitted writes of that connection
    /// were lost.
    pub verifier: Option<[u8; 8]>,
    /// The first xid; only its upper half is used. Connections of one client should use different values.
    pub first_xid: Xid,
    /// Maximum time without an answer while a call is outstanding.
    pub timeout: Duration,
    /// How long the server may be silent once the file is ready: after half of it the server is asked for a sign of
    /// life, which needs a slot of the session.
    pub keep_alive: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file: String::new(),
            identity: Identity::None,
            owner: b"iotax".to_vec(),
            depth: 32,
            stability: Stability::Unstable,
            create: None,
            verifier: None,
            first_xid: Xid::default(),
            timeout: Duration::from_secs(60),
            keep_alive: None,
        }
    }
}

/// A connection to a server, for one file.
#[derive(Debug)]
pub struct Client {
    config: Config,
    transmit: Transmit,
    replies: Replies,
    scratch: Encoder,
    identity: Vec<u8>,
    /// Distinguishes this client from an earlier one of the same owner.
    instance: [u8; 8],
    step: Step,
    /// When to resend the step's call, after the server deferred it.
    step_again_at: Option<Instant>,
    /// Deadline for resending it.
    step_limit: Instant,
    /// `close` was called before the file was ready, or while a new session is being created.
    closing: bool,
    /// The file was ready before, so a new session is being created for outstanding I/Os.
    was_ready: bool,
    /// New sessions since the last completed I/O.
    new_sessions: u32,
    control_slot: Option<u32>,
    /// The client ID that the server assigned.
    id: Option<u64>,
    /// What all addresses of the server have in common, and no other server has.
    server: Vec<u8>,
    slots: Slots,
    channel: ChannelAttributes,
    lease: Duration,
    /// Silence after which a SEQUENCE asks for a sign of life, and the time for its answer.
    ping_after: Duration,
    answer_within: Duration,
    /// Slots that stay free for it.
    kept_slots: usize,
    state: Option<StateId>,
    handle: Vec<u8>,
    geometry: Geometry,
    templates: Templates,
    /// A ping is a SEQUENCE, which keeps session and lease alive.
    calls: Calls<u32>,
}

impl Client {
    /// Starts to establish a session: the first call is in `transmit`.
    pub fn new(now: Instant, config: Config) -> Self {
        let identity = config.identity.encode();
        let mut client = Self {
            transmit: Transmit::default(),
            replies: Replies::new(),
            scratch: Encoder::default(),
            identity,
            instance: now.0.wrapping_add(u64::from(config.first_xid.0) << 32).to_be_bytes(),
            step: Step::Exchange,
            step_again_at: None,
            step_limit: now,
            closing: false,
            was_ready: false,
            new_sessions: 0,
            control_slot: None,
            id: None,
            server: Vec::new(),
            slots: Slots::default(),
            channel: ChannelAttributes::default(),
            lease: config.timeout,
            ping_after: config.timeout,
            answer_within: config.keep_alive.map_or(config.timeout, |keep_alive| keep_alive / 2),
            kept_slots: 0,
            state: None,
            handle: Vec::new(),
            geometry: Geometry { size_bytes: 0, block_size: 1, max_io_bytes: 0, read_only: false },
            templates: Templates::default(),
            calls: Calls::new(now, config.depth, config.first_xid, config.verifier),
            config,
        };
        client.begin_step(now, Step::Exchange);
        client
    }

    /// The negotiated channel attributes of the session, once the file is ready.
    pub fn channel(&self) -> &ChannelAttributes {
        &self.channel
    }

    /// The server's major ID, the same at all its addresses (RFC 8881 §2.10.5).
    pub fn server(&self) -> &[u8] {
        &self.server
    }

    /// How long the server keeps the opens of a silent client.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The last write verifier, for the `Config::verifier` of a later connection.
    pub fn verifier(&self) -> Option<[u8; 8]> {
        self.calls.verifier.last()
    }

    fn is_ready(&self) -> bool {
        self.step == Step::Ready
    }

    /// Whether outstanding I/Os may be sent.
    fn has_file(&self) -> bool {
        matches!(self.step, Step::Ready | Step::Draining)
    }

    /// When to send the next SEQUENCE. `None` while something else shows whether the server is alive.
    fn ping_at(&self) -> Option<Instant> {
        if self.config.keep_alive.is_none() && !self.calls.is_idle() {
            return None;
        }
        let can_ping = self.is_ready() && !self.calls.pinging && self.slots.free() > 0;
        can_ping.then_some(self.calls.last_progress + self.ping_after)
    }

    /// When an answer is too late.
    fn limit(&self) -> Instant {
        self.calls.last_progress + if self.calls.pinging { self.answer_within } else { self.config.timeout }
    }

    /// After half of the lease at the latest, so that one may be lost.
    fn follow_lease(&mut self, lease: Duration) {
        self.lease = lease;
        let asks = [Some(lease), self.config.keep_alive].into_iter().flatten().map(|time| time / 2);
        self.ping_after = asks.fold(self.config.timeout, Duration::min);
    }
}

impl Initiator for Client {
    fn receive(&mut self, now: Instant, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.calls.last_progress = now;
        self.receive_replies(now, bytes, events)
    }

    fn credits(&self) -> usize {
        if !self.is_ready() {
            return 0;
        }
        self.calls.credits().min(self.slots.free().saturating_sub(self.kept_slots))
    }

    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        self.submit_io(now, tag, io)
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.calls.has_unsupported() {
            return Some(self.calls.last_progress);
        }
        // A question comes before what it may show to be too late.
        let silence = self.ping_at().or_else(|| self.awaits_something().then(|| self.limit()));
        let again = if self.has_file() { self.calls.again_at() } else { None };
        [silence, again, self.step_again_at].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.calls.complete_unsupported(now, events);
        self.send_delayed(now);
        if self.step_again_at.is_some_and(|at| at <= now) {
            self.step_again_at = None;
            self.calls.last_progress = now;
            self.send_step();
        }
        if self.awaits_something() && now >= self.limit() {
            return Err(Violation::timed_out("RFC 5531 §9: no reply to a call"));
        }
        if self.ping_at().is_some_and(|at| at <= now) {
            self.ping(now);
        }
        self.leave_if_drained(now);
        Ok(())
    }

    fn close(&mut self, now: Instant) {
        self.begins_to_wait(now);
        self.begin_close(now);
    }

    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        self.step = Step::Closed;
        self.lose_all(now, events);
    }
}

/// The error of an I/O for a status.
fn failed(status: Status) -> IoError {
    IoError::Failed { status: status as u32, refusal: status.refusal(), what: status.text() }
}
