# The kernel's NVMe target and its fabrics host, both through their own files: no tool between.
NVMET=$CONFIG/nvmet
SUBSYSTEM=$NVMET/subsystems/$NQN
PORT=$NVMET/ports/1

# subsystem_up: the volume as namespace 1.
subsystem_up() {
    mkdir -p $SUBSYSTEM/namespaces/1 || die "the NVMe target has no subsystem"
    echo 1 >$SUBSYSTEM/attr_allow_any_host
    echo $VOLUME >$SUBSYSTEM/namespaces/1/device_path
    echo 1 >$SUBSYSTEM/namespaces/1/buffered_io
    echo 1 >$SUBSYSTEM/namespaces/1/enable || die "the namespace cannot be enabled"
}

# port_up TYPE FAMILY ADDRESS SERVICE
port_up() {
    mkdir -p $PORT
    echo "$1" >$PORT/addr_trtype
    echo "$2" >$PORT/addr_adrfam
    echo "$3" >$PORT/addr_traddr
    echo "$4" >$PORT/addr_trsvcid
    ln -s $SUBSYSTEM $PORT/subsystems/$NQN || die "the NVMe target cannot listen on $1 $3"
}

nvme_target_down() {
    rm $PORT/subsystems/$NQN && rmdir $PORT || die "NVMe port teardown"
    echo 0 >$SUBSYSTEM/namespaces/1/enable
    rmdir $SUBSYSTEM/namespaces/1 $SUBSYSTEM || die "NVMe subsystem teardown"
}

# nvme_connect OPTIONS: what `nvme connect` writes, by hand.
nvme_connect() {
    _options="$1,nqn=$NQN,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$HOST_ID,hostid=$HOST_ID"
    [ -z "$IO_QUEUES" ] || _options="$_options,nr_io_queues=$IO_QUEUES"
    [ -z "$HEADER_DIGEST" ] || _options="$_options,hdr_digest"
    [ -z "$DATA_DIGEST" ] || _options="$_options,data_digest"
    echo "$_options" 2>/run/connect.err >/dev/nvme-fabrics || die "connect $1: $(cat /run/connect.err)"
    block_device '/dev/nvme?n1' || die "connected, but no namespace came"
}

nvme_disconnect() {
    for controller in /sys/class/nvme/nvme*; do
        [ ! -e "$controller" ] || echo 1 >"$controller/delete_controller" || die "disconnect"
    done
}
