//! Delivers bytes to a target as a driver does that receives data directly into their place in memory.
#![allow(unreachable_pub, reason = "part of the fuzz targets too")]

use iotax_proto::{Backend, Instant, Target, Violation};

/// Puts the bytes into the place that the target names for them, if it names one. The target receives the rest.
pub fn give<B: Backend, T: Target<B>>(
    target: &mut T,
    now: Instant,
    bytes: &[u8],
    backend: &mut B,
) -> Result<(), Violation> {
    let mut rest = bytes;
    if let Some(place) = target.place(1, backend) {
        let (placed, behind) = bytes.split_at(place.len().min(bytes.len()));
        place.copy_in(0, placed);
        target.placed(now, placed.len(), backend)?;
        rest = behind;
    }
    if rest.is_empty() { Ok(()) } else { target.receive(now, rest, backend).map(|_| ()) }
}
