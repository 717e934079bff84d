//! PDUs (RFC 7143 §11): typed headers, the cutting of a byte stream into PDUs, and their way into a `Transmit`.

pub mod bhs;
pub mod command;
pub mod control;
pub mod data;
pub mod framer;
pub mod login;
pub mod sender;
pub mod text;

pub use bhs::{BHS_LEN, Bhs, ConnectionId, SessionHandle, TaskTag, TransferTag};
pub use command::{ScsiCommand, ScsiResponse};
pub use control::{AsyncMessage, NopIn, NopOut, Reject, Snack, TaskManagement, TaskManagementResponse};
pub use data::{DataIn, DataOut, R2t};
pub use framer::{Fragment, Framer};
pub use login::{LoginRequest, LoginResponse, LogoutRequest, LogoutResponse};
pub use sender::Sender;
pub use text::{TextRequest, TextResponse};

/// Bytes that pad a data segment to a multiple of four (RFC 7143 §11.1).
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}
