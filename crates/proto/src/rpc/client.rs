//! Single calls, each on its own connection: to the portmapper, and to programs on other ports.

use alloc::vec::Vec;

use super::{
    Encoder, Garbage, Records,
    auth::Identity,
    message::{Xid, decode_reply, encode_call},
    portmap::{self, Mapping},
};
use crate::{
    Violation,
    wire::{Reader, Transmit},
};

/// Maximum length of a reply: a list of exports or mounts.
const MAX_REPLY_LEN: u32 = 256 << 10;

/// One call with a result of type `T`. Received and sent bytes are passed as with an `Initiator`. The caller handles
/// timeouts.
#[derive(Debug)]
pub struct ControlCall<T> {
    xid: Xid,
    transmit: Transmit,
    records: Records,
    reply: Vec<u8>,
    decode: fn(&mut Reader<'_>) -> Result<T, Garbage>,
}

impl ControlCall<Option<u16>> {
    /// GETPORT: returns the TCP port of a program; `None` if it is not served.
    pub fn port(xid: Xid, program: u32, version: u32) -> Self {
        let decode = |reader: &mut Reader<'_>| {
            let port = u16::try_from(reader.u32_be()?).map_err(|_| Garbage)?;
            Ok((port > 0).then_some(port))
        };
        Self::call(xid, &Identity::None, (portmap::PROGRAM, portmap::VERSION, portmap::PROC_GETPORT), decode, |call| {
            Mapping::tcp(program, version, 0).encode(call);
        })
    }
}

impl ControlCall<Vec<Mapping>> {
    /// DUMP of the portmapper.
    pub fn mappings(xid: Xid) -> Self {
        let procedure = (portmap::PROGRAM, portmap::VERSION, portmap::PROC_DUMP);
        Self::call(xid, &Identity::None, procedure, portmap::decode_dump, |_| {})
    }
}

impl<T> ControlCall<T> {
    /// Processes bytes of the reply; returns the result when it is complete.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<T>, Violation> {
        let mut input = bytes;
        while let Some(piece) = self.records.next(&mut input)? {
            self.reply.extend_from_slice(piece.bytes);
            if piece.end {
                return self.answer().map(Some);
            }
        }
        Ok(None)
    }

    pub fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    fn answer(&self) -> Result<T, Violation> {
        let mut reader = Reader::new(&self.reply);
        let (xid, outcome) =
            decode_reply(&mut reader).map_err(|_| malformed!("RFC 5531 §9: a reply that does not decode"))?;
        if xid != self.xid {
            return Err(misbehaved!("RFC 5531 §9: a reply to no call"));
        }
        outcome.map_err(|error| Violation::refused(error.refusal(), "RFC 5531 §9: the server refuses the call"))?;
        (self.decode)(&mut reader).map_err(|_| malformed!("RFC 5531 §9: results that do not decode"))
    }

    /// Creates a call of a procedure. `arguments` encodes its arguments, `decode` decodes its results.
    pub fn call(
        xid: Xid,
        identity: &Identity,
        (program, version, procedure): (u32, u32, u32),
        decode: fn(&mut Reader<'_>) -> Result<T, Garbage>,
        arguments: impl FnOnce(&mut Encoder),
    ) -> Self {
        let mut call = Encoder::default();
        encode_call(call.begin_record(), xid, program, version, procedure, &identity.encode());
        arguments(&mut call);
        let mut transmit = Transmit::default();
        transmit.put(call.end_record(0));
        Self { xid, transmit, records: Records::new(MAX_REPLY_LEN), reply: Vec::new(), decode }
    }
}
