//! READ CAPACITY (10) and (16) (SBC-4 §5.17 and §5.18).

use super::{
    call::{Call, Handled, answer},
    lun::LunView,
    sense::Sense,
};

pub(crate) fn read_capacity_10(call: &mut Call<'_>) -> Handled {
    let view = current(call)?;
    // More blocks than fit say "use READ CAPACITY (16)".
    let last = u32::try_from(view.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
    let mut data = last.to_be_bytes().to_vec();
    data.extend_from_slice(&view.block_size.to_be_bytes());
    answer(data, 8u32)
}

pub(crate) fn read_capacity_16(call: &mut Call<'_>) -> Handled {
    let view = current(call)?;
    let mut data = view.blocks.saturating_sub(1).to_be_bytes().to_vec();
    data.extend_from_slice(&view.block_size.to_be_bytes());
    data.resize(32, 0);
    data[13] = view.physical_block_exponent & 0x0f;
    // LBPME and LBPRZ.
    data[14] = u8::from(view.is_thin()) << 7 | u8::from(view.unmapped_reads_zero()) << 6;
    answer(data, call.cdb.u32(10))
}

/// The capacity is asked of the volume each time, and where it changed all nexuses look again.
fn current(call: &Call<'_>) -> Result<LunView, super::fault::Fault> {
    let mut view = call.unit()?;
    let geometry = call.backend.geometry(view.unit).ok_or(Sense::MEDIUM_NOT_PRESENT)?;
    let blocks = geometry.size_bytes / u64::from(view.block_size);
    if blocks != view.blocks {
        view.blocks = blocks;
        call.with_device(|device| device.touch());
    }
    Ok(view)
}
