//! Messages as text, for traces.

use alloc::{format, string::String};

use super::{MAX_CONTROL_LEN, MAX_IO_BYTES, Procedure, VERSION, arguments::Arguments, results::Results, types::Status};
use crate::{
    Violation,
    nfs::{
        PROGRAM,
        mount::{self, MAX_EXPORT_PATH_LEN, MountProcedure},
    },
    rpc::{
        Call, decode,
        message::decode_reply,
        portmap::{self, Mapping},
        record::first_record,
        xdr,
    },
    wire::Reader,
};

/// Describes the record at the start of `bytes`, including its mark. Returns the length of the record and the text.
///
/// A reply does not name its procedure; see `describe_reply`.
pub fn describe(bytes: &[u8]) -> Result<(usize, String), Violation> {
    decode::describe(bytes, MAX_IO_BYTES + MAX_CONTROL_LEN, describe_call, describe_unknown_results)
}

/// Describes the record at the start of `bytes` as the reply to a call of NFS procedure `procedure`.
pub fn describe_reply(procedure: Procedure, bytes: &[u8]) -> Result<(usize, String), Violation> {
    let (used, record) = first_record(bytes, MAX_IO_BYTES + MAX_CONTROL_LEN)?;
    let mut reader = Reader::new(&record);
    let (xid, outcome) =
        decode_reply(&mut reader).map_err(|_| malformed!("RFC 5531 §9: a reply that does not decode"))?;
    let text = match outcome {
        Ok(()) => match Results::decode(procedure, &mut reader) {
            Ok(Ok(results)) => format!("reply xid {xid:#010x} {results:?}"),
            Ok(Err(failure)) => {
                format!("reply xid {xid:#010x} {procedure:?}: {} ({:?})", failure.status, failure.context)
            }
            Err(_) => format!("reply xid {xid:#010x} {procedure:?}: results that do not decode"),
        },
        Err(error) => format!("reply xid {xid:#010x} {procedure:?}: {error}"),
    };
    Ok((used, text))
}

fn describe_call(call: &Call<'_>, reader: &mut Reader<'_>) -> String {
    match (call.program, call.version) {
        (PROGRAM, VERSION) => match Procedure::from_number(call.procedure) {
            Some(procedure) => match Arguments::decode(procedure, reader) {
                Ok(arguments) => format!("NFS {arguments:?}"),
                Err(_) => format!("NFS {procedure:?}: arguments that do not decode"),
            },
            None => format!("NFS procedure {}", call.procedure),
        },
        (mount::PROGRAM, mount::VERSION) => match MountProcedure::from_number(call.procedure) {
            Some(procedure @ (MountProcedure::Mnt | MountProcedure::Umnt)) => {
                let path = xdr::opaque(reader, MAX_EXPORT_PATH_LEN).unwrap_or_default();
                format!("MOUNT {procedure:?} {:?}", String::from_utf8_lossy(path))
            }
            Some(procedure) => format!("MOUNT {procedure:?}"),
            None => format!("MOUNT procedure {}", call.procedure),
        },
        (portmap::PROGRAM, portmap::VERSION) => match (call.procedure, Mapping::decode(reader)) {
            (portmap::PROC_GETPORT, Ok(mapping)) => format!("PORTMAP GetPort {mapping:?}"),
            (portmap::PROC_DUMP, _) => String::from("PORTMAP Dump"),
            (procedure, _) => format!("PORTMAP procedure {procedure}"),
        },
        (program, version) => format!("program {program} version {version} procedure {}", call.procedure),
    }
}

/// Describes the results of an unknown procedure. All results except those of NULL start with a status.
fn describe_unknown_results(reader: &mut Reader<'_>) -> String {
    let len = reader.remaining();
    match Status::decode(reader) {
        Ok(Err(status)) => format!("{len} bytes of results, status {status:?}"),
        _ => format!("{len} bytes of results"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        nfs::v3::arguments,
        rpc::{
            Encoder,
            auth::Identity,
            message::{Xid, encode_call, encode_success},
        },
    };

    #[test]
    fn every_call_is_described_by_its_procedure_and_arguments() {
        for arguments in arguments::tests::examples() {
            let mut call = Encoder::default();
            let procedure = arguments.procedure();
            encode_call(call.begin_record(), Xid(1), PROGRAM, VERSION, procedure as u32, &Identity::None.encode());
            arguments.encode(&mut call);
            let bytes = call.end_record(0);
            let (used, text) = describe(bytes).expect("a description");
            assert_eq!(used, bytes.len());
            assert_eq!(text, format!("call xid 0x00000001 uid 65534 gid 65534 NFS {arguments:?}"));
        }
    }

    #[test]
    fn a_reply_is_described_as_far_as_it_says_what_it_is() {
        let mut reply = Encoder::default();
        encode_success(reply.begin_record(), Xid(2));
        reply.u32(Status::Stale as u32);
        let bytes = reply.end_record(0).to_vec();
        let (used, text) = describe(&bytes).expect("a description");
        assert_eq!((used, text.as_str()), (32, "reply xid 0x00000002: 4 bytes of results, status Stale"));
        let (_, text) = describe_reply(Procedure::GetAttr, &bytes).expect("a description");
        assert_eq!(text, "reply xid 0x00000002 GetAttr: stale file handle (Nothing)");
        assert!(describe(&bytes[..20]).is_err());
    }
}
