//! What the fuzz targets do with their bytes. The peers are those of the tests: honest up to the full feature phase, from
//! there on what the fuzzer makes up. It has found something where a machine panics or leaves an operation open.

#[path = "../../crates/proto/tests/fcp_support/mod.rs"]
pub mod fcp_support;
#[path = "../../crates/proto/tests/iscsi_support/mod.rs"]
pub mod iscsi_support;
#[path = "../../crates/proto/tests/nfs_support/mod.rs"]
pub mod nfs_support;
#[path = "../../crates/proto/tests/nvme_support/mod.rs"]
pub mod nvme_support;

pub mod codecs;
pub mod fcp;
pub mod iscsi;
pub mod nfs;
pub mod nvme;

/// Bytes as they arrive: the first says in pieces of which length, 0 for all at once.
pub fn pieces(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (first, rest) = data.split_first().unwrap_or((&0, &[]));
    let len = if *first == 0 { rest.len().max(1) } else { usize::from(*first) };
    rest.chunks(len)
}
