//! The portmapper's side of a connection, on a port of its own.

use alloc::vec::Vec;

use super::{
    Call, Mapping, RpcError,
    message::encode_success,
    portmap::{self, PROGRAM, VERSION},
    server::Server,
};
use crate::{
    Backend, Instant, IoId, Target, UnitError, Violation,
    wire::{Payload, Reader, Transmit},
};

/// Calls have a credential of at most 400 bytes and a mapping.
const MAX_CALL_LEN: u32 = 2048;

/// One connection of a client.
#[derive(Debug)]
pub struct Portmapper {
    server: Server,
    mappings: Vec<Mapping>,
    /// First bytes of a record that did not come whole.
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
                portmap::serve(call.procedure, arguments, &self.mappings, &mut self.server.reply)?;
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
        false // A client just closes.
    }

    fn disconnected(&mut self, _now: Instant, _backend: &mut B) {}
}
