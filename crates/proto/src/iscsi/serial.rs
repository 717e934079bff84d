//! Serial number arithmetic of CmdSN and StatSN (RFC 7143 §4.2.2, RFC 1982).

/// Whether `left` comes before `right` in a space that wraps around.
pub(super) fn is_before(left: u32, right: u32) -> bool {
    left.wrapping_sub(right).cast_signed() < 0
}
