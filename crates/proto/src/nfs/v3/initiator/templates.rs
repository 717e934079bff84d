//! The calls of I/Os, encoded once.

use alloc::vec::Vec;

use crate::{
    nfs::{
        PROGRAM,
        common::FileHandle,
        v3::{
            VERSION,
            arguments::{Arguments, FileRange, Stability, WriteHead},
        },
    },
    rpc::{Encoder, Xid, message::encode_call},
};

/// Whole calls with everything in place but xid, offset and count.
#[derive(Debug, Default)]
pub(super) struct Templates {
    pub(super) read: Vec<u8>,
    pub(super) write: Vec<u8>,
    pub(super) commit: Vec<u8>,
}

impl Templates {
    pub(super) fn new(file: &FileHandle, identity: &[u8], stability: Stability) -> Self {
        let template = |arguments: Arguments<'_>| {
            let mut encoder = Encoder::default();
            let procedure = arguments.procedure() as u32;
            encode_call(encoder.begin_record(), Xid(0), PROGRAM, VERSION, procedure, identity);
            arguments.encode(&mut encoder);
            encoder.end_record(0).to_vec()
        };
        let file = *file;
        let range = FileRange { file, offset: 0, count: 0 };
        Self {
            read: template(Arguments::Read(range)),
            write: template(Arguments::Write(WriteHead { file, offset: 0, count: 0, stability, data_len: 0 })),
            commit: template(Arguments::Commit(range)),
        }
    }
}
