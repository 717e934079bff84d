use iotax_proto::scsi::{Provisioning, initiator};

use super::rig::*;

fn unmap(rig: &mut Rig, session: &mut Session, ranges: &[(u64, u32)]) -> u32 {
    let list = initiator::unmap_parameters(ranges);
    let response = rig.run(session, &initiator::unmap(list.len() as u16), &list);
    response.sense.map_or(0, |sense| sense.kcq())
}

#[test]
fn unmap_takes_many_overlapping_and_empty_ranges() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    assert_eq!(unmap(&mut rig, &mut session, &[(1, 2), (2, 4), (9, 0), (BLOCKS, 0), (BLOCKS - 1, 1)]), 0);
    let block = BLOCK as u64;
    let ranges = [(block, 2 * block), (2 * block, 4 * block), ((BLOCKS - 1) * block, block)];
    assert_eq!(rig.volume.unmapped, ranges);
}

#[test]
fn unmap_of_nothing_is_success() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    assert_eq!(unmap(&mut rig, &mut session, &[]), 0);
    rig.good(&mut session, &initiator::unmap(0), &[]);
    assert!(rig.volume.unmapped.is_empty());
}

#[test]
fn unmap_does_nothing_where_one_range_is_out_of_range() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    assert_eq!(unmap(&mut rig, &mut session, &[(0, 1), (BLOCKS, 1)]), LBA_OUT_OF_RANGE);
    assert_eq!(unmap(&mut rig, &mut session, &[(u64::MAX, u32::MAX)]), LBA_OUT_OF_RANGE);
    assert!(rig.volume.unmapped.is_empty());
}

#[test]
fn unmap_refuses_lists_with_wrong_lengths() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let list = initiator::unmap_parameters(&[(0, 1)]);
    let cases: [(u16, usize, [u8; 4], u32); 5] = [
        (7, 7, [0, 22, 0, 16], PARAMETER_LIST_LENGTH_ERROR),
        (24, 8, [0, 22, 0, 16], PARAMETER_LIST_LENGTH_ERROR),
        (24, 24, [0, 23, 0, 16], PARAMETER_LIST_LENGTH_ERROR),
        (24, 24, [0, 22, 0, 17], PARAMETER_LIST_LENGTH_ERROR),
        (24, 24, [0, 14, 0, 16], INVALID_FIELD_IN_PARAMETER_LIST),
    ];
    for (list_len, sent, lengths, sense) in cases {
        let mut list = list.clone();
        list[..4].copy_from_slice(&lengths);
        let got = rig.check(&mut session, &initiator::unmap(list_len), &list[..sent]).kcq();
        assert_eq!(got, sense, "{list_len} {lengths:?}");
    }
    assert!(rig.volume.unmapped.is_empty());
}

#[test]
fn unmap_ignores_an_incomplete_last_descriptor() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let mut list = initiator::unmap_parameters(&[(0, 1), (5, 1)]);
    list.truncate(30);
    list[..4].copy_from_slice(&[0, 28, 0, 22]);
    rig.good(&mut session, &initiator::unmap(30), &list);
    assert_eq!(rig.volume.unmapped, [(0, BLOCK as u64)]);
}

#[test]
fn unmap_keeps_to_the_limits_of_the_block_limits_page() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    assert_eq!(unmap(&mut rig, &mut session, &[(0, 1); 255]), 0);
    assert_eq!(unmap(&mut rig, &mut session, &[(0, 1); 256]), INVALID_FIELD_IN_PARAMETER_LIST);
}

#[test]
fn unmap_with_anchor_is_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let mut cdb = initiator::unmap(0);
    cdb[1] = 1;
    assert_eq!(rig.check(&mut session, &cdb, &[]).kcq(), INVALID_FIELD_IN_CDB);
}

#[test]
fn a_fully_provisioned_unit_has_no_unmap() {
    let mut rig = Rig::with(Provisioning::Full);
    let mut session = rig.session("a");
    assert_eq!(unmap(&mut rig, &mut session, &[(0, 1)]), INVALID_OPCODE);
    let same = initiator::write_same_16(0, 1, true);
    assert_eq!(rig.check(&mut session, &same, &block_of(0)).kcq(), INVALID_FIELD_IN_CDB);
    assert_eq!(rig.check(&mut session, &cdb_10(0x41, 8, 0, 1), &block_of(0)).kcq(), INVALID_FIELD_IN_CDB);
}

#[test]
fn write_same_repeats_its_block() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    rig.good(&mut session, &cdb_10(0x41, 0, 2, 3), &block_of(4));
    assert_eq!(rig.volume.bytes[2 * BLOCK..5 * BLOCK], [4; 3 * BLOCK]);
    rig.good(&mut session, &cdb_16(0x93, 8, 3, 1), &block_of(6));
    assert_eq!(rig.volume.bytes[3 * BLOCK..4 * BLOCK], block_of(6), "UNMAP never changes what is read");
    assert_eq!(rig.volume.bytes[5 * BLOCK], 0);
}

#[test]
fn write_same_of_no_blocks_goes_to_the_end() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    rig.good(&mut session, &cdb_16(0x93, 0, BLOCKS - 2, 0), &block_of(1));
    assert_eq!(rig.volume.bytes[(BLOCKS as usize - 2) * BLOCK..], [1; 2 * BLOCK]);
    assert_eq!(rig.check(&mut session, &cdb_16(0x93, 0, BLOCKS, 0), &block_of(1)).kcq(), LBA_OUT_OF_RANGE);
}

#[test]
fn write_same_without_data_writes_or_unmaps_zeros() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    rig.volume.bytes.fill(9);
    rig.good(&mut session, &cdb_16(0x93, 0x01, 0, 1), &[]);
    assert!(rig.volume.unmapped.is_empty());
    rig.good(&mut session, &cdb_16(0x93, 0x09, 1, 1), &[]);
    assert_eq!(rig.volume.unmapped, [(BLOCK as u64, BLOCK as u64)]);
    assert_eq!(rig.volume.bytes[..3 * BLOCK], [block_of(0), block_of(0), block_of(9)].concat());
}

#[test]
fn write_same_wants_exactly_one_block_of_data() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for len in [0, BLOCK / 2, 2 * BLOCK] {
        for cdb in [cdb_10(0x41, 8, 0, 1), cdb_16(0x93, 0, 0, 1)] {
            assert_eq!(rig.check(&mut session, &cdb, &vec![1; len]).kcq(), INVALID_FIELD_IN_CDB);
        }
    }
}

#[test]
fn write_same_with_anchor_or_protection_is_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for flags in [0x10, 0x18, 0x20, 0xe0] {
        for cdb in [cdb_10(0x41, flags, 0, 1), cdb_16(0x93, flags, 0, 1)] {
            assert_eq!(rig.check(&mut session, &cdb, &block_of(0)).kcq(), INVALID_FIELD_IN_CDB);
        }
    }
}

#[test]
fn get_lba_status_of_a_full_unit_reports_blocks_as_mapped() {
    let mut rig = Rig::with(Provisioning::Full);
    let mut session = rig.session("a");
    let data = rig.good(&mut session, &cdb_16(0x9e, 0x12, 8, 24), &[]);
    assert_eq!(data.len(), 24);
    assert_eq!(data[..4], [0, 0, 0, 20]);
    assert_eq!(data[8..16], 8u64.to_be_bytes());
    assert_eq!(data[16..20], (BLOCKS as u32 - 8).to_be_bytes());
    assert_eq!(data[20], 0);
    assert_eq!(rig.check(&mut session, &cdb_16(0x9e, 0x12, BLOCKS + 1, 24), &[]).kcq(), LBA_OUT_OF_RANGE);
}

#[test]
fn get_lba_status_tells_runs_of_mapped_and_deallocated_blocks() {
    let mut rig = Rig::with(Provisioning::Thin { reads_zero: true });
    let mut session = rig.session("a");
    rig.good(&mut session, &cdb_16(0x8a, 0, 4, 1), &[1; BLOCK]);
    for (lba, blocks, state) in [(0, 4, 1), (3, 1, 1), (4, 1, 0), (5, BLOCKS as u32 - 5, 1)] {
        let data = rig.good(&mut session, &cdb_16(0x9e, 0x12, lba, 24), &[]);
        assert_eq!((data[16..20].to_vec(), data[20]), (u32::to_be_bytes(blocks).to_vec(), state), "LBA {lba}");
    }
}

#[test]
fn block_erase_leaves_nothing() {
    let mut rig = Rig::with(Provisioning::Thin { reads_zero: true });
    let mut session = rig.session("a");
    rig.volume.bytes.fill(7);
    rig.good(&mut session, &[0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
    assert!(rig.volume.bytes.iter().all(|byte| *byte == 0));
    let sense = rig.check(&mut session, &[0x48, 0x02, 0, 0, 0, 0, 0, 0, 8, 0], &[0; 8]);
    assert_eq!(sense.kcq(), INVALID_FIELD_IN_CDB, "it has no parameters");
    rig.volume.read_only = true;
    let mut session = rig.session("b");
    assert_eq!(rig.check(&mut session, &[0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0], &[]).kcq(), WRITE_PROTECTED);
}
