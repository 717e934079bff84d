# What the steps share. A step that fails says why on standard error and adds the kernel's latest words.
NQN=nqn.2026-11.io.iotax:kernel
IQN=iqn.2026-11.io.iotax:kernel
VOLUME=/volume/data
CONFIG=/sys/kernel/config

initiator_iqn() { echo iqn.2026-11.io.iotax:initiator$1; }
host_id() { echo 6f746178-0000-4000-8000-00000000000$(($1 + 1)); }
host_nqn() { echo nqn.2014-08.org.nvmexpress:uuid:$(host_id $1); }

# own_names: of several clients, each has a link and names of its own. CLIENT may be said after this file was read.
own_names() {
    STORAGE=10.0.${CLIENT:-0}.1
    INITIATOR_IQN=$(initiator_iqn $CLIENT)
    HOST_ID=$(host_id ${CLIENT:-0})
}
own_names

. /lab/net.sh
. /lab/encryption.sh
. /lab/kerberos.sh
. /lab/tls.sh
. /lab/facts.sh

die() {
    echo "$*" >&2
    dmesg | tail -n "${DMESG_LINES:-6}" | sed 's/^/kernel: /' >&2
    exit 1
}

# load MODULE...
load() { modprobe -a "$@" || die "modprobe $*"; }

# until_true SECONDS COMMAND...: tries again five times a second.
until_true() {
    _left=$(($1 * 5))
    shift
    until "$@"; do
        _left=$((_left - 1))
        [ $_left -gt 0 ] || return 1
        sleep 0.2
    done
}

# step PROTOCOL FUNCTION ARGUMENT...: one of target_up, initiator_up, initiator_down, target_dies, target_down, access_set and
# access_show. A server that is not a kernel's has target functions of its own.
step() {
    case "$2" in
    target_* | media_*) elsewhere && { in_storage step "$@"; return; } ;;
    esac
    PROTOCOL=$1
    shift
    own_names
    . "/lab/protocols/$PROTOCOL.sh"
    [ -z "$SERVER" ] || . "/lab/servers/$SERVER.sh"
    "$@"
}

# target_dies: its service stops, or its process is killed, while initiators use it; target_up brings it back.
target_dies() { target_down; }

# code_maps: MAP BEGIN END OFFSET PROCESS FILE of every piece of code of every process, but of this script's own.
code_maps() {
    for _maps in /proc/[0-9]*/maps; do
        _process=${_maps%/maps}
        [ "$_process" != "/proc/$$" ] || continue
        _name=$(cat $_process/comm 2>/dev/null) || continue
        awk -v name="$_name" '$2 ~ /x/ { split($1, at, "-"); gsub(" ", "_", name); print "MAP", at[1], at[2], $3, name, $6 ? $6 : "-" }' \
            $_maps 2>/dev/null
    done
}

mounted() { grep -q " $1 " /proc/mounts; }

# volumes: the numbers of those that are served: 0, or of VOLUMES, one for each client, 0, 1 and so on.
volumes() { seq 0 $((${VOLUMES:-1} - 1)); }

# volume_of NUMBER: its file.
volume_of() { echo $VOLUME${1#0}; }

# own_volume: the number of this client's.
own_volume() { volume_number $CLIENT; }

# volume_number CLIENT
volume_number() { if [ "${VOLUMES:-1}" = 1 ]; then echo 0; else echo $1; fi; }

# nqn_of NUMBER: of the NVMe subsystem with that volume.
nqn_of() { if [ "${VOLUMES:-1}" = 1 ]; then echo $NQN; else echo $NQN:$1; fi; }

# volume_up SIZE_BYTES COUNT: the files that every protocol serves, in memory; one where COUNT is not given.
volume_up() {
    mkdir -p /volume
    mounted /volume || mount -t tmpfs -o "size=$(($1 * ${2:-1} + 1048576))" volume /volume || die "tmpfs for the volume"
    for _number in $(seq 0 $((${2:-1} - 1))); do
        truncate -s "$1" "$(volume_of $_number)" || die "the volume cannot be made"
    done
    chmod 777 /volume && chmod 666 $VOLUME*
}

# volume_keep SIZE_BYTES: a copy to put the volumes, so large together, back from.
volume_keep() {
    mkdir -p /snapshot
    mounted /snapshot || mount -t tmpfs -o "size=$(($1 + 1048576))" snapshot /snapshot || die "tmpfs for the copy"
    cp $VOLUME* /snapshot || die "the volume cannot be copied"
}

# volume_restore: in place, for it is open.
volume_restore() {
    for _kept in /snapshot/*; do
        _volume=/volume/${_kept##*/}
        dd if=$_kept of=$_volume bs=1M conv=notrunc 2>/dev/null || die "the volume cannot be restored"
        # By path: busybox's own compares byte by byte.
        /usr/bin/cmp $_kept $_volume >/run/cmp.log 2>&1 || die "the volume is not as it was: $(cat /run/cmp.log)"
    done
}

# caches_drop: a load finds nothing that an earlier one left. Memory file systems stay (Shmem).
caches_drop() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
    _left=$(awk '/^(Buffers|Cached|Dirty|Writeback):/ { kib += $2 } /^Shmem:/ { kib -= $2 } END { print kib }' /proc/meminfo)
    [ "$_left" -le 1024 ] || die "$_left KiB stay in this guest's caches"
}

# bytes_of PATH: read and written so far on a device, or on the NFS mount. Not I/Os: the kernel merges what is sequential.
bytes_of() {
    case "$1" in
    /dev/nvme*) # with native multipath the paths count, not the device above them
        _stats=$(ls -d /sys/block/nvme*c*n1/stat 2>/dev/null || echo /sys/block/${1#/dev/}/stat)
        cat $_stats | awk '{n += $3 + $7} END {printf "BYTES %.0f\n", n * 512}'
        ;;
    /dev/*) awk '{printf "BYTES %.0f\n", ($3 + $7) * 512}' /sys/block/${1#/dev/}/stat ;;
    /mnt/*) awk '/^[ \t]*bytes:/ {n += $6 + $7} END {printf "BYTES %.0f\n", n}' /proc/self/mountstats ;;
    *) echo "BYTES 0" ;; # nobody counts those of a file in memory
    esac
}

# disks_now, new_disk: the SCSI disk that appears in between, waited for; those of other protocols stay as they are.
disks_now() { _disks=$(ls -d /dev/sd? 2>/dev/null); }
new_disk() {
    until_true 20 added_disk >/dev/null || return 1
    block_device "$(added_disk)"
}
added_disk() {
    for _disk in /dev/sd?; do
        case " $(echo $_disks) " in
        *" $_disk "*) ;;
        *) [ ! -e $_disk ] || { echo $_disk; return 0; } ;;
        esac
    done
    return 1
}

# block_device PATTERN: the one device that has appeared, waited for.
block_device() {
    until_true 20 sh -c "ls -d $1 >/dev/null 2>&1" || return 1
    _device=$(ls -d $1 | head -n 1)
    until_true 10 sh -c "[ \$(cat /sys/block/${_device##*/}/size) -gt 0 ]" || return 1
    echo "DEVICE=$_device"
}
