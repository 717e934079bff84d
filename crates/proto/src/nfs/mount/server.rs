//! The MOUNT program (RFC 1813 §5).

use alloc::{collections::VecDeque, string::ToString, vec::Vec};

use super::{
    ExportEntry, MAX_EXPORT_PATH_LEN, MountEntry, MountError, MountProcedure, encode_exports, encode_mounted,
    encode_mounts,
};
use crate::{
    Instant,
    nfs::{
        backend::{Admissions, Files, NfsBackend},
        common::{Caller, Export, ExportId, FileError, FileHandle, FileId, Handles, MAX_PATH_LEN},
    },
    rpc::{
        Call, Credentials, Garbage, RpcError, Server,
        auth::{AUTH_NONE, AUTH_SYS},
        message::encode_success,
        xdr,
    },
    wire::{Reader, Transmit},
};

/// Mounts remembered for DUMP, and bytes of their hosts and paths; clients often forget to unmount.
const MAX_MOUNTS: usize = 1024;
const MAX_MOUNTS_LEN: usize = 64 << 10;

/// Who mounted what, as far as clients said. For information only: no right comes from it.
#[derive(Debug, Default)]
pub struct MountTable {
    entries: VecDeque<MountEntry>,
    /// Of hosts and paths.
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

/// Carries out a call and answers it.
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
    // All that is remembered may have been looked at.
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
    // A volume may be exported several times, to one with other rights than to another: the first that admits the peer.
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

/// The exports with the longest path that `path` is or lies below, and what of `path` is below them.
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

/// With root's rights, as the server itself looks for what is mounted.
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
