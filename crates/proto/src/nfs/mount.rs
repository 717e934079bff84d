//! The MOUNT protocol, version 3 (RFC 1813 §5), with which a client gets the handle of an export's root. Also its calls
//! on a connection of their own, for servers that have MOUNT on another port.

use alloc::{
    collections::VecDeque,
    string::{String, ToString},
    vec::Vec,
};

use super::{
    Admissions, Files, NfsBackend,
    common::{Caller, Export, ExportId, FileError, FileHandle, FileId, Handles, MAX_PATH_LEN},
};
use crate::{
    Instant, Refusal,
    rpc::{
        Call, ControlCall, Credentials, Encoder, Garbage, RpcError, Server, Xid,
        auth::{AUTH_NONE, AUTH_SYS, Identity},
        message::encode_success,
        xdr,
    },
    wire::{Reader, Transmit, printable},
};

/// The RPC program number of MOUNT.
pub const PROGRAM: u32 = 100_005;
pub const VERSION: u32 = 3;

/// Maximum length of an export's path (`MNTPATHLEN`).
pub const MAX_EXPORT_PATH_LEN: usize = 1024;
/// Maximum length of a host name (`MNTNAMLEN`).
pub const MAX_HOST_NAME_LEN: usize = 255;
/// Maximum flavors and list entries accepted from a server.
const MAX_LIST: usize = 4096;

/// Procedures of MOUNT (RFC 1813 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MountProcedure {
    Null = 0,
    Mnt = 1,
    Dump = 2,
    Umnt = 3,
    UmntAll = 4,
    Export = 5,
}

impl MountProcedure {
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Null, Self::Mnt, Self::Dump, Self::Umnt, Self::UmntAll, Self::Export].get(number as usize).copied()
    }
}

/// `mountstat3` of a failed mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum MountError {
    #[error("not owner")]
    NotOwner = 1,
    #[error("no such export")]
    NoEntry = 2,
    #[error("I/O error")]
    Io = 5,
    #[error("permission denied")]
    Access = 13,
    #[error("not a directory")]
    NotDirectory = 20,
    #[error("invalid argument")]
    Invalid = 22,
    #[error("name too long")]
    NameTooLong = 63,
    #[error("operation not supported")]
    NotSupported = 10004,
    #[error("server fault")]
    ServerFault = 10006,
}

impl MountError {
    /// The kind of refusal that the error means.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::NoEntry | Self::NotDirectory => Refusal::NotFound,
            Self::Access | Self::NotOwner => Refusal::Denied,
            _ => Refusal::Other,
        }
    }

    fn from_number(number: u32) -> Self {
        match number {
            1 => Self::NotOwner,
            2 => Self::NoEntry,
            5 => Self::Io,
            13 => Self::Access,
            20 => Self::NotDirectory,
            22 => Self::Invalid,
            63 => Self::NameTooLong,
            10004 => Self::NotSupported,
            _ => Self::ServerFault,
        }
    }
}

/// An entry of EXPORT: a path, and the groups of hosts that may mount it (empty: everyone).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportEntry {
    pub path: String,
    pub groups: Vec<String>,
}

/// An entry of DUMP: a host and the path that it mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    pub host: String,
    pub path: String,
}

/// Encodes the results of MNT. `flavors` are the authentication flavors that the export accepts, in order of
/// preference.
pub fn encode_mounted(result: Result<(FileHandle, &[u32]), MountError>, encoder: &mut Encoder) {
    match result {
        Ok((root, flavors)) => {
            root.encode(encoder.u32(0));
            encoder.u32(flavors.len() as u32);
            for flavor in flavors {
                encoder.u32(*flavor);
            }
        }
        Err(error) => {
            encoder.u32(error as u32);
        }
    }
}

/// Decodes the results of MNT.
pub fn decode_mounted(reader: &mut Reader<'_>) -> Result<Result<FileHandle, MountError>, Garbage> {
    let status = reader.u32_be()?;
    if status != 0 {
        return Ok(Err(MountError::from_number(status)));
    }
    let root = FileHandle::decode(reader)?;
    let flavors = reader.u32_be()? as usize;
    if flavors > MAX_LIST {
        return Err(Garbage);
    }
    reader.skip(4 * flavors)?;
    Ok(Ok(root))
}

pub fn encode_exports<'a>(entries: impl Iterator<Item = &'a ExportEntry>, encoder: &mut Encoder) {
    for entry in entries {
        encoder.boolean(true).opaque(entry.path.as_bytes());
        for group in &entry.groups {
            encoder.boolean(true).opaque(group.as_bytes());
        }
        encoder.boolean(false);
    }
    encoder.boolean(false);
}

pub fn decode_exports(reader: &mut Reader<'_>) -> Result<Vec<ExportEntry>, Garbage> {
    list(reader, |reader| {
        let path = text(reader, MAX_EXPORT_PATH_LEN)?;
        Ok(ExportEntry { path, groups: list(reader, |reader| text(reader, MAX_HOST_NAME_LEN))? })
    })
}

pub fn encode_mounts<'a>(entries: impl Iterator<Item = &'a MountEntry>, encoder: &mut Encoder) {
    for entry in entries {
        encoder.boolean(true).opaque(entry.host.as_bytes()).opaque(entry.path.as_bytes());
    }
    encoder.boolean(false);
}

pub fn decode_mounts(reader: &mut Reader<'_>) -> Result<Vec<MountEntry>, Garbage> {
    list(reader, |reader| {
        Ok(MountEntry { host: text(reader, MAX_HOST_NAME_LEN)?, path: text(reader, MAX_EXPORT_PATH_LEN)? })
    })
}

fn list<'a, T>(
    reader: &mut Reader<'a>,
    decode: impl Fn(&mut Reader<'a>) -> Result<T, Garbage>,
) -> Result<Vec<T>, Garbage> {
    let mut entries = Vec::new();
    while let Some(entry) = xdr::optional(reader, &decode)? {
        if entries.len() == MAX_LIST {
            return Err(Garbage);
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn text(reader: &mut Reader<'_>, max: usize) -> Result<String, Garbage> {
    Ok(printable(xdr::opaque(reader, max)?))
}

impl ControlCall<Result<FileHandle, MountError>> {
    /// MNT: returns the handle of an export's root.
    pub fn mount(xid: Xid, identity: &Identity, path: &str) -> Self {
        call(xid, identity, MountProcedure::Mnt, Some(path), decode_mounted)
    }
}

impl ControlCall<()> {
    /// UMNT.
    pub fn unmount(xid: Xid, identity: &Identity, path: &str) -> Self {
        call(xid, identity, MountProcedure::Umnt, Some(path), |_| Ok(()))
    }
}

impl ControlCall<Vec<ExportEntry>> {
    /// EXPORT.
    pub fn exports(xid: Xid, identity: &Identity) -> Self {
        call(xid, identity, MountProcedure::Export, None, decode_exports)
    }
}

impl ControlCall<Vec<MountEntry>> {
    /// DUMP.
    pub fn mounts(xid: Xid, identity: &Identity) -> Self {
        call(xid, identity, MountProcedure::Dump, None, decode_mounts)
    }
}

fn call<T>(
    xid: Xid,
    identity: &Identity,
    procedure: MountProcedure,
    path: Option<&str>,
    decode: fn(&mut Reader<'_>) -> Result<T, Garbage>,
) -> ControlCall<T> {
    ControlCall::call(xid, identity, (PROGRAM, VERSION, procedure as u32), decode, |call| {
        if let Some(path) = path {
            call.opaque(path.as_bytes());
        }
    })
}

/// Maximum mounts remembered for DUMP, because clients often forget to unmount.
const MAX_MOUNTS: usize = 1024;
/// Maximum length of their hosts and paths in bytes.
const MAX_MOUNTS_LEN: usize = 64 << 10;

/// Which host mounted what, according to the clients. It is only for information and grants no rights.
#[derive(Debug, Default)]
pub struct MountTable {
    entries: VecDeque<MountEntry>,
    /// Total length of hosts and paths in bytes.
    len: usize,
}

impl MountTable {
    fn add(&mut self, entry: MountEntry) {
        if self.entries.contains(&entry) {
            return;
        }
        self.len += len(&entry);
        self.entries.push_back(entry);
        while self.entries.len() > MAX_MOUNTS || self.len > MAX_MOUNTS_LEN {
            self.len -= self.entries.pop_front().as_ref().map_or(0, len);
        }
    }

    fn remove(&mut self, goes: impl Fn(&MountEntry) -> bool) {
        self.entries.retain(|entry| !goes(entry));
        self.len = self.entries.iter().map(len).sum();
    }
}

fn len(entry: &MountEntry) -> usize {
    entry.host.len() + entry.path.len()
}

/// Executes a call and answers it.
pub(in crate::nfs) fn serve<B: NfsBackend + ?Sized>(
    now: Instant,
    call: &Call<'_>,
    reader: &mut Reader<'_>,
    rpc: &mut Server,
    admissions: &mut Admissions,
    handles: &Handles,
    backend: &mut B,
) -> Result<(), RpcError> {
    let procedure = MountProcedure::from_number(call.procedure).ok_or(RpcError::ProcedureUnavailable)?;
    let mut path = || xdr::opaque(reader, MAX_PATH_LEN).map_err(|Garbage| RpcError::GarbageArguments);
    let host = admissions.peer.address.to_string();
    encode_success(rpc.reply.begin_record(), call.xid);
    match procedure {
        MountProcedure::Null => {}
        MountProcedure::Mnt => {
            let mounted = mount(now, path()?, admissions, handles, backend);
            encode_mounted(mounted.map(|root| (root, &[AUTH_SYS, AUTH_NONE][..])), &mut rpc.reply);
        }
        MountProcedure::Dump => {
            let reply = &mut rpc.reply;
            backend.with_state(&mut |state| encode_mounts(state.mounts.entries.iter(), reply));
        }
        MountProcedure::Umnt => {
            let path = path()?;
            backend.with_state(&mut |state| {
                state.mounts.remove(|entry| entry.host == host && entry.path.as_bytes() == path);
            });
        }
        MountProcedure::UmntAll => {
            backend.with_state(&mut |state| state.mounts.remove(|entry| entry.host == host));
        }
        MountProcedure::Export => {
            let exports = backend.exports();
            let entries: Vec<_> =
                exports.into_iter().map(|export| ExportEntry { path: export.path, groups: export.groups }).collect();
            encode_exports(entries.iter(), &mut rpc.reply);
        }
    }
    // A call may search the whole table.
    rpc.transmit.charge(Transmit::TURN / 8 + rpc.reply.len());
    rpc.send_reply();
    Ok(())
}

/// Finds an export, or a file below one, and admits the peer to it.
fn mount<B: NfsBackend + ?Sized>(
    now: Instant,
    path: &[u8],
    admissions: &mut Admissions,
    handles: &Handles,
    backend: &mut B,
) -> Result<FileHandle, MountError> {
    if path.len() > MAX_EXPORT_PATH_LEN {
        return Err(MountError::NameTooLong);
    }
    let path = core::str::from_utf8(path).map_err(|_| MountError::NoEntry)?;
    let named = find_exports(&backend.exports(), path);
    if named.is_empty() {
        return Err(MountError::NoEntry);
    }
    // A volume may be exported several times with different rights. The first export that admits the peer is used.
    let admits = |(export, _): &(ExportId, &str)| admissions.admission(*export, backend).is_some();
    let (export, below) = named.into_iter().find(admits).ok_or(MountError::Access)?;
    let entry = MountEntry { host: admissions.peer.address.to_string(), path: path.to_string() };
    let mut found = Err(MountError::NoEntry);
    backend.with_files(now, export, &mut |files| {
        found = walk(files, below).map_err(mount_error);
        if found.is_ok() {
            files.state.mounts.add(entry.clone());
        }
    });
    found.map(|file| handles.encode(export, file))
}

/// The exports with the longest path that is `path` or a parent of it, each with the rest of `path` below it.
fn find_exports<'p>(exports: &[Export], path: &'p str) -> Vec<(ExportId, &'p str)> {
    let mut longest = 0;
    let mut found = Vec::new();
    for export in exports {
        let top = export.path.trim_end_matches('/');
        let Some(below) = path.strip_prefix(top).filter(|below| below.is_empty() || below.starts_with('/')) else {
            continue;
        };
        if top.len() > longest {
            found.clear();
            longest = top.len();
        }
        if top.len() == longest {
            found.push((export.id, below));
        }
    }
    found
}

/// Walks down the path with root's rights, because the server itself does this lookup.
fn walk(files: &Files<'_>, path: &str) -> Result<FileId, FileError> {
    let caller = Caller { who: Credentials::root(), time: files.time };
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts
        .map(str::as_bytes)
        .try_fold(files.names.root(), |directory, part| files.names.lookup(&caller, directory, part))
}

fn mount_error(error: FileError) -> MountError {
    match error {
        FileError::NoEntry => MountError::NoEntry,
        FileError::NotDirectory => MountError::NotDirectory,
        FileError::Access | FileError::NotOwner => MountError::Access,
        FileError::NameTooLong => MountError::NameTooLong,
        FileError::Io => MountError::Io,
        _ => MountError::ServerFault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn lists_come_back_as_they_were_sent() {
        let exports = vec![
            ExportEntry { path: "/a".into(), groups: vec![] },
            ExportEntry { path: "/bc".into(), groups: vec!["127.0.0.0/8".into(), "host".into()] },
        ];
        let mut encoder = Encoder::default();
        encode_exports(exports.iter(), &mut encoder);
        assert_eq!(decode_exports(&mut Reader::new(encoder.bytes())), Ok(exports));
        let mounts = vec![MountEntry { host: "h".into(), path: "/a".into() }];
        let mut encoder = Encoder::default();
        encode_mounts(mounts.iter(), &mut encoder);
        assert_eq!(decode_mounts(&mut Reader::new(encoder.bytes())), Ok(mounts));
    }

    #[test]
    fn an_answer_to_mnt_comes_back_as_it_was_sent() {
        let root = FileHandle::new(b"root").expect("a handle");
        let mut encoder = Encoder::default();
        encode_mounted(Ok((root, &[1, 0])), &mut encoder);
        assert_eq!(decode_mounted(&mut Reader::new(encoder.bytes())), Ok(Ok(root)));
        let mut encoder = Encoder::default();
        encode_mounted(Err(MountError::Access), &mut encoder);
        assert_eq!(decode_mounted(&mut Reader::new(encoder.bytes())), Ok(Err(MountError::Access)));
    }
}
