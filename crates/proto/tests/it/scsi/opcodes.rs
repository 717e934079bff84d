use iotax_proto::scsi::{Provisioning, describe_cdb};

use super::rig::*;

/// Operation code, service action and whether there is a service action, for every reported command.
fn reported(rig: &mut Rig, session: &mut Session) -> Vec<(u8, u16, bool)> {
    let data = rig.good(session, &report(0, 0, 0), &[]);
    assert_eq!(u32::from_be_bytes(data[..4].try_into().expect("four bytes")) as usize, data.len() - 4);
    data[4..].chunks(8).map(|row| (row[0], u16::from_be_bytes([row[2], row[3]]), row[5] & 1 == 1)).collect()
}

fn report(options: u8, opcode: u8, action: u16) -> [u8; 12] {
    let [high, low] = action.to_be_bytes();
    [0xa3, 0x0c, options, opcode, high, low, 0, 0, 0xff, 0xff, 0, 0]
}

#[test]
fn every_command_reported_is_reported_alone_too() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let commands = reported(&mut rig, &mut session);
    assert!(commands.len() > 50);
    for (opcode, action, has_action) in commands {
        let (right, wrong) = if has_action { (2, 1) } else { (1, 2) };
        for options in [right, 3] {
            let one = rig.good(&mut session, &report(options, opcode, action), &[]);
            assert_eq!((one[1], one[4]), (0x03, opcode));
            assert_eq!(usize::from(one[3]), one.len() - 4);
            if has_action {
                assert_eq!(u16::from(one[5] & 0x1f), action);
            }
        }
        let sense = rig.check(&mut session, &report(wrong, opcode, action), &[]);
        assert_eq!(sense.kcq(), INVALID_FIELD_IN_CDB);
    }
}

#[test]
fn timeouts_descriptors_come_where_asked_for() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let data = rig.good(&mut session, &report(0x80, 0, 0), &[]);
    for row in data[4..].chunks(20) {
        assert_eq!(row[5] & 2, 2);
        assert_eq!(row[8..10], [0, 10]);
    }
    let one = rig.good(&mut session, &report(0x81, 0x28, 0), &[]);
    assert_eq!((one[1], one.len()), (0x83, 4 + 10 + 12));
}

#[test]
fn commands_that_are_not_there_are_reported_so() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for cdb in [report(1, 0x9c, 0), report(2, 0x48, 1), report(3, 0x9e, 0x1f)] {
        assert_eq!(rig.good(&mut session, &cdb, &[]), [0, 1, 0, 0]);
    }
}

/// REPORT SUPPORTED OPERATION CODES and the dispatch of commands use one table: the reported commands run, and all
/// others are rejected.
#[test]
fn exactly_the_reported_commands_are_known() {
    for provisioning in [Provisioning::Full, Provisioning::Thin { reads_zero: true }] {
        let mut rig = Rig::with(provisioning);
        let mut session = rig.session("a");
        let commands = reported(&mut rig, &mut session);
        for opcode in 0..=u8::MAX {
            let mut cdb = [0; 16];
            cdb[0] = opcode;
            if let Some((_, action, true)) = commands.iter().find(|command| command.0 == opcode) {
                cdb[1] = *action as u8;
            }
            let response = rig.run(&mut session, &cdb, &[]);
            let is_unknown = response.sense.is_some_and(|sense| sense.kcq() == INVALID_OPCODE);
            assert_eq!(is_unknown, !commands.iter().any(|command| command.0 == opcode), "{opcode:#x}");
        }
    }
}

#[test]
fn every_bit_outside_the_usage_data_is_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for (opcode, action, has_action) in reported(&mut rig, &mut session) {
        let usage = rig.good(&mut session, &report(3, opcode, action), &[])[4..].to_vec();
        for bit in 8..usage.len() * 8 {
            let (at, mask) = (bit / 8, 1 << (bit % 8));
            if usage[at] & mask != 0 || (has_action && at == 1 && mask < 0x20) {
                continue;
            }
            let mut cdb = vec![0; usage.len()];
            cdb[0] = opcode;
            cdb[1] = action as u8;
            cdb[at] |= mask;
            let sense = rig.check(&mut session, &cdb, &[]);
            assert_eq!(sense.kcq(), INVALID_FIELD_IN_CDB, "{cdb:02x?}");
            let field = sense.field.expect("a field pointer");
            assert_eq!((usize::from(field.byte), field.bit), (at, Some((bit % 8) as u8)), "{cdb:02x?}");
        }
    }
}

#[test]
fn task_management_functions_are_reported() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let cdb = |flags: u8| [0xa3, 0x0d, flags, 0, 0, 0, 0, 0, 0, 64, 0, 0];
    assert_eq!(rig.good(&mut session, &cdb(0), &[]), [0xde, 3, 0, 0]);
    assert_eq!(rig.good(&mut session, &cdb(0x80), &[]).len(), 16);
}

#[test]
fn a_cdb_shorter_than_its_operation_code_says_is_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    assert_eq!(rig.check(&mut session, &cdb_10(0x28, 0, 0, 1)[..9], &[]).kcq(), INVALID_FIELD_IN_CDB);
    assert_eq!(rig.check(&mut session, &[], &[]).kcq(), INVALID_OPCODE);
}

#[test]
fn cdbs_are_described_by_name_and_fields() {
    assert_eq!(describe_cdb(&cdb_10(0x28, 0x08, 16, 8)), "READ(10) lba=16 blocks=8 FUA");
    assert_eq!(describe_cdb(&cdb_16(0x8a, 0, 1 << 33, 1)), "WRITE(16) lba=8589934592 blocks=1");
    assert_eq!(describe_cdb(&[0x12, 1, 0x83, 0, 255, 0]), "INQUIRY VPD page=0x83 allocation=255");
    assert_eq!(describe_cdb(&[0x12, 0, 0, 0, 36, 0]), "INQUIRY allocation=36");
    assert_eq!(describe_cdb(&[0x1a, 0, 0x3f, 0xff, 192, 0]), "MODE SENSE(6) page=0x3f subpage=0xff allocation=192");
    assert_eq!(describe_cdb(&cdb_16(0x9e, 0x10, 0, 32)), "READ CAPACITY(16) allocation=32");
    assert_eq!(describe_cdb(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]), "UNMAP list=24");
    assert_eq!(
        describe_cdb(&[0x5f, 1, 3, 0, 0, 0, 0, 0, 24, 0]),
        "PERSISTENT RESERVE OUT: RESERVE scope=0 type=3 list=24"
    );
    assert_eq!(describe_cdb(&[0; 6]), "TEST UNIT READY");
    assert_eq!(describe_cdb(&[0xff]), "unknown command 0xff");
    assert_eq!(describe_cdb(&[0x28, 0]), "READ(10) cut to 2 bytes");
    assert_eq!(describe_cdb(&[0x5e, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0]), "unknown service action 0x1f of 0x5e");
    assert_eq!(describe_cdb(&[]), "empty CDB");
}
