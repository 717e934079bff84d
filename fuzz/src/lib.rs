//! The fuzz targets. Peers come from the tests: they follow the protocol up to the full feature phase, and then send
//! the fuzzer's bytes. A state machine that panics or leaves an operation open is a finding.

#[path = "../../crates/proto/tests/it/fc_nvme_support/mod.rs"]
pub mod fc_nvme_support;
#[path = "../../crates/proto/tests/it/fcp_support/mod.rs"]
pub mod fcp_support;
#[path = "../../crates/proto/tests/it/in_place.rs"]
pub mod in_place;
#[path = "../../crates/proto/tests/it/iscsi_support/mod.rs"]
pub mod iscsi_support;
#[path = "../../crates/proto/tests/it/nfs_support/mod.rs"]
pub mod nfs_support;
#[path = "../../crates/proto/tests/it/nvme_support/mod.rs"]
pub mod nvme_support;

pub mod codecs;
pub mod fc_nvme;
pub mod fcp;
pub mod frames;
pub mod iscsi;
pub mod nfs;
pub mod nvme;
pub mod peers;

use nfs_support::{V3, V41};

/// Name of the corpus, and fuzz target: the codecs, and each side of each protocol.
pub const TARGETS: [(&str, fn(&[u8])); 13] = [
    ("codecs", codecs::run),
    ("iscsi_target", iscsi::target),
    ("iscsi_initiator", iscsi::initiator),
    ("nvme_target", nvme::target),
    ("nvme_initiator", nvme::initiator),
    ("nfs_target", nfs::target::<V3>),
    ("nfs_initiator", nfs::initiator::<V3>),
    ("nfs41_target", nfs::target::<V41>),
    ("nfs41_initiator", nfs::initiator::<V41>),
    ("fcp_target", fcp::target),
    ("fcp_initiator", fcp::initiator),
    ("fc_nvme_target", fc_nvme::target),
    ("fc_nvme_initiator", fc_nvme::initiator),
];
