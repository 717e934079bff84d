# The kernel's NVMe target and its fabrics host, both through their own files: no tool between.
NVMET=$CONFIG/nvmet
# Each transport has subsystems and ports of its own: several may be up at once.
NVME_PORTS=0

# subsystem_up: each volume as namespace 1 of a subsystem. Those of a target that died are still there.
subsystem_up() {
    for number in $(volumes); do
        _subsystem=$NVMET/subsystems/$(nqn_of $number)
        [ ! -d $_subsystem/namespaces/1 ] || continue
        mkdir -p $_subsystem/namespaces/1 || die "the NVMe target has no subsystem"
        echo 1 >$_subsystem/attr_allow_any_host
        volume_of $number >$_subsystem/namespaces/1/device_path
        echo 1 >$_subsystem/namespaces/1/buffered_io
        echo 1 >$_subsystem/namespaces/1/enable || die "the namespace cannot be enabled"
    done
}

# port_up NUMBER TYPE FAMILY ADDRESS SERVICE: numbered from 1; where each client has a volume, its port leads there.
port_up() {
    _port=$NVMET/ports/$(($NVME_PORTS + $1))
    mkdir -p $_port
    echo "$2" >$_port/addr_trtype
    echo "$3" >$_port/addr_adrfam
    echo "$4" >$_port/addr_traddr
    echo "$5" >$_port/addr_trsvcid
    [ "$ENCRYPTION" != tls ] || { echo tls1.3 >$_port/addr_tsas && echo required >$_port/addr_treq; } ||
        die "the NVMe target has no TLS"
    _nqn=$(nqn_of $(($1 - 1)))
    ln -s $NVMET/subsystems/$_nqn $_port/subsystems/$_nqn || die "the NVMe target cannot listen on $2 $4"
}

ports_down() {
    for port in $NVMET/ports/*; do
        rm $port/subsystems/* && rmdir $port || die "NVMe port teardown"
    done
}

nvme_target_down() {
    ports_down
    for subsystem in $NVMET/subsystems/*; do
        echo 0 >$subsystem/namespaces/1/enable
        rmdir $subsystem/namespaces/1 $subsystem || die "NVMe subsystem teardown"
    done
}

# nvme_connect OPTIONS: what `nvme connect` writes, by hand. The clocks of emulated guests run apart: a target waits for five seconds of
# its own for what the initiator sends within two and a half of its own, gives it up, and the initiator is away for ten. A kernel
# takes its default for 0. Where EVENTS happen, clocks are the host's, and the default is the kernel's.
nvme_connect() {
    _options="$1,nqn=$(nqn_of $(own_volume)),hostnqn=$(host_nqn ${CLIENT:-0}),hostid=$HOST_ID"
    _keep_alive=${KEEP_ALIVE:-${EVENTS:+5}}
    _options="$_options,keep_alive_tmo=${_keep_alive:-3600}"
    [ -z "$RECONNECT_DELAY" ] || _options="$_options,reconnect_delay=$RECONNECT_DELAY"
    [ -z "$IO_QUEUES" ] || _options="$_options,nr_io_queues=$IO_QUEUES"
    [ -z "$HEADER_DIGEST" ] || _options="$_options,hdr_digest"
    [ -z "$DATA_DIGEST" ] || _options="$_options,data_digest"
    [ "$ENCRYPTION" != tls ] || _options="$_options,tls"
    echo "$_options" 2>/run/connect.err >/dev/nvme-fabrics || die "connect $1: $(cat /run/connect.err) $(tlshd_said)"
}

# namespace_up: the namespace over all paths, by the policy.
namespace_up() {
    until_true 20 own_namespace >/dev/null || die "connected, but no namespace came"
    block_device "$(own_namespace)" || die "connected, but its namespace has no size"
    [ -z "$PATH_POLICY" ] || echo $PATH_POLICY >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy ||
        die "this kernel has no path policy $PATH_POLICY"
    until_true 10 sh -c "[ \"\$(ls -d /sys/block/nvme*c*n1 2>/dev/null | wc -l)\" -ge ${PATHS:-1} ]" ||
        die "a path brought no namespace"
}

# own_namespace: the device of this client's subsystem; with native multipath the one above its paths.
own_namespace() {
    for _subsystem in /sys/class/nvme-subsystem/nvme-subsys*; do
        [ "$(cat $_subsystem/subsysnqn)" = "$(nqn_of $(own_volume))" ] || continue
        for _namespace in $_subsystem/nvme*n1 $_subsystem/nvme*/nvme*n1; do
            case "${_namespace##*/}" in
            nvme*c*n1) continue ;; # a path
            esac
            [ ! -e "/dev/${_namespace##*/}" ] || { echo "/dev/${_namespace##*/}"; return 0; }
        done
    done
    return 1
}

nvme_disconnect() {
    for controller in /sys/class/nvme/nvme*; do
        [ ! -e "$controller" ] || echo 1 >"$controller/delete_controller" || die "disconnect"
    done
}
