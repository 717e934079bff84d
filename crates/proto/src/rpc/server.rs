//! The server's side of a connection for any program: receives calls, sends replies, handles timeouts.
//!
//! Also the duplicate-request cache: if a call that is not idempotent is repeated after the loss of a connection, it
//! gets the earlier reply and is not executed again (RFC 1813 §4.3).

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
};
use core::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use super::{
    Call, Encoder, HeadError, Records, RpcError, Xid,
    message::{encode_error, encode_success},
};
use crate::{
    Instant, Violation,
    wire::{Reader, Transmit, digest::crc32c},
};

/// Maximum time for the rest of an incomplete record.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time without a call, as in Linux's server. Clients that still need the server reconnect.
const IDLE_TIMEOUT: Duration = Duration::from_secs(6 * 60);

#[derive(Debug)]
pub struct Server {
    pub transmit: Transmit,
    pub records: Records,
    /// The reply under construction.
    pub reply: Encoder,
    last_receive: Instant,
}

impl Server {
    /// Records longer than `max_len` bytes are rejected.
    pub fn new(now: Instant, max_len: u32) -> Self {
        Self {
            transmit: Transmit::default(),
            records: Records::new(max_len),
            reply: Encoder::default(),
            last_receive: now,
        }
    }

    /// Restarts the timeouts, because bytes were received.
    #[inline]
    pub fn heard(&mut self, now: Instant) {
        self.last_receive = now;
    }

    /// Decodes the call at the start of a record; `None` if RPC itself has answered it (RFC 5531 §9).
    #[allow(clippy::inline_always)] // Both versions of NFS call it.
    #[inline(always)]
    pub fn take_call<'a>(&mut self, reader: &mut Reader<'a>) -> Result<Option<Call<'a>>, Violation> {
        match Call::decode(reader) {
            Ok(call) => Ok(Some(call)),
            Err(HeadError::Answer { xid, error }) => {
                self.reply_error(xid, error);
                Ok(None)
            }
            Err(HeadError::Short) => Err(malformed!("RFC 5531 §9: a record too short for a call")),
            Err(HeadError::WrongDirection | HeadError::Malformed) => {
                Err(misbehaved!("RFC 5531 §9: a server is sent calls only"))
            }
        }
    }

    pub fn reply_null(&mut self, xid: Xid) {
        encode_success(self.reply.begin_record(), xid);
        self.send_reply();
    }

    pub fn reply_error(&mut self, xid: Xid, error: RpcError) {
        encode_error(self.reply.begin_record(), xid, error);
        self.send_reply();
    }

    /// Sends the current reply.
    pub fn send_reply(&mut self) {
        self.transmit.put(self.reply.end_record(0));
    }

    #[inline]
    pub fn poll_timeout(&self) -> Instant {
        self.last_receive + if self.records.is_idle() { IDLE_TIMEOUT } else { RECORD_TIMEOUT }
    }

    pub fn handle_timeout(&self, now: Instant) -> Result<(), Violation> {
        let silent = now.since(self.last_receive);
        if silent >= RECORD_TIMEOUT && !self.records.is_idle() {
            return Err(Violation::timed_out("RFC 5531 §11: a record was not ended"));
        }
        if silent >= IDLE_TIMEOUT {
            return Err(Violation::timed_out("the client is silent"));
        }
        Ok(())
    }
}

/// Maximum cached replies. A client repeats only calls that were outstanding when its connection was lost, and it has
/// few outstanding name-space calls.
const MAX_REPLIES: usize = 1024;
/// Maximum length of a cached reply. Attributes, a file handle and changes of two directories are much shorter.
const MAX_REPLY_LEN: usize = 1024;
/// Bytes of a call that its checksum covers. An xid may be reused while it is in the cache; the arguments then differ.
const CHECKED_LEN: usize = 512;

/// The peer of a connection. Clients that rely on the cache reconnect from the same port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    pub address: IpAddr,
    pub port: u16,
}

impl Default for Peer {
    fn default() -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 0 }
    }
}

/// Identifies a call among the calls of all peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    peer: Peer,
    xid: Xid,
    checksum: u32,
    len: u32,
}

impl RequestKey {
    /// `call` is the whole record.
    pub fn new(peer: Peer, xid: Xid, call: &[u8]) -> Self {
        let checksum = crc32c(&call[..call.len().min(CHECKED_LEN)]);
        Self { peer, xid, checksum, len: call.len() as u32 }
    }
}

/// The latest replies to calls that are not idempotent; shared by all connections of a server.
#[derive(Debug, Default)]
pub struct DuplicateCache {
    replies: BTreeMap<RequestKey, Box<[u8]>>,
    oldest_first: VecDeque<RequestKey>,
}

impl DuplicateCache {
    /// The earlier reply to the same call.
    pub fn recall(&self, key: &RequestKey) -> Option<&[u8]> {
        self.replies.get(key).map(AsRef::as_ref)
    }

    pub fn remember(&mut self, key: RequestKey, reply: &[u8]) {
        if reply.len() > MAX_REPLY_LEN || self.replies.insert(key, reply.into()).is_some() {
            return;
        }
        self.oldest_first.push_back(key);
        if self.oldest_first.len() > MAX_REPLIES
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.replies.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_recalled_for_the_same_peer_xid_and_arguments_only() {
        let mut cache = DuplicateCache::default();
        let peer = Peer::default();
        cache.remember(RequestKey::new(peer, Xid(1), b"remove a"), b"ok");
        assert_eq!(cache.recall(&RequestKey::new(peer, Xid(1), b"remove a")), Some(&b"ok"[..]));
        assert_eq!(cache.recall(&RequestKey::new(peer, Xid(1), b"remove b")), None);
        assert_eq!(cache.recall(&RequestKey::new(peer, Xid(2), b"remove a")), None);
        assert_eq!(cache.recall(&RequestKey::new(Peer { port: 1, ..peer }, Xid(1), b"remove a")), None);
    }

    #[test]
    fn the_oldest_replies_are_forgotten() {
        let mut cache = DuplicateCache::default();
        let key = |xid| RequestKey::new(Peer::default(), Xid(xid), b"");
        for xid in 0..=MAX_REPLIES as u32 {
            cache.remember(key(xid), b"reply");
        }
        assert_eq!(cache.recall(&key(0)), None);
        assert!(cache.recall(&key(1)).is_some());
        cache.remember(key(9999), &[0; MAX_REPLY_LEN + 1]);
        assert_eq!(cache.recall(&key(9999)), None);
        assert_eq!(cache.replies.len(), MAX_REPLIES);
    }
}
