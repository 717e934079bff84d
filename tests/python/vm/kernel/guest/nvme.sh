# nvme-cli against a portal at $GATEWAY:$PORT.
load nvme-tcp
AT="-t tcp -a $GATEWAY -s $PORT"

# connect NQN OPTIONS...
connect() {
    _nqn=$1
    shift
    checked nvme connect $AT -n $_nqn --reconnect-delay=1 "$@"
    block_device '/dev/nvme?n1' || die "connected, but no namespace came"
    _controller=/dev/$(cd /sys/class/nvme && ls -d nvme?)
}

disconnect() {
    checked nvme disconnect -n $1
    until_true 5 sh -c '! ls -d /dev/nvme?n1 >/dev/null 2>&1' || die "disconnected, but the namespace stays"
}
