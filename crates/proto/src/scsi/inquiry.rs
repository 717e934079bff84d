//! INQUIRY (SPC-5 §6.6) and the vital product data pages (SPC-5 §7.7, SBC-4 §6.6).

use alloc::vec::Vec;

use super::{
    access::AccessState,
    call::{Call, Handled, answer},
    lun::LunView,
    medium::max_compare_and_write,
    provisioning::{UNMAP_BLOCKS_MAX, UNMAP_DESCRIPTORS_MAX, max_write_same_blocks},
    sense::{Fault, Sense},
};

/// VERSION DESCRIPTORs (SPC-5 §6.6.2). The transport's descriptor follows the first.
const SAM_5: u16 = 0x00a0;
const SPC_4: u16 = 0x0460;
const SBC_3: u16 = 0x04c0;

pub(crate) fn inquiry(call: &mut Call<'_>) -> Handled {
    let allocation_len = call.cdb.u16(3);
    let (evpd, page) = (call.cdb.bit(1, 0), call.cdb.u8(2));
    let data = match (evpd, page) {
        (false, 0) => standard(call),
        (false, _) => return Err(Sense::cdb_field(2, None).into()),
        (true, page) => vpd_page(call, page)?,
    };
    answer(data, allocation_len)
}

fn standard(call: &Call<'_>) -> Vec<u8> {
    let mut data = alloc::vec![0; 96];
    data[0] = peripheral(call);
    data[2] = 0x06; // VERSION: SPC-4
    data[3] = 0x12; // HISUP, RESPONSE DATA FORMAT 2
    data[4] = (data.len() - 5) as u8;
    if is_asymmetric(call) {
        data[5] = 0x10; // TPGS: implicit asymmetric access
    }
    data[7] = 0x02; // CMDQUE
    call.with_device(|device| {
        put_ascii(&mut data[8..16], &device.identity.vendor);
        put_ascii(&mut data[16..32], &device.identity.product);
        put_ascii(&mut data[32..36], &device.identity.revision);
    });
    let versions = [SAM_5, call.nexus.ports.transport.version_descriptor, SPC_4, SBC_3];
    for (field, version) in data[58..].chunks_exact_mut(2).zip(versions) {
        field.copy_from_slice(&version.to_be_bytes());
    }
    data
}

/// Length of the unit serial number in characters.
const SERIAL_LEN: usize = 36;

/// Pages in the order of their codes. The last one exists only with thin provisioning.
const PAGES: [u8; 7] = [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, LOGICAL_BLOCK_PROVISIONING];
const LOGICAL_BLOCK_PROVISIONING: u8 = 0xb2;

/// A page with its header, for an INQUIRY with EVPD.
pub(crate) fn vpd_page(call: &Call<'_>, code: u8) -> Result<Vec<u8>, Fault> {
    let view = call.unit()?;
    let is_known = PAGES.contains(&code) && (code != LOGICAL_BLOCK_PROVISIONING || view.is_thin());
    if !is_known {
        return Err(Sense::cdb_field(2, None).into());
    }
    let body = match code {
        0x00 => PAGES.into_iter().filter(|page| *page != LOGICAL_BLOCK_PROVISIONING || view.is_thin()).collect(),
        0x80 => serial(call, &view).into_bytes(),
        0x83 => device_identification(call, &view),
        0x86 => extended_inquiry(&view),
        0xb0 => block_limits(&view),
        0xb1 => block_device_characteristics(&view),
        _ => logical_block_provisioning(&view),
    };
    let mut page = alloc::vec![peripheral(call), code];
    page.extend_from_slice(&(body.len() as u16).to_be_bytes());
    page.extend_from_slice(&body);
    Ok(page)
}

fn serial(call: &Call<'_>, view: &LunView) -> alloc::string::String {
    let mut serial = call.with_device(|device| device.lun(view.lun).map(|unit| unit.config.serial.clone()));
    let serial = serial.get_or_insert_default();
    serial.chars().filter(char::is_ascii_graphic).take(SERIAL_LEN).collect()
}

/// The Device Identification page (SPC-5 §7.7.6): the logical unit by NAA and T10 vendor ID, the target port by number
/// and name, its target port group, and the target device by name.
fn device_identification(call: &Call<'_>, view: &LunView) -> Vec<u8> {
    const BINARY: u8 = 1;
    const ASCII: u8 = 2;
    const UTF8: u8 = 3;
    const UNIT: u8 = 0x00;
    /// PIV and the association.
    const PORT: u8 = 0x90;
    const DEVICE: u8 = 0xa0;
    let serial = serial(call, view);
    let ports = &call.nexus.ports;
    let mut page = Vec::new();
    let mut designator = |code_set: u8, association_and_type: u8, bytes: &[u8]| {
        // The protocol identifier is valid only if PIV is set.
        let protocol = if association_and_type & 0x80 != 0 { ports.transport.protocol_identifier << 4 } else { 0 };
        page.extend_from_slice(&[protocol | code_set, association_and_type, 0, bytes.len() as u8]);
        page.extend_from_slice(bytes);
    };
    designator(BINARY, UNIT | 3, &locally_assigned_naa(&serial).to_be_bytes());
    let mut vendor_specific = [0; 8].to_vec();
    call.with_device(|device| put_ascii(&mut vendor_specific, &device.identity.vendor));
    vendor_specific.extend_from_slice(serial.as_bytes());
    designator(ASCII, UNIT | 1, &vendor_specific);
    let [high, low] = ports.relative_target_port.to_be_bytes();
    designator(BINARY, PORT | 4, &[0, 0, high, low]);
    if is_asymmetric(call) {
        // The target port group. It has the number of its only target port.
        designator(BINARY, PORT | 5, &[0, 0, high, low]);
    }
    designator(UTF8, PORT | 8, &name_string(&ports.target));
    designator(UTF8, DEVICE | 8, &name_string(&ports.target_device));
    page
}

/// A SCSI name string: null-terminated and padded to a multiple of four bytes (SPC-5 §7.7.6.11).
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = name.bytes().take(SCSI_NAME_MAX - 1).collect();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

/// Length of the longest designator: a multiple of four that fits the length byte.
const SCSI_NAME_MAX: usize = 252;

/// NAA 3h and sixty bits of FNV-1a over the serial number, so it is the same wherever the volume is exported.
fn locally_assigned_naa(serial: &str) -> u64 {
    let hash = serial
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    3 << 60 | hash >> 4
}

/// The Extended INQUIRY Data page (SPC-5 §7.7.7): simple tasks are supported (other attributes count as simple), the
/// cache may be volatile, and a LU reset does not clear I_T nexus loss.
fn extended_inquiry(view: &LunView) -> Vec<u8> {
    let mut page = alloc::vec![0; 60];
    page[1] = 0x01; // SIMPSUP
    page[2] = u8::from(view.mode.write_cache); // V_SUP
    page
}

/// The Block Limits page (SBC-4 §6.6.4).
fn block_limits(view: &LunView) -> Vec<u8> {
    let mut page = alloc::vec![0; 60];
    let mut put = |at: usize, bytes: &[u8]| page[at - 4..at - 4 + bytes.len()].copy_from_slice(bytes);
    put(5, &[max_compare_and_write(view)]);
    put(6, &1u16.to_be_bytes());
    put(8, &view.max_io_blocks.to_be_bytes());
    put(12, &view.max_io_blocks.to_be_bytes());
    if view.is_thin() {
        put(20, &UNMAP_BLOCKS_MAX.to_be_bytes());
        put(24, &UNMAP_DESCRIPTORS_MAX.to_be_bytes());
        put(28, &1u32.to_be_bytes());
    }
    put(36, &u64::from(max_write_same_blocks(view)).to_be_bytes());
    page
}

/// The Block Device Characteristics page (SBC-4 §6.6.2): the medium does not rotate, and erased blocks read as zeros
/// (WABEREQ 01b).
fn block_device_characteristics(view: &LunView) -> Vec<u8> {
    let mut page = alloc::vec![0; 60];
    page[..2].copy_from_slice(&1u16.to_be_bytes());
    page[3] = u8::from(view.erasable) << 6;
    page
}

/// The Logical Block Provisioning page (SBC-4 §6.6.7): LBPU, LBPWS, LBPWS10 and LBPRZ of a thin logical unit.
fn logical_block_provisioning(view: &LunView) -> Vec<u8> {
    alloc::vec![0, 0xe0 | u8::from(view.unmapped_reads_zero()) << 2, 0x02, 0]
}

/// No device at this LUN: peripheral qualifier 011b, type 1Fh.
const NO_UNIT: u8 = 0x7f;

/// A block device that is not accessible through this target port: peripheral qualifier 001b (SPC-4 §5.15).
const UNAVAILABLE: u8 = 0x20;

/// PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE.
pub(crate) fn peripheral(call: &Call<'_>) -> u8 {
    match call.view {
        None => NO_UNIT,
        Some(view) if view.access == Some(AccessState::Unavailable) => UNAVAILABLE,
        Some(_) => 0x00,
    }
}

/// Whether the device has target port groups.
fn is_asymmetric(call: &Call<'_>) -> bool {
    call.view.is_some_and(|view| view.access.is_some())
}

/// Left-aligned ASCII, padded with spaces (SPC-5 §4.3.1).
pub(crate) fn put_ascii(field: &mut [u8], text: &str) {
    let mut bytes = text.bytes().filter(|byte| (0x20..0x7f).contains(byte));
    field.fill_with(|| bytes.next().unwrap_or(b' '));
}
