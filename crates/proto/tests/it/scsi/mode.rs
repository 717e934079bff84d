use iotax_proto::scsi::{Provisioning, initiator};

use super::rig::*;

const CURRENT: u8 = 0x00;
const CHANGEABLE: u8 = 0x40;
const DEFAULT: u8 = 0x80;
const SAVED: u8 = 0xc0;

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;

/// Reads a mode page without block descriptors. Returns the bytes from the page code on.
fn sense_page(rig: &mut Rig, session: &mut Session, control: u8, page: u8) -> Vec<u8> {
    rig.good(session, &[0x1a, 0x08, control | page, 0, 255, 0], &[])[4..].to_vec()
}

fn select(rig: &mut Rig, session: &mut Session, page: &[u8]) -> u32 {
    let mut list = vec![0; 4];
    list.extend(page);
    let response = rig.run(session, &[0x15, 0x10, 0, 0, list.len() as u8, 0], &list);
    response.sense.map_or(0, |sense| sense.kcq())
}

#[test]
fn all_pages_come_with_header_and_block_descriptor() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let data = rig.good(&mut session, &[0x1a, 0, 0x3f, 0, 255, 0], &[]);
    assert_eq!(usize::from(data[0]), data.len() - 1);
    assert_eq!((data[2], data[3]), (0x10, 8), "DPOFUA and one descriptor");
    assert_eq!(data[4..12], [0, 0, 8, 0, 0, 0, 2, 0]);
    let mut codes = Vec::new();
    let mut rest = &data[12..];
    while let [code, len, ..] = *rest {
        codes.push(code);
        rest = &rest[2 + usize::from(len)..];
    }
    assert_eq!(codes, [0x08, 0x0a, 0x1c]);
}

#[test]
fn ten_byte_form_tells_the_same_pages_with_a_longer_header() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let short = rig.good(&mut session, &[0x1a, 0x08, 0x3f, 0, 255, 0], &[]);
    let long = rig.good(&mut session, &[0x5a, 0x08, 0x3f, 0, 0, 0, 0, 4, 0, 0], &[]);
    assert_eq!(usize::from(u16::from_be_bytes([long[0], long[1]])), long.len() - 2);
    assert_eq!(long[8..], short[4..]);
    let long_lba = rig.good(&mut session, &[0x5a, 0x10, CONTROL, 0, 0, 0, 0, 4, 0, 0], &[]);
    assert_eq!((long_lba[4], long_lba[7]), (1, 16));
    assert_eq!(long_lba[8..16], BLOCKS.to_be_bytes());
}

#[test]
fn all_subpages_include_the_control_extension() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let one = rig.good(&mut session, &[0x1a, 0x08, CONTROL, 1, 255, 0], &[]);
    assert_eq!(one[4..8], [0x4a, 1, 0, 28]);
    assert_eq!(one.len(), 4 + 32);
    let all = rig.good(&mut session, &[0x1a, 0x08, 0x3f, 0xff, 255, 0], &[]);
    assert!(all.windows(4).any(|bytes| bytes == [0x4a, 1, 0, 28]));
}

#[test]
fn an_allocation_length_of_a_header_gives_a_header() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    assert_eq!(rig.good(&mut session, &[0x1a, 0, 0x3f, 0, 4, 0], &[]).len(), 4);
}

#[test]
fn unknown_pages_and_saved_values_are_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    assert_eq!(rig.check(&mut session, &[0x1a, 0, 0x02, 0, 255, 0], &[]).kcq(), INVALID_FIELD_IN_CDB);
    let sense = rig.check(&mut session, &[0x1a, 0, CACHING, 7, 255, 0], &[]);
    assert_eq!(sense.field.map(|field| field.byte), Some(3));
    assert_eq!(rig.check(&mut session, &[0x1a, 0, SAVED | CACHING, 0, 255, 0], &[]).kcq(), 0x05_3900);
}

#[test]
fn changeable_values_are_wce_dsense_and_swp() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let caching = sense_page(&mut rig, &mut session, CHANGEABLE, CACHING);
    assert_eq!(caching.len(), 20);
    assert_eq!(caching[2], 0x04);
    assert!(caching[3..].iter().all(|byte| *byte == 0));
    let control = sense_page(&mut rig, &mut session, CHANGEABLE, CONTROL);
    assert_eq!(control[2..], [0x04, 0, 0x08, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn software_write_protect_protects_until_it_is_cleared() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let mut page = sense_page(&mut rig, &mut session, CURRENT, CONTROL);
    page[4] |= 0x08;
    assert_eq!(select(&mut rig, &mut session, &page), 0);
    assert_eq!(sense_page(&mut rig, &mut session, CURRENT, CONTROL), page);
    assert_eq!(sense_page(&mut rig, &mut session, DEFAULT, CONTROL)[4], 0);
    let data = rig.good(&mut session, &initiator::mode_sense_6(0x3f, 255), &[]);
    assert_eq!(initiator::parse_write_protect(&data), Some(true));
    rig.good(&mut session, &cdb_10(0x28, 0, 0, 1), &[]);
    assert_eq!(rig.check(&mut session, &cdb_10(0x2a, 0, 0, 1), &block_of(1)).kcq(), WRITE_PROTECTED);
    page[4] &= !0x08;
    assert_eq!(select(&mut rig, &mut session, &page), 0);
    rig.good(&mut session, &cdb_10(0x2a, 0, 0, 1), &block_of(1));
}

#[test]
fn descriptor_sense_changes_the_format_of_sense_data() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let mut page = sense_page(&mut rig, &mut session, CURRENT, CONTROL);
    page[2] |= 0x04;
    assert_eq!(select(&mut rig, &mut session, &page), 0);
    let sense = rig.check(&mut session, &cdb_16(0x88, 0, u64::MAX, 1), &[]);
    assert_eq!(sense.encode()[0], 0x72);
    let sense = rig.check(&mut session, &cdb_10(0x2f, 2, 0, 1), &block_of(1));
    assert_eq!(sense.encode()[0], 0x72, "of a medium operation");
}

#[test]
fn writes_are_durable_while_the_write_cache_is_off() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let mut page = sense_page(&mut rig, &mut session, CURRENT, CACHING);
    assert_eq!(page[2], 0x04);
    page[2] = 0;
    assert_eq!(select(&mut rig, &mut session, &page), 0);
    rig.good(&mut session, &cdb_10(0x2a, 0, 0, 1), &block_of(1));
    assert!(rig.volume.was_durable);
}

#[test]
fn every_command_that_writes_is_durable_by_fua_and_while_the_write_cache_is_off() {
    const FUA: u8 = 0x08;
    let commands = |fua: u8| {
        let two = [block_of(0), block_of(0)].concat();
        let list = iotax_proto::scsi::initiator::unmap_parameters(&[(0, 1)]);
        let unmap = iotax_proto::scsi::initiator::unmap(list.len() as u16);
        let mut compare_and_write = cdb_16(0x89, fua, 0, 0);
        compare_and_write[13] = 1;
        [
            ("WRITE(10)", true, cdb_10(0x2a, fua, 0, 1), block_of(0)),
            ("WRITE(12)", true, cdb_12(0xaa, fua, 0, 1), block_of(0)),
            ("WRITE(16)", true, cdb_16(0x8a, fua, 0, 1), block_of(0)),
            ("ORWRITE", true, cdb_16(0x8b, fua, 0, 1), block_of(0)),
            ("COMPARE AND WRITE", true, compare_and_write, two),
            // These have no FUA bit.
            ("WRITE(6)", false, vec![0x0a, 0, 0, 0, 1, 0], block_of(0)),
            ("WRITE SAME(10)", false, cdb_10(0x41, 0, 0, 1), block_of(0)),
            ("WRITE SAME(16)", false, cdb_16(0x93, 0, 0, 1), block_of(0)),
            ("WRITE SAME(16), UNMAP", false, cdb_16(0x93, 0x08, 0, 1), block_of(0)),
            ("WRITE SAME(16), NDOB", false, cdb_16(0x93, 0x01, 0, 1), Vec::new()),
            ("WRITE SAME(16), UNMAP, NDOB", false, cdb_16(0x93, 0x09, 0, 1), Vec::new()),
            ("UNMAP", false, unmap.to_vec(), list),
        ]
    };
    for has_cache in [true, false] {
        let mut rig = Rig::new();
        let mut session = rig.session("a");
        if !has_cache {
            let mut page = sense_page(&mut rig, &mut session, CURRENT, CACHING);
            page[2] = 0;
            assert_eq!(select(&mut rig, &mut session, &page), 0);
        }
        for fua in [0, FUA] {
            for (name, has_fua, cdb, data) in commands(fua) {
                rig.volume.was_durable = false;
                rig.good(&mut session, &cdb, &data);
                let expected = !has_cache || (has_fua && fua == FUA);
                assert_eq!(rig.volume.was_durable, expected, "{name}, FUA {fua}, cache {has_cache}");
            }
        }
        for (opcode, size) in [(0x2e, 10), (0x8e, 16)] {
            let cdb = if size == 10 { cdb_10(opcode, 0, 0, 1) } else { cdb_16(opcode, 0, 0, 1) };
            rig.volume.was_durable = false;
            rig.good(&mut session, &cdb, &block_of(0));
            assert!(rig.volume.was_durable, "WRITE AND VERIFY is always");
        }
    }
}

#[test]
fn turning_the_write_cache_off_flushes_what_it_holds() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let mut page = sense_page(&mut rig, &mut session, CURRENT, CACHING);
    assert_eq!(select(&mut rig, &mut session, &page), 0);
    assert_eq!(rig.volume.flushes, 0, "it was on and stays on");
    page[2] = 0;
    assert_eq!(select(&mut rig, &mut session, &page), 0);
    assert_eq!(rig.volume.flushes, 1);
    assert_eq!(select(&mut rig, &mut session, &page), 0);
    assert_eq!(rig.volume.flushes, 1, "there is nothing more to flush");
}

#[test]
fn a_change_of_what_cannot_change_is_refused_whole() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let mut caching = sense_page(&mut rig, &mut session, CURRENT, CACHING);
    let control = sense_page(&mut rig, &mut session, CURRENT, CONTROL);
    caching[2] = 0;
    let mut wrong = control.clone();
    wrong[3] ^= 0x10;
    let mut list = vec![0; 4];
    list.extend([caching.clone(), wrong].concat());
    let sense = rig.check(&mut session, &[0x15, 0x10, 0, 0, list.len() as u8, 0], &list);
    assert_eq!(sense.kcq(), INVALID_FIELD_IN_PARAMETER_LIST);
    let field = sense.field.expect("a field pointer");
    assert_eq!((field.in_cdb, field.byte, field.bit), (false, 4 + 20 + 3, Some(4)));
    assert_eq!(sense_page(&mut rig, &mut session, CURRENT, CACHING)[2], 0x04, "the page before is not taken either");
}

#[test]
fn malformed_parameter_lists_are_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let page = sense_page(&mut rig, &mut session, CURRENT, CACHING);
    assert_eq!(select(&mut rig, &mut session, &page[..10]), PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(select(&mut rig, &mut session, &page[..1]), PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(select(&mut rig, &mut session, &[0x02, 0]), INVALID_FIELD_IN_PARAMETER_LIST);
    assert_eq!(select(&mut rig, &mut session, &[0x08, 4, 0, 0, 0, 0]), INVALID_FIELD_IN_PARAMETER_LIST);
    let descriptor_cut = [0, 0, 0, 8, 0, 0];
    let cdb = [0x15, 0x10, 0, 0, 6, 0];
    assert_eq!(rig.check(&mut session, &cdb, &descriptor_cut).kcq(), PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(rig.check(&mut session, &cdb, &descriptor_cut[..3]).kcq(), PARAMETER_LIST_LENGTH_ERROR);
    rig.good(&mut session, &[0x15, 0x10, 0, 0, 0, 0], &[]);
}

#[test]
fn saving_pages_and_vendor_format_are_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for flags in [0x00, 0x11, 0x01] {
        assert_eq!(rig.check(&mut session, &[0x15, flags, 0, 0, 0, 0], &[]).kcq(), INVALID_FIELD_IN_CDB);
    }
}

#[test]
fn a_block_descriptor_may_only_say_what_is_so() {
    let mut rig = Rig::with(Provisioning::Full);
    let mut session = rig.session("a");
    let cdb = [0x55, 0x10, 0, 0, 0, 0, 0, 0, 16, 0];
    let list = |size: u8| [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 8, 0, 0, 0, size, 0];
    rig.good(&mut session, &cdb, &list(2));
    assert_eq!(rig.check(&mut session, &cdb, &list(16)).kcq(), INVALID_FIELD_IN_PARAMETER_LIST);
}

#[test]
fn other_nexuses_hear_of_changed_mode_parameters() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    let mut page = sense_page(&mut rig, &mut one, CURRENT, CACHING);
    assert_eq!(select(&mut rig, &mut one, &page), 0, "nothing changes");
    rig.good(&mut other, &[0; 6], &[]);
    page[2] = 0;
    assert_eq!(select(&mut rig, &mut one, &page), 0);
    assert_eq!(rig.check(&mut other, &[0; 6], &[]).kcq(), 0x06_2a01);
    rig.good(&mut other, &[0; 6], &[]);
    rig.good(&mut one, &[0; 6], &[]);
}
