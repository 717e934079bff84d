//! What the fuzz targets do with their bytes. The peers are those of the tests: honest up to the full feature phase, from
//! there on what the fuzzer makes up. It has found something where a machine panics or leaves an operation open.

#[path = "../../crates/proto/tests/fc_nvme_support/mod.rs"]
pub mod fc_nvme_support;
#[path = "../../crates/proto/tests/fcp_support/mod.rs"]
pub mod fcp_support;
#[path = "../../crates/proto/tests/iscsi_support/mod.rs"]
pub mod iscsi_support;
#[path = "../../crates/proto/tests/nfs_support/mod.rs"]
pub mod nfs_support;
#[path = "../../crates/proto/tests/nvme_support/mod.rs"]
pub mod nvme_support;

pub mod codecs;
pub mod fc_nvme;
pub mod fcp;
pub mod frames;
pub mod iscsi;
pub mod nfs;
pub mod nvme;
pub mod peers;
