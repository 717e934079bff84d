# NVMe over Fibre Channel: host and target in one kernel, nvme-fcloop for the link. Both sides run in the initiator's guest.
. /lab/nvme_common.sh
NQN=$NQN:fc NVME_PORTS=200
LOOP=/sys/class/fcloop/ctl
LOCAL_NODE=0x10001100aa000001 LOCAL_PORT=0x20001100aa000001
REMOTE_NODE=0x10001100ab000001 REMOTE_PORT=0x20001100ab000001
target_up() {
    load nvmet nvmet-fc nvme-fc nvme-fcloop
    subsystem_up
    echo "wwnn=$LOCAL_NODE,wwpn=$LOCAL_PORT" >$LOOP/add_local_port || die "local port"
    echo "wwnn=$REMOTE_NODE,wwpn=$REMOTE_PORT" >$LOOP/add_target_port || die "target port"
    echo "wwnn=$REMOTE_NODE,wwpn=$REMOTE_PORT,lpwwnn=$LOCAL_NODE,lpwwpn=$LOCAL_PORT,roles=0x60" >$LOOP/add_remote_port ||
        die "remote port"
    port_up 1 fc fc "nn-$REMOTE_NODE:pn-$REMOTE_PORT" none
}
target_down() {
    nvme_target_down
    echo "wwnn=$REMOTE_NODE,wwpn=$REMOTE_PORT" >$LOOP/del_remote_port || die "remote port"
    echo "wwnn=$REMOTE_NODE,wwpn=$REMOTE_PORT" >$LOOP/del_target_port || die "target port"
    echo "wwnn=$LOCAL_NODE,wwpn=$LOCAL_PORT" >$LOOP/del_local_port || die "local port"
}
initiator_up() {
    nvme_connect "transport=fc,traddr=nn-$REMOTE_NODE:pn-$REMOTE_PORT,host_traddr=nn-$LOCAL_NODE:pn-$LOCAL_PORT"
    namespace_up
}
initiator_down() { nvme_disconnect; }
