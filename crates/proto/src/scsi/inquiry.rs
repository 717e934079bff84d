//! INQUIRY (SPC-5 §6.6).

use alloc::vec::Vec;

use super::{
    call::{Call, Handled, answer},
    inquiry_fields::{peripheral, put_ascii},
    sense::Sense,
    vpd,
};

/// VERSION DESCRIPTORs (SPC-5 §6.6.2), the transport's behind the first.
const SAM_5: u16 = 0x00a0;
const SPC_4: u16 = 0x0460;
const SBC_3: u16 = 0x04c0;

pub(crate) fn inquiry(call: &mut Call<'_>) -> Handled {
    let allocation_len = call.cdb.u16(3);
    let (evpd, page) = (call.cdb.bit(1, 0), call.cdb.u8(2));
    let data = match (evpd, page) {
        (false, 0) => standard(call),
        (false, _) => return Err(Sense::cdb_field(2, None).into()),
        (true, page) => vpd::page(call, page)?,
    };
    answer(data, allocation_len)
}

fn standard(call: &Call<'_>) -> Vec<u8> {
    let mut data = alloc::vec![0; 96];
    data[0] = peripheral(call);
    data[2] = 0x06; // VERSION: SPC-4
    data[3] = 0x12; // HISUP, RESPONSE DATA FORMAT 2
    data[4] = (data.len() - 5) as u8;
    data[7] = 0x02; // CMDQUE
    call.with_device(|device| {
        put_ascii(&mut data[8..16], &device.identity.vendor);
        put_ascii(&mut data[16..32], &device.identity.product);
        put_ascii(&mut data[32..36], &device.identity.revision);
    });
    let versions = [SAM_5, call.nexus.ports.transport.version_descriptor, SPC_4, SBC_3];
    for (field, version) in data[58..].chunks_exact_mut(2).zip(versions) {
        field.copy_from_slice(&version.to_be_bytes());
    }
    data
}
