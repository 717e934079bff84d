//! Tests of the server and the load generator from outside, in one binary.
#![allow(clippy::unwrap_used, reason = "a test")]

mod answers;
#[path = "../../../proto/tests/it/capture/mod.rs"]
mod capture;
mod durability;
mod local_load;
mod modelled;
mod nfs41_golden;
mod nfs_clients;
mod nfs_golden;
mod nfs_servers;
mod nfs_support;
mod nfs_tree;
mod oltp;
mod open_loop;
mod overlaps;
mod pair;
mod protocol_pairs;
mod server;
mod server_threads;
mod sessions;
mod support;
mod turns;
mod volumes;
