//! ONC-RPC over a byte stream (RFC 5531) and its encoding (XDR, RFC 4506): what NFS, MOUNT and the portmapper share.
//! Knows no program but the portmapper.

pub mod auth;
pub mod duplicate;
pub mod message;
pub mod portmap;
pub mod record;
pub mod xdr;

pub use auth::Credentials;
pub use duplicate::{DuplicateCache, Peer, RequestKey};
pub use message::{AcceptStatus, Call, HeadError, RpcError};
pub use portmap::Mapping;
pub use record::{Piece, Records};
pub use xdr::{Encoder, Garbage};
