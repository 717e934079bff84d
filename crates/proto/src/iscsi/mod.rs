//! iSCSI (RFC 7143): initiator and target. The README beside this file says which states there are, which limits hold and what
//! is not implemented.

pub mod chap;
pub mod decode;
pub mod initiator;
pub mod negotiate;
pub mod pdu;
pub mod target_side;
pub mod text;

pub use self::text::DiscoveredTarget;
pub use chap::Credentials;
pub use negotiate::{Agreed, DigestWish, Wishes};
