//! Operations on a memory volume that are more than a copy.

use iotax_proto::{Allocation, Payload, Region};

const PIECE: usize = 4096;
static ZEROS: [u8; PIECE] = [0; PIECE];

pub(super) fn write_zeroes(region: &dyn Region, offset: u64, len: u64) {
    for at in (offset..offset + len).step_by(PIECE) {
        region.copy_in(at as usize, &ZEROS[..PIECE.min((offset + len - at) as usize)]);
    }
}

/// Writes a pattern over `len` bytes, a multiple of the pattern's length.
pub(super) fn repeat(region: &dyn Region, offset: u64, len: u64, pattern: &Payload) {
    // If the pattern is short, many copies are written at a time.
    let bytes = pattern.to_vec();
    let many = bytes.repeat((PIECE / bytes.len().max(1)).max(1));
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let piece = &many[..many.len().min((end - at) as usize)];
        region.copy_in(at as usize, piece);
        at += piece.len() as u64;
    }
}

/// Where `bytes` first differ from the region at `offset`.
pub(super) fn first_difference(region: &dyn Region, offset: usize, bytes: &[u8]) -> Option<usize> {
    let mut held = [0; PIECE];
    for (at, piece) in (0..).step_by(PIECE).zip(bytes.chunks(PIECE)) {
        let held = &mut held[..piece.len()];
        region.copy_out(offset + at, held);
        if held != piece {
            return held.iter().zip(piece).position(|(held, sent)| held != sent).map(|differs| at + differs);
        }
    }
    None
}

/// Where a payload's bytes first differ from the region at `offset`.
pub(super) fn first_difference_of(region: &dyn Region, offset: usize, payload: &Payload) -> Option<usize> {
    let (mut at, mut found) = (0, None);
    payload.for_each_piece(|piece| {
        if found.is_none() {
            found = first_difference(region, offset + at, piece).map(|differs| at + differs);
        }
        at += piece.len();
    });
    found
}

pub(super) fn copy_in(region: &dyn Region, offset: usize, payload: &Payload) {
    let mut at = offset;
    payload.for_each_piece(|piece| {
        region.copy_in(at, piece);
        at += piece.len();
    });
}

/// The run of bytes from `offset` to at most `len` whose pieces are either all zero, or all contain data.
pub(super) fn allocation(region: &dyn Region, offset: u64, len: u64) -> Allocation {
    let mut held = [0; PIECE];
    let mut run = Allocation { is_mapped: false, len: 0 };
    while run.len < len {
        // Pieces are aligned, except the first.
        let at = offset + run.len;
        let piece = &mut held[..(PIECE - at as usize % PIECE).min((len - run.len) as usize)];
        region.copy_out(at as usize, piece);
        let is_mapped = *piece != ZEROS[..piece.len()];
        if run.len == 0 {
            run.is_mapped = is_mapped;
        } else if run.is_mapped != is_mapped {
            break;
        }
        run.len += piece.len() as u64;
    }
    run
}

/// Sets the bits that are set in the payload.
pub(super) fn or_in(region: &dyn Region, offset: usize, payload: &Payload) {
    let (mut at, mut held) = (offset, [0; PIECE]);
    payload.for_each_piece(|piece| {
        for sent in piece.chunks(PIECE) {
            let held = &mut held[..sent.len()];
            region.copy_out(at, held);
            held.iter_mut().zip(sent).for_each(|(held, sent)| *held |= sent);
            region.copy_in(at, held);
            at += sent.len();
        }
    });
}

pub(super) fn is_zero(payload: &Payload) -> bool {
    let mut zero = true;
    payload.for_each_piece(|piece| zero &= piece.iter().all(|byte| *byte == 0));
    zero
}
