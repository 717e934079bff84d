//! The portmapper, version 2 (RFC 1833 §3), which returns the port of a program, and the server's side of a connection
//! to it.

use alloc::vec::Vec;

use super::{
    Call,
    message::{RpcError, encode_success},
    server::Server,
    xdr::{self, Encoder, Garbage},
};
use crate::{
    Backend, Instant, IoId, Target, UnitError, Violation,
    wire::{Payload, Reader, Transmit},
};

pub const PROGRAM: u32 = 100_000;
pub const VERSION: u32 = 2;
pub const PORT: u16 = 111;
pub const PROC_NULL: u32 = 0;
pub const PROC_GETPORT: u32 = 3;
pub const PROC_DUMP: u32 = 4;
pub const TCP: u32 = 6;

/// The port of a program. Only TCP is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub program: u32,
    pub version: u32,
    pub protocol: u32,
    pub port: u32,
}

impl Mapping {
    pub fn tcp(program: u32, version: u32, port: u16) -> Self {
        Self { program, version, protocol: TCP, port: u32::from(port) }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self {
            program: reader.u32_be()?,
            version: reader.u32_be()?,
            protocol: reader.u32_be()?,
            port: reader.u32_be()?,
        })
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.program).u32(self.version).u32(self.protocol).u32(self.port);
    }
}

/// Executes a call: encodes the results of `procedure` after the head of the reply.
pub fn serve(
    procedure: u32,
    arguments: &mut Reader<'_>,
    mappings: &[Mapping],
    encoder: &mut Encoder,
) -> Result<(), RpcError> {
    match procedure {
        PROC_NULL => {}
        PROC_GETPORT => {
            let asked = Mapping::decode(arguments).map_err(|Garbage| RpcError::GarbageArguments)?;
            // RFC 1833 §3.2: the requested version need not be served, and the port in the request is ignored.
            let served = |exact: bool| {
                mappings.iter().find(|mapping| {
                    (mapping.program, mapping.protocol) == (asked.program, asked.protocol)
                        && (!exact || mapping.version == asked.version)
                })
            };
            encoder.u32(served(true).or_else(|| served(false)).map_or(0, |mapping| mapping.port));
        }
        PROC_DUMP => {
            for mapping in mappings {
                encoder.boolean(true);
                mapping.encode(encoder);
            }
            encoder.boolean(false);
        }
        _ => return Err(RpcError::ProcedureUnavailable),
    }
    Ok(())
}

/// Maximum mappings accepted from a peer.
const MAX_MAPPINGS: usize = 1024;

/// Decodes the results of `PROC_DUMP`.
pub fn decode_dump(reader: &mut Reader<'_>) -> Result<alloc::vec::Vec<Mapping>, Garbage> {
    let mut mappings = alloc::vec::Vec::new();
    while let Some(mapping) = xdr::optional(reader, Mapping::decode)? {
        if mappings.len() == MAX_MAPPINGS {
            return Err(Garbage);
        }
        mappings.push(mapping);
    }
    Ok(mappings)
}

/// A call contains a credential of at most 400 bytes and a mapping.
const MAX_CALL_LEN: u32 = 2048;

/// A connection of a client.
#[derive(Debug)]
pub struct Portmapper {
    server: Server,
    mappings: Vec<Mapping>,
    /// The first bytes of an incomplete record.
    held: Vec<u8>,
}

impl Portmapper {
    pub fn new(now: Instant, mappings: Vec<Mapping>) -> Self {
        Self { server: Server::new(now, MAX_CALL_LEN), mappings, held: Vec::new() }
    }

    fn take_record(&mut self, record: &[u8]) -> Result<(), Violation> {
        let mut reader = Reader::new(record);
        let Some(call) = self.server.take_call(&mut reader)? else { return Ok(()) };
        if let Err(error) = self.answer(&call, &mut reader) {
            self.server.reply_error(call.xid, error);
        }
        Ok(())
    }

    fn answer(&mut self, call: &Call<'_>, arguments: &mut Reader<'_>) -> Result<(), RpcError> {
        match (call.program, call.version) {
            (PROGRAM, VERSION) => {
                encode_success(self.server.reply.begin_record(), call.xid);
                serve(call.procedure, arguments, &self.mappings, &mut self.server.reply)?;
                self.server.send_reply();
                Ok(())
            }
            (PROGRAM, _) => Err(RpcError::ProgramMismatch { low: VERSION, high: VERSION }),
            _ => Err(RpcError::ProgramUnavailable),
        }
    }
}

impl<B: Backend + ?Sized> Target<B> for Portmapper {
    fn receive(&mut self, now: Instant, bytes: &[u8], _backend: &mut B) -> Result<usize, Violation> {
        self.server.heard(now);
        let mut input = bytes;
        while !self.server.transmit.is_full()
            && let Some(piece) = self.server.records.next(&mut input)?
        {
            self.held.extend_from_slice(piece.bytes);
            if piece.end {
                let record = core::mem::take(&mut self.held);
                self.take_record(&record)?;
            }
        }
        Ok(bytes.len() - input.len())
    }

    fn complete(&mut self, _now: Instant, _id: IoId, _result: Result<Option<Payload>, UnitError>, _backend: &mut B) {
        unreachable!("a portmapper starts no operation");
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.server.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.server.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant, _backend: &mut B) -> Result<(), Violation> {
        self.server.handle_timeout(now)
    }

    fn is_closing(&self) -> bool {
        false // Clients close the connection without notice.
    }

    fn disconnected(&mut self, _now: Instant, _backend: &mut B) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_program_and_protocol() {
        let mappings = [Mapping::tcp(PROGRAM, 2, 111), Mapping::tcp(100_003, 3, 2049)];
        let ask = |program, protocol| {
            let mut asked = Encoder::default();
            Mapping { program, version: 4, protocol, port: 0 }.encode(&mut asked);
            let mut answer = Encoder::default();
            serve(PROC_GETPORT, &mut Reader::new(asked.bytes()), &mappings, &mut answer).expect("an answer");
            Reader::new(answer.bytes()).u32_be().expect("a port")
        };
        assert_eq!(ask(100_003, TCP), 2049);
        assert_eq!(ask(100_003, 17), 0);
        assert_eq!(ask(100_021, TCP), 0);
    }

    #[test]
    fn a_dump_lists_all_and_wrong_calls_are_refused() {
        let mappings = [Mapping::tcp(PROGRAM, 2, 111), Mapping::tcp(100_003, 3, 2049)];
        let mut answer = Encoder::default();
        serve(PROC_DUMP, &mut Reader::new(&[]), &mappings, &mut answer).expect("an answer");
        assert_eq!(decode_dump(&mut Reader::new(answer.bytes())).expect("a list"), mappings);
        let refused = serve(1, &mut Reader::new(&[]), &mappings, &mut answer);
        assert_eq!(refused, Err(RpcError::ProcedureUnavailable));
        let refused = serve(PROC_GETPORT, &mut Reader::new(&[0; 8]), &mappings, &mut answer);
        assert_eq!(refused, Err(RpcError::GarbageArguments));
    }
}
