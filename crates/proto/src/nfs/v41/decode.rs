//! Messages as text, for traces.

use alloc::{format, string::String};
use core::fmt::Write as _;

use super::{
    MAX_CONTROL_LEN, MAX_IO_BYTES, PROC_COMPOUND, PROC_NULL, VERSION,
    codec::{CompoundHead, MAX_TAG_LEN, OpCode, Status},
    operations::Operation,
};
use crate::{
    Violation,
    nfs::PROGRAM,
    rpc::{
        Call, Garbage, decode,
        xdr::{self, padding},
    },
    wire::Reader,
};

/// Describes the record at the start of `bytes`, including its mark. Returns the length of the record and the text.
/// Results have no lengths, so only the first result of a reply is described, which is usually that of SEQUENCE.
pub fn describe(bytes: &[u8]) -> Result<(usize, String), Violation> {
    let results = |reader: &mut Reader<'_>| {
        describe_results(reader).unwrap_or_else(|Garbage| String::from("results that do not decode"))
    };
    decode::describe(bytes, MAX_IO_BYTES + MAX_CONTROL_LEN, describe_call, results)
}

fn describe_call(call: &Call<'_>, reader: &mut Reader<'_>) -> String {
    match (call.program, call.version, call.procedure) {
        (PROGRAM, VERSION, PROC_NULL) => String::from("NFS NULL"),
        (PROGRAM, VERSION, PROC_COMPOUND) => describe_compound(reader),
        (program, version, procedure) => format!("program {program} version {version} procedure {procedure}"),
    }
}

fn describe_compound(reader: &mut Reader<'_>) -> String {
    let Ok(head) = CompoundHead::decode(reader) else { return String::from("NFS COMPOUND that does not decode") };
    let mut text = format!("NFS 4.{}", head.minor);
    for _ in 0..head.operations {
        let Ok(operation) = describe_operation(head.minor, reader) else {
            text.push_str(" and what does not decode");
            break;
        };
        let _ = write!(text, " {operation}");
    }
    text
}

fn describe_operation(minor: u32, reader: &mut Reader<'_>) -> Result<String, Garbage> {
    let number = reader.u32_be()?;
    let Some(code) = OpCode::of_minor_version(number, minor) else { return Ok(format!("operation {number}")) };
    let operation = Operation::decode(code, reader)?;
    if let Operation::Write(head) = &operation {
        let len = head.len as usize;
        reader.skip(len)?;
        reader.skip(padding(len))?;
    }
    Ok(if operation == Operation::Unserved { String::from(code.text()) } else { format!("{operation:?}") })
}

fn describe_results(reader: &mut Reader<'_>) -> Result<String, Garbage> {
    let status = Status::decode(reader)?;
    xdr::opaque(reader, MAX_TAG_LEN)?;
    let count = reader.u32_be()?;
    let mut text = match status {
        Ok(()) => format!("{count} results"),
        Err(status) => format!("{count} results, {}", status.text()),
    };
    if count > 0 && OpCode::from_number(reader.u32_be()?) == Some(OpCode::Sequence) && Status::decode(reader)?.is_ok() {
        reader.skip(16)?;
        let _ = write!(text, ", slot {1} sequence {0}", reader.u32_be()?, reader.u32_be()?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        nfs::v41::{codec::SessionId, operations::SequenceArguments},
        rpc::{
            Encoder, Xid,
            auth::Identity,
            message::{encode_call, encode_success},
        },
    };

    #[test]
    fn calls_are_described_by_their_operations_and_replies_by_slot_and_status() {
        let mut call = Encoder::default();
        let identity = Identity::None.encode();
        encode_call(call.begin_record(), Xid(1), PROGRAM, VERSION, PROC_COMPOUND, &identity);
        CompoundHead { tag: b"", minor: 1, operations: 3 }.encode(&mut call);
        let session = SessionId([7; 16]);
        let sequence = SequenceArguments { session, seqid: 5, slot: 2, highest_slot: 3, cache_this: false };
        Operation::Sequence(sequence).encode(&mut call);
        Operation::PutRootFh.encode(&mut call);
        call.u32(OpCode::LayoutGet as u32);
        let bytes = call.end_record(0);
        let (used, text) = describe(bytes).expect("a description");
        assert_eq!(used, bytes.len());
        let expected = format!("NFS 4.1 {:?} PutRootFh LAYOUTGET", Operation::Sequence(sequence));
        assert_eq!(text, format!("call xid 0x00000001 uid 65534 gid 65534 {expected}"));
        let mut reply = Encoder::default();
        encode_success(reply.begin_record(), Xid(2));
        reply.u32(Status::Stale as u32).opaque(b"").u32(2).u32(OpCode::Sequence as u32).u32(0);
        reply.raw(&session.0).u32(5).u32(2).u32(3).u32(3).u32(0);
        let (_, text) = describe(reply.end_record(0)).expect("a description");
        assert_eq!(text, "reply xid 0x00000002: 2 results, stale file handle, slot 2 sequence 5");
    }
}
