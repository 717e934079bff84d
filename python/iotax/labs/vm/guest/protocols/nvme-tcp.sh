# NVMe over TCP.
. /lab/nvme_common.sh
target_up() {
    net_up 1
    load nvmet nvmet-tcp
    subsystem_up
    for path in $(paths); do port_up $((path + 1)) tcp ipv4 10.0.$path.1 4420; done
}
# A namespace that goes before its connections would answer I/Os with errors.
target_dies() { ports_down; }
target_down() { nvme_target_down; }
# access_set PATH STATE, access_show PATH: numbered from 1, as ports are.
access_set() { echo "$2" >$NVMET/ports/$1/ana_groups/1/ana_state; }
access_show() { cat $NVMET/ports/$1/ana_groups/1/ana_state; }
initiator_up() {
    net_up 2
    load nvme-tcp
    for path in $(paths); do nvme_connect "transport=tcp,traddr=10.0.$path.1,trsvcid=4420"; done
    namespace_up
}
initiator_down() { nvme_disconnect; }
