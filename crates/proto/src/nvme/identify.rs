//! Identify data structures: NVMe base 2.1 §5.1.13, NVM command set 1.1 §4.1.5.

use alloc::{string::String, vec, vec::Vec};

use super::{
    ControllerId, ana, ascii,
    command::SQE_LEN,
    property, reserve,
    subsystem::{MAX_NSID, Namespace, SubsystemConfig},
};
use crate::Geometry;

/// Every Identify data structure has this length.
pub const LEN: usize = 4096;

/// CNS values.
pub mod cns {
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    pub const NAMESPACE_OF_COMMAND_SET: u8 = 0x05;
    pub const CONTROLLER_OF_COMMAND_SET: u8 = 0x06;
    pub const ACTIVE_NAMESPACES_OF_COMMAND_SET: u8 = 0x07;
    pub const NAMESPACE_INDEPENDENT: u8 = 0x08;
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// The NVM command set.
pub const CSI_NVM: u8 = 0;

/// Minimum block size of a namespace (LBADS is at least 9).
const MIN_BLOCK_SIZE_BYTES: u32 = 512;

/// CMIC: the subsystem reports ANA.
const CMIC_ANA: u8 = 1 << 3;
const CNTRLTYPE_IO: u8 = 1;
const CNTRLTYPE_DISCOVERY: u8 = 2;
pub const ONCS_COMPARE: u16 = 1;
pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
pub const ONCS_RESERVATIONS: u16 = 1 << 5;
const ONCS: u16 = ONCS_COMPARE | ONCS_DATASET_MANAGEMENT | ONCS_WRITE_ZEROES | ONCS_RESERVATIONS;
/// A volatile write cache is present; a flush of NSID FFFFFFFFh is not supported.
const VWC_PRESENT: u8 = 1 | 2 << 1;
/// SGLs are supported without alignment, and an address may be an offset.
const SGLS: u32 = 1 | 1 << 20;
/// CTRATT: host identifiers have 128 bits.
const CTRATT: u32 = 1;
/// CTRATT: any command restarts the keep-alive timer.
const CTRATT_TBKAS: u32 = 1 << 6;
/// Attribute and discovery notices that a host may enable.
pub const OAES_NAMESPACE: u32 = 1 << 8;
pub const OAES_ANA: u32 = 1 << 11;
pub const OAES_DISCOVERY: u32 = 1 << 31;
/// The Commands Supported and Effects log, and offsets and long lengths in Get Log Page, are supported.
const LPA: u8 = 1 << 1 | 1 << 2;
/// Keep Alive timer in units of 100 ms.
const KAS: u16 = 1;
/// Maximum outstanding Asynchronous Event Requests.
pub const MAX_ASYNC_EVENTS: usize = 4;
/// CQE in 16-byte units: completions carry no data.
const IORCSZ: u32 = 1;

/// Limits of a controller that its transport and configuration set.
#[derive(Clone, Copy, Debug)]
pub struct ControllerLimits {
    /// Maximum bytes of in-capsule data of an I/O command.
    pub in_capsule_bytes: u32,
    /// A power of two, at least 8192. 4096 would give an MDTS of 0, which means no limit.
    pub max_transfer_bytes: u32,
    /// Maximum entries of an I/O queue, including the one that flow control keeps free.
    pub max_queue_entries: u16,
}

/// Encodes CNS 01h.
pub fn controller(
    config: &SubsystemConfig,
    is_discovery: bool,
    cntlid: ControllerId,
    limits: &ControllerLimits,
) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    ascii::padded(&config.serial, &mut bytes[4..24]);
    ascii::padded(&config.model, &mut bytes[24..64]);
    ascii::padded(&config.firmware, &mut bytes[64..72]);
    // CMIC: the subsystem may have several ports and several controllers, and an I/O controller reports ANA.
    bytes[76] = 1 | 1 << 1 | if is_discovery { 0 } else { CMIC_ANA };
    assert!(limits.max_transfer_bytes >= 8192, "NVMe base 2.1 §5.1.13.2.1: MDTS of 0 says that there is no limit");
    bytes[77] = (limits.max_transfer_bytes / 4096).ilog2() as u8;
    bytes[78..80].copy_from_slice(&cntlid.0.to_le_bytes());
    bytes[80..84].copy_from_slice(&property::VERSION.to_le_bytes());
    let oaes = if is_discovery { OAES_DISCOVERY } else { OAES_NAMESPACE | OAES_ANA };
    bytes[92..96].copy_from_slice(&oaes.to_le_bytes());
    bytes[96..100].copy_from_slice(&CTRATT.to_le_bytes());
    bytes[111] = if is_discovery { CNTRLTYPE_DISCOVERY } else { CNTRLTYPE_IO };
    // ACL and AERL are 0's based.
    bytes[258] = 3;
    bytes[259] = MAX_ASYNC_EVENTS as u8 - 1;
    // FRMW: one slot, read-only.
    bytes[260] = 1 | 1 << 1;
    bytes[261] = LPA;
    bytes[320..322].copy_from_slice(&KAS.to_le_bytes());
    bytes[514..516].copy_from_slice(&limits.max_queue_entries.to_le_bytes());
    bytes[536..540].copy_from_slice(&SGLS.to_le_bytes());
    ascii::zero_filled(&config.nqn, &mut bytes[768..1023]);
    if !is_discovery {
        // Entry sizes, required and maximum: 64 and 16 bytes.
        bytes[512] = 0x66;
        bytes[513] = 0x44;
        bytes[516..520].copy_from_slice(&MAX_NSID.to_le_bytes());
        bytes[520..522].copy_from_slice(&ONCS.to_le_bytes());
        bytes[525] = VWC_PRESENT;
        // ANATT in seconds, ANACAP, ANAGRPMAX, NANAGRPID: one group for all namespaces.
        bytes[342] = 10;
        bytes[343] = ana::CAPABILITIES;
        bytes[344..348].copy_from_slice(&ana::GROUP.to_le_bytes());
        bytes[348..352].copy_from_slice(&ana::GROUP.to_le_bytes());
        bytes[540..544].copy_from_slice(&MAX_NSID.to_le_bytes());
        let ioccsz = (SQE_LEN as u32 + limits.in_capsule_bytes) / 16;
        bytes[1792..1796].copy_from_slice(&ioccsz.to_le_bytes());
        bytes[1796..1800].copy_from_slice(&IORCSZ.to_le_bytes());
    }
    // MSDBD: one SGL descriptor per command. OFCS: Disconnect is supported.
    bytes[1803] = 1;
    bytes[1804] = 1;
    bytes
}

/// Block size of the namespace that exports a unit: a power of two.
pub fn block_size(geometry: &Geometry) -> u32 {
    geometry.block_size.max(MIN_BLOCK_SIZE_BYTES).next_power_of_two()
}

/// Encodes CNS 00h of an active namespace. An inactive one is all zeros.
///
/// NUSE of a namespace that is not accessible is cleared (NVMe base 2.1 §8.1.1.6). NSZE and NCAP stay, as with Linux's
/// target, so that a host can learn the size over such a path.
pub fn namespace(namespace: &Namespace, geometry: &Geometry, is_accessible: bool) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    let block_size = block_size(geometry);
    let blocks = geometry.size_bytes / u64::from(block_size);
    for at in [0, 8, 16].into_iter().take(if is_accessible { 3 } else { 2 }) {
        bytes[at..at + 8].copy_from_slice(&blocks.to_le_bytes());
    }
    bytes[30] = NMIC_SHARED;
    bytes[31] = reserve::CAPABILITIES;
    bytes[92..96].copy_from_slice(&ana::GROUP.to_le_bytes());
    bytes[99] = u8::from(geometry.read_only);
    bytes[104..120].copy_from_slice(&namespace.nguid);
    bytes[120..128].copy_from_slice(&namespace.eui64);
    bytes[130] = block_size.ilog2() as u8;
    bytes
}

const NMIC_SHARED: u8 = 1;

/// Encodes CNS 08h: fields that are common to the namespaces of all command sets.
pub fn namespace_independent(geometry: &Geometry) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[1] = NMIC_SHARED;
    bytes[2] = reserve::CAPABILITIES;
    bytes[4..8].copy_from_slice(&ana::GROUP.to_le_bytes());
    bytes[8] = u8::from(geometry.read_only);
    // NSTAT: ready.
    bytes[14] = 1;
    bytes
}

/// Encodes CNS 02h and 07h: up to 1,024 NSIDs above `after`.
pub fn active_namespaces(namespaces: &[Namespace], after: u32) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    let above = namespaces.iter().map(|namespace| namespace.nsid).filter(|nsid| *nsid > after);
    for (nsid, at) in above.zip(bytes.chunks_exact_mut(4)) {
        at.copy_from_slice(&nsid.to_le_bytes());
    }
    bytes
}

/// Encodes CNS 03h: those of EUI64, NGUID and UUID that the namespace has, then the command set.
pub fn namespace_descriptors(namespace: &Namespace) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LEN);
    let mut put = |kind: u8, id: &[u8]| {
        if id.iter().any(|byte| *byte != 0) || kind == 4 {
            bytes.extend_from_slice(&[kind, id.len() as u8, 0, 0]);
            bytes.extend_from_slice(id);
        }
    };
    put(1, &namespace.eui64);
    put(2, &namespace.nguid);
    put(3, &namespace.uuid);
    put(4, &[CSI_NVM]);
    bytes.resize(LEN, 0);
    bytes
}

/// Encodes CNS 1Ch: one combination, which is the NVM command set alone.
pub fn command_sets() -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[0] = 1;
    bytes
}

/// The fields of CNS 01h that a host needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerFields {
    pub serial: String,
    pub model: String,
    pub firmware: String,
    pub cntlid: ControllerId,
    /// Any command restarts the keep-alive timer, not only Keep Alive (TBKAS).
    pub counts_traffic: bool,
    /// Command Quiesce Time: within it the controller ends outstanding commands after it has lost the host.
    pub quiesce_ms: u16,
    /// Power of two, in units of the minimum page size; 0 means no limit.
    pub mdts: u8,
    /// Granularity of Keep Alive in 100 ms; 0 if the command is not supported.
    pub kas: u16,
    /// SGLs are supported, as fabrics require.
    pub has_sgl: bool,
    /// Disconnect is supported.
    pub has_disconnect: bool,
    /// Optional commands: `ONCS_DATASET_MANAGEMENT` etc.
    pub optional_commands: u16,
    /// Maximum bytes of in-capsule data of an I/O command.
    pub in_capsule_bytes: u32,
    /// Unit: 16 bytes. It must be 0 over TCP.
    pub in_capsule_offset: u16,
    pub max_outstanding: u16,
    /// Number of ANA groups (NANAGRPID); 0 if the subsystem does not report ANA.
    pub ana_groups: u32,
    /// Asynchronous events that a host may enable: `OAES_ANA` etc.
    pub optional_events: u32,
}

pub fn parse_controller(bytes: &[u8; LEN]) -> ControllerFields {
    ControllerFields {
        serial: ascii::parse(&bytes[4..24]),
        model: ascii::parse(&bytes[24..64]),
        firmware: ascii::parse(&bytes[64..72]),
        cntlid: ControllerId(u16_at(bytes, 78)),
        counts_traffic: u32_at(bytes, 96) & CTRATT_TBKAS != 0,
        quiesce_ms: u16_at(bytes, 386),
        mdts: bytes[77],
        kas: u16_at(bytes, 320),
        has_sgl: bytes[536] & 3 != 0,
        has_disconnect: bytes[1804] & 1 != 0,
        optional_commands: u16_at(bytes, 520),
        in_capsule_bytes: u32_at(bytes, 1792).saturating_mul(16).saturating_sub(SQE_LEN as u32),
        in_capsule_offset: u16_at(bytes, 1800),
        max_outstanding: u16_at(bytes, 514),
        ana_groups: if bytes[76] & CMIC_ANA == 0 { 0 } else { u32_at(bytes, 348) },
        optional_events: u32_at(bytes, 92),
    }
}

/// The fields of CNS 00h that a host needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceFields {
    pub blocks: u64,
    pub block_shift: u8,
    pub metadata_bytes: u16,
    pub read_only: bool,
    pub nguid: [u8; 16],
    pub eui64: [u8; 8],
    pub ana_group: u32,
}

/// Parses CNS 00h; `None` if the format in use is not in the list.
pub fn parse_namespace(bytes: &[u8; LEN]) -> Option<NamespaceFields> {
    // FLBAS: bits 3:0 are the low bits of the index, 6:5 the high ones.
    let format = usize::from(bytes[26] & 0xf | bytes[26] >> 1 & 0x30);
    let at = 128 + 4 * format;
    let descriptor = bytes.get(at..at + 4)?;
    let mut nguid = [0; 16];
    nguid.copy_from_slice(&bytes[104..120]);
    let mut eui64 = [0; 8];
    eui64.copy_from_slice(&bytes[120..128]);
    Some(NamespaceFields {
        blocks: u64::from(u32_at(bytes, 0)) | u64::from(u32_at(bytes, 4)) << 32,
        block_shift: descriptor[2],
        metadata_bytes: u16::from_le_bytes([descriptor[0], descriptor[1]]),
        read_only: bytes[99] & 1 != 0,
        nguid,
        eui64,
        ana_group: u32_at(bytes, 92),
    })
}

/// The first NSID of an active namespace list.
pub fn first_active(bytes: &[u8; LEN]) -> Option<u32> {
    Some(u32_at(bytes, 0)).filter(|nsid| *nsid != 0)
}

fn u16_at(bytes: &[u8; LEN], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8; LEN], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UnitId;

    #[test]
    fn controller_fields_survive_encoding() {
        let limits = ControllerLimits { in_capsule_bytes: 16_384, max_transfer_bytes: 1 << 20, max_queue_entries: 128 };
        let bytes = controller(&SubsystemConfig::new("nqn.s"), false, ControllerId(9), &limits);
        let fields = parse_controller(bytes.first_chunk().expect("4096 bytes"));
        assert_eq!((fields.cntlid, fields.mdts, fields.in_capsule_bytes), (ControllerId(9), 8, 16_384));
        assert_eq!(fields.model, "iotax");
        assert_eq!(fields.optional_commands, ONCS);
        assert!(fields.has_sgl && fields.has_disconnect);
        assert_eq!((fields.ana_groups, fields.optional_events), (1, OAES_NAMESPACE | OAES_ANA));
        let discovery = controller(&SubsystemConfig::discovery(), true, ControllerId(9), &limits);
        assert_eq!(parse_controller(discovery.first_chunk().expect("4096 bytes")).ana_groups, 0);
    }

    #[test]
    fn namespace_fields_survive_encoding() {
        let geometry = Geometry { size_bytes: 1 << 20, block_size: 4096, max_io_bytes: 1 << 20, read_only: true };
        let known = Namespace { nsid: 1, unit: UnitId(1), nguid: [3; 16], uuid: [4; 16], eui64: [5; 8] };
        let fields =
            parse_namespace(namespace(&known, &geometry, true).first_chunk().expect("4096 bytes")).expect("format 0");
        assert_eq!((fields.blocks, fields.block_shift, fields.read_only), (256, 12, true));
        assert_eq!((fields.nguid, fields.eui64, fields.ana_group), ([3; 16], [5; 8], ana::GROUP));
    }

    #[test]
    fn active_list_starts_above_the_nsid_given() {
        let of = |nsid| Namespace { nsid, unit: UnitId(0), nguid: [0; 16], uuid: [0; 16], eui64: [0; 8] };
        let list = active_namespaces(&[of(1), of(5), of(9)], 1);
        assert_eq!(&list[..12], &[5, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    }
}
