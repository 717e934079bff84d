//! Asymmetric logical unit access: what the device reports and refuses.

use iotax_proto::scsi::{
    AccessState::{self, NonOptimized, Optimized, Transitioning, Unavailable},
    LogicalUnit, Sense, encode_lun, initiator,
};

use super::rig::*;

const TEST_UNIT_READY: [u8; 6] = [0; 6];
/// Operation codes and service actions of the commands that an unavailable target port executes: REQUEST SENSE, INQUIRY,
/// REPORT LUNS and REPORT TARGET PORT GROUPS.
const ALWAYS: [(u8, u8); 4] = [(0x03, 0), (0x12, 0), (0xa0, 0), (0xa3, 0x0a)];

fn set_access(rig: &Rig, port: u16, state: AccessState) {
    rig.change_device(|device| assert!(device.set_access(port, state)));
}

/// REPORT TARGET PORT GROUPS with a format of the parameter data.
fn report(format: u8, allocation_len: u32) -> initiator::CdbBytes {
    let mut cdb = initiator::report_target_port_groups(allocation_len);
    cdb[1] |= format << 5;
    cdb
}

fn states(rig: &mut Rig, session: &mut Session) -> [Option<AccessState>; 3] {
    let data = rig.good(session, &report(0, 255), &[]);
    [1, 2, 3].map(|group| initiator::parse_access_state(&data, group))
}

/// Operation codes and service actions of all supported commands.
fn commands(rig: &mut Rig, session: &mut Session) -> Vec<(u8, u8)> {
    let all = rig.good(session, &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0], &[]);
    all[4..].chunks(8).map(|command| (command[0], command[3])).collect()
}

fn is_asymmetric(rig: &mut Rig, session: &mut Session) -> bool {
    let data = rig.good(session, &initiator::inquiry(96), &[]);
    assert_eq!(data[5] & !0x10, 0);
    data[5] == 0x10
}

#[test]
fn device_without_port_groups_says_nothing_of_access() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    assert!(!is_asymmetric(&mut rig, &mut session));
    let page = rig.good(&mut session, &initiator::inquiry_vpd(0x83, 255), &[]);
    assert_eq!(initiator::parse_target_port_group(&page), None);
    assert_eq!(rig.check(&mut session, &report(0, 255), &[]).kcq(), INVALID_FIELD_IN_CDB);
    assert!(!commands(&mut rig, &mut session).contains(&(0xa3, 0x0a)));
    rig.change_device(|device| assert!(!device.set_access(1, Unavailable)));
    rig.good(&mut session, &TEST_UNIT_READY, &[]);
}

#[test]
fn port_group_is_that_of_the_session_and_all_groups_are_reported() {
    let mut rig = Rig::asymmetric();
    for port in [1, 2] {
        let mut session = rig.session_at("a", port);
        assert!(is_asymmetric(&mut rig, &mut session));
        let page = rig.good(&mut session, &initiator::inquiry_vpd(0x83, 255), &[]);
        assert_eq!(initiator::parse_target_port_group(&page), Some(port));
        assert_eq!(states(&mut rig, &mut session), [Some(Optimized), Some(Optimized), None]);
        assert!(commands(&mut rig, &mut session).contains(&(0xa3, 0x0a)));
        assert!(!commands(&mut rig, &mut session).iter().any(|(opcode, _)| *opcode == 0xa4), "implicit access only");
    }
    // A port that is in no group.
    let mut session = rig.session_at("a", 3);
    assert!(!is_asymmetric(&mut rig, &mut session));
}

#[test]
fn both_headers_are_cut_to_the_allocation_length() {
    let mut rig = Rig::asymmetric();
    let mut session = rig.session("a");
    set_access(&rig, 2, NonOptimized);
    assert_eq!(rig.check(&mut session, &report(0, 255), &[]), Sense::ACCESS_STATE_CHANGED);
    let groups = [0, 0x8b, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0x8b, 0, 2, 0, 2, 0, 1, 0, 0, 0, 2];
    let short = [&[0, 0, 0, 24], &groups[..]].concat();
    let extended = [&[0, 0, 0, 28, 0x10, 0, 0, 0], &groups[..]].concat();
    for (format, whole) in [(0, short), (1, extended)] {
        for len in 0..=whole.len() + 4 {
            let data = rig.good(&mut session, &report(format, len as u32), &[]);
            assert_eq!(data, whole[..len.min(whole.len())]);
        }
    }
    for format in 2..8 {
        let sense = rig.check(&mut session, &report(format, 255), &[]);
        let field = sense.field.map(|field| (field.byte, field.bit));
        assert_eq!((sense.kcq(), field), (INVALID_FIELD_IN_CDB, Some((1, Some(7)))));
    }
}

#[test]
fn port_without_access_executes_only_what_the_standard_allows() {
    let mut rig = Rig::asymmetric();
    let mut session = rig.session("a");
    let (all, before) = (commands(&mut rig, &mut session), rig.volume.bytes.clone());
    assert!(all.len() > 40);
    for (state, refusal) in [(Unavailable, Sense::PORT_UNAVAILABLE), (Transitioning, Sense::PORT_IN_TRANSITION)] {
        set_access(&rig, 1, state);
        assert_eq!(rig.check(&mut session, &TEST_UNIT_READY, &[]), Sense::ACCESS_STATE_CHANGED);
        for (opcode, action) in &all {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1]) = (*opcode, *action);
            let response = rig.run(&mut session, &cdb, &[7; BLOCK]);
            let expected = if ALWAYS.contains(&(*opcode, *action)) { None } else { Some(refusal) };
            assert_eq!(response.sense, expected, "{opcode:02x} {action:02x}");
        }
        let data = rig.good(&mut session, &initiator::inquiry(96), &[]);
        assert_eq!(data[0] >> 5, u8::from(state == Unavailable), "the peripheral qualifier");
        assert_eq!(states(&mut rig, &mut session)[0], Some(state));
    }
    assert!(rig.volume.bytes == before && rig.volume.flushes == 0 && rig.volume.unmapped.is_empty());
    for state in [NonOptimized, Optimized] {
        set_access(&rig, 1, state);
        assert_eq!(rig.check(&mut session, &TEST_UNIT_READY, &[]), Sense::ACCESS_STATE_CHANGED);
        rig.good(&mut session, &initiator::write(3, 1, false), &block_of(7));
        assert_eq!(states(&mut rig, &mut session)[0], Some(state));
    }
}

#[test]
fn command_is_refused_for_access_whatever_is_reserved() {
    let mut rig = Rig::asymmetric();
    let (mut holder, mut other) = (rig.session("a"), rig.session_at("b", 2));
    rig.good(&mut holder, &[0x16, 0, 0, 0, 0, 0], &[]);
    rig.conflict(&mut other, &TEST_UNIT_READY, &[]);
    set_access(&rig, 2, Unavailable);
    assert_eq!(rig.check(&mut other, &TEST_UNIT_READY, &[]), Sense::ACCESS_STATE_CHANGED);
    assert_eq!(rig.check(&mut other, &TEST_UNIT_READY, &[]), Sense::PORT_UNAVAILABLE);
    set_access(&rig, 2, Optimized);
    assert_eq!(rig.check(&mut other, &TEST_UNIT_READY, &[]), Sense::ACCESS_STATE_CHANGED);
    rig.conflict(&mut other, &TEST_UNIT_READY, &[]);
}

#[test]
fn change_is_told_once_to_every_session_and_unit_and_costs_no_lock_afterwards() {
    let mut rig = Rig::asymmetric();
    rig.change_device(|device| device.add(LogicalUnit::new(9, iotax_proto::UnitId(7), "volume-0002")));
    let mut sessions = [rig.session("a"), rig.session("b"), rig.session_at("a", 2)];
    for session in &mut sessions {
        assert_eq!(rig.run_on(session, encode_lun(9), &TEST_UNIT_READY, &[]).sense, Some(Sense::POWER_ON));
    }
    set_access(&rig, 2, Optimized);
    for session in &mut sessions {
        rig.good(session, &TEST_UNIT_READY, &[]);
    }
    set_access(&rig, 2, NonOptimized);
    set_access(&rig, 2, Unavailable);
    for (index, session) in sessions.iter_mut().enumerate() {
        for lun in [0, 9] {
            let mut told = || rig.run_on(session, encode_lun(lun), &TEST_UNIT_READY, &[]).sense;
            let then = (index == 2).then_some(Sense::PORT_UNAVAILABLE);
            assert_eq!((told(), told()), (Some(Sense::ACCESS_STATE_CHANGED), then), "session {index}, LUN {lun}");
        }
    }
    let read = initiator::read(0, 1);
    rig.good(&mut sessions[0], &read, &[]);
    let before = rig.locks();
    for _ in 0..100 {
        rig.good(&mut sessions[0], &read, &[]);
        assert_eq!(rig.check(&mut sessions[2], &read, &[]), Sense::PORT_UNAVAILABLE);
    }
    assert_eq!(rig.locks(), before);
}
