//! Messages of any program as text, for traces.

use alloc::{format, string::String};

use super::{Call, Credentials, HeadError, message::decode_reply, record::first_record};
use crate::{Violation, wire::Reader};

/// Describes the record at the start of `bytes`, including its mark, with at most `max_len` bytes. Returns the length of
/// the record and the text. `call` describes a call by its arguments, and `results` those of a reply.
pub(crate) fn describe(
    bytes: &[u8],
    max_len: u32,
    call: impl FnOnce(&Call<'_>, &mut Reader<'_>) -> String,
    results: impl FnOnce(&mut Reader<'_>) -> String,
) -> Result<(usize, String), Violation> {
    let (used, record) = first_record(bytes, max_len)?;
    let mut reader = Reader::new(&record);
    let text = match Call::decode(&mut reader) {
        Ok(head) => {
            let who = match Credentials::decode(head.credential) {
                Ok(who) => format!("uid {} gid {}", who.uid, who.gid),
                Err(_) => format!("credential flavor {}", head.credential.flavor),
            };
            format!("call xid {:#010x} {who} {}", head.xid, call(&head, &mut reader))
        }
        Err(HeadError::Answer { xid, error }) => format!("call xid {xid:#010x}: {error}"),
        Err(HeadError::WrongDirection) => describe_reply(&record, results)?,
        Err(HeadError::Short | HeadError::Malformed) => {
            return Err(malformed!("RFC 5531 §9: a record too short for a message"));
        }
    };
    Ok((used, text))
}

fn describe_reply(record: &[u8], results: impl FnOnce(&mut Reader<'_>) -> String) -> Result<String, Violation> {
    let mut reader = Reader::new(record);
    let (xid, outcome) =
        decode_reply(&mut reader).map_err(|_| malformed!("RFC 5531 §9: a reply that does not decode"))?;
    Ok(match outcome {
        Err(error) => format!("reply xid {xid:#010x}: {error}"),
        Ok(()) if reader.remaining() == 0 => format!("reply xid {xid:#010x}: success, no results"),
        Ok(()) => format!("reply xid {xid:#010x}: {}", results(&mut reader)),
    })
}
