//! ONC-RPC over a byte stream (RFC 5531) and its encoding (XDR, RFC 4506): what NFS, MOUNT and the portmapper share.
//! Knows no program but the portmapper.

pub mod auth;
pub mod client;
pub mod duplicate;
pub mod message;
pub mod portmap;
pub mod portmapper;
pub mod record;
pub mod server;
pub mod xdr;

pub use auth::Credentials;
pub use client::ControlCall;
pub use duplicate::{DuplicateCache, Peer, RequestKey};
pub use message::{AcceptStatus, Call, HeadError, RpcError, Xid};
pub use portmap::Mapping;
pub use portmapper::Portmapper;
pub use record::{Piece, Records};
pub use server::Server;
pub use xdr::{Encoder, Garbage};
