//! MOUNT's calls, for servers that have MOUNT on a port of its own.

use alloc::vec::Vec;

use super::{
    ExportEntry, MountEntry, MountError, MountProcedure, PROGRAM, VERSION, decode_exports, decode_mounted,
    decode_mounts,
};
use crate::{
    nfs::common::FileHandle,
    rpc::{ControlCall, Garbage, Xid, auth::Identity},
    wire::Reader,
};

impl ControlCall<Result<FileHandle, MountError>> {
    /// MNT: the handle of an export's root.
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
    /// DUMP of MOUNT.
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
