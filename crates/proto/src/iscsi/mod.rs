//! iSCSI (RFC 7143): initiator and target. README.md in this folder describes states, limits and what is not
//! implemented.

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
