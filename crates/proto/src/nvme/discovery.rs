//! The discovery log page: NVMe base 2.1 §5.1.12.3.1.

use alloc::{string::String, vec, vec::Vec};

use super::{ControllerId, ascii, subsystem::DiscoveryLog};

/// The well-known NQN of the discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

pub const HEADER_LEN: usize = 1024;
pub const ENTRY_LEN: usize = 1024;

const TRTYPE_TCP: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    Ipv4,
    Ipv6,
    /// The code in the log.
    Other(u8),
}

/// The kind of subsystem that an entry's address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubsystemType {
    /// Another discovery service.
    Referral,
    Nvm,
    /// The discovery subsystem that returned the log.
    CurrentDiscovery,
    /// The code in the log.
    Other(u8),
}

/// One path to one subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// 3 is TCP.
    pub transport_type: u8,
    pub address_family: AddressFamily,
    pub subsystem_type: SubsystemType,
    pub port_id: u16,
    pub subnqn: String,
    /// Numeric address.
    pub traddr: String,
    /// Decimal port.
    pub trsvcid: String,
}

impl DiscoveryEntry {
    /// An entry for a subsystem at an NVMe/TCP portal.
    pub fn tcp(port_id: u16, subnqn: &str, traddr: &str, trsvcid: &str) -> Self {
        Self {
            transport_type: TRTYPE_TCP,
            address_family: if traddr.contains(':') { AddressFamily::Ipv6 } else { AddressFamily::Ipv4 },
            subsystem_type: if subnqn == DISCOVERY_NQN { SubsystemType::CurrentDiscovery } else { SubsystemType::Nvm },
            port_id,
            subnqn: subnqn.into(),
            traddr: traddr.into(),
            trsvcid: trsvcid.into(),
        }
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes[0] = self.transport_type;
        bytes[1] = match self.address_family {
            AddressFamily::Ipv4 => 1,
            AddressFamily::Ipv6 => 2,
            AddressFamily::Other(code) => code,
        };
        bytes[2] = match self.subsystem_type {
            SubsystemType::Referral => 1,
            SubsystemType::Nvm => 2,
            SubsystemType::CurrentDiscovery => 3,
            SubsystemType::Other(code) => code,
        };
        // TREQ: a secure channel is not required, and SQ flow control may be disabled.
        bytes[3] = 2 | 1 << 2;
        bytes[4..6].copy_from_slice(&self.port_id.to_le_bytes());
        bytes[6..8].copy_from_slice(&ControllerId::ANY.0.to_le_bytes());
        bytes[8..10].copy_from_slice(&ADMIN_QUEUE_ENTRIES.to_le_bytes());
        ascii::padded(&self.trsvcid, &mut bytes[32..64]);
        ascii::zero_filled(&self.subnqn, &mut bytes[256..511]);
        ascii::padded(&self.traddr, &mut bytes[512..768]);
    }

    fn parse(bytes: &[u8; ENTRY_LEN]) -> Self {
        Self {
            transport_type: bytes[0],
            address_family: match bytes[1] {
                1 => AddressFamily::Ipv4,
                2 => AddressFamily::Ipv6,
                code => AddressFamily::Other(code),
            },
            subsystem_type: match bytes[2] {
                1 => SubsystemType::Referral,
                2 => SubsystemType::Nvm,
                3 => SubsystemType::CurrentDiscovery,
                code => SubsystemType::Other(code),
            },
            port_id: u16::from_le_bytes([bytes[4], bytes[5]]),
            subnqn: ascii::parse(&bytes[256..512]),
            traddr: ascii::parse(&bytes[512..768]),
            trsvcid: ascii::parse(&bytes[32..64]),
        }
    }
}

/// Entries that every controller here accepts for an admin queue (ASQSZ; at least 32).
pub const ADMIN_QUEUE_ENTRIES: u16 = 128;

impl DiscoveryLog {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN + ENTRY_LEN * self.entries.len()];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&(self.entries.len() as u64).to_le_bytes());
        for (entry, at) in self.entries.iter().zip(bytes[HEADER_LEN..].chunks_exact_mut(ENTRY_LEN)) {
            entry.encode(at);
        }
        bytes
    }
}

/// Parses the header: generation and number of entries.
pub fn parse_header(bytes: &[u8]) -> Option<(u64, u64)> {
    let generation = bytes.first_chunk::<8>()?;
    let count = bytes.get(8..)?.first_chunk::<8>()?;
    Some((u64::from_le_bytes(*generation), u64::from_le_bytes(*count)))
}

/// Parses the entries after the header.
pub fn parse_entries(bytes: &[u8]) -> Vec<DiscoveryEntry> {
    let (entries, _) = bytes.as_chunks::<ENTRY_LEN>();
    entries.iter().map(DiscoveryEntry::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_log_survives_encoding() {
        let log = DiscoveryLog {
            generation: 4,
            entries: vec![
                DiscoveryEntry::tcp(1, "nqn.a", "127.0.0.1", "4420"),
                DiscoveryEntry::tcp(2, DISCOVERY_NQN, "::1", "8009"),
            ],
        };
        let bytes = log.encode();
        assert_eq!(parse_header(&bytes), Some((4, 2)));
        assert_eq!(parse_entries(&bytes[HEADER_LEN..]), log.entries);
    }
}
