//! Secrets that both sides of an authentication know.

pub use iotax_proto::{iscsi::Credentials, nvme::auth};

/// Secrets of CHAP. They are never shown by `Debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    pub initiator: Credentials,
    /// Credentials of the target (mutual CHAP): ours if we are the target, otherwise those it must prove.
    pub target: Option<Credentials>,
}
