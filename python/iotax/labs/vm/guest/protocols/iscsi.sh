# iSCSI over TCP.
. /lab/iscsi_common.sh
target_up() { iscsi_target_up; }
target_down() { iscsi_target_down; }
initiator_up() {
    load iscsi_tcp
    iscsi_initiator_up tcp
}
initiator_down() { iscsi_initiator_down; }
