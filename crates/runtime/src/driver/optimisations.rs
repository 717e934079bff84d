//! Optimisations of the I/O path; each can be turned off.

use std::str::FromStr;

/// All are on, unless the effect of one is measured (`raw_limit --without`).
#[derive(Clone, Copy, Debug)]
pub struct Optimisations {
    /// The first receives of a streak are small (`FIRST_RECEIVE_BYTES`).
    pub pieces: bool,
    /// The first bytes of payloads are prefetched before a send (`PREFETCH_BYTES`).
    pub prefetch: bool,
    /// Connections within the machine use Reno for congestion control.
    pub reno: bool,
}

impl Default for Optimisations {
    fn default() -> Self {
        Self { pieces: true, prefetch: true, reno: true }
    }
}

impl FromStr for Optimisations {
    type Err = String;

    /// All optimisations except the one with this name.
    fn from_str(without: &str) -> Result<Self, String> {
        let mut optimisations = Self::default();
        match without {
            "pieces" => optimisations.pieces = false,
            "prefetch" => optimisations.prefetch = false,
            "reno" => optimisations.reno = false,
            _ => return Err(format!("there is no optimisation {without:?}: pieces, prefetch, reno")),
        }
        Ok(optimisations)
    }
}
