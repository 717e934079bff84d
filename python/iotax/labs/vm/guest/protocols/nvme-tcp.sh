# NVMe over TCP.
. /lab/nvme_common.sh
target_up() {
    net_up $STORAGE
    load nvmet nvmet-tcp
    subsystem_up
    port_up tcp ipv4 $STORAGE 4420
}
target_down() { nvme_target_down; }
initiator_up() {
    net_up 10.0.0.2
    load nvme-tcp
    nvme_connect "transport=tcp,traddr=$STORAGE,trsvcid=4420"
}
initiator_down() { nvme_disconnect; }
