//! Controller properties, which hosts access with Property Get and Property Set (NVMe base 2.1 §3.1.4).

use core::time::Duration;

pub const CAP: u32 = 0x00;
pub const VS: u32 = 0x08;
pub const CC: u32 = 0x14;
pub const CSTS: u32 = 0x1c;

/// NVMe version 2.1.
pub const VERSION: u32 = 0x0002_0100;

/// Maximum time to become ready: CAP.TO in units of 500 ms.
const READY_TIMEOUT_HALF_SECONDS: u64 = 10;

/// CAP: contiguous queues, NVM command set, 4 KiB pages. `max_queue_entries` includes the entry that flow control keeps
/// free.
pub fn capabilities(max_queue_entries: u16) -> u64 {
    u64::from(max_queue_entries - 1) | 1 << 16 | READY_TIMEOUT_HALF_SECONDS << 24 | 1 << 37
}

/// CAP.MQES, 0's based.
pub fn max_sq_size(cap: u64) -> u16 {
    cap as u16
}

/// CAP.TO.
pub fn ready_timeout(cap: u64) -> Duration {
    Duration::from_millis(500 * (cap >> 24 & 0xff))
}

/// CAP.MPSMIN: the unit of MDTS, in bytes.
pub fn min_page_size_bytes(cap: u64) -> u64 {
    1 << (12 + (cap >> 48 & 0xf))
}

pub const CC_ENABLE: u32 = 1;
pub const CC_SHUTDOWN_MASK: u32 = 3 << 14;
pub const CC_SHUTDOWN_NORMAL: u32 = 1 << 14;
/// The values that a host sets: 64-byte submission entries, 16-byte completion entries, NVM command set, 4 KiB pages.
pub const CC_ENTRY_SIZES: u32 = 6 << 16 | 4 << 20;

pub const CSTS_READY: u32 = 1;
pub const CSTS_FATAL: u32 = 1 << 1;
pub const CSTS_SHUTDOWN_MASK: u32 = 3 << 2;
pub const CSTS_SHUTDOWN_PROCESSING: u32 = 1 << 2;
pub const CSTS_SHUTDOWN_COMPLETE: u32 = 2 << 2;
