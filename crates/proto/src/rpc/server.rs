//! The server's side of a connection, whatever programs are served on it: calls in, replies out, and its timeouts.

use core::time::Duration;

use super::{
    Call, Encoder, HeadError, Records, RpcError, Xid,
    message::{encode_error, encode_success},
};
use crate::{
    Instant, Violation, ViolationKind,
    wire::{Reader, Transmit},
};

/// How long a record may stay half sent.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may say nothing, as with Linux's server. Clients that still want something come back.
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
    /// Records longer than `max_len` bytes are refused.
    pub fn new(now: Instant, max_len: u32) -> Self {
        Self {
            transmit: Transmit::default(),
            records: Records::new(max_len),
            reply: Encoder::default(),
            last_receive: now,
        }
    }

    /// Bytes came.
    #[inline]
    pub fn heard(&mut self, now: Instant) {
        self.last_receive = now;
    }

    /// The call that a record begins with; `None` where it was answered, as RPC itself has it (RFC 5531 §9).
    #[inline]
    pub fn take_call<'a>(&mut self, reader: &mut Reader<'a>) -> Result<Option<Call<'a>>, Violation> {
        match Call::decode(reader) {
            Ok(call) => Ok(Some(call)),
            Err(HeadError::Answer { xid, error }) => {
                self.reply_error(xid, error);
                Ok(None)
            }
            Err(HeadError::Short) => Err(Violation::malformed("RFC 5531 §9: a record too short for a call")),
            Err(HeadError::WrongDirection | HeadError::Malformed) => {
                Err(Violation::misbehaved("RFC 5531 §9: a server is sent calls only"))
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

    /// Sends the reply as it stands.
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
            return Err(Violation::new(ViolationKind::TimedOut, "RFC 5531 §11: a record was not ended"));
        }
        if silent >= IDLE_TIMEOUT {
            return Err(Violation::new(ViolationKind::TimedOut, "the client is silent"));
        }
        Ok(())
    }
}
