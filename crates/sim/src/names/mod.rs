//! An NFS client that creates, renames and removes names, one call at a time. A call whose connection is lost is resent
//! unchanged and must be carried out once (RFC 1813 §4.3, RFC 8881 §2.10.6).

mod v3;
mod v41;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use iotax_node::{ConnId, Input, Node, Output, seeded::SeededRng, server::Protocol};
use iotax_proto::{
    Instant, Transmit,
    nfs::common::FileError,
    rpc::{
        Credentials,
        auth::Identity,
        message::{Xid, decode_reply},
    },
    wire::Reader,
};

use crate::board::{Phase, SharedBoard};

const CONN: ConnId = ConnId(0);
const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];
/// Maximum time for a reply before the connection is given up, and the pause before it reconnects.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
const BACKOFF: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(1);

/// A version of NFS, as used by this client.
pub(crate) trait Speech {
    /// Whether preparation is complete, so that calls for names can follow.
    fn is_ready(&self) -> bool;
    /// A call as a record. For `Prepare`, this is the next step towards `is_ready`.
    fn call(&mut self, xid: Xid, call: Call) -> Vec<u8>;
    /// Decodes the results of a call.
    fn results(&mut self, call: Call, reader: &mut Reader<'_>) -> Result<Answer, String>;
    /// Starts over as a client that the server does not know from earlier calls.
    fn begin_anew(&mut self);
    /// Whether a single operation removes both files and directories.
    fn removes_any(&self) -> bool;
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Prepared,
    Named(Result<(), FileError>),
    /// The call must be resent unchanged.
    Later,
    /// The server does not know the client.
    Stranger,
}

/// The encoder of a protocol that has names.
pub(crate) fn speech(protocol: Protocol) -> Box<dyn Speech> {
    match protocol {
        Protocol::Nfs41 => Box::<v41::Compounds>::default(),
        _ => Box::<v3::Calls>::default(),
    }
}

pub(crate) struct Names {
    to: SocketAddr,
    board: SharedBoard,
    random: SeededRng,
    state: State,
    transmit: Transmit,
    outputs: VecDeque<Output>,
    has_bytes: bool,
    speech: Box<dyn Speech>,
    /// A canary: calls are resent in such a way that the server takes them for new ones.
    forgets: bool,
    xid: Xid,
    pending: Option<Pending>,
    /// A call to be sent once the server knows the client again, which it may forget only in a crash.
    postponed: Option<Call>,
    server_forgot: bool,
    received: Vec<u8>,
    /// The names that exist now, and whether each is a directory.
    there: BTreeMap<&'static [u8], bool>,
    /// Number of names looked up in the liveness phase.
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

/// The calls of this client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Prepare,
    Create(&'static [u8]),
    MkDir(&'static [u8]),
    Remove(&'static [u8]),
    RmDir(&'static [u8]),
    Rename(&'static [u8], &'static [u8]),
    Lookup(&'static [u8]),
}

impl Names {
    pub(crate) fn new(to: SocketAddr, board: SharedBoard, seed: u64, speech: Box<dyn Speech>, forgets: bool) -> Self {
        Self {
            to,
            board,
            random: SeededRng::new(seed, "names", 0),
            state: State::Away(Instant(0)),
            transmit: Transmit::default(),
            outputs: VecDeque::new(),
            has_bytes: false,
            speech,
            forgets,
            xid: Xid(1000),
            pending: None,
            postponed: None,
            server_forgot: false,
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

    /// The server crashed. It keeps names in memory, so its later replies come from a server without names.
    pub(crate) fn server_crashed(&mut self) {
        self.there.clear();
        self.server_forgot = true;
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

    // ----------------------------------------------------------------------------------------------------------- calls

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
        if !self.speech.is_ready() {
            return self.send(now, Call::Prepare);
        }
        if let Some(call) = self.postponed.take() {
            return self.send(now, call);
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

    fn send(&mut self, now: Instant, call: Call) {
        self.xid = self.xid.wrapping_add(1);
        let bytes = self.speech.call(self.xid, call);
        self.transmit.put(&bytes);
        self.has_bytes = true;
        self.pending = Some(Pending { call, bytes, until: now + ANSWER_TIME_MAX });
    }

    /// Resends the current call on a new connection.
    fn send_again(&mut self, now: Instant) {
        let Some(pending) = &mut self.pending else { return };
        if self.forgets {
            let call = pending.call;
            self.pending = None;
            self.speech.begin_anew();
            self.postponed = Some(call).filter(|call| !matches!(call, Call::Prepare)).or(self.postponed);
            return self.next_call(now);
        }
        pending.until = now + ANSWER_TIME_MAX;
        self.transmit.put(&pending.bytes);
        self.has_bytes = true;
    }

    /// The reply of a server that carried out every call once; the model then includes the call's effect.
    fn expected(&mut self, call: Call) -> Result<(), FileError> {
        let any = self.speech.removes_any();
        let there = &mut self.there;
        let is_directory = |name: &[u8], there: &BTreeMap<&[u8], bool>| there.get(name).copied();
        match call {
            Call::Prepare => Ok(()),
            Call::Lookup(name) => is_directory(name, there).map(|_| ()).ok_or(FileError::NoEntry),
            Call::Create(name) | Call::MkDir(name) => {
                if there.contains_key(name) {
                    return Err(FileError::Exists);
                }
                there.insert(name, matches!(call, Call::MkDir(_)));
                Ok(())
            }
            Call::Remove(name) | Call::RmDir(name) => {
                let wants_directory = matches!(call, Call::RmDir(_));
                match is_directory(name, there) {
                    None => Err(FileError::NoEntry),
                    Some(true) if !wants_directory && !any => Err(FileError::IsDirectory),
                    Some(false) if wants_directory && !any => Err(FileError::NotDirectory),
                    Some(_) => {
                        there.remove(name);
                        Ok(())
                    }
                }
            }
            Call::Rename(from, to) => {
                let Some(kind) = is_directory(from, there) else { return Err(FileError::NoEntry) };
                match is_directory(to, there) {
                    _ if from == to => Ok(()),
                    // As in POSIX and Linux; RFC 1813 §3.3.14 specifies Exists for both.
                    Some(true) if !kind => Err(FileError::IsDirectory),
                    Some(false) if kind => Err(FileError::NotDirectory),
                    _ => {
                        there.remove(from);
                        there.insert(to, kind);
                        Ok(())
                    }
                }
            }
        }
    }

    /// Handles a whole reply, without its record mark.
    fn replied(&mut self, now: Instant, reply: &[u8]) -> Result<(), String> {
        let mut reader = Reader::new(reply);
        let (xid, outcome) = decode_reply(&mut reader).map_err(|error| format!("a reply that is none: {error:?}"))?;
        outcome.map_err(|error| format!("a call was refused: {error:?}"))?;
        let Some(pending) = self.pending.take_if(|_| xid == self.xid) else {
            return Err(format!("an answer to call {xid:#010x}, which is not under way"));
        };
        let call = pending.call;
        let status = match self.speech.results(call, &mut reader)? {
            Answer::Prepared => {
                self.state = State::Up(now);
                return Ok(());
            }
            Answer::Later => {
                self.transmit.put(&pending.bytes);
                self.has_bytes = true;
                self.pending = Some(pending);
                return Ok(());
            }
            Answer::Stranger => {
                if !self.server_forgot {
                    return Err(format!("the server forgot a client, and did not crash: {call:?}"));
                }
                self.speech.begin_anew();
                self.postponed = Some(call).filter(|call| !matches!(call, Call::Prepare)).or(self.postponed);
                self.state = State::Up(now);
                return Ok(());
            }
            Answer::Named(status) => status,
        };
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
                self.send_again(now);
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

fn identity() -> Vec<u8> {
    Identity::Sys { machine: "sim".into(), credentials: Credentials::new(0, 0, &[]) }.encode()
}

/// The error that a status stands for, among those that a call for a name may return.
fn named<S: From<FileError> + PartialEq + std::fmt::Debug>(status: &S) -> Result<Answer, String> {
    let errors = [FileError::NoEntry, FileError::Exists, FileError::IsDirectory, FileError::NotDirectory];
    let error = errors.into_iter().find(|error| S::from(*error) == *status);
    error.map(|error| Answer::Named(Err(error))).ok_or_else(|| format!("a call for a name gave {status:?}"))
}
