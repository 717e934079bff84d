//! Tests of the drivers over real sockets and files, in one binary.
#![allow(clippy::unwrap_used, reason = "a test")]

#[macro_use]
mod support;

mod disks;
mod fallback;
mod shortage;
mod sockets;
