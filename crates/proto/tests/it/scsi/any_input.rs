//! The device server answers any input of a peer and never panics.

use arbtest::arbtest;
use iotax_proto::{
    Endings,
    scsi::{TaskManagement, describe_cdb, encode_lun, initiator, sense},
};

use super::rig::*;

/// Operation codes of the table, so that random CDBs reach the commands.
const OPCODES: [u8; 40] = [
    0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1d, 0x1e, 0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35,
    0x37, 0x41, 0x42, 0x55, 0x56, 0x57, 0x5a, 0x5e, 0x5f, 0x88, 0x89, 0x8a, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9e, 0xa0,
    0xa3, 0xaf,
];

#[test]
fn any_sequence_of_commands_is_answered() {
    arbtest(|u| {
        let mut rig = Rig::new();
        let mut sessions = [rig.session("a"), rig.session("b")];
        for _ in 0..u.int_in_range(1..=12)? {
            let session = &mut sessions[usize::from(u.arbitrary::<bool>()?)];
            let mut cdb: [u8; 16] = u.arbitrary()?;
            // Most bits of a CDB are reserved, so clear most bytes.
            for byte in &mut cdb[1..] {
                *byte = if u.ratio(2, 3)? { 0 } else { *byte };
            }
            if u.ratio(15, 16)? {
                cdb[0] = *u.choose(&OPCODES)?;
            }
            let len = if u.ratio(1, 8)? { u.int_in_range(0..=16)? } else { 16 };
            let data_len = if u.ratio(1, 2)? { 24 } else { u.int_in_range(0..=1100)? };
            let given = data_len.min(u.len());
            let mut data = u.bytes(given)?.to_vec();
            data.resize(data_len, 0);
            let lun = if u.ratio(7, 8)? { encode_lun(0) } else { u.arbitrary()? };
            let response = rig.run_on(session, lun, &cdb[..len], &data);
            assert_eq!(response.status == CHECK_CONDITION, response.sense.is_some());
            if u.ratio(1, 16)? {
                session.0.task_management(TaskManagement::LogicalUnitReset, u.arbitrary()?, &mut Endings::default());
            }
        }
        Ok(())
    });
}

#[test]
fn any_bytes_are_described_and_parsed() {
    arbtest(|u| {
        let len = u.arbitrary_len::<u8>()?;
        let bytes = u.bytes(len)?;
        assert!(!describe_cdb(bytes).is_empty());
        if let Some(parsed) = sense::parse(bytes) {
            assert_eq!(sense::parse(&parsed.encode()).map(|again| again.kcq()), Some(parsed.kcq()));
        }
        initiator::parse_inquiry(bytes);
        initiator::parse_capacity_10(bytes);
        initiator::parse_capacity_16(bytes);
        initiator::parse_block_limits(bytes);
        initiator::parse_vpd_pages(bytes);
        initiator::parse_report_luns(bytes);
        initiator::parse_write_protect(bytes);
        initiator::outcome(bytes.first().copied().unwrap_or(0), bytes);
        Ok(())
    });
}
