//! Names and numbers of a volume, the same over every protocol and after every start of a server.

use crate::seeded::SeededRng;

/// A constant seed, so that identities depend only on a volume's name.
const SEED: u64 = 0x696f_7461_785f_6964;

/// Name of a volume's iSCSI target.
pub fn iscsi_name(volume: &str) -> String {
    format!("iqn.2026-11.io.iotax:{volume}")
}

/// Name of a volume's NVM subsystem.
pub fn nvme_name(volume: &str) -> String {
    format!("nqn.2026-11.io.iotax:{volume}")
}

/// Node name and port name of a volume's Fibre Channel target, in the locally assigned format (NAA 3).
pub(crate) fn fibre_channel_names(volume: &str) -> (u64, u64) {
    const LOCALLY_ASSIGNED: u64 = 3 << 60;
    let node = LOCALLY_ASSIGNED | SeededRng::new(SEED, volume, 2).draw() >> 8 << 4;
    (node, node | 1)
}

/// 16 hexadecimal digits, for SCSI's unit serial number and NVMe's controller serial number.
pub(crate) fn serial(volume: &str) -> String {
    format!("{:016x}", SeededRng::new(SEED, volume, 0).draw())
}

/// A UUID of version 8 (RFC 9562 §5.8), also used as NVMe's NGUID.
pub(crate) fn uuid(volume: &str) -> [u8; 16] {
    let mut random = SeededRng::new(SEED, volume, 1);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&random.draw().to_be_bytes());
    id[8..].copy_from_slice(&random.draw().to_be_bytes());
    id[6] = id[6] & 0x0f | 0x80;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts keep these numbers in their configuration.
    #[test]
    fn identity_is_fixed_by_the_name() {
        assert_eq!(serial("v0"), serial("v0"));
        assert_ne!(serial("v0"), serial("v1"));
        assert_eq!(serial("v0").len(), 16);
        let id = uuid("v0");
        assert_eq!((id[6] >> 4, id[8] >> 6), (8, 2));
        assert_ne!(id, uuid("v1"));
    }
}
