//! An NFS client that makes, renames and removes names, one call at a time: a call whose connection is lost is sent again as it
//! was, and must be carried out once (RFC 1813 §4.3).

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use iotax_node::{ConnId, Input, Node, Output, seeded::SeededRng};
use iotax_proto::{
    Instant, Transmit,
    nfs::{
        self,
        common::{CreateHow, FileHandle, SetAttributes},
        mount::{self, PROGRAM as MOUNT_PROGRAM},
        v3::{self, Arguments, Procedure, Results, Status, arguments::Place},
    },
    rpc::{
        Credentials, Encoder,
        auth::Identity,
        message::{Xid, decode_reply, encode_call},
    },
    wire::Reader,
};

use crate::board::{Phase, SharedBoard};

const CONN: ConnId = ConnId(0);
const EXPORT: &[u8] = b"/v0";
/// MNT of the mount protocol (RFC 1813 §5.2.1).
const MNT: u32 = 1;
const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];
/// How long an answer may take before the connection is given up, and how long it stays away.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
const BACKOFF: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Names {
    to: SocketAddr,
    board: SharedBoard,
    random: SeededRng,
    state: State,
    transmit: Transmit,
    outputs: VecDeque<Output>,
    has_bytes: bool,
    root: Option<FileHandle>,
    xid: Xid,
    pending: Option<Pending>,
    received: Vec<u8>,
    /// What there is by now: whether each name is a directory.
    there: BTreeMap<&'static [u8], bool>,
    /// Names looked up in the liveness phase.
    looked: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away(Instant),
    Connecting,
    Up(Instant),
    /// The driver is to close the connection.
    Closing,
    Leaving,
    Done,
}

#[derive(Clone, Debug)]
struct Pending {
    call: Call,
    bytes: Vec<u8>,
    until: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Mount,
    Create(&'static [u8]),
    MkDir(&'static [u8]),
    Remove(&'static [u8]),
    RmDir(&'static [u8]),
    Rename(&'static [u8], &'static [u8]),
    Lookup(&'static [u8]),
}

impl Names {
    pub(crate) fn new(to: SocketAddr, board: SharedBoard, seed: u64) -> Self {
        Self {
            to,
            board,
            random: SeededRng::new(seed, "names", 0),
            state: State::Away(Instant(0)),
            transmit: Transmit::default(),
            outputs: VecDeque::new(),
            has_bytes: false,
            root: None,
            xid: Xid(1000),
            pending: None,
            received: Vec::new(),
            there: BTreeMap::new(),
            looked: 0,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    pub(crate) fn standing(&self) -> String {
        format!(
            "the client that makes names is {:?} with {:?} under way",
            self.state,
            self.pending.as_ref().map(|call| call.call)
        )
    }

    /// Names are kept in the server's memory. What it says after this comes from one that has none.
    pub(crate) fn server_crashed(&mut self) {
        self.there.clear();
        if matches!(self.state, State::Connecting | State::Up(_) | State::Leaving) {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.state = State::Closing;
        self.transmit.clear();
        self.received.clear();
        self.outputs.push_back(Output::Close { conn: CONN });
    }

    // ------------------------------------------------------------------------------------------------------------ calls

    fn go_on(&mut self, now: Instant) {
        match self.state {
            State::Away(until) if until <= now => {
                self.state = State::Connecting;
                self.outputs.push_back(Output::Connect { conn: CONN, to: self.to });
            }
            State::Up(_) if self.pending.as_ref().is_some_and(|pending| pending.until <= now) => self.give_up(),
            State::Up(next) if self.pending.is_none() && next <= now => self.next_call(now),
            _ => {}
        }
    }

    fn next_call(&mut self, now: Instant) {
        if self.root.is_none() {
            return self.send(now, Call::Mount);
        }
        let phase = self.board.borrow().phase;
        let call = match (phase, NAMES.get(self.looked)) {
            (Phase::Liveness, Some(name)) => Call::Lookup(name),
            (Phase::Liveness, None) => {
                self.state = State::Leaving;
                return self.outputs.push_back(Output::Close { conn: CONN });
            }
            (Phase::Safety, _) => {
                let mut name = || NAMES[self.random.below(NAMES.len() as u64) as usize];
                let (one, other) = (name(), name());
                match self.random.below(8) {
                    0..3 => Call::Create(one),
                    3 => Call::MkDir(one),
                    4 | 5 => Call::Remove(one),
                    6 => Call::RmDir(one),
                    _ => Call::Rename(one, other),
                }
            }
        };
        self.send(now, call);
    }

    /// Those of a call of NFS; none of MNT.
    fn arguments(&self, call: Call) -> Option<Arguments<'static>> {
        let directory = self.root?;
        let place = |name| Place { directory, name };
        let attributes = SetAttributes::default();
        Some(match call {
            Call::Mount => return None,
            Call::Create(name) => Arguments::Create { place: place(name), how: CreateHow::Guarded(attributes) },
            Call::MkDir(name) => Arguments::MkDir { place: place(name), attributes },
            Call::Remove(name) => Arguments::Remove(place(name)),
            Call::RmDir(name) => Arguments::RmDir(place(name)),
            Call::Rename(from, to) => Arguments::Rename { from: place(from), to: place(to) },
            Call::Lookup(name) => Arguments::Lookup(place(name)),
        })
    }

    fn send(&mut self, now: Instant, call: Call) {
        self.xid = self.xid.wrapping_add(1);
        let identity = Identity::Sys { machine: "sim".into(), credentials: Credentials::new(0, 0, &[]) }.encode();
        let mut encoder = Encoder::default();
        let arguments = self.arguments(call);
        let (program, procedure) = match &arguments {
            None => (MOUNT_PROGRAM, MNT),
            Some(arguments) => (nfs::PROGRAM, arguments.procedure() as u32),
        };
        encode_call(encoder.begin_record(), self.xid, program, v3::VERSION, procedure, &identity);
        match &arguments {
            None => _ = encoder.opaque(EXPORT),
            Some(arguments) => arguments.encode(&mut encoder),
        }
        let bytes = encoder.end_record(0).to_vec();
        self.transmit.put(&bytes);
        self.has_bytes = true;
        self.pending = Some(Pending { call, bytes, until: now + ANSWER_TIME_MAX });
    }

    /// What the one server that carried out every call once says to the next.
    fn expected(&mut self, call: Call) -> Result<(), Status> {
        let there = &mut self.there;
        let is_directory = |name: &[u8], there: &BTreeMap<&[u8], bool>| there.get(name).copied();
        match call {
            Call::Mount => Ok(()),
            Call::Lookup(name) => is_directory(name, there).map(|_| ()).ok_or(Status::NoEntry),
            Call::Create(name) | Call::MkDir(name) => {
                if there.contains_key(name) {
                    return Err(Status::Exists);
                }
                there.insert(name, matches!(call, Call::MkDir(_)));
                Ok(())
            }
            Call::Remove(name) | Call::RmDir(name) => {
                let wants_directory = matches!(call, Call::RmDir(_));
                match is_directory(name, there) {
                    None => Err(Status::NoEntry),
                    Some(true) if !wants_directory => Err(Status::IsDirectory),
                    Some(false) if wants_directory => Err(Status::NotDirectory),
                    Some(_) => {
                        there.remove(name);
                        Ok(())
                    }
                }
            }
            Call::Rename(from, to) => {
                let Some(kind) = is_directory(from, there) else { return Err(Status::NoEntry) };
                match is_directory(to, there) {
                    _ if from == to => Ok(()),
                    // As POSIX and Linux have it; RFC 1813 §3.3.14 would say Exists of both.
                    Some(true) if !kind => Err(Status::IsDirectory),
                    Some(false) if kind => Err(Status::NotDirectory),
                    _ => {
                        there.remove(from);
                        there.insert(to, kind);
                        Ok(())
                    }
                }
            }
        }
    }

    /// A whole reply, without its record mark.
    fn replied(&mut self, now: Instant, reply: &[u8]) -> Result<(), String> {
        let mut reader = Reader::new(reply);
        let (xid, outcome) = decode_reply(&mut reader).map_err(|error| format!("a reply that is none: {error:?}"))?;
        outcome.map_err(|error| format!("a call was refused: {error:?}"))?;
        let Some(pending) = self.pending.take_if(|_| xid == self.xid) else {
            return Err(format!("an answer to call {xid:#010x}, which is not under way"));
        };
        let call = pending.call;
        let procedure = match call {
            Call::Mount => {
                let mounted = mount::decode_mounted(&mut reader).map_err(|_| "no answer to MNT")?;
                self.root = Some(mounted.map_err(|error| format!("no mount: {error:?}"))?);
                self.state = State::Up(now);
                return Ok(());
            }
            Call::Create(_) => Procedure::Create,
            Call::MkDir(_) => Procedure::MkDir,
            Call::Remove(_) => Procedure::Remove,
            Call::RmDir(_) => Procedure::RmDir,
            Call::Rename(..) => Procedure::Rename,
            Call::Lookup(_) => Procedure::Lookup,
        };
        let results = Results::decode(procedure, &mut reader).map_err(|_| format!("no results of {procedure:?}"))?;
        let status = results.map(|_| ()).map_err(|failure| failure.status);
        let expected = self.expected(call);
        if status != expected {
            return Err(format!("{call:?} gave {status:?}, and {expected:?} where each call is carried out once"));
        }
        self.looked += usize::from(matches!(call, Call::Lookup(_)));
        self.state = State::Up(now + Duration::from_nanos(self.random.below(PAUSE.as_nanos() as u64)));
        Ok(())
    }

    fn received(&mut self, now: Instant, bytes: &[u8]) {
        if !matches!(self.state, State::Up(_)) {
            return;
        }
        self.received.extend_from_slice(bytes);
        while let Some((mark, rest)) = self.received.split_first_chunk::<4>() {
            let len = (u32::from_be_bytes(*mark) & !(1 << 31)) as usize;
            let Some(reply) = rest.get(..len).map(<[u8]>::to_vec) else { return };
            self.received.drain(..4 + len);
            if let Err(what) = self.replied(now, &reply) {
                self.board.borrow_mut().find(what);
            }
        }
    }
}

impl Node for Names {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Connected { .. } if self.state == State::Connecting => {
                self.state = State::Up(now);
                if let Some(pending) = &mut self.pending {
                    pending.until = now + ANSWER_TIME_MAX;
                    self.transmit.put(&pending.bytes);
                    self.has_bytes = true;
                }
            }
            Input::Received { bytes, .. } => self.received(now, bytes),
            Input::Closed { .. } => {
                self.transmit.clear();
                self.received.clear();
                let back = now + Duration::from_nanos(self.random.below(BACKOFF.as_nanos() as u64));
                self.state = if self.state == State::Leaving { State::Done } else { State::Away(back) };
            }
            _ => {}
        }
        self.go_on(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        std::mem::take(&mut self.has_bytes).then_some(CONN)
    }

    fn transmit(&mut self, _: ConnId) -> Option<&mut Transmit> {
        Some(&mut self.transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Away(until) => Some(until),
            State::Up(next) => Some(self.pending.as_ref().map_or(next, |pending| pending.until)),
            State::Connecting | State::Closing | State::Leaving | State::Done => None,
        }
    }

    fn is_finished(&self) -> bool {
        self.is_done()
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.standing())
    }
}
