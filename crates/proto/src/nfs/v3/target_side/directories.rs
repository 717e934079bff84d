//! READDIR and READDIRPLUS.

use crate::{
    nfs::{
        common::{Attributes, Caller, ExportId, FileId, Handles, NameSpace},
        v3::{
            MAX_LISTING_LEN,
            results::{Entries, Entry, Failure, FailureContext, Reply, Results},
            types::Status,
        },
    },
    rpc::Encoder,
};

/// What stands around the entries: status, attributes, verifier, end of list, eof.
const FRAME_LEN: usize = 4 + 4 + Attributes::ENCODED_LEN + 8 + 4 + 4;

/// What a call asks for.
pub(super) struct Listing {
    /// With attributes and handles.
    pub(super) plus: bool,
    pub(super) cookie: u64,
    pub(super) verifier: [u8; 8],
    /// Most bytes of names, numbers and cookies; and of the whole reply.
    pub(super) names: u32,
    pub(super) all: u32,
}

pub(super) fn list<'r>(
    (export, handles): (ExportId, Handles),
    caller: &Caller,
    names: &dyn NameSpace,
    directory: FileId,
    wanted: &Listing,
    entries: &'r mut Encoder,
) -> Reply<'r> {
    let attributes = names.attributes(directory).ok();
    let failure = |status| Failure { status, context: FailureContext::PostOp(attributes) };
    let room = (wanted.all.min(MAX_LISTING_LEN) as usize).saturating_sub(FRAME_LEN);
    let room_for_names = wanted.names as usize;
    let mut names_len = 0;
    entries.truncate(0);
    let end = names.list(caller, directory, wanted.cookie, wanted.verifier, &mut |listed| {
        let mut entry = Entry {
            number: listed.file.number,
            name: listed.name,
            cookie: listed.cookie,
            attributes: None,
            handle: None,
        };
        let before = entries.len();
        names_len += 24 + listed.name.len().next_multiple_of(4);
        if wanted.plus {
            entry.attributes = names.attributes(listed.file).ok();
            entry.handle = Some(handles.encode(export, listed.file));
        }
        entry.encode(wanted.plus, entries);
        // RFC 1813 §3.3.17: the limit on names is a hint, one entry is always given.
        let fits = entries.len() <= room && (before == 0 || names_len <= room_for_names);
        if !fits {
            entries.truncate(before);
        }
        fits
    });
    let end = end.map_err(|error| failure(error.into()))?;
    if entries.is_empty() && !end.eof {
        return Err(failure(Status::TooSmall));
    }
    let entries = Entries::new(wanted.plus, entries.bytes());
    Ok(Results::ReadDir { attributes, verifier: end.verifier, entries, eof: end.eof })
}
