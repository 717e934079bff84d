# The guest's side of a datastore: the hypervisor is the initiator, and the guest sees a disk behind a controller.

# disk_up MODULES PATTERN: finds the disk, whether the controller's driver was there before it or not.
disk_up() {
    load $1
    for host in /sys/class/scsi_host/host*; do
        [ ! -e "$host" ] || echo "- - -" >"$host/scan"
    done
    block_device "$2" || die "no disk came behind the controller"
}

# forwarding_up MAC ADDRESS: the card through which this host's initiators come.
forwarding_up() {
    until_true 10 sh -c "grep -qs $1 /sys/class/net/*/address" || die "the forwarding card did not come"
    _card=$(grep -l "$1" /sys/class/net/*/address)
    _card=${_card%/address}
    ip link set "${_card##*/}" up && ip addr add "$2/24" dev "${_card##*/}" || die "the forwarding card cannot be set up"
}
