//! Text fields of fixed length.

use alloc::string::String;

use crate::wire::printable;

/// Writes ASCII padded with spaces, as in Identify (NVMe base 2.1 §1.4.2).
pub(crate) fn padded(text: &str, field: &mut [u8]) {
    field.fill(b' ');
    zero_filled(text, field);
}

/// Writes UTF-8 padded with zeros, as in NQNs and transport addresses. Truncates what does not fit.
pub(crate) fn zero_filled(text: &str, field: &mut [u8]) {
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
}

/// Returns the text before the padding, in printable form.
pub(crate) fn parse(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    let text = field.get(..end).unwrap_or_default();
    String::from(printable(text).trim_end_matches(' '))
}
