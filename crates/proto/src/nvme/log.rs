//! Log pages: NVMe base 2.1 §5.1.12.

use alloc::{vec, vec::Vec};

use super::{
    Sqe,
    command::{CommandId, admin, log_id, nvm},
    subsystem::SubsystemConfig,
};

const ERROR_ENTRY_LEN: usize = 64;
const SMART_LEN: usize = 512;
const FIRMWARE_LEN: usize = 512;
const CHANGED_LEN: usize = 4096;
const COMMANDS_LEN: usize = 4096;
const SUPPORTED_LEN: usize = 1024;
/// Maximum NSIDs in the Changed Namespace List. `FFFFFFFFh` alone means that there are more.
const MAX_CHANGED: usize = 1024;

/// A Get Log Page command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    pub id: u8,
    /// Log Specific Parameter.
    pub specific: u8,
    /// Retain Asynchronous Event: reading does not clear the event.
    pub retain_event: bool,
    pub len: u64,
    pub offset: u64,
}

impl GetLogPage {
    pub fn parse(sqe: &Sqe) -> Self {
        let dwords = u64::from(sqe.cdw(10) >> 16) | u64::from(sqe.cdw(11) & 0xffff) << 16;
        Self {
            id: sqe.cdw(10) as u8,
            specific: (sqe.cdw(10) >> 8) as u8 & 0x7f,
            retain_event: sqe.cdw(10) & 1 << 15 != 0,
            len: (dwords + 1) * 4,
            offset: u64::from(sqe.cdw(12)) | u64::from(sqe.cdw(13)) << 32,
        }
    }

    /// `len` is a multiple of 4.
    pub fn sqe(id: u8, len: u32, offset: u64, cid: CommandId) -> Sqe {
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE, cid, 0);
        let dwords = len / 4 - 1;
        sqe.set_cdw(10, u32::from(id) | dwords << 16);
        sqe.set_cdw(11, dwords >> 16);
        sqe.set_cdw(12, offset as u32);
        sqe.set_cdw(13, (offset >> 32) as u32);
        sqe
    }
}

/// The Error log: no error is recorded, so it has one entry of zeros.
pub fn error() -> Vec<u8> {
    vec![0; ERROR_ENTRY_LEN]
}

/// The SMART log: no warning, and all counters are 0.
pub fn smart() -> Vec<u8> {
    let mut bytes = vec![0; SMART_LEN];
    // Composite temperature in kelvin; available spare and its threshold in percent.
    bytes[1..3].copy_from_slice(&298_u16.to_le_bytes());
    bytes[3] = 100;
    bytes[4] = 10;
    bytes
}

/// The Firmware Slot log: one slot, which is active.
pub fn firmware(config: &SubsystemConfig) -> Vec<u8> {
    let mut bytes = vec![0; FIRMWARE_LEN];
    bytes[0] = 1;
    super::ascii::padded(&config.firmware, &mut bytes[8..16]);
    bytes
}

pub fn changed_namespaces(nsids: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; CHANGED_LEN];
    let all = [super::command::NSID_ALL];
    let listed = if nsids.len() > MAX_CHANGED { &all[..] } else { nsids };
    for (nsid, at) in listed.iter().zip(bytes.chunks_exact_mut(4)) {
        at.copy_from_slice(&nsid.to_le_bytes());
    }
    bytes
}

/// The Commands Supported and Effects log: admin commands, then I/O commands, one dword per opcode.
pub fn commands(is_discovery: bool) -> Vec<u8> {
    const SUPPORTED: u32 = 1;
    const CHANGES_BLOCKS: u32 = 1 << 1;
    let mut bytes = vec![0; COMMANDS_LEN];
    let mut put = |table: usize, opcode: u8, effects: u32| {
        let at = table * 1024 + usize::from(opcode) * 4;
        bytes[at..at + 4].copy_from_slice(&effects.to_le_bytes());
    };
    for opcode in [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT,
        admin::KEEP_ALIVE,
    ] {
        put(0, opcode, SUPPORTED);
    }
    if !is_discovery {
        for opcode in [
            nvm::FLUSH,
            nvm::READ,
            nvm::COMPARE,
            nvm::RESERVATION_REGISTER,
            nvm::RESERVATION_REPORT,
            nvm::RESERVATION_ACQUIRE,
            nvm::RESERVATION_RELEASE,
        ] {
            put(1, opcode, SUPPORTED);
        }
        for opcode in [nvm::WRITE, nvm::WRITE_ZEROES, nvm::DATASET_MANAGEMENT] {
            put(1, opcode, SUPPORTED | CHANGES_BLOCKS);
        }
    }
    bytes
}

/// The Supported Log Pages log.
pub fn supported(is_discovery: bool) -> Vec<u8> {
    let mut bytes = vec![0; SUPPORTED_LEN];
    let nvm =
        [log_id::SMART, log_id::FIRMWARE, log_id::CHANGED_NAMESPACES, log_id::ANA, log_id::RESERVATION_NOTIFICATION];
    let both = [log_id::SUPPORTED, log_id::ERROR, log_id::COMMANDS];
    let own = if is_discovery { &[log_id::DISCOVERY][..] } else { &nvm[..] };
    for id in both.iter().chain(own) {
        bytes[usize::from(*id) * 4] = 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_log_page_fields_survive_encoding() {
        let sqe = GetLogPage::sqe(log_id::DISCOVERY, 1 << 19, 0x1_0000_0400, CommandId(3));
        let parsed = GetLogPage::parse(&sqe);
        assert_eq!(
            parsed,
            GetLogPage { id: 0x70, specific: 0, retain_event: false, len: 1 << 19, offset: 0x1_0000_0400 }
        );
    }
}
