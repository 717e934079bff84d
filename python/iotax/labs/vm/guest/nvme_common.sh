# The kernel's NVMe target and its fabrics host, both through their own files: no tool between.
NVMET=$CONFIG/nvmet
SUBSYSTEM=$NVMET/subsystems/$NQN

# subsystem_up: the volume as namespace 1.
subsystem_up() {
    mkdir -p $SUBSYSTEM/namespaces/1 || die "the NVMe target has no subsystem"
    echo 1 >$SUBSYSTEM/attr_allow_any_host
    echo $VOLUME >$SUBSYSTEM/namespaces/1/device_path
    echo 1 >$SUBSYSTEM/namespaces/1/buffered_io
    echo 1 >$SUBSYSTEM/namespaces/1/enable || die "the namespace cannot be enabled"
}

# port_up NUMBER TYPE FAMILY ADDRESS SERVICE
port_up() {
    _port=$NVMET/ports/$1
    mkdir -p $_port
    echo "$2" >$_port/addr_trtype
    echo "$3" >$_port/addr_adrfam
    echo "$4" >$_port/addr_traddr
    echo "$5" >$_port/addr_trsvcid
    ln -s $SUBSYSTEM $_port/subsystems/$NQN || die "the NVMe target cannot listen on $2 $4"
}

nvme_target_down() {
    for port in $NVMET/ports/*; do
        rm $port/subsystems/$NQN && rmdir $port || die "NVMe port teardown"
    done
    echo 0 >$SUBSYSTEM/namespaces/1/enable
    rmdir $SUBSYSTEM/namespaces/1 $SUBSYSTEM || die "NVMe subsystem teardown"
}

# nvme_connect OPTIONS: what `nvme connect` writes, by hand. The clocks of emulated guests run apart: a target waits for five seconds of
# its own for what the initiator sends within two and a half of its own, gives it up, and the initiator is away for ten. A kernel
# takes its default for 0.
nvme_connect() {
    _options="$1,nqn=$NQN,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$HOST_ID,hostid=$HOST_ID,keep_alive_tmo=3600"
    [ -z "$IO_QUEUES" ] || _options="$_options,nr_io_queues=$IO_QUEUES"
    [ -z "$HEADER_DIGEST" ] || _options="$_options,hdr_digest"
    [ -z "$DATA_DIGEST" ] || _options="$_options,data_digest"
    echo "$_options" 2>/run/connect.err >/dev/nvme-fabrics || die "connect $1: $(cat /run/connect.err)"
}

# namespace_up: the namespace over all paths, by the policy.
namespace_up() {
    block_device '/dev/nvme?n1' || die "connected, but no namespace came"
    [ -z "$PATH_POLICY" ] || echo $PATH_POLICY >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy ||
        die "this kernel has no path policy $PATH_POLICY"
    until_true 10 sh -c "[ \"\$(ls -d /sys/block/nvme*c*n1 2>/dev/null | wc -l)\" -ge ${PATHS:-1} ]" ||
        die "a path brought no namespace"
}

nvme_disconnect() {
    for controller in /sys/class/nvme/nvme*; do
        [ ! -e "$controller" ] || echo 1 >"$controller/delete_controller" || die "disconnect"
    done
}
