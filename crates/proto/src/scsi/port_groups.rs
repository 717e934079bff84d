//! REPORT TARGET PORT GROUPS (SPC-4 §5.15).

use alloc::vec::Vec;

use super::{
    call::{Call, Handled, answer},
    sense::Sense,
};

/// Reports all groups, with a header of the length only, or with the extended header, in which an implicit
/// transition takes an unspecified time.
pub(crate) fn report_target_port_groups(call: &mut Call<'_>) -> Handled {
    let extension: &[u8] = match call.cdb.u8(1) >> 5 {
        0 => &[],
        1 => &[0x10, 0, 0, 0],
        _ => return Err(Sense::cdb_field(1, Some(7)).into()),
    };
    let mut data = [&[0; 4], extension].concat();
    call.with_device(|device| {
        let descriptors: Vec<_> = device.port_groups.iter().map(|group| group.encode()).collect();
        data.extend_from_slice(descriptors.as_flattened());
    });
    let len = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&len.to_be_bytes());
    answer(data, call.cdb.u32(6))
}
