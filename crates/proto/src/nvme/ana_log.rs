//! The Asymmetric Namespace Access log page (0Ch): NVMe base 2.1 §5.1.12.1.13.

use alloc::{vec, vec::Vec};

use super::{
    Sqe,
    ana::{AnaState, GROUP, PortAccess},
    command::{CommandId, log_id},
    log::GetLogPage,
    subsystem::{MAX_NSID, Namespace},
};

/// Log Specific Parameter of the log: groups without their namespaces.
pub const GROUPS_ONLY: u8 = 1;
/// Maximum groups that a host reads, so that the answer has at most 32 KiB.
pub const GROUPS_MAX: u32 = 1024;

const HEADER_LEN: usize = 16;
const GROUP_LEN: usize = 32;
/// Header, one group and its namespaces.
const LOG_LEN: usize = HEADER_LEN + GROUP_LEN + 4 * MAX_NSID as usize;

/// Encodes the log. Hosts request the maximum size, possibly in pieces, so it always has that size. `generation` rises
/// with every change of the namespaces.
pub fn encode(namespaces: &[Namespace], generation: u64, access: PortAccess, groups_only: bool) -> Vec<u8> {
    let listed = if groups_only { &[] } else { namespaces };
    let changes = generation.wrapping_add(access.changes);
    let mut bytes = vec![0; HEADER_LEN];
    bytes[..8].copy_from_slice(&changes.to_le_bytes());
    bytes[8..10].copy_from_slice(&1_u16.to_le_bytes());
    let mut group = [0; GROUP_LEN];
    group[..4].copy_from_slice(&GROUP.to_le_bytes());
    group[4..8].copy_from_slice(&(listed.len() as u32).to_le_bytes());
    group[8..16].copy_from_slice(&changes.to_le_bytes());
    group[16] = access.state as u8;
    bytes.extend_from_slice(&group);
    for namespace in listed {
        bytes.extend_from_slice(&namespace.nsid.to_le_bytes());
    }
    bytes.resize(LOG_LEN, 0);
    bytes
}

/// The command that reads the log of a controller with so many groups, without namespaces, and the length of the answer.
pub fn read(groups: u32) -> (Sqe, u32) {
    let len = (HEADER_LEN + GROUP_LEN * groups.clamp(1, GROUPS_MAX) as usize) as u32;
    let mut sqe = GetLogPage::sqe(log_id::ANA, len, 0, CommandId(0));
    sqe.set_cdw(10, sqe.cdw(10) | u32::from(GROUPS_ONLY) << 8);
    (sqe, len)
}

/// The state of a group in an answer to `read`; `None` if the log does not contain the group, or not its state.
pub fn find(log: &[u8], group: u32) -> Option<AnaState> {
    let (header, groups) = log.split_at_checked(HEADER_LEN)?;
    let count = u16::from_le_bytes([*header.get(8)?, *header.get(9)?]);
    let (groups, _) = groups.as_chunks::<GROUP_LEN>();
    let found = groups.iter().take(count.into()).find(|each| each[..4] == group.to_le_bytes())?;
    AnaState::parse(found[16] & 0xf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UnitId;

    #[test]
    fn state_survives_the_log() {
        let known = [Namespace { nsid: 9, unit: UnitId(1), nguid: [0; 16], uuid: [0; 16], eui64: [0; 8] }];
        for state in [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible] {
            let log = encode(&known, 3, PortAccess { state, changes: 4 }, true);
            assert_eq!((log[0], log[20], log[24]), (7, 0, 7), "changes, and no namespaces");
            assert_eq!((find(&log, GROUP), find(&log, 2)), (Some(state), None));
            assert_eq!(encode(&known, 3, PortAccess { state, changes: 4 }, false)[48], 9);
        }
    }

    #[test]
    fn log_that_is_cut_off_or_lies_about_its_length_has_no_group() {
        let mut log = encode(&[], 1, PortAccess::default(), true);
        assert_eq!((find(&log[..47], GROUP), find(&log[..48], GROUP)), (None, Some(AnaState::Optimized)));
        assert_eq!(find(&log[..7], GROUP), None);
        log[32] = 9;
        assert_eq!(find(&log, GROUP), None, "no state");
        log[8..10].copy_from_slice(&[0xff; 2]);
        assert_eq!((find(&log, 0xffff_ffff), find(&log[..48], 7)), (None, None));
    }

    #[test]
    fn read_asks_for_as_many_groups_as_are_believed() {
        assert_eq!((read(0).1, read(1).1, read(u32::MAX).1), (48, 48, 16 + 32 * GROUPS_MAX));
        let parsed = GetLogPage::parse(&read(2).0);
        assert_eq!((parsed.id, parsed.specific, parsed.len, parsed.retain_event), (0x0c, GROUPS_ONLY, 80, false));
    }
}
