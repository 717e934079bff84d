//! A logical unit in endpoints, servers and facts, for any transport of SCSI.

use iotax_proto::scsi::{LogicalUnit, Provisioning, ScsiBackend, initiator::Inquiry};

use crate::{
    server::{ServerBackend, ServerConfig, identity},
    volume::{BLOCK_SIZE, Media, unit_of},
};

/// Memory has pages of eight blocks.
const PAGES_EXPONENT: u8 = (4096 / BLOCK_SIZE).ilog2() as u8;

/// Parses the LUN at the end of an endpoint, behind its target's name.
pub(super) fn parse_lun(lun: &str, target_name: &str) -> Result<u16, String> {
    let lun: u64 = lun.parse().map_err(|_| format!("'{lun}' is not a LUN: a number must follow the {target_name}"))?;
    u16::try_from(lun).map_err(|_| "a LUN is at most 65535".to_owned())
}

/// How a logical unit identified itself.
pub(super) fn identity_facts(inquiry: Option<&Inquiry>, serial: Option<&str>) -> Vec<(&'static str, String)> {
    let inquiry = inquiry.map(|Inquiry { vendor, product, revision, .. }| {
        [("vendor", vendor.clone()), ("product", product.clone()), ("revision", revision.clone())]
    });
    let serial = serial.map(|serial| ("serial", serial.to_owned()));
    inquiry.into_iter().flatten().chain(serial).collect()
}

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

impl ScsiBackend for ServerBackend {
    fn notify_others(&mut self) {
        self.state.server.notifier.notify();
    }
}
