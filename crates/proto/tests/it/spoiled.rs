//! The bytes of a correct peer, corrupted at random and split at random.

use arbtest::arbitrary::{Result as Arbitrary, Unstructured};

/// Changes, removes or inserts some bytes, or truncates the stream.
pub(crate) fn spoil(u: &mut Unstructured<'_>, honest: &[u8]) -> Arbitrary<Vec<u8>> {
    let mut bytes = honest.to_vec();
    for _ in 0..u.int_in_range(1..=8)? {
        let at = u.choose_index(bytes.len())?;
        match u.int_in_range(0..=4)? {
            0 => bytes[at] = u.arbitrary()?,
            1 => bytes[at] ^= 1 << u.int_in_range(0..=7)?,
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, u.arbitrary()?),
            _ => bytes.truncate(at + 1),
        }
    }
    Ok(bytes)
}

pub(crate) fn pieces<'a>(u: &mut Unstructured<'_>, bytes: &'a [u8]) -> Arbitrary<Vec<&'a [u8]>> {
    let step = *u.choose(&[1, 3, 17, 200, usize::MAX])?;
    Ok(bytes.chunks(step.min(bytes.len().max(1))).collect())
}
