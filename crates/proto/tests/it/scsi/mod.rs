//! The SCSI device server seen from its transports: whole commands against a volume in memory.

mod any_input;
mod inquiry;
mod medium;
mod mode;
mod nexus;
mod opcodes;
mod provisioning;
mod reservations;
mod rig;
