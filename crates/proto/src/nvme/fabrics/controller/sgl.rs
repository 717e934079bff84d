//! Where a command says that its data are.

use crate::nvme::{Sqe, Status, command::Sgl};

/// Whether a command says rightly where the `len` bytes that it takes are, of which `data_len` came in its capsule
/// (NVMe/TCP transport 1.1 §3.5, "SGL use").
#[inline]
pub(super) fn check_host_data(sqe: &Sqe, data_len: u32, len: u32) -> Result<(), Status> {
    match sqe.sgl() {
        Sgl::InCapsule { offset, .. } if offset != 0 => Err(Status::SGL_OFFSET_INVALID.do_not_retry()),
        Sgl::InCapsule { len: told, .. } if told == len && data_len == len => Ok(()),
        Sgl::Transport { len: told } if told == len && data_len == 0 => Ok(()),
        Sgl::InCapsule { .. } | Sgl::Transport { .. } => Err(Status::SGL_LENGTH_INVALID.do_not_retry()),
        Sgl::Other => Err(Status::SGL_TYPE_INVALID.do_not_retry()),
    }
}

/// Whether a command rightly takes `len` bytes from the controller: they never lie in a capsule.
#[inline]
pub(super) fn check_controller_data(sqe: &Sqe, len: u32) -> Result<(), Status> {
    match sqe.sgl() {
        Sgl::Transport { len: told } if told == len => Ok(()),
        Sgl::Transport { .. } => Err(Status::SGL_LENGTH_INVALID.do_not_retry()),
        Sgl::InCapsule { .. } | Sgl::Other => Err(Status::SGL_TYPE_INVALID.do_not_retry()),
    }
}
