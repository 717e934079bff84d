//! What the two sides of an authentication know, whichever of them we are.

pub use iotax_proto::{iscsi::Credentials, nvme::auth};

/// Secrets of CHAP. No `Debug` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    pub initiator: Credentials,
    /// The target's: ours, for initiators that ask us to prove ourselves as well, or what it must prove to us (mutual CHAP).
    pub target: Option<Credentials>,
}
