//! The client's side of a connection: mounts an export, finds or creates one file in it, and does I/O on that file.

mod io;
mod setup;

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use self::setup::{MountStep, Templates};
use super::{results::FsInfo, types::Status};
use crate::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Misuse, Tag, Violation,
    nfs::common::{Calls, FileClient as _, FileHandle, Replies, Stability},
    rpc::{Encoder, Xid, auth::Identity},
    wire::Transmit,
};

/// Configuration of an initiator: the file to mount, and how to use it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the export for MNT.
    pub export: String,
    /// Path of the file below the export.
    pub file: String,
    pub root: Root,
    pub identity: Identity,
    /// Maximum outstanding I/Os; less than 65535.
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
    /// Maximum time without an answer while a call is outstanding. After the same time without I/O a NULL call is sent,
    /// because servers close connections that seem idle, Linux after six minutes.
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            export: String::new(),
            file: String::new(),
            root: Root::MountHere,
            identity: Identity::None,
            depth: 32,
            stability: Stability::Unstable,
            create: None,
            verifier: None,
            first_xid: Xid::default(),
            timeout: Duration::from_secs(60),
        }
    }
}

/// Source of the handle of the export's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// MNT on this connection, for servers that serve all programs on one port.
    MountHere,
    /// A `rpc::ControlCall` on a connection to the port of MOUNT.
    Handle(FileHandle),
}

/// A connection to a server, for one file.
#[derive(Debug)]
pub struct Mount {
    config: Config,
    transmit: Transmit,
    replies: Replies,
    scratch: Encoder,
    identity: Vec<u8>,
    step: MountStep,
    /// `close` was called before the file was ready.
    closing: bool,
    info: Option<FsInfo>,
    geometry: Geometry,
    templates: Templates,
    calls: Calls<()>,
}

impl Mount {
    /// Starts to mount: the first call is in `transmit`.
    pub fn new(now: Instant, config: Config) -> Self {
        let identity = config.identity.encode();
        let mut mount = Self {
            transmit: Transmit::default(),
            replies: Replies::new(),
            scratch: Encoder::default(),
            identity,
            step: MountStep::Closed,
            closing: false,
            info: None,
            geometry: Geometry { size_bytes: 0, block_size: 1, max_io_bytes: 0, read_only: false },
            templates: Templates::default(),
            calls: Calls::new(now, config.depth, config.first_xid, config.verifier),
            config,
        };
        mount.begin_setup();
        mount
    }

    /// The server's FSINFO, once mounted.
    pub fn info(&self) -> Option<&FsInfo> {
        self.info.as_ref()
    }

    /// The last write verifier, for the `Config::verifier` of a later connection.
    pub fn verifier(&self) -> Option<[u8; 8]> {
        self.calls.verifier.last()
    }

    fn is_idle(&self) -> bool {
        self.step == MountStep::Ready && self.calls.is_idle()
    }
}

impl Initiator for Mount {
    fn receive(&mut self, now: Instant, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.calls.last_progress = now;
        self.receive_replies(now, bytes, events)
    }

    fn credits(&self) -> usize {
        if self.step == MountStep::Ready { self.calls.credits() } else { 0 }
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
        let timeout = self.calls.last_progress + self.config.timeout;
        let silence = (self.awaits_something() || self.is_idle()).then_some(timeout);
        match (silence, self.calls.again_at()) {
            (Some(silence), Some(again)) => Some(silence.min(again)),
            (silence, again) => silence.or(again),
        }
    }

    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.calls.complete_unsupported(now, events);
        self.send_delayed(now);
        if now >= self.calls.last_progress + self.config.timeout {
            if self.awaits_something() {
                return Err(Violation::timed_out("RFC 5531 §9: no reply to a call"));
            }
            if self.is_idle() {
                self.ping(now);
            }
        }
        self.end_if_drained();
        Ok(())
    }

    fn close(&mut self, now: Instant) {
        self.begins_to_wait(now);
        self.begin_close();
    }

    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        self.step = MountStep::Closed;
        self.lose_all(now, events);
    }
}

/// The error of an I/O for a status, with the texts of `Status`.
fn failed(status: Status) -> IoError {
    IoError::Failed { status: status as u32, refusal: status.refusal(), what: setup::text(status) }
}
