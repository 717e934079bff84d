use iotax_proto::{
    Endings, UnitId,
    scsi::{DataIn, LogicalUnit, Sense, TaskManagement, TaskManagementResponse, encode_lun, initiator, sense},
};

use super::rig::*;

const TEST_UNIT_READY: [u8; 6] = [0; 6];

#[test]
fn power_on_is_told_once_to_each_session() {
    let mut rig = Rig::new();
    for name in ["a", "b"] {
        let mut session = rig.fresh_session(name);
        assert_eq!(rig.check(&mut session, &cdb_10(0x28, 0, 0, 1), &[]), Sense::POWER_ON);
        rig.good(&mut session, &cdb_10(0x28, 0, 0, 1), &[]);
    }
}

#[test]
fn inquiry_and_report_luns_leave_a_unit_attention_pending() {
    let mut rig = Rig::new();
    let mut session = rig.fresh_session("a");
    rig.good(&mut session, &initiator::inquiry(36), &[]);
    let luns = rig.good(&mut session, &initiator::report_luns(16), &[]);
    assert_eq!(initiator::parse_report_luns(&luns), Some(vec![0]));
    assert_eq!(rig.check(&mut session, &TEST_UNIT_READY, &[]), Sense::POWER_ON);
}

#[test]
fn request_sense_takes_a_unit_attention_as_data() {
    let mut rig = Rig::new();
    let mut session = rig.fresh_session("a");
    let data = rig.good(&mut session, &[0x03, 0, 0, 0, 252, 0], &[]);
    assert_eq!(sense::parse(&data), Some(Sense::POWER_ON));
    rig.good(&mut session, &TEST_UNIT_READY, &[]);
    let data = rig.good(&mut session, &[0x03, 1, 0, 0, 252, 0], &[]);
    assert_eq!(data[0], 0x72, "DESC asks for descriptor format");
    assert_eq!(sense::parse(&data).map(|sense| sense.kcq()), Some(0));
}

#[test]
fn a_wrong_cdb_is_told_before_a_unit_attention() {
    let mut rig = Rig::new();
    let mut session = rig.fresh_session("a");
    assert_eq!(rig.check(&mut session, &cdb_10(0x28, 0xe0, 0, 1), &[]).kcq(), INVALID_FIELD_IN_CDB);
    assert_eq!(rig.check(&mut session, &TEST_UNIT_READY, &[]), Sense::POWER_ON);
}

#[test]
fn commands_to_luns_without_a_unit_say_so() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for lun in [encode_lun(1), encode_lun(300), 1, u64::MAX] {
        let response = rig.run_on(&mut session, lun, &TEST_UNIT_READY, &[]);
        assert_eq!(response.sense, Some(Sense::LOGICAL_UNIT_NOT_SUPPORTED));
        let response = rig.run_on(&mut session, lun, &[0x03, 0, 0, 0, 18, 0], &[]);
        let DataIn::Inline(data) = response.data else { panic!("sense data") };
        assert_eq!(sense::parse(&data), Some(Sense::LOGICAL_UNIT_NOT_SUPPORTED));
    }
}

#[test]
fn report_luns_selects_what_there_is() {
    let mut rig = Rig::new();
    rig.change_device(|device| device.add(LogicalUnit::new(300, UnitId(7), "volume-0002")));
    let mut session = rig.session("a");
    for (select, count) in [(0, 2), (1, 0), (2, 2)] {
        let mut cdb = initiator::report_luns(4096);
        cdb[2] = select;
        let data = rig.good(&mut session, &cdb, &[]);
        assert_eq!(initiator::parse_report_luns(&data).map(|luns| luns.len()), Some(count));
    }
    let mut cdb = initiator::report_luns(4096);
    cdb[2] = 3;
    assert_eq!(rig.check(&mut session, &cdb, &[]).kcq(), INVALID_FIELD_IN_CDB);
}

#[test]
fn units_come_while_a_session_stands() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    rig.change_device(|device| device.add(LogicalUnit::new(1, UnitId(7), "volume-0002")));
    assert_eq!(rig.check(&mut session, &TEST_UNIT_READY, &[]), Sense::REPORTED_LUNS_CHANGED);
    rig.good(&mut session, &initiator::report_luns(64), &[]);
    assert_eq!(rig.run_on(&mut session, encode_lun(1), &TEST_UNIT_READY, &[]).status, GOOD);
}

#[test]
fn resets_are_told_to_all() {
    let mut rig = Rig::new();
    let (mut one, mut other) = (rig.session("a"), rig.session("b"));
    for function in [TaskManagement::LogicalUnitReset, TaskManagement::TargetReset] {
        assert_eq!(one.0.task_management(function, 0, &mut Endings::default()), TaskManagementResponse::Complete);
        for session in [&mut one, &mut other] {
            assert_eq!(rig.check(session, &TEST_UNIT_READY, &[]), Sense::BUS_DEVICE_RESET);
            rig.good(session, &TEST_UNIT_READY, &[]);
        }
    }
}

#[test]
fn reads_and_writes_take_no_lock() {
    let mut rig = Rig::new();
    let (mut session, mut other) = (rig.session("a"), rig.session("b"));
    let (read, write) = (cdb_10(0x28, 0, 0, 1), cdb_10(0x2a, 0, 0, 1));
    rig.good(&mut session, &read, &[]);
    let locks = rig.locks();
    for _ in 0..3 {
        rig.good(&mut session, &read, &[]);
        rig.good(&mut session, &write, &block_of(1));
    }
    assert_eq!(rig.locks(), locks);
    rig.good(&mut other, &[0x16, 0, 0, 0, 0, 0], &[]);
    rig.conflict(&mut session, &read, &[]);
    assert!(rig.locks() > locks, "another nexus made a reservation: the session looked again");
}

#[test]
fn task_management_knows_luns_and_its_limits() {
    let rig = Rig::new();
    let mut session = rig.fresh_session("a");
    let mut ask = |function, lun| session.0.task_management(function, lun, &mut Endings::default());
    assert_eq!(ask(TaskManagement::AbortTask, 0), TaskManagementResponse::Complete);
    assert_eq!(ask(TaskManagement::AbortTaskSet, encode_lun(5)), TaskManagementResponse::NoLun);
    assert_eq!(ask(TaskManagement::LogicalUnitReset, encode_lun(5)), TaskManagementResponse::NoLun);
    assert_eq!(ask(TaskManagement::ClearAca, 0), TaskManagementResponse::Unsupported);
}

#[test]
fn start_stop_unit_flushes_on_a_stop() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for (flags, flushes) in [(0x01, 0), (0x04, 0), (0x00, 1)] {
        rig.good(&mut session, &[0x1b, 0, 0, 0, flags, 0], &[]);
        assert_eq!(rig.volume.flushes, flushes);
        rig.good(&mut session, &TEST_UNIT_READY, &[]);
    }
    for flags in [0x02, 0x10] {
        let sense = rig.check(&mut session, &[0x1b, 0, 0, 0, flags, 0], &[]);
        assert_eq!(sense.kcq(), INVALID_FIELD_IN_CDB, "no medium to eject, no power conditions");
    }
}

#[test]
fn commands_with_nothing_to_do_succeed() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for cdb in [[0x1e, 0, 0, 0, 1, 0], [0x1e, 0, 0, 0, 0, 0], [0x1d, 4, 0, 0, 0, 0]] {
        rig.good(&mut session, &cdb, &[]);
    }
    let list = rig.good(&mut session, &[0x37, 0, 0x18, 0, 0, 0, 0, 0, 32, 0], &[]);
    assert_eq!(list, [0, 0x18, 0, 0]);
    let list = rig.good(&mut session, &[0xb7, 0x18, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], &[]);
    assert_eq!(list, [0, 0x18, 0, 0, 0, 0, 0, 0]);
}
