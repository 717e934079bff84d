//! What discovery tells of a target.

use alloc::{string::String, vec::Vec};

/// A target in an answer to SendTargets (RFC 7143 §C).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredTarget {
    pub name: String,
    /// `address:port,portal-group-tag`. None says that the target is at the portal that was asked, which libiscsi does not
    /// understand: name one.
    pub portals: Vec<String>,
}
