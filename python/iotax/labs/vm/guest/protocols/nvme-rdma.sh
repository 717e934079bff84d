# NVMe over RDMA, over RoCE in software.
. /lab/nvme_common.sh
NQN=$NQN:rdma NVME_PORTS=100
target_up() {
    net_up 1
    rdma_up
    load nvmet nvmet-rdma
    subsystem_up
    port_up 1 rdma ipv4 $STORAGE 4420
}
target_down() { nvme_target_down; }
initiator_up() {
    net_up 2
    rdma_up
    load nvme-rdma
    nvme_connect "transport=rdma,traddr=$STORAGE,trsvcid=4420"
    namespace_up
}
initiator_down() { nvme_disconnect; }
