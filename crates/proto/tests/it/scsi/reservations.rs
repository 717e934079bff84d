use iotax_proto::{Endings, scsi::TaskManagement};

use super::rig::*;

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const REGISTER_AND_IGNORE: u8 = 6;

const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u8 = 5;
const EXCLUSIVE_ACCESS_REGISTRANTS_ONLY: u8 = 6;
const WRITE_EXCLUSIVE_ALL_REGISTRANTS: u8 = 7;
const EXCLUSIVE_ACCESS_ALL_REGISTRANTS: u8 = 8;
const TYPES: [u8; 6] = [
    WRITE_EXCLUSIVE,
    EXCLUSIVE_ACCESS,
    WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
    EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
    WRITE_EXCLUSIVE_ALL_REGISTRANTS,
    EXCLUSIVE_ACCESS_ALL_REGISTRANTS,
];

const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE_6: [u8; 6] = [0x17, 0, 0, 0, 0, 0];
const TEST_UNIT_READY: [u8; 6] = [0; 6];

fn read() -> Vec<u8> {
    cdb_10(0x28, 0, 0, 1)
}

fn write() -> Vec<u8> {
    cdb_10(0x2a, 0, 0, 1)
}

fn out_cdb(action: u8, kind: u8) -> [u8; 10] {
    [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0]
}

fn keys(key: u64, action_key: u64) -> Vec<u8> {
    let mut list = [key.to_be_bytes(), action_key.to_be_bytes()].concat();
    list.resize(24, 0);
    list
}

fn out(rig: &mut Rig, session: &mut Session, action: u8, kind: u8, key: u64, action_key: u64) {
    rig.good(session, &out_cdb(action, kind), &keys(key, action_key));
}

fn registered_keys(rig: &mut Rig, session: &mut Session) -> (u32, Vec<u64>) {
    let data = rig.good(session, &[0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[]);
    let word = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(word(4) as usize, data.len() - 8);
    let keys = data[8..].chunks(8).map(|key| u64::from_be_bytes(key.try_into().expect("eight bytes")));
    (word(0), keys.collect())
}

/// Key and type of the current reservation.
fn held(rig: &mut Rig, session: &mut Session) -> Option<(u64, u8)> {
    let data = rig.good(session, &[0x5e, 1, 0, 0, 0, 0, 0, 1, 0, 0], &[]);
    let key = data.get(8..16)?;
    Some((u64::from_be_bytes(key.try_into().expect("eight bytes")), data[21]))
}

#[test]
fn reserve_bars_others_until_it_is_released() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    rig.good(&mut one, &RESERVE_6, &[]);
    rig.good(&mut one, &RESERVE_6, &[]);
    for cdb in [RESERVE_6.to_vec(), TEST_UNIT_READY.to_vec(), read(), vec![0x1a, 0, 0x3f, 0, 255, 0]] {
        rig.conflict(&mut other, &cdb, &[]);
    }
    rig.conflict(&mut other, &write(), &block_of(1));
    rig.good(&mut other, &[0x12, 0, 0, 0, 36, 0], &[]);
    rig.good(&mut other, &RELEASE_6, &[]);
    rig.conflict(&mut other, &read(), &[]);
    rig.good(&mut one, &write(), &block_of(1));
    rig.good(&mut one, &RELEASE_6, &[]);
    rig.good(&mut other, &RESERVE_6, &[]);
    rig.conflict(&mut one, &read(), &[]);
}

#[test]
fn ten_byte_reserve_and_release_are_the_same_reservation() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    rig.good(&mut one, &[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
    rig.conflict(&mut other, &read(), &[]);
    rig.good(&mut one, &[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
    rig.good(&mut other, &read(), &[]);
}

#[test]
fn reserve_ends_with_the_session_and_with_a_reset() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    rig.good(&mut one, &RESERVE_6, &[]);
    one.0.lost();
    rig.good(&mut other, &read(), &[]);
    for function in [TaskManagement::LogicalUnitReset, TaskManagement::TargetReset] {
        let mut one = rig.session("a");
        rig.good(&mut one, &RESERVE_6, &[]);
        one.0.task_management(function, 0, &mut Endings::default());
        assert_eq!(rig.check(&mut other, &TEST_UNIT_READY, &[]).kcq(), 0x06_2903);
        rig.good(&mut other, &read(), &[]);
    }
}

#[test]
fn reserve_conflicts_with_registrations() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    out(&mut rig, &mut one, REGISTER, 0, 0, 7);
    rig.conflict(&mut other, &RESERVE_6, &[]);
    out(&mut rig, &mut one, REGISTER, 0, 7, 0);
    rig.good(&mut other, &RESERVE_6, &[]);
    rig.conflict(&mut one, &out_cdb(REGISTER, 0), &keys(0, 7));
    rig.conflict(&mut one, &[0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[]);
}

#[test]
fn register_checks_the_existing_key_unless_told_to_ignore_it() {
    let mut rig = Rig::new();
    let mut one = rig.session("a");
    rig.conflict(&mut one, &out_cdb(REGISTER, 0), &keys(3, 7));
    out(&mut rig, &mut one, REGISTER, 0, 0, 7);
    rig.conflict(&mut one, &out_cdb(REGISTER, 0), &keys(8, 9));
    out(&mut rig, &mut one, REGISTER, 0, 7, 8);
    out(&mut rig, &mut one, REGISTER_AND_IGNORE, 0, 0, 9);
    assert_eq!(registered_keys(&mut rig, &mut one), (3, vec![9]));
    out(&mut rig, &mut one, REGISTER, 0, 9, 0);
    assert_eq!(registered_keys(&mut rig, &mut one), (4, vec![]));
}

#[test]
fn registrations_outlive_the_session_of_their_ports() {
    let mut rig = Rig::new();
    let mut one = rig.session("a");
    out(&mut rig, &mut one, REGISTER, 0, 0, 7);
    out(&mut rig, &mut one, RESERVE, EXCLUSIVE_ACCESS, 7, 0);
    one.0.lost();
    let (mut other, mut again) = (rig.session("b"), rig.session("a"));
    rig.conflict(&mut other, &read(), &[]);
    rig.good(&mut again, &read(), &[]);
    assert_eq!(held(&mut rig, &mut other), Some((7, EXCLUSIVE_ACCESS)));
}

#[test]
fn the_list_of_keys_tells_its_whole_length_when_cut() {
    let mut rig = Rig::new();
    let mut one = rig.session("a");
    out(&mut rig, &mut one, REGISTER, 0, 0, 7);
    let data = rig.good(&mut one, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[]);
    assert_eq!(data, [0, 0, 0, 1, 0, 0, 0, 8]);
}

/// SPC-5 §5.14.1: the initiators that may read and write beside a holder.
#[test]
fn each_type_bars_whom_it_should() {
    for (kind, registrant, stranger) in [
        (WRITE_EXCLUSIVE, [true, false], [true, false]),
        (EXCLUSIVE_ACCESS, [false, false], [false, false]),
        (WRITE_EXCLUSIVE_REGISTRANTS_ONLY, [true, true], [true, false]),
        (EXCLUSIVE_ACCESS_REGISTRANTS_ONLY, [true, true], [false, false]),
        (WRITE_EXCLUSIVE_ALL_REGISTRANTS, [true, true], [true, false]),
        (EXCLUSIVE_ACCESS_ALL_REGISTRANTS, [true, true], [false, false]),
    ] {
        let mut rig = Rig::new();
        let (mut holder, mut other) = (rig.session("a"), rig.session("b"));
        out(&mut rig, &mut holder, REGISTER, 0, 0, 7);
        out(&mut rig, &mut other, REGISTER, 0, 0, 8);
        out(&mut rig, &mut holder, RESERVE, kind, 7, 0);
        let mut may = |session: &mut Session| {
            let mut status = |cdb: &[u8], data: &[u8]| match rig.run(session, cdb, data).status {
                GOOD => true,
                RESERVATION_CONFLICT => false,
                status => panic!("status {status:#x}"),
            };
            [status(&read(), &[]), status(&write(), &block_of(1))]
        };
        assert_eq!(may(&mut holder), [true, true], "holder, type {kind}");
        assert_eq!(may(&mut other), registrant, "registrant, type {kind}");
        out(&mut rig, &mut other, REGISTER, 0, 8, 0);
        let mut may = |session: &mut Session| {
            [rig.run(session, &read(), &[]).status == GOOD, rig.run(session, &write(), &block_of(1)).status == GOOD]
        };
        assert_eq!(may(&mut other), stranger, "stranger, type {kind}");
        rig.good(&mut other, &TEST_UNIT_READY, &[]);
    }
}

#[test]
fn a_reservation_is_read_back_with_its_holders_key() {
    for kind in TYPES {
        let mut rig = Rig::new();
        let mut one = rig.session("a");
        out(&mut rig, &mut one, REGISTER, 0, 0, 7);
        assert_eq!(held(&mut rig, &mut one), None);
        out(&mut rig, &mut one, RESERVE, kind, 7, 0);
        out(&mut rig, &mut one, RESERVE, kind, 7, 0);
        let key = if kind >= WRITE_EXCLUSIVE_ALL_REGISTRANTS { 0 } else { 7 };
        assert_eq!(held(&mut rig, &mut one), Some((key, kind)));
        out(&mut rig, &mut one, RELEASE, kind, 7, 0);
        assert_eq!(held(&mut rig, &mut one), None);
        assert_eq!(registered_keys(&mut rig, &mut one).0, 1, "RESERVE and RELEASE do not count in PRGENERATION");
    }
}

#[test]
fn only_a_registrant_reserves_and_only_what_is_free() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    rig.conflict(&mut one, &out_cdb(RESERVE, WRITE_EXCLUSIVE), &keys(0, 0));
    out(&mut rig, &mut one, REGISTER, 0, 0, 7);
    out(&mut rig, &mut other, REGISTER, 0, 0, 8);
    rig.conflict(&mut one, &out_cdb(RESERVE, WRITE_EXCLUSIVE), &keys(8, 0));
    out(&mut rig, &mut one, RESERVE, WRITE_EXCLUSIVE, 7, 0);
    rig.conflict(&mut one, &out_cdb(RESERVE, EXCLUSIVE_ACCESS), &keys(7, 0));
    rig.conflict(&mut other, &out_cdb(RESERVE, WRITE_EXCLUSIVE), &keys(8, 0));
    out(&mut rig, &mut other, RELEASE, WRITE_EXCLUSIVE, 8, 0);
    assert_eq!(held(&mut rig, &mut one), Some((7, WRITE_EXCLUSIVE)), "a RELEASE of another does nothing");
    let sense = rig.check(&mut one, &out_cdb(RELEASE, EXCLUSIVE_ACCESS), &keys(7, 0));
    assert_eq!(sense.kcq(), 0x05_2604);
}

#[test]
fn a_holder_that_unregisters_releases_unless_others_hold_too() {
    for kind in TYPES {
        let mut rig = Rig::new();
        let (mut one, mut other) = (rig.session("a"), rig.session("b"));
        out(&mut rig, &mut one, REGISTER, 0, 0, 7);
        out(&mut rig, &mut other, REGISTER, 0, 0, 8);
        out(&mut rig, &mut one, RESERVE, kind, 7, 0);
        out(&mut rig, &mut one, REGISTER, 0, 7, 0);
        match kind {
            WRITE_EXCLUSIVE_ALL_REGISTRANTS | EXCLUSIVE_ACCESS_ALL_REGISTRANTS => {
                assert_eq!(held(&mut rig, &mut one), Some((0, kind)));
                out(&mut rig, &mut other, RELEASE, kind, 8, 0);
            }
            WRITE_EXCLUSIVE_REGISTRANTS_ONLY | EXCLUSIVE_ACCESS_REGISTRANTS_ONLY => {
                assert_eq!(rig.check(&mut other, &TEST_UNIT_READY, &[]).kcq(), 0x06_2a04);
            }
            _ => rig.good(&mut other, &TEST_UNIT_READY, &[]).clear(),
        }
        assert_eq!(held(&mut rig, &mut one), None);
    }
}

#[test]
fn clear_removes_everything_and_tells_the_others() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    out(&mut rig, &mut one, REGISTER, 0, 0, 7);
    out(&mut rig, &mut other, REGISTER, 0, 0, 8);
    out(&mut rig, &mut one, RESERVE, EXCLUSIVE_ACCESS, 7, 0);
    out(&mut rig, &mut other, CLEAR, 0, 8, 0);
    assert_eq!(registered_keys(&mut rig, &mut other), (3, vec![]));
    assert_eq!(held(&mut rig, &mut other), None);
    assert_eq!(rig.check(&mut one, &TEST_UNIT_READY, &[]).kcq(), 0x06_2a03);
    rig.good(&mut other, &TEST_UNIT_READY, &[]);
}

#[test]
fn preempt_takes_the_reservation_and_the_registration_of_its_victim() {
    for action in [PREEMPT, PREEMPT + 1] {
        let mut rig = Rig::new();
        let (mut one, mut other) = (rig.session("a"), rig.session("b"));
        out(&mut rig, &mut one, REGISTER, 0, 0, 7);
        out(&mut rig, &mut other, REGISTER, 0, 0, 8);
        out(&mut rig, &mut one, RESERVE, WRITE_EXCLUSIVE, 7, 0);
        out(&mut rig, &mut other, action, EXCLUSIVE_ACCESS, 8, 7);
        assert_eq!(registered_keys(&mut rig, &mut other), (3, vec![8]));
        assert_eq!(held(&mut rig, &mut other), Some((8, EXCLUSIVE_ACCESS)));
        assert_eq!(rig.check(&mut one, &read(), &[]).kcq(), 0x06_2a05);
        rig.conflict(&mut one, &read(), &[]);
    }
}

#[test]
fn preempt_of_a_registrant_that_holds_nothing_only_unregisters_it() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    out(&mut rig, &mut one, REGISTER, 0, 0, 7);
    out(&mut rig, &mut other, REGISTER, 0, 0, 8);
    out(&mut rig, &mut other, PREEMPT, EXCLUSIVE_ACCESS, 8, 7);
    assert_eq!(registered_keys(&mut rig, &mut other), (3, vec![8]));
    assert_eq!(held(&mut rig, &mut other), None);
    rig.conflict(&mut other, &out_cdb(PREEMPT, EXCLUSIVE_ACCESS), &keys(8, 99));
    let sense = rig.check(&mut other, &out_cdb(PREEMPT, EXCLUSIVE_ACCESS), &keys(8, 0));
    assert_eq!(sense.kcq(), INVALID_FIELD_IN_PARAMETER_LIST);
}

#[test]
fn preempt_with_key_zero_takes_a_reservation_of_all_registrants() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    out(&mut rig, &mut one, REGISTER, 0, 0, 7);
    out(&mut rig, &mut other, REGISTER, 0, 0, 8);
    out(&mut rig, &mut one, RESERVE, WRITE_EXCLUSIVE_ALL_REGISTRANTS, 7, 0);
    out(&mut rig, &mut other, PREEMPT, WRITE_EXCLUSIVE, 8, 0);
    assert_eq!(held(&mut rig, &mut other), Some((8, WRITE_EXCLUSIVE)));
    assert_eq!(registered_keys(&mut rig, &mut other).1, [8]);
}

#[test]
fn full_status_names_holder_and_ports() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    out(&mut rig, &mut one, REGISTER, 0, 0, 7);
    out(&mut rig, &mut other, REGISTER, 0, 0, 8);
    out(&mut rig, &mut other, RESERVE, WRITE_EXCLUSIVE, 8, 0);
    let data = rig.good(&mut one, &[0x5e, 3, 0, 0, 0, 0, 0, 4, 0, 0], &[]);
    let id_len = u32::from_be_bytes(data[28..32].try_into().expect("four bytes")) as usize;
    let (first, second) = data[8..].split_at(24 + id_len);
    assert_eq!((first[7], first[12], first[13], first[19]), (7, 0, 0, 1));
    assert_eq!((second[7], second[12], second[13], second[19]), (8, 1, WRITE_EXCLUSIVE, 1));
    assert_eq!(first[24..], *b"\x06\0\0\0a", "as the transport told it");
}

#[test]
fn capabilities_name_the_types_that_work() {
    let mut rig = Rig::new();
    let mut one = rig.session("a");
    let data = rig.good(&mut one, &[0x5e, 2, 0, 0, 0, 0, 0, 1, 0, 0], &[]);
    assert_eq!(data, [0, 8, 0, 0x90, 0xea, 0x01, 0, 0]);
}

#[test]
fn what_is_not_supported_of_persistent_reservations_is_refused() {
    let mut rig = Rig::new();
    let mut one = rig.session("a");
    for flags in [0x01, 0x04, 0x08] {
        let mut list = keys(0, 7);
        list[20] = flags;
        let sense = rig.check(&mut one, &out_cdb(REGISTER, 0), &list);
        assert_eq!(sense.kcq(), INVALID_FIELD_IN_PARAMETER_LIST);
        assert_eq!(sense.field.map(|field| field.byte), Some(20));
    }
    out(&mut rig, &mut one, REGISTER, 0, 0, 7);
    for kind in [0x00, 0x02, 0x04, 0x09, 0x11] {
        let sense = rig.check(&mut one, &out_cdb(RESERVE, kind), &keys(7, 0));
        assert_eq!(sense.kcq(), INVALID_FIELD_IN_CDB, "scope and type {kind:#x}");
    }
    for action in 7..0x20 {
        assert_eq!(rig.check(&mut one, &out_cdb(action, 1), &keys(7, 0)).kcq(), INVALID_FIELD_IN_CDB);
    }
    for action in 4..0x20 {
        let cdb = [0x5e, action, 0, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!(rig.check(&mut one, &cdb, &[]).kcq(), INVALID_FIELD_IN_CDB);
    }
    let mut cdb = out_cdb(REGISTER, 0);
    cdb[8] = 28;
    assert_eq!(rig.check(&mut one, &cdb, &[0; 28]).kcq(), PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(rig.check(&mut one, &out_cdb(REGISTER, 0), &[0; 8]).kcq(), PARAMETER_LIST_LENGTH_ERROR);
}
