//! The client's side of a connection: mounts an export, finds (or makes) one file of it, and does I/O on that file.

mod io;
mod setup;

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use self::{
    io::IoSlot,
    setup::{MountStep, Templates},
};
use super::{MAX_CONTROL_LEN, MAX_HEAD_LEN, MAX_IO_BYTES, results::FsInfo, types::Status};
use crate::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Misuse, Tag, Violation,
    nfs::common::{FileHandle, ReadUnderway, Stability, Verifier, reply_head},
    rpc::{Encoder, Piece, Records, RpcError, Xid, auth::Identity},
    wire::{Reader, Transmit},
};

/// Low half of the xid of every call that is not I/O; I/Os have their tag there.
const CONTROL_TAG: u32 = 0xffff;

/// What to mount, and how to use it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the export, as MNT takes it.
    pub export: String,
    /// Path of the file below the export.
    pub file: String,
    pub root: Root,
    pub identity: Identity,
    /// Most I/Os outstanding; below 65535.
    pub depth: usize,
    /// What WRITE asks for.
    pub stability: Stability,
    /// Makes the file where there is none, and makes it at least so many bytes large.
    pub create: Option<u64>,
    /// Of an earlier connection to the same server: whether writes that it left uncommitted were lost shows against it.
    pub verifier: Option<[u8; 8]>,
    /// Where xids begin, by its upper half; connections of one client should differ.
    pub first_xid: Xid,
    /// How long the server may be silent while something is asked of it. After as long without I/O it is asked for nothing (NULL):
    /// servers close what they think is idle, Linux's after six minutes.
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

/// Where the handle of the export's root comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// From MNT on this very connection: for servers that answer all programs on one port.
    MountHere,
    /// From a `rpc::ControlCall` on a connection to the port of MOUNT.
    Handle(FileHandle),
}

/// One connection to a server, for one file.
#[derive(Debug)]
pub struct Mount {
    config: Config,
    transmit: Transmit,
    records: Records,
    incoming: Incoming,
    /// First bytes of a reply that did not come whole.
    held: Vec<u8>,
    scratch: Encoder,
    identity: Vec<u8>,
    step: MountStep,
    /// `close` came before the file was ready.
    closing: bool,
    /// A NULL is under way that keeps an idle connection.
    pinging: bool,
    control_xid: Xid,
    info: Option<FsInfo>,
    geometry: Geometry,
    templates: Templates,
    slots: Vec<IoSlot>,
    outstanding: usize,
    /// Slots whose call the server wants to be sent again later.
    delayed: usize,
    /// Operations that NFS does not have, to be completed as such.
    unsupported: Vec<Tag>,
    next_generation: u32,
    verifier: Verifier,
    last_progress: Instant,
}

/// What the rest of the current record is.
#[derive(Debug)]
enum Incoming {
    Head,
    ReadData(ReadUnderway),
    Skip,
}

impl Mount {
    /// Begins to mount: the first call is in `transmit`.
    pub fn new(now: Instant, config: Config) -> Self {
        assert!(config.depth < CONTROL_TAG as usize, "tags and control calls share the xid's lower half");
        let identity = config.identity.encode();
        let mut mount = Self {
            transmit: Transmit::default(),
            records: Records::new(MAX_IO_BYTES + MAX_CONTROL_LEN),
            incoming: Incoming::Head,
            held: Vec::new(),
            scratch: Encoder::default(),
            identity,
            step: MountStep::Closed,
            closing: false,
            pinging: false,
            control_xid: Xid::default(),
            info: None,
            geometry: Geometry { size_bytes: 0, block_size: 1, max_io_bytes: 0, read_only: false },
            templates: Templates::default(),
            slots: (0..config.depth).map(|_| IoSlot::default()).collect(),
            outstanding: 0,
            delayed: 0,
            unsupported: Vec::with_capacity(config.depth),
            next_generation: config.first_xid.0 >> 16,
            verifier: Verifier::new(config.verifier),
            last_progress: now,
            config,
        };
        mount.begin_setup();
        mount
    }

    /// What FSINFO said of the server; there once mounted.
    pub fn info(&self) -> Option<&FsInfo> {
        self.info.as_ref()
    }

    /// The write verifier last seen, for a later connection's `Config::verifier`.
    pub fn verifier(&self) -> Option<[u8; 8]> {
        self.verifier.last()
    }

    fn take_piece(
        &mut self,
        now: Instant,
        piece: Piece<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        if matches!(self.incoming, Incoming::Head) && !self.held.is_empty() && piece.bytes.len() > MAX_HEAD_LEN {
            // The rest of a head that came split, with data behind it that are not to be held.
            let (head, rest) = piece.bytes.split_at(MAX_HEAD_LEN);
            self.take_piece(now, Piece { bytes: head, end: false }, events)?;
            return self.take_piece(now, Piece { bytes: rest, end: piece.end }, events);
        }
        match &mut self.incoming {
            Incoming::Head if self.held.is_empty() => {
                if !self.take_head(now, piece.bytes, piece.end, events)? {
                    self.hold(piece.bytes)?;
                }
            }
            Incoming::Head => {
                self.hold(piece.bytes)?;
                let mut held = core::mem::take(&mut self.held);
                let taken = self.take_head(now, &held, piece.end, events);
                if taken != Ok(false) {
                    held.clear();
                }
                self.held = held;
                taken?;
            }
            Incoming::ReadData(read) => {
                read.take(piece.bytes, events);
                if piece.end {
                    let read = *read;
                    self.read_ended(now, read, events)?;
                }
            }
            Incoming::Skip => {}
        }
        if piece.end {
            self.incoming = Incoming::Head;
        }
        Ok(())
    }

    /// Looks at the bytes of a reply so far; false when they have to wait for more.
    fn take_head(
        &mut self,
        now: Instant,
        bytes: &[u8],
        end: bool,
        events: &mut dyn InitiatorEvents,
    ) -> Result<bool, Violation> {
        let mut reader = Reader::new(bytes);
        let Some((xid, outcome)) = reply_head(&mut reader, end)? else { return Ok(false) };
        if xid.0 & CONTROL_TAG != CONTROL_TAG {
            return self.take_io_reply(now, xid, outcome, &mut reader, end, events);
        }
        if !end {
            return Ok(false);
        }
        if xid != self.control_xid || !self.awaits_control() {
            return Err(misbehaved!("RFC 5531 §9: a reply to no call"));
        }
        self.take_control_reply(now, outcome, &mut reader, events)?;
        Ok(true)
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        if self.held.len() + bytes.len() > MAX_CONTROL_LEN as usize {
            return Err(misbehaved!("RFC 1813 §3.3: a reply longer than any that was asked for"));
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    fn awaits_something(&self) -> bool {
        self.outstanding > self.delayed || self.awaits_control()
    }

    fn awaits_control(&self) -> bool {
        self.pinging || self.step.awaits_reply()
    }

    fn is_idle(&self) -> bool {
        self.step == MountStep::Ready && self.outstanding == 0 && !self.pinging
    }
}

impl Initiator for Mount {
    fn receive(&mut self, now: Instant, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.last_progress = now;
        let mut input = bytes;
        while let Some(piece) = self.records.next(&mut input)? {
            self.take_piece(now, piece, events)?;
        }
        Ok(())
    }

    fn credits(&self) -> usize {
        if self.step == MountStep::Ready { self.slots.len() - self.outstanding - self.unsupported.len() } else { 0 }
    }

    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        self.submit_io(now, tag, io)
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !self.unsupported.is_empty() {
            return Some(self.last_progress);
        }
        let silence = (self.awaits_something() || self.is_idle()).then(|| self.last_progress + self.config.timeout);
        let again = if self.delayed > 0 { self.slots.iter().filter_map(IoSlot::again_at).min() } else { None };
        match (silence, again) {
            (Some(silence), Some(again)) => Some(silence.min(again)),
            (silence, again) => silence.or(again),
        }
    }

    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        while let Some(tag) = self.unsupported.pop() {
            events.complete(now, tag, Err(IoError::Unsupported));
        }
        self.send_delayed(now);
        if now >= self.last_progress + self.config.timeout {
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
        if !self.awaits_something() {
            self.last_progress = now;
        }
        self.begin_close();
    }

    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        self.step = MountStep::Closed;
        self.lose_all(now, events);
    }
}

/// `IoError::Failed::status` of a call that RPC refused: beyond what an `nfsstat3` can be.
const STATUS_RPC_FAILED: u32 = u32::MAX - 1;

/// An I/O's error for a status; the texts are those of `Status`.
fn failed(status: Status) -> IoError {
    IoError::Failed { status: status as u32, refusal: status.refusal(), what: setup::text(status) }
}

fn rpc_failed(error: RpcError) -> IoError {
    let what = match error {
        RpcError::Authentication(_) => "the server refused the credential",
        RpcError::GarbageArguments => "the server could not decode the call",
        RpcError::SystemError => "the server failed",
        _ => "the server does not serve the call",
    };
    IoError::Failed { status: STATUS_RPC_FAILED, refusal: error.refusal(), what }
}
