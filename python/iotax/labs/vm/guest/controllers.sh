# The guest's side of a datastore: the hypervisor is the initiator, and the guest sees a disk behind a controller.

# disk_up MODULES PATTERN: finds the disk, whether the controller's driver was there before it or not, and says its facts.
disk_up() {
    load $1
    for host in /sys/class/scsi_host/host*; do
        [ ! -e "$host" ] || echo "- - -" >"$host/scan"
    done
    block_device "$2" || die "no disk came behind the controller"
    disk_facts $_device
}

# disk_facts DISK: the queues that Linux uses, of a disk whose queues a study chooses.
disk_facts() {
    [ -n "$DISK_QUEUES" ] || return 0
    case "$1" in
    # With NVMe's multipathing the disk has no queues, but its controller has. One is for administration.
    /dev/nvme*) fact disk_queues $(($(cat /sys/class/nvme/$(expr "$1" : '/dev/\(nvme[0-9]*\)')/queue_count) - 1)) ;;
    *) fact disk_queues "$(ls -d /sys/block/${1##*/}/mq/* | wc -l)" ;;
    esac
}

# forwarding_up MAC ADDRESS: the card through which this host's initiators come.
forwarding_up() {
    until_true 10 sh -c "grep -qs $1 /sys/class/net/*/address" || die "the forwarding card did not come"
    _card=$(grep -l "$1" /sys/class/net/*/address)
    _card=${_card%/address}
    ip link set "${_card##*/}" up && ip addr add "$2/24" dev "${_card##*/}" || die "the forwarding card cannot be set up"
}

# vduse_up PATH: what the guest's own kernel has at PATH, a block device or a file, as a disk again, as a hypervisor
# shows it to its guest: QEMU's storage daemon opens it as AIO and DISK_CACHE say, and serves it by VDUSE.
VDUSE=iotax STORAGE_DAEMON=/run/storage-daemon
vduse_up() {
    load vduse virtio_vdpa virtio_blk
    # What an attempt before this one left.
    vduse_down
    _driver=host_device
    [ -b "$1" ] || _driver=file
    _direct=on _writethrough=off
    [ "$DISK_CACHE" = none ] || _direct=off
    [ "$DISK_CACHE" != writethrough ] || _writethrough=on
    qemu-storage-daemon --daemonize --pidfile $STORAGE_DAEMON.pid \
        --blockdev "$_driver,node-name=volume,filename=$1,cache.direct=$_direct,aio=$AIO" \
        --export "vduse-blk,id=disk,node-name=volume,name=$VDUSE,writable=on,writethrough=$_writethrough${DISK_QUEUES:+,num-queues=$DISK_QUEUES}" >$STORAGE_DAEMON.log 2>&1 ||
        die "QEMU's storage daemon: $(cat $STORAGE_DAEMON.log)"
    echo "DAEMON=$(cat $STORAGE_DAEMON.pid)"
    vdpa dev add name $VDUSE mgmtdev vduse >$STORAGE_DAEMON.log 2>&1 || die "vdpa: $(cat $STORAGE_DAEMON.log)"
    block_device '/dev/vd?' || die "no disk came out of VDUSE"
}

# vduse_facts: what the storage daemon was started with; it ends where it cannot have it.
vduse_facts() {
    _said=$(tr '\0' ' ' </proc/$(cat $STORAGE_DAEMON.pid)/cmdline)
    fact aio "$(echo "$_said" | sed 's/.*,aio=\([a-z_]*\).*/\1/')"
    case "$_said" in
    *cache.direct=on*) fact disk_cache none ;;
    *writethrough=on*) fact disk_cache writethrough ;;
    *) fact disk_cache writeback ;;
    esac
    block_device '/dev/vd?' >/dev/null && disk_facts $_device
}

# vduse_down: also where it is up by half, or not at all.
vduse_down() {
    [ ! -e /sys/bus/vdpa/devices/$VDUSE ] || vdpa dev del $VDUSE || die "the disk of VDUSE does not go"
    [ -e $STORAGE_DAEMON.pid ] || return 0
    _daemon=$(cat $STORAGE_DAEMON.pid)
    kill $_daemon 2>/dev/null
    until_true 20 sh -c "[ ! -e /proc/$_daemon ]" || die "QEMU's storage daemon does not end"
    rm -f $STORAGE_DAEMON.pid
    [ ! -e /dev/vduse/$VDUSE ] || die "a device of VDUSE is left"
}
