//! Text fields of fixed length.

use alloc::string::String;

use crate::wire::printable;

/// ASCII padded with spaces, as in Identify (NVMe base 2.1 §1.4.2).
pub(crate) fn padded(text: &str, field: &mut [u8]) {
    field.fill(b' ');
    zero_filled(text, field);
}

/// UTF-8 followed by zeros, as NQNs and transport addresses; what does not fit is cut.
pub(crate) fn zero_filled(text: &str, field: &mut [u8]) {
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
}

/// The text before the padding, to be shown as it is.
pub(crate) fn parse(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    let text = field.get(..end).unwrap_or_default();
    String::from(printable(text).trim_end_matches(' '))
}
