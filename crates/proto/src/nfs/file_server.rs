//! The server's side of a connection of any version: from records to calls, and the data of a WRITE as they arrive.

use alloc::vec::Vec;

use super::{
    NfsBackend,
    common::{Handles, MAX_CONTROL_LEN, MAX_HEAD_LEN},
};
use crate::{
    Instant, IoId, Target, UnitError, Violation,
    rpc::{Call, HeadError, Peer, Piece, RpcError, Server},
    wire::{Payload, Reader, Transmit},
};

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    pub peer: Peer,
    pub handles: Handles,
    /// Maximum READs, WRITEs and COMMITs queued in the backend. Further ones are put off (`Jukebox`, `Delay`).
    pub max_outstanding: u32,
}

impl Config {
    /// `handles` contains the server's key, which no peer must be able to guess.
    pub fn new(handles: Handles) -> Self {
        Self { peer: Peer::default(), handles, max_outstanding: 4096 }
    }
}

/// The record that is being received. `W` is what a version keeps of a WRITE's call while its data arrive.
#[derive(Debug)]
pub(in crate::nfs) struct Receiving<W> {
    pub(in crate::nfs) rest: Rest<W>,
    /// The first bytes of an incomplete record.
    held: Vec<u8>,
}

/// How to process the rest of the current record.
#[derive(Debug)]
pub(in crate::nfs) enum Rest<W> {
    /// The head of a call. If it is a WRITE, its data are processed as they arrive.
    Head,
    /// A call that is executed when it is complete.
    Call,
    WriteData(WriteUnderway<W>),
    /// The rest of a call that has been answered.
    Skip,
}

/// A WRITE whose data are arriving.
#[derive(Debug)]
pub(in crate::nfs) struct WriteUnderway<W> {
    pub(in crate::nfs) id: IoId,
    len: u32,
    placed: u32,
    pub(in crate::nfs) call: W,
}

impl<W> Receiving<W> {
    pub(in crate::nfs) fn new() -> Self {
        Self { rest: Rest::Head, held: Vec::new() }
    }
}

impl<W> WriteUnderway<W> {
    pub(in crate::nfs) fn new(id: IoId, len: u32, call: W) -> Self {
        Self { id, len, placed: 0, call }
    }

    /// Accepts data, and returns what follows them.
    pub(in crate::nfs) fn place<'a, B: NfsBackend + ?Sized>(&mut self, bytes: &'a [u8], backend: &mut B) -> &'a [u8] {
        let (data, after) = bytes.split_at(bytes.len().min(self.left() as usize));
        if !data.is_empty() {
            backend.place(self.id, self.placed, data);
            self.placed += data.len() as u32;
        }
        after
    }

    pub(in crate::nfs) fn len(&self) -> u32 {
        self.len
    }

    /// Bytes of data still to come.
    pub(in crate::nfs) fn left(&self) -> u32 {
        self.len - self.placed
    }
}

/// A connection of any version. It is a [`Target`].
pub(in crate::nfs) trait FileServer {
    /// Program, version and procedure of the calls that may be a WRITE.
    const WRITE: (u32, u32, u32);
    /// A call is longer than `held_max`.
    const TOO_LONG: fn() -> Violation;
    type Write;

    fn rpc(&self) -> &Server;
    fn parts(&mut self) -> (&mut Server, &mut Receiving<Self::Write>);
    /// Maximum length of an incomplete call that is held.
    fn held_max(&self) -> u32 {
        MAX_CONTROL_LEN
    }
    /// Executes a complete call; `reader` is at its arguments.
    fn execute<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        call: &Call<'_>,
        reader: Reader<'_>,
        record: &[u8],
        backend: &mut B,
    ) -> Result<(), RpcError>;
    /// Starts a WRITE whose record is incomplete, `bytes` so far, and leaves `reader` at its data. Returns how to
    /// process the rest of the record; `None` if more bytes are needed to know.
    fn begin_record<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        call: &Call<'_>,
        reader: &mut Reader<'_>,
        bytes: &[u8],
        backend: &mut B,
    ) -> Option<Rest<Self::Write>>;
    /// Processes a part of a WRITE's data, or of what follows them.
    fn write_data<B: NfsBackend + ?Sized>(
        write: &mut WriteUnderway<Self::Write>,
        bytes: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation>;
    /// Executes a WRITE at the end of its record.
    fn end_write<B: NfsBackend + ?Sized>(&mut self, now: Instant, write: WriteUnderway<Self::Write>, backend: &mut B);
    /// Continues with a call whose operation the backend has completed.
    fn complete_io<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        id: IoId,
        result: Result<Option<Payload>, UnitError>,
        backend: &mut B,
    );
    /// Ends all calls because the connection is lost.
    fn abort_all<B: NfsBackend + ?Sized>(&mut self, backend: &mut B);

    fn take_piece<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        piece: Piece<'_>,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let Receiving { rest, held } = self.parts().1;
        if matches!(rest, Rest::Head) && !held.is_empty() && piece.bytes.len() > MAX_HEAD_LEN {
            // The bytes complete a split head and may also contain data, which must not be buffered.
            let (head, rest) = piece.bytes.split_at(MAX_HEAD_LEN);
            self.take_piece(now, Piece { bytes: head, end: false }, backend)?;
            return self.take_piece(now, Piece { bytes: rest, end: piece.end }, backend);
        }
        match rest {
            Rest::Head | Rest::Call if held.is_empty() => {
                if !self.take_head(now, piece.bytes, piece.end, backend)? {
                    self.hold(piece.bytes)?;
                }
            }
            Rest::Head | Rest::Call => {
                self.hold(piece.bytes)?;
                let mut held = core::mem::take(&mut self.parts().1.held);
                let taken = self.take_head(now, &held, piece.end, backend);
                if taken != Ok(false) {
                    held.clear();
                    held.shrink_to(MAX_CONTROL_LEN as usize);
                }
                self.parts().1.held = held;
                taken?;
            }
            Rest::WriteData(write) => {
                Self::write_data(write, piece.bytes, backend)?;
                if piece.end
                    && let Rest::WriteData(write) = core::mem::replace(rest, Rest::Head)
                {
                    self.end_write(now, write, backend);
                }
            }
            Rest::Skip => {}
        }
        if piece.end {
            self.parts().1.rest = Rest::Head;
        }
        Ok(())
    }

    /// Processes the bytes of a record so far; false if more are needed.
    fn take_head<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        bytes: &[u8],
        end: bool,
        backend: &mut B,
    ) -> Result<bool, Violation> {
        let mut reader = Reader::new(bytes);
        if end {
            if let Some(call) = self.parts().0.take_call(&mut reader)?
                && let Err(error) = self.execute(now, &call, reader, bytes, backend)
            {
                self.parts().0.reply_error(call.xid, error);
            }
            return Ok(true);
        }
        if matches!(self.parts().1.rest, Rest::Call) {
            return Ok(false);
        }
        let rest = match Call::decode(&mut reader) {
            Ok(call) if (call.program, call.version, call.procedure) == Self::WRITE => {
                self.begin_record(now, &call, &mut reader, bytes, backend)
            }
            Err(HeadError::Short) => None,
            Ok(_) | Err(_) => Some(Rest::Call),
        };
        let Some(rest) = rest else { return Ok(false) };
        let receiving = self.parts().1;
        receiving.rest = rest;
        if let Rest::WriteData(write) = &mut receiving.rest {
            Self::write_data(write, &bytes[reader.position()..], backend)?;
        }
        Ok(!matches!(receiving.rest, Rest::Call))
    }

    /// Buffers bytes.
    fn hold(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let held_max = self.held_max() as usize;
        let held = &mut self.parts().1.held;
        if held.len() + bytes.len() > held_max {
            return Err(Self::TOO_LONG());
        }
        held.extend_from_slice(bytes);
        Ok(())
    }
}

impl<B: NfsBackend + ?Sized, S: FileServer> Target<B> for S {
    fn receive(&mut self, now: Instant, bytes: &[u8], backend: &mut B) -> Result<usize, Violation> {
        self.parts().0.heard(now);
        let mut input = bytes;
        while !input.is_empty()
            && let (rpc, _) = self.parts()
            && !rpc.transmit.is_full()
            && let Some(piece) = rpc.records.next(&mut input)?
        {
            self.take_piece(now, piece, backend)?;
        }
        Ok(bytes.len() - input.len())
    }

    #[inline]
    fn place(&mut self, at_least: usize, backend: &mut B) -> Option<Payload> {
        let (rpc, receiving) = self.parts();
        let left = rpc.records.plain_data();
        let Rest::WriteData(write) = &receiving.rest else { return None };
        let len = left.min(write.left());
        if (left as usize) < at_least || len == 0 {
            return None;
        }
        backend.memory(write.id, write.placed, len).filter(|place| place.len() >= at_least)
    }

    fn placed(&mut self, now: Instant, len: usize, backend: &mut B) -> Result<(), Violation> {
        let (rpc, receiving) = self.parts();
        rpc.heard(now);
        let end = rpc.records.skip(len as u32);
        if let Rest::WriteData(write) = &mut receiving.rest {
            assert!(len <= write.left() as usize, "more than the data that were to come");
            write.placed += len as u32;
        }
        self.take_piece(now, Piece { bytes: &[], end }, backend)
    }

    fn complete(&mut self, now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, backend: &mut B) {
        self.complete_io(now, id, result, backend);
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.parts().0.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.rpc().poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant, _backend: &mut B) -> Result<(), Violation> {
        self.rpc().handle_timeout(now)
    }

    fn is_closing(&self) -> bool {
        false // NFS clients close the connection without notice.
    }

    fn disconnected(&mut self, _now: Instant, backend: &mut B) {
        self.abort_all(backend);
        self.parts().1.rest = Rest::Skip;
    }
}
