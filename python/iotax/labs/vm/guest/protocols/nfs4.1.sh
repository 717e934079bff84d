# NFS 4.1 over TCP.
. /lab/nfs_common.sh
target_up() { nfs_target_up; }
target_dies() { nfs_target_dies; }
target_down() { nfs_target_down; }
initiator_up() { nfs_initiator_up 4.1; }
initiator_down() { nfs_initiator_down; }
