//! INQUIRY and its vital product data (SPC-5 §6.6, §7.7; SBC-4 §6.6).

use alloc::vec::Vec;

use super::{
    call::{Call, Handled, answer},
    sense::Sense,
};

/// No device is here (peripheral qualifier 011b, type 1Fh).
const NO_UNIT: u8 = 0x7f;

pub(crate) fn inquiry(call: &mut Call<'_>) -> Handled {
    let allocation_len = call.cdb.u16(3);
    let (evpd, page) = (call.cdb.bit(1, 0), call.cdb.u8(2));
    if evpd || page != 0 {
        return Err(Sense::cdb_field(2, None).into());
    }
    answer(standard(call), allocation_len)
}

fn standard(call: &Call<'_>) -> Vec<u8> {
    let mut data = alloc::vec![0; 96];
    data[0] = if call.view.is_some() { 0x00 } else { NO_UNIT };
    data[2] = 0x06; // VERSION: SPC-4
    data[3] = 0x12; // HISUP, RESPONSE DATA FORMAT 2
    data[4] = (data.len() - 5) as u8;
    data[7] = 0x02; // CMDQUE
    call.with_device(|device| {
        put_ascii(&mut data[8..16], &device.identity.vendor);
        put_ascii(&mut data[16..32], &device.identity.product);
        put_ascii(&mut data[32..36], &device.identity.revision);
    });
    data
}

/// Left-aligned ASCII, filled with spaces (SPC-5 §4.3.1).
fn put_ascii(field: &mut [u8], text: &str) {
    let mut bytes = text.bytes().filter(|byte| (0x20..0x7f).contains(byte));
    field.fill_with(|| bytes.next().unwrap_or(b' '));
}
