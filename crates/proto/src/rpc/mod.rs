//! ONC RPC over a byte stream (RFC 5531) and its encoding (XDR, RFC 4506), as used by NFS, MOUNT and the portmapper. Of
//! the programs, only the portmapper is implemented here.

pub mod auth;
pub mod client;
pub mod decode;
pub mod message;
pub mod portmap;
pub mod record;
pub mod server;
pub mod xdr;

pub use self::portmap::Portmapper;
pub use self::server::{DuplicateCache, Peer, RequestKey};
pub use auth::Credentials;
pub use client::ControlCall;
pub use message::{AcceptStatus, Call, HeadError, RpcError, Xid};
pub use portmap::Mapping;
pub use record::{Piece, Records};
pub use server::Server;
pub use xdr::{Encoder, Garbage};
