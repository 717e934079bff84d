//! Fields that standard INQUIRY data and vital product data share.

use super::call::Call;

/// No device is here: peripheral qualifier 011b, type 1Fh.
const NO_UNIT: u8 = 0x7f;

/// PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE.
pub(crate) fn peripheral(call: &Call<'_>) -> u8 {
    if call.view.is_some() { 0x00 } else { NO_UNIT }
}

/// Left-aligned ASCII, filled with spaces (SPC-5 §4.3.1).
pub(crate) fn put_ascii(field: &mut [u8], text: &str) {
    let mut bytes = text.bytes().filter(|byte| (0x20..0x7f).contains(byte));
    field.fill_with(|| bytes.next().unwrap_or(b' '));
}
