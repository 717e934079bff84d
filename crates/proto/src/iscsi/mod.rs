//! iSCSI (RFC 7143): initiator and target. The README beside this file says which states there are, which limits hold and what
//! is not implemented.

pub mod chap;
pub mod decode;
mod discovered;
pub mod initiator;
mod keys;
pub mod negotiate;
pub mod pdu;
mod serial;
pub mod target_side;
pub mod text;

pub use chap::Credentials;
pub use discovered::DiscoveredTarget;
pub use negotiate::{Agreed, DigestWish, Wishes};
