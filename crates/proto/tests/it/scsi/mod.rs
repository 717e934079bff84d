//! The SCSI device server as its transports use it: whole commands on a volume in memory.

mod access;
mod any_input;
mod inquiry;
mod medium;
mod mode;
mod nexus;
mod opcodes;
mod provisioning;
mod reservations;
mod rig;
