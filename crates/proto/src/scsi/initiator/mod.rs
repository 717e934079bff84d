//! The initiator's side: CDBs, their response data, and the meaning of failures. It depends neither on a transport nor
//! on the target's side.

mod builders;
mod outcome;
mod port_access;
mod probe;
mod query;

pub use self::builders::{
    BlockLimits, Capacity, Inquiry, parse_access_state, parse_block_limits, parse_capacity_10, parse_capacity_16,
    parse_inquiry, parse_report_luns, parse_serial, parse_target_port_group, parse_vpd_pages, parse_write_protect,
};
pub use self::probe::Job;
pub use builders::{
    CdbBytes, inquiry, inquiry_vpd, mode_sense_6, persistent_reserve_out, read, read_capacity_10, read_capacity_16,
    report_luns, report_target_port_groups, synchronize_cache_10, synchronize_cache_16, test_unit_ready, unmap,
    unmap_parameters, write, write_same_16,
};
pub use outcome::{CommandOutcome, failure, outcome};
pub use port_access::{AccessQuery, Asked};
pub use probe::{Probe, Probed};
pub use query::ProbeCommand;
