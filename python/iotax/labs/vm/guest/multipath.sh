# dm-multipath without its daemon: the disks of all paths as one, by the policy.

multipath_up() {
    load dm_multipath dm_round_robin dm_queue_length
    until_true 20 sh -c "[ \"\$(ls -d /sys/block/sd? 2>/dev/null | wc -l)\" = $PATHS ]" || die "a path brought no disk"
    _disks=$(cat /sys/block/sd?/dev)
    _size=$(cat /sys/block/sda/size)
    # Every path is followed by its weight: I/Os before the next one's turn.
    case "$PATH_POLICY" in
    fixed) _groups="$PATHS 1 $(for disk in $_disks; do echo "round-robin 0 1 1 $disk 1"; done)" ;;
    round-robin) _groups="1 1 round-robin 0 $PATHS 1 $(for disk in $_disks; do echo "$disk 1"; done)" ;;
    queue-depth) _groups="1 1 queue-length 0 $PATHS 1 $(for disk in $_disks; do echo "$disk 1"; done)" ;;
    *) die "dm-multipath has no policy $PATH_POLICY" ;;
    esac
    dmsetup create --noudevsync paths --table "0 $_size multipath 0 0 $(echo $_groups)" >/run/dmsetup.log 2>&1 ||
        die "dmsetup: $(cat /run/dmsetup.log)"
    block_device '/dev/dm-0' || die "no device over all paths"
}

multipath_down() { [ "${PATHS:-1}" = 1 ] || dmsetup remove --noudevsync paths || die "dmsetup remove"; }
