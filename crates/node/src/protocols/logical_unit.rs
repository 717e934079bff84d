//! An export as SCSI shows it, whatever transports it.

use iotax_proto::scsi::{LogicalUnit, Provisioning};

use crate::{
    server::{ServerConfig, identity},
    volume::{BLOCK_SIZE, Media, unit_of},
};

/// Memory comes in pages of eight blocks.
const PAGES_EXPONENT: u8 = (4096 / BLOCK_SIZE).ilog2() as u8;

/// LUN 0 of the export's target.
pub(super) fn logical_unit(config: &ServerConfig, index: usize) -> LogicalUnit {
    let export = &config.exports[index];
    let volume = &config.volumes[export.volume];
    LogicalUnit {
        provisioning: Provisioning::Thin { reads_zero: true },
        write_cache: matches!(volume.media, Media::Disk { .. }),
        physical_block_exponent: if volume.media == Media::Memory { PAGES_EXPONENT } else { 0 },
        erasable: volume.media == Media::Memory,
        ..LogicalUnit::new(0, unit_of(export.volume, export.read_only), &identity::serial(&volume.name))
    }
}
