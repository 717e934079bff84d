# iSCSI extensions for RDMA (RFC 7145) over RoCE in software.
IQN=$IQN:iser # beside iSCSI over TCP
. /lab/iscsi_common.sh
ISER=1
target_up() {
    net_up 1
    rdma_up
    load iscsi_target_mod ib_isert
    iscsi_target_up
}
target_down() { iscsi_target_down; }
initiator_up() {
    net_up 2
    rdma_up
    load ib_iser
    iscsi_initiator_up iser
}
initiator_down() { iscsi_initiator_down; }
