//! Tests of the protocols through their public interface, in one binary: initiators, targets, pairs of both, hostile
//! peers, and allocation.
#![allow(clippy::unwrap_used, reason = "a test")]

mod capture;
mod counted;
mod fc_nvme_alloc;
mod fc_nvme_golden;
mod fc_nvme_hostile;
mod fc_nvme_pair;
mod fc_nvme_support;
mod fcp_alloc;
mod fcp_golden;
mod fcp_hostile;
mod fcp_pair;
mod fcp_support;
mod in_place;
mod iscsi_alloc;
mod iscsi_golden;
mod iscsi_hostile;
mod iscsi_initiator;
mod iscsi_login;
mod iscsi_nexuses;
mod iscsi_pair;
mod iscsi_support;
mod iscsi_target;
mod nfs41_hostile;
mod nfs41_ios;
mod nfs41_pair;
mod nfs41_sessions;
mod nfs42_space;
mod nfs_alloc;
mod nfs_hostile;
mod nfs_initiator;
mod nfs_pair;
mod nfs_support;
mod nvme_ana;
mod nvme_reservations;
mod nvme_support;
mod nvme_tcp_admin;
mod nvme_tcp_auth;
mod nvme_tcp_golden;
mod nvme_tcp_hostile;
mod nvme_tcp_initiator;
mod nvme_tcp_io;
mod nvme_tcp_pair;
mod scsi;
mod spoiled;
