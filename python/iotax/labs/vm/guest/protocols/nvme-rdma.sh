# NVMe over RDMA, over RoCE in software.
. /lab/nvme_common.sh
target_up() {
    net_up $STORAGE
    rdma_up
    load nvmet nvmet-rdma
    subsystem_up
    port_up rdma ipv4 $STORAGE 4420
}
target_down() { nvme_target_down; }
initiator_up() {
    net_up 10.0.0.2
    rdma_up
    load nvme-rdma
    nvme_connect "transport=rdma,traddr=$STORAGE,trsvcid=4420"
}
initiator_down() { nvme_disconnect; }
