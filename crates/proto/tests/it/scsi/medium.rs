use iotax_proto::{UnitError, scsi::sense::FieldPointer};

use super::rig::*;

const READ: [u8; 3] = [0x28, 0xa8, 0x88];
const WRITE: [u8; 3] = [0x2a, 0xaa, 0x8a];
const VERIFY: [u8; 3] = [0x2f, 0xaf, 0x8f];
const WRITE_AND_VERIFY: [u8; 3] = [0x2e, 0xae, 0x8e];

#[test]
fn what_is_written_in_any_size_of_cdb_is_read_back_in_any() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for (byte, write) in (1..).zip(each_size(WRITE, 0, 5, 2)) {
        rig.good(&mut session, &write, &[byte; 2 * BLOCK]);
        for read in each_size(READ, 0, 6, 1) {
            assert_eq!(rig.good(&mut session, &read, &[]), block_of(byte));
        }
    }
}

#[test]
fn six_byte_commands_take_zero_for_256_blocks() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    rig.good(&mut session, &[0x0a, 0, 0, 3, 0, 0], &vec![9; 256 * BLOCK]);
    let data = rig.good(&mut session, &[0x08, 0, 0, 3, 0, 0], &[]);
    assert_eq!(data, vec![9; 256 * BLOCK]);
    assert_eq!(rig.volume.bytes[259 * BLOCK], 0);
}

#[test]
fn no_blocks_are_success_within_the_unit_only() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for opcodes in [READ, WRITE, VERIFY, WRITE_AND_VERIFY] {
        for cdb in each_size(opcodes, 0, 0, 0) {
            assert_eq!(rig.good(&mut session, &cdb, &[]), []);
        }
        for cdb in each_size(opcodes, 0, BLOCKS as u32 + 1, 0) {
            assert_eq!(rig.check(&mut session, &cdb, &[]).kcq(), LBA_OUT_OF_RANGE);
        }
    }
}

#[test]
fn blocks_beyond_the_end_are_out_of_range() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for opcodes in [READ, WRITE, VERIFY, WRITE_AND_VERIFY] {
        for (lba, blocks) in [(BLOCKS as u32 - 1, 2), (BLOCKS as u32, 1), (0x8000_0000, 1), (u32::MAX, 16)] {
            for cdb in each_size(opcodes, 0, lba, blocks) {
                let sense = rig.check(&mut session, &cdb, &vec![0; usize::from(blocks) * BLOCK]);
                assert_eq!(sense.kcq(), LBA_OUT_OF_RANGE);
            }
        }
    }
    let sense = rig.check(&mut session, &cdb_16(0x88, 0, u64::MAX, u32::MAX), &[]);
    assert_eq!(sense.kcq(), LBA_OUT_OF_RANGE);
}

#[test]
fn protection_information_is_refused_with_a_pointer_to_the_field() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for opcodes in [READ, WRITE, VERIFY, WRITE_AND_VERIFY] {
        for protect in 1..8 {
            for cdb in each_size(opcodes, protect << 5, 0, 1) {
                let sense = rig.check(&mut session, &cdb, &block_of(0));
                assert_eq!(sense.kcq(), INVALID_FIELD_IN_CDB);
                let field = sense.field.expect("a field pointer");
                assert_eq!((field.in_cdb, field.byte), (true, 1));
                assert!(field.bit.is_some_and(|bit| bit >= 5));
            }
        }
    }
}

#[test]
fn more_blocks_than_the_maximum_transfer_length_are_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let sense = rig.check(&mut session, &cdb_10(0x28, 0, 0, MAX_IO_BLOCKS as u16 + 1), &[]);
    assert_eq!(sense.kcq(), INVALID_FIELD_IN_CDB);
    assert_eq!(sense.field, Some(FieldPointer { in_cdb: true, byte: 7, bit: None }));
    rig.good(&mut session, &cdb_10(0x28, 0, 0, MAX_IO_BLOCKS as u16), &[]);
}

#[test]
fn fua_makes_a_write_durable_and_dpo_does_not() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for (flags, is_durable) in [(0x00, false), (0x10, false), (0x08, true), (0x18, true)] {
        for cdb in each_size(WRITE, flags, 0, 1) {
            rig.good(&mut session, &cdb, &block_of(1));
            assert_eq!(rig.volume.was_durable, is_durable, "flags {flags:#x}");
        }
    }
}

#[test]
fn fua_makes_a_read_one_of_the_medium() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for (flags, is_durable) in [(0x00, false), (0x10, false), (0x08, true), (0x18, true)] {
        for cdb in each_size(READ, flags, 0, 1) {
            rig.volume.was_durable = !is_durable;
            rig.good(&mut session, &cdb, &[]);
            assert_eq!(rig.volume.was_durable, is_durable, "{cdb:02x?}");
        }
    }
    // READ (6) and WRITE (6) have no FUA bit. Their LBA uses that bit.
    rig.volume.was_durable = true;
    rig.run(&mut session, &[0x08, 0x08, 0, 0, 1, 0], &[]);
    rig.good(&mut session, &[0x08, 0, 0, 0, 1, 0], &[]);
    assert!(!rig.volume.was_durable);
}

#[test]
fn what_is_verified_is_on_the_medium() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for (byte_check, data) in [(0, Vec::new()), (2, block_of(0)), (6, block_of(0))] {
        rig.volume.was_durable = false;
        rig.good(&mut session, &cdb_10(0x2f, byte_check, 0, 1), &data);
        assert!(rig.volume.was_durable, "BYTCHK {byte_check:#x}");
    }
}

#[test]
fn a_write_with_fewer_blocks_of_data_writes_those() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let response = rig.run(&mut session, &cdb_10(0x2a, 0, 0, 2), &block_of(7));
    assert_eq!((response.status, response.data_out_len), (GOOD, 2 * BLOCK as u32));
    assert_eq!(rig.volume.bytes[..2 * BLOCK], [block_of(7), block_of(0)].concat());
    let response = rig.run(&mut session, &cdb_10(0x2a, 0, 0, 1), &[]);
    assert_eq!((response.status, response.data_out_len), (GOOD, BLOCK as u32));
}

#[test]
fn a_write_with_part_of_a_block_of_data_is_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for opcodes in [WRITE, WRITE_AND_VERIFY] {
        for cdb in each_size(opcodes, 0, 0, 2) {
            let response = rig.run(&mut session, &cdb, &[7; BLOCK + 200]);
            assert_eq!((response.status, response.data_out_len), (CHECK_CONDITION, 2 * BLOCK as u32));
            assert_eq!(response.sense.map(|sense| sense.kcq()), Some(0x05_0e03));
            assert_eq!(rig.volume.bytes[0], 0);
        }
    }
}

#[test]
fn a_write_with_more_data_than_blocks_leaves_the_rest() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let response = rig.run(&mut session, &cdb_10(0x2a, 0, 0, 1), &[7; 2 * BLOCK]);
    assert_eq!((response.status, response.data_out_len), (GOOD, BLOCK as u32));
    assert_eq!(rig.volume.bytes[BLOCK], 0);
}

#[test]
fn a_read_only_volume_refuses_every_command_that_writes() {
    let mut rig = Rig::new();
    rig.volume.read_only = true;
    let mut session = rig.session("a");
    let mut unmap = vec![0x42; 10];
    unmap[1..].fill(0);
    unmap[8] = 24;
    let mut cdbs = vec![vec![0x0a, 0, 0, 0, 1, 0], unmap, cdb_10(0x41, 8, 0, 1), cdb_16(0x93, 8, 0, 1)];
    cdbs.push(cdb_16(0x89, 0, 0, 1));
    cdbs.extend(each_size(WRITE, 0, 0, 1));
    cdbs.extend(each_size(WRITE_AND_VERIFY, 2, 0, 1));
    for cdb in cdbs {
        assert_eq!(rig.check(&mut session, &cdb, &block_of(1)).kcq(), WRITE_PROTECTED, "{cdb:02x?}");
    }
    rig.good(&mut session, &cdb_10(0x28, 0, 0, 1), &[]);
}

#[test]
fn verify_compares_with_bytchk_and_tells_where_data_differ() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let mut data = vec![0; 2 * BLOCK];
    for cdb in each_size(VERIFY, 0x02, 4, 2) {
        rig.good(&mut session, &cdb, &data);
    }
    data[700] = 1;
    for cdb in each_size(VERIFY, 0x02, 4, 2) {
        let sense = rig.check(&mut session, &cdb, &data);
        assert_eq!((sense.kcq(), sense.information), (0x0e_1d00, Some(700)));
    }
}

#[test]
fn verify_without_bytchk_takes_and_returns_no_data() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for cdb in each_size(VERIFY, 0, 0, 1) {
        assert_eq!(rig.good(&mut session, &cdb, &block_of(3)), []);
    }
    rig.volume.fails_with = Some(UnitError::Medium);
    for cdb in each_size(VERIFY, 0, 0, 1) {
        assert_eq!(rig.check(&mut session, &cdb, &[]).kcq(), 0x03_1100);
    }
}

#[test]
fn verify_of_many_blocks_against_one_is_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for cdb in each_size(VERIFY, 0x06, 0, 1) {
        rig.good(&mut session, &cdb, &block_of(0));
    }
    for flags in [0x04, 0x06] {
        for cdb in each_size(VERIFY, flags, 0, 2) {
            assert_eq!(rig.check(&mut session, &cdb, &block_of(0)).kcq(), INVALID_FIELD_IN_CDB);
        }
    }
}

#[test]
fn write_and_verify_is_durable() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for flags in [0, 0x02, 0x12] {
        for cdb in each_size(WRITE_AND_VERIFY, flags, 8, 1) {
            rig.volume.was_durable = false;
            rig.good(&mut session, &cdb, &block_of(6));
            assert!(rig.volume.was_durable);
        }
    }
    for cdb in each_size(WRITE_AND_VERIFY, 0x04, 8, 1) {
        assert_eq!(rig.check(&mut session, &cdb, &block_of(6)).kcq(), INVALID_FIELD_IN_CDB);
    }
}

#[test]
fn compare_and_write_writes_only_what_matched() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let data = [block_of(0), block_of(5)].concat();
    rig.good(&mut session, &cdb_16(0x89, 0, 3, 1), &data);
    assert_eq!(rig.volume.bytes[3 * BLOCK..4 * BLOCK], block_of(5));
    let sense = rig.check(&mut session, &cdb_16(0x89, 0, 3, 1), &data);
    assert_eq!((sense.kcq(), sense.information), (0x0e_1d00, Some(0)));
    assert_eq!(rig.volume.bytes[3 * BLOCK..4 * BLOCK], block_of(5));
}

#[test]
fn compare_and_write_wants_exactly_twice_the_blocks_as_data() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for data_len in [0, BLOCK, 2 * BLOCK - 1, 3 * BLOCK] {
        let sense = rig.check(&mut session, &cdb_16(0x89, 0, 0, 1), &vec![0; data_len]);
        assert_eq!(sense.kcq(), INVALID_FIELD_IN_CDB);
    }
    let sense = rig.check(&mut session, &cdb_16(0x89, 0, 0, 129), &vec![0; 2 * 129 * BLOCK]);
    assert_eq!(sense.kcq(), INVALID_FIELD_IN_CDB, "more than half of the maximum transfer length");
    let sense = rig.check(&mut session, &cdb_16(0x89, 0, 0, 0x0100_0001), &[0; 2 * BLOCK]);
    assert_eq!(sense.field.map(|field| field.byte), Some(10), "reserved bytes before the number of blocks");
    rig.good(&mut session, &cdb_16(0x89, 0, 0, 0), &[]);
}

#[test]
fn or_write_keeps_the_bits_that_were_set() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    rig.good(&mut session, &cdb_16(0x8a, 0, 3, 1), &block_of(0xa0));
    rig.good(&mut session, &cdb_16(0x8b, 0x08, 3, 1), &block_of(0x05));
    assert_eq!(rig.volume.bytes[3 * BLOCK..4 * BLOCK], block_of(0xa5));
    assert!(rig.volume.was_durable, "FUA");
    rig.good(&mut session, &cdb_16(0x8b, 0, 3, 0), &[]);
    assert_eq!(
        rig.check(&mut session, &cdb_16(0x8b, 0x20, 3, 1), &block_of(0)).kcq(),
        INVALID_FIELD_IN_CDB,
        "ORPROTECT"
    );
    assert_eq!(rig.check(&mut session, &cdb_16(0x8b, 0, BLOCKS, 1), &block_of(0)).kcq(), LBA_OUT_OF_RANGE);
}

#[test]
fn synchronize_cache_flushes() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    rig.good(&mut session, &cdb_10(0x35, 0, 0, 0), &[]);
    rig.good(&mut session, &cdb_16(0x91, 0x02, 5, 7), &[]);
    assert_eq!(rig.volume.flushes, 2);
    assert_eq!(rig.check(&mut session, &cdb_10(0x35, 0, BLOCKS as u32 - 1, 2), &[]).kcq(), LBA_OUT_OF_RANGE);
}

#[test]
fn pre_fetch_checks_its_range_and_takes_a_group_number() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let mut cdb = cdb_10(0x34, 0x02, 0, 1);
    cdb[6] = 3;
    rig.good(&mut session, &cdb, &[]);
    rig.good(&mut session, &cdb_16(0x90, 0, BLOCKS - 1, 0), &[]);
    assert_eq!(rig.check(&mut session, &cdb_16(0x90, 0, BLOCKS, 1), &[]).kcq(), LBA_OUT_OF_RANGE);
}

#[test]
fn failures_of_the_volume_become_sense_data() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for (error, sense) in [
        (UnitError::Medium, 0x03_0c00),
        (UnitError::NoSpace, 0x07_2707),
        (UnitError::OutOfRange, LBA_OUT_OF_RANGE),
        (UnitError::ReadOnly, WRITE_PROTECTED),
        (UnitError::NoUnit, 0x05_2500),
    ] {
        rig.volume.fails_with = Some(error);
        assert_eq!(rig.check(&mut session, &cdb_10(0x2a, 0, 0, 1), &block_of(1)).kcq(), sense);
    }
    for (error, status) in [(UnitError::Busy, 0x08), (UnitError::Aborted, 0x40)] {
        rig.volume.fails_with = Some(error);
        let response = rig.run(&mut session, &cdb_10(0x2a, 0, 0, 1), &block_of(1));
        assert_eq!((response.status, response.sense), (status, None));
    }
}
