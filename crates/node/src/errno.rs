//! Linux error numbers that drivers report and that are handled specially here.

use iotax_proto::Refusal;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const ENXIO: i32 = 6;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EROFS: i32 = 30;
pub(crate) const ENETUNREACH: i32 = 101;
pub(crate) const ETIMEDOUT: i32 = 110;
pub(crate) const ECONNREFUSED: i32 = 111;
pub(crate) const EHOSTUNREACH: i32 = 113;
pub(crate) const EDQUOT: i32 = 122;

/// The reason for which the system refused an I/O.
pub(crate) fn refusal(errno: i32) -> Refusal {
    match errno {
        ENOENT | ENXIO | ENODEV => Refusal::NotFound,
        EPERM | EACCES => Refusal::Denied,
        EBUSY | EAGAIN | ENOMEM => Refusal::Busy,
        EROFS => Refusal::ReadOnly,
        ENOSPC | EDQUOT => Refusal::Full,
        _ => Refusal::Other,
    }
}
