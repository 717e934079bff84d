use iotax_proto::scsi::{Provisioning, encode_lun, initiator};

use super::rig::*;

#[test]
fn standard_data_name_the_device() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let data = rig.good(&mut session, &initiator::inquiry(255), &[]);
    assert_eq!(data.len(), usize::from(data[4]) + 5);
    assert_eq!((data[2], data[3] & 0x0f), (6, 2));
    let versions: Vec<_> = data[58..66].chunks(2).map(|field| u16::from_be_bytes([field[0], field[1]])).collect();
    assert_eq!(versions, [0x00a0, VERSION_DESCRIPTOR, 0x0460, 0x04c0], "the second is the transport's");
    let parsed = initiator::parse_inquiry(&data).expect("standard data");
    assert!(parsed.is_connected);
    assert_eq!((parsed.device_type, parsed.vendor.as_str(), parsed.product.as_str()), (0, "IOTAX", "VOLUME"));
}

#[test]
fn a_lun_without_a_unit_answers_that_nothing_is_there() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let response = rig.run_on(&mut session, encode_lun(1), &initiator::inquiry(36), &[]);
    assert_eq!(response.status, GOOD);
    let iotax_proto::scsi::DataIn::Inline(data) = response.data else { panic!("data") };
    assert_eq!(data[0], 0x7f);
}

#[test]
fn data_are_cut_to_the_allocation_length() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    for len in [0, 4, 5, 36, 95] {
        assert_eq!(rig.good(&mut session, &initiator::inquiry(len), &[]).len(), usize::from(len));
    }
    assert_eq!(rig.good(&mut session, &initiator::inquiry_vpd(0xb0, 4), &[]), [0, 0xb0, 0, 60]);
}

#[test]
fn a_page_code_without_evpd_is_refused() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let sense = rig.check(&mut session, &[0x12, 0, 1, 1, 0, 0], &[]);
    assert_eq!((sense.kcq(), sense.field.map(|field| field.byte)), (INVALID_FIELD_IN_CDB, Some(2)));
}

#[test]
fn every_listed_page_is_there_and_no_other() {
    for provisioning in [Provisioning::Full, Provisioning::Thin { reads_zero: false }] {
        let mut rig = Rig::with(provisioning);
        let mut session = rig.session("a");
        let data = rig.good(&mut session, &initiator::inquiry_vpd(0, 255), &[]);
        let pages = initiator::parse_vpd_pages(&data).expect("the list of pages");
        assert!(pages.is_sorted());
        assert_eq!(pages.contains(&0xb2), provisioning != Provisioning::Full);
        for page in 0..=u8::MAX {
            let cdb = initiator::inquiry_vpd(page, 1024);
            if pages.contains(&page) {
                let data = rig.good(&mut session, &cdb, &[]);
                let len = usize::from(u16::from_be_bytes([data[2], data[3]]));
                assert_eq!((data[0], data[1], data.len()), (0, page, len + 4));
            } else {
                assert_eq!(rig.check(&mut session, &cdb, &[]).kcq(), INVALID_FIELD_IN_CDB);
            }
        }
    }
}

#[test]
fn device_identification_names_unit_port_and_device() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let data = rig.good(&mut session, &initiator::inquiry_vpd(0x83, 1024), &[]);
    let mut rest = &data[4..];
    let mut designators = Vec::new();
    while let [code_set, kind, _, len, ..] = *rest {
        designators.push((code_set, kind, rest[4..4 + usize::from(len)].to_vec()));
        rest = &rest[4 + usize::from(len)..];
    }
    assert!(rest.is_empty());
    let of = |kind: u8| designators.iter().find(|designator| designator.1 == kind).map(|found| found.2.clone());
    assert_eq!(of(0x03).expect("NAA")[0] >> 4, 3);
    assert_eq!(of(0x01).expect("T10 vendor ID"), b"IOTAX   volume-0001");
    for (code_set, kind, _) in &designators {
        assert_eq!(code_set >> 4, if kind & 0x80 == 0 { 0 } else { 6 }, "the transport's protocol, where there is one");
    }
    assert_eq!(of(0x94).expect("relative target port"), [0, 0, 0, 1]);
    let port = of(0x98).expect("target port name");
    assert!(port.starts_with(b"iqn.2026-11.test:target,t,0x0001\0") && port.len() % 4 == 0);
    assert!(of(0xa8).expect("target device name").starts_with(b"iqn.2026-11.test:target\0"));
}

#[test]
fn block_limits_are_those_that_commands_keep() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    let data = rig.good(&mut session, &initiator::inquiry_vpd(0xb0, 64), &[]);
    assert_eq!(data[5], 128, "MAXIMUM COMPARE AND WRITE LENGTH");
    let limits = initiator::parse_block_limits(&data).expect("the page");
    assert_eq!(limits.max_transfer_blocks, MAX_IO_BLOCKS);
    assert_eq!((limits.max_unmap_blocks, limits.max_unmap_descriptors), (1 << 20, 255));
    assert_eq!(limits.max_write_same_blocks, 0xffff);
}

#[test]
fn provisioning_page_agrees_with_read_capacity() {
    for reads_zero in [false, true] {
        let mut rig = Rig::with(Provisioning::Thin { reads_zero });
        let mut session = rig.session("a");
        let page = rig.good(&mut session, &initiator::inquiry_vpd(0xb2, 64), &[]);
        assert_eq!(page[5] & 0xe0, 0xe0);
        assert_eq!(page[5] >> 2 & 1 == 1, reads_zero);
        let data = rig.good(&mut session, &initiator::read_capacity_16(32), &[]);
        let capacity = initiator::parse_capacity_16(&data).expect("capacity");
        assert_eq!((capacity.is_thin, capacity.unmapped_reads_zero), (true, reads_zero));
    }
}

#[test]
fn both_read_capacities_tell_the_size() {
    let mut rig = Rig::with(Provisioning::Full);
    let mut session = rig.session("a");
    let data = rig.good(&mut session, &initiator::read_capacity_10(), &[]);
    let short = initiator::parse_capacity_10(&data).expect("capacity");
    let data = rig.good(&mut session, &initiator::read_capacity_16(32), &[]);
    assert_eq!(initiator::parse_capacity_16(&data), Some(short));
    assert_eq!((short.blocks, short.block_size, short.is_thin), (BLOCKS, BLOCK as u32, false));
    for len in 0..16 {
        assert_eq!(rig.good(&mut session, &initiator::read_capacity_16(len), &[]).len(), len as usize);
    }
}

#[test]
fn read_capacity_sees_a_volume_grow() {
    let mut rig = Rig::new();
    let mut session = rig.session("a");
    rig.good(&mut session, &initiator::read_capacity_10(), &[]);
    rig.volume.bytes.resize(2 * BLOCKS as usize * BLOCK, 0);
    let data = rig.good(&mut session, &initiator::read_capacity_10(), &[]);
    assert_eq!(initiator::parse_capacity_10(&data).map(|capacity| capacity.blocks), Some(2 * BLOCKS));
    rig.good(&mut session, &cdb_10(0x28, 0, BLOCKS as u32, 1), &[]);
}
