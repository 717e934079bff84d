//! Optimisations of an I/O; each can be turned off.

use std::str::FromStr;

/// All on, except to measure what one of them brings (`raw_limit --without`).
#[derive(Clone, Copy, Debug)]
pub struct Optimisations {
    /// Receives are small at the start of a streak (`FIRST_RECEIVE_BYTES`).
    pub pieces: bool,
    /// The beginnings of payloads are fetched into the cache before a send (`PREFETCH_BYTES`).
    pub prefetch: bool,
    /// Connections that stay on the machine have Reno for congestion control.
    pub reno: bool,
}

impl Default for Optimisations {
    fn default() -> Self {
        Self { pieces: true, prefetch: true, reno: true }
    }
}

impl FromStr for Optimisations {
    type Err = String;

    /// All but the one of this name.
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
