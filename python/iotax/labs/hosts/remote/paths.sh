# Paths that this host's kernel makes to a target: brought up, read back, taken down. POSIX shell, as the login's user; what
# needs root goes through `sudo -n`. Every path is written into a journal before it is made, so that whoever comes next takes down
# what was left, and nothing else.
#
#   paths.sh up [slot=N] [secrets=stdin] [mtu=N] [policy=P] [depth=N] [portals=A,B] KIND ARGUMENTS...
#                                   takes down what is up, with a slot only what that one holds; lines NAME=SECRET on standard input where it is said; DEVICE=…, ID=… and FACT name=value on standard output
#   paths.sh down                   takes down all that the journal of this host holds
#   paths.sh clean                  the same, where no study is at work
#   paths.sh with SCRIPT FUNCTION ARGUMENTS...
#                                   what uses a path that is up: a script beside this one, which is read first
#   paths.sh keep ENGINE            holds this host's lock as long as `ENGINE session` runs, and takes everything down then
#
# What fails ends with `KIND MESSAGE` on standard error; the kinds are those of the engine (docs/reference/engine.md).
SYSFS=${SYSFS:-/sys}
PROCFS=${PROCFS:-/proc}
PATH=$PATH:/usr/sbin:/sbin
FOLDER=$HOME/.cache/iotax
# Homes may be shared between hosts, and nothing outlives a boot.
BOOT=$(cat "$PROCFS/sys/kernel/random/boot_id") || exit 1
JOURNALS=$FOLDER/path-$(uname -n)-$BOOT
# Of one path: paths that are up side by side have a slot each.
JOURNAL=$JOURNALS
SLOT=
# What uses the path: the first line is the script that knows how to end it, by its function `down_using`.
USING=$FOLDER/using-$(uname -n)-$BOOT
WAIT_S=${WAIT_S:-20}
FABRICS=${FABRICS:-/dev/nvme-fabrics}
NVME=${NVME:-/etc/nvme}
# Where open-iscsi keeps its records, by distribution: Debian's, Red Hat's.
RECORDS=${RECORDS:-/etc/iscsi/nodes /var/lib/iscsi/nodes}

die() { echo "$*" >&2; exit 1; }

# root WHAT COMMAND...: as root; what it says decides the kind of its failure.
root() {
    _what=$1
    shift
    command -v "$1" >/dev/null 2>&1 || die "missing $1 is not installed on this host"
    # A server that is gone must not keep this script.
    [ "$(id -u)" = 0 ] || set -- sudo -n "$@"
    # What `tee` repeats of a secret is nobody's to see.
    if [ -n "$HIDDEN" ]; then _said=$(timeout "$WAIT_S" "$@" 2>&1 >/dev/null) && return
    else _said=$(timeout "$WAIT_S" "$@" 2>&1) && return; fi
    [ "$1" != sudo ] || shift 2
    # What a program says of success so far may come after its error.
    # Nor does dmsetup's last line say anything.
    _why=$(echo "$_said" | grep -v "^Command failed" | grep -i "error\|fail\|refused\|denied\|cannot\|can not\|could not\|not allowed\|required" | tail -n 1)
    _why=${_why:-$(echo "$_said" | tail -n 1)}
    case "$_said" in
    *"password is required"* | *"not allowed"* | *"may not run"* | *"not in the sudoers"* | *"sudo: not found"*)
        die "denied sudo -n $1 is refused on this host: $_why" ;;
    *"uthentication fail"* | *"uthorization fail"* | *"ccess denied"* | *"ermission denied"*)
        die "denied $_what: $_why" ;;
    esac
    die "unreachable $_what: ${_why:-no answer within $WAIT_S s}"
}

# until_true SECONDS COMMAND...: tries again five times a second.
until_true() {
    _left=$(($1 * 5))
    shift
    until "$@"; do
        _left=$((_left - 1))
        [ "$_left" -gt 0 ] || return 1
        sleep 0.2
    done
}

# note ARGUMENTS...: one a line, before anything is made. An earlier entry must be gone.
note() {
    mkdir -p "$FOLDER" && { for _each in "$@"; do echo "$_each"; done; } 2>/dev/null >"$JOURNAL.part" &&
        mv "$JOURNAL.part" "$JOURNAL" || die "disk_full the journal $JOURNAL cannot be written: nothing was brought up"
}

# remember KIND WORDS...: what `down` puts back, written before it is changed.
remember() { echo "PUT BACK $*" >>"$JOURNAL" || die "disk_full the journal $JOURNAL cannot be written: nothing was changed"; }

# using DEVICE LINES...: called by a script that uses a path, before it begins anything. Ends what was left, makes a new folder
# $RUN, and writes the journal.
using() {
    [ ! -e "$USING" ] || down_using
    rm -rf "$RUN" && mkdir -p "$RUN" || die "disk_full $RUN cannot be made"
    { for _each in "$WITH" "$@"; do echo "$_each"; done; } >"$USING" || die "disk_full the journal $USING cannot be written: nothing was begun"
}

fact() { [ -z "$2" ] || echo "FACT $1=$2"; }
content() { cat "$1" 2>/dev/null; }

# --- what is set on the way

# mtus_up ADDRESS: on the way to it and to each further portal.
mtus_up() {
    [ -n "$MTU" ] || return 0
    for _way in "$1" $(echo "$PORTALS" | tr , ' '); do mtu_up "$_way"; done
}

# mtu_up ADDRESS: frames of $MTU bytes, from here to there.
mtu_up() {
    command -v ping >/dev/null 2>&1 || die "missing ping is not installed on this host, and it alone proves that frames of $MTU bytes arrive"
    _to=$(getent ahosts "$1" 2>/dev/null | awk 'NR == 1 { print $1 }')
    _to=${_to:-$1}
    _link=$(ip -o route get "$_to" 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p')
    [ -n "$_link" ] || die "unreachable no route leads to $1"
    _before=$(content "$SYSFS/class/net/$_link/mtu")
    if [ "$_before" != "$MTU" ]; then
        remember mtu "$_link" "$_before"
        root "setting the MTU of $_link to $MTU" ip link set dev "$_link" mtu "$MTU"
    fi
    case "$_to" in *:*) _header=48 ;; *) _header=28 ;; esac
    ping -c 1 -W 2 "$_to" >/dev/null 2>&1 || die "usage $1 answers no ping, so nobody can tell whether frames of $MTU bytes reach it"
    ping -M do -c 2 -W 2 -s "$((MTU - _header))" "$_to" >/dev/null 2>&1 ||
        die "usage frames of $MTU bytes do not reach $1 over $_link: give its side and every switch between the same MTU"
    fact mtu "$(content "$SYSFS/class/net/$_link/mtu")"
}

# mpath NAME: the dm-multipath device above a disk, where there is one.
mpath() {
    for _holder in "$SYSFS/block/$1"/holders/dm-*; do
        case "$(content "$_holder/dm/uuid")" in mpath-*) echo "${_holder##*/}" && return ;; esac
    done
    return 1
}

# mpath_whole NAME COUNT: whether that device has so many paths, and carries I/O: multipathd adds one path after the other, and the
# device is there before its first table works.
mpath_whole() {
    _map=$(mpath "$1") && [ "$(ls "$SYSFS/block/$_map/slaves" | wc -l)" -ge "$2" ] &&
        [ "$(content "$SYSFS/block/$_map/dm/suspended")" = 0 ] && [ "$(content "$SYSFS/block/$_map/size")" != 0 ]
}

table() { root "reading the table of $1" dmsetup table "$1" && echo "$_said"; }
selector() { echo "$1" | grep -o "round-robin\|queue-length\|service-time\|historical-service-time" | head -n 1; }

# dm_fixed TABLE: with a group for each path, so that one carries all as long as it works, in the order that was.
dm_fixed() {
    echo "$1" | awk '
        function pass(count,   k) { for (k = 0; k < count; k++) out = out " " $(i++) }
        { i = 4; out = $1 " " $2 " " $3; pass($i + 1); pass($i + 1); groups = $i; i += 2; count = 0
          while (groups-- > 0) { i += 2 + $(i + 1); paths = $i; own = $(i + 1); i += 2
            while (paths-- > 0) { each = each " round-robin 0 1 1 " $i " 1"; count++; i += 1 + own } }
          print out " " count " 1" each }'
}

# dm_policy NAME: the paths of a multipath device by $POLICY, each with the weight 1; groups stay as they are, but for fixed.
dm_policy() {
    case "$POLICY" in
    round-robin) _selector=round-robin ;;
    queue-depth) _selector=queue-length ;;
    fixed) _selector=fixed ;;
    *) die "usage dm-multipath has no policy $POLICY here; it has fixed, round-robin and queue-depth" ;;
    esac
    _table=$(table "$1") || exit 1
    if [ "$_selector" = fixed ]; then
        _new=$(dm_fixed "$_table")
        [ "$_new" != "$_table" ] || return 0
        remember dm "$1" "$_table"
        root "setting the policy of $1" dmsetup reload "$1" --table "$_new"
        root "setting the policy of $1" dmsetup resume "$1"
        return
    fi
    [ "$(selector "$_table")" != "$_selector" ] || return 0
    remember dm "$1" "$_table"
    # Features, handlers, groups, next group; then of each group: selector, its arguments, paths with theirs.
    _new=$(echo "$_table" | awk -v to="$_selector" '
        function pass(count,   k) { for (k = 0; k < count; k++) out = out " " $(i++) }
        { i = 4; out = $1 " " $2 " " $3; pass($i + 1); pass($i + 1); groups = $i; pass(2)
          while (groups-- > 0) { i += 2 + $(i + 1); paths = $i; own = $(i + 1); i += 2
            out = out " " to " 0 " paths " 1"
            while (paths-- > 0) { out = out " " $i " 1"; i += 1 + own } }
          print out }')
    root "setting the policy of $1" dmsetup reload "$1" --table "$_new"
    root "setting the policy of $1" dmsetup resume "$1"
}

# scsi_policy NAME: of the disk's multipath device, set and read back.
scsi_policy() {
    [ -n "$POLICY" ] || return 0
    _map=$(mpath "$1") || die "usage $1 has no multipath device, so there is no path to choose: is multipathd running, and are there two paths?"
    _map=$(content "$SYSFS/block/$_map/dm/name")
    dm_policy "$_map"
    _table=$(table "$_map") || exit 1
    if [ "$POLICY" = fixed ]; then
        [ "$_table" != "$(dm_fixed "$_table")" ] || fact path_policy fixed
        return
    fi
    case "$(selector "$_table")" in
    round-robin) fact path_policy round-robin ;;
    queue-length) fact path_policy queue-depth ;;
    esac
}

# scsi_depth NAME: commands that the disk has outstanding, on each path to it.
scsi_depth() {
    [ -n "$DEPTH" ] || return 0
    _map=$(mpath "$1") && set -- $(ls "$SYSFS/block/$_map/slaves")
    for _disk in "$@"; do
        _before=$(content "$SYSFS/block/$_disk/device/queue_depth")
        [ "$_before" != "$DEPTH" ] || continue
        remember depth "$_disk" "$_before" "$(wwid "$_disk")"
        echo "$DEPTH" | (root "setting the queue depth of $_disk to $DEPTH" tee "$SYSFS/block/$_disk/device/queue_depth") || exit 1
    done
}

# wwid NAME: of a SCSI disk, in one word.
wwid() { content "$SYSFS/block/$1/device/wwid" | tr -d ' '; }

# put_back KIND WORDS...
put_back() {
    case "$1" in
    mtu) [ ! -e "$SYSFS/class/net/$2" ] || root "setting the MTU of $2 back to $3" ip link set dev "$2" mtu "$3" ;;
    depth)
        # Its name may be another one's by now.
        [ -e "$SYSFS/block/$2/device/queue_depth" ] && [ "$(wwid "$2")" = "$4" ] || return 0
        echo "$3" | (root "setting the queue depth of $2 back to $3" tee "$SYSFS/block/$2/device/queue_depth") || exit 1
        ;;
    dm)
        _name=$2
        shift 2
        # The device may have gone with its paths.
        (table "$_name") >/dev/null 2>&1 || return 0
        root "setting the policy of $_name back" dmsetup reload "$_name" --table "$*"
        root "setting the policy of $_name back" dmsetup resume "$_name"
        ;;
    esac
}

# --- secrets, which stand in no argument: everybody on this host can read those

# take_secrets: from standard input into variables of this shell.
take_secrets() {
    while IFS= read -r _line; do
        case "$_line" in
        chap_user=*) CHAP_USER=${_line#*=} ;;
        chap_secret=*) CHAP_SECRET=${_line#*=} ;;
        mutual_user=*) MUTUAL_USER=${_line#*=} ;;
        mutual_secret=*) MUTUAL_SECRET=${_line#*=} ;;
        dhchap_secret=*) DHCHAP_SECRET=${_line#*=} ;;
        dhchap_ctrl_secret=*) DHCHAP_CTRL_SECRET=${_line#*=} ;;
        esac
    done
}

# --- NVMe/TCP, by nvme-cli; where a host proves itself, by the kernel's own file, since nvme-cli takes secrets as arguments

# nvme_controllers NQN
nvme_controllers() {
    for _controller in "$SYSFS"/class/nvme/nvme*; do
        [ "$(content "$_controller/subsysnqn")" != "$1" ] || echo "$_controller"
    done
}

# nvme_namespace NQN NSID: the name of its block device, the one above all paths.
nvme_namespace() {
    for _block in "$SYSFS"/block/nvme*; do
        case "${_block##*/}" in *c*n*) continue ;; esac
        [ "$(content "$_block/device/subsysnqn") $(content "$_block/nsid")" != "$1 $2" ] || { echo "${_block##*/}"; return; }
    done
    return 1
}
has_namespace() { nvme_namespace "$@" >/dev/null; }
no_controller() { [ -z "$(nvme_controllers "$1")" ]; }

# up_nvme ADDRESS PORT NQN NSID QUEUES HEADER_DIGEST DATA_DIGEST
up_nvme() {
    no_controller "$3" || die "in_use $3 is connected on this host already, and not by iotax; disconnect it: nvme disconnect -n $3"
    note nvme-tcp "$3"
    mtus_up "$1"
    [ -e "$FABRICS" ] || root "loading nvme-tcp" modprobe nvme-tcp
    for _portal in "$1" $(echo "$PORTALS" | tr , ' '); do
        [ -z "$DHCHAP_SECRET" ] || { nvme_proven "transport=tcp,traddr=$_portal,trsvcid=$2" "$3" "$_portal" "$5" "$6" "$7" && continue; }
        root "connecting $3 at $_portal" nvme connect -t tcp -a "$_portal" -s "$2" -n "$3" ${5:+-i "$5"} ${6:+--hdr-digest} ${7:+--data-digest}
    done
    nvme_shown "$3" "$4"
    # The kernel takes no connection whose ends disagree about digests, and does not show them.
    fact header_digest "${6:+on}"
    fact data_digest "${7:+on}"
}

# nvme_proven WAY NQN ADDRESS QUEUES HEADER_DIGEST DATA_DIGEST: connects with DH-HMAC-CHAP, by what nvme-cli writes too; WAY are
# the kernel's own options of the transport
nvme_proven() {
    _own=$(content "$NVME/hostnqn")
    [ -n "$_own" ] || die "missing a controller knows the secret of a host by its NQN, and $NVME/hostnqn has none (nvme gen-hostnqn)"
    _id=$(content "$NVME/hostid")
    HIDDEN=1
    printf '%s' "$1,nqn=$2,hostnqn=$_own${_id:+,hostid=$_id}${4:+,nr_io_queues=$4}${5:+,hdr_digest}${6:+,data_digest},dhchap_secret=$DHCHAP_SECRET${DHCHAP_CTRL_SECRET:+,dhchap_ctrl_secret=$DHCHAP_CTRL_SECRET}" |
        (root "connecting $2 at $3 with dhchap" tee "$FABRICS") || exit 1
    HIDDEN=
}

# nvme_shown NQN NSID: what the kernel says of a subsystem that was connected.
nvme_shown() {
    until_true "$WAIT_S" has_namespace "$1" "$2" || die "not_found $1 is connected, but shows no namespace $2"
    _name=$(nvme_namespace "$1" "$2")
    _one=$(nvme_controllers "$1" | head -n 1)
    if [ -n "$POLICY" ]; then
        for _subsystem in "$SYSFS"/class/nvme-subsystem/nvme-subsys*; do
            [ "$(content "$_subsystem/subsysnqn")" = "$1" ] || continue
            # The subsystem, and its policy, go with its last connection.
            echo "$POLICY" | (root "setting the policy of $1" tee "$_subsystem/iopolicy") || exit 1
            fact path_policy "$(content "$_subsystem/iopolicy")"
        done
    fi
    fact paths "$(nvme_controllers "$1" | wc -l)"
    echo "DEVICE=/dev/$_name"
    echo "ID=$(content "$SYSFS/block/$_name/wwid")"
    fact queues "$(($(content "$_one/queue_count") - 1))" # one is for administration
    fact model "$(content "$_one/model" | sed 's/ *$//')"
    fact firmware "$(content "$_one/firmware_rev" | sed 's/ *$//')"
    fact address "$(content "$_one/address")"
}

down_nvme() {
    no_controller "$1" || root "disconnecting $1" nvme disconnect -n "$1"
    until_true "$WAIT_S" no_controller "$1" || die "in_use $1 stays connected"
}

# --- iSCSI, by open-iscsi

# iscsi_session IQN
iscsi_session() {
    for _session in "$SYSFS"/class/iscsi_session/session*; do
        [ "$(content "$_session/targetname")" != "$1" ] || { echo "$_session"; return; }
    done
    return 1
}
has_session() { iscsi_session "$1" >/dev/null; }
no_session() { ! has_session "$1"; }

# iscsi_disk IQN LUN: the name of its block device.
iscsi_disk() {
    for _block in "$(iscsi_session "$1")"/device/target*/*:"$2"/block/*; do
        [ -d "$_block" ] && echo "${_block##*/}" && return
    done
    return 1
}
has_disk() { iscsi_disk "$@" >/dev/null; }

# iscsi_set IQN PORTAL NAME VALUE
iscsi_set() { root "setting $3" iscsiadm -m node -T "$1" -p "$2" -o update -n "$3" -v "$4"; }

# records: the folder that this host's iscsiadm was built for; where it does not tell, all that it could be. Another one may hold
# what an earlier iscsiadm left, and what is written there nobody would take away.
records() {
    for _root in $RECORDS; do
        ! grep -qaF "$_root" "$(command -v iscsiadm)" 2>/dev/null || { echo "$_root"; return; }
    done
    echo "$RECORDS"
}

# iscsi_proven IQN PORTAL: CHAP in a record of ours. Its names by iscsiadm, its secrets by the record's file, which root alone
# reads, and which goes with the record.
iscsi_proven() {
    iscsi_set "$1" "$2" node.session.auth.authmethod CHAP
    iscsi_set "$1" "$2" node.session.auth.username "$CHAP_USER"
    [ -z "$MUTUAL_USER" ] || iscsi_set "$1" "$2" node.session.auth.username_in "$MUTUAL_USER"
    _file=$(echo "$1/${2%:*},${2##*:}" | tr -d '[]')
    HIDDEN=1
    for _records in $(records); do
        # Only where the record is, there is its folder.
        { printf '%s\n' "node.session.auth.password = $CHAP_SECRET"
          [ -z "$MUTUAL_SECRET" ] || printf '%s\n' "node.session.auth.password_in = $MUTUAL_SECRET"; } |
            (root "" tee -a "$_records/$_file") 2>/dev/null || continue
        ! has_password "$1" "$2" || { HIDDEN=; return 0; }
        # It was another one's that nobody reads any more: the secret stays in none.
        (root "" tee "$_records/$_file") </dev/null 2>/dev/null
    done
    HIDDEN=
    die "missing the record of $1 is not to be found as a file below $RECORDS, or sudo refuses tee"
}

# has_password IQN PORTAL: whether iscsiadm sees a secret in its record.
has_password() {
    (HIDDEN=; root "" iscsiadm -m node -T "$1" -p "$2" && echo "$_said") 2>/dev/null | grep -q "node.session.auth.password = [*]"
}

# up_iscsi ADDRESS PORT IQN LUN HEADER_DIGEST DATA_DIGEST: digests as open-iscsi writes them (CRC32C), or nothing
up_iscsi() {
    no_session "$3" || die "in_use $3 is logged in on this host already, and not by iotax; log it out: iscsiadm -m node -T $3 --logout"
    # A portal is written [address]:port only for IPv6.
    case "$1" in *:*) _portal="[$1]:$2" ;; *) _portal="$1:$2" ;; esac
    # A record that is there already belongs to somebody, with his settings: it is used and stays.
    if (root "" iscsiadm -m node -T "$3" -p "$_portal") >/dev/null 2>&1; then
        [ -z "$PORTALS" ] || die "usage open-iscsi has a record of $3 already; several portals need it removed: iscsiadm -m node -T $3 -o delete"
        [ -z "$5$6" ] || die "usage open-iscsi has a record of $3 with settings of its own; digests need it removed: iscsiadm -m node -T $3 -o delete"
        [ -z "$CHAP_SECRET" ] || die "usage open-iscsi has a record of $3 with settings of its own; chap needs it removed: iscsiadm -m node -T $3 -o delete"
        note iscsi "$3" "$_portal" theirs
        mtus_up "$1"
    else
        for _more in $(echo "$PORTALS" | tr , ' '); do
            case "$_more" in *:*) _portal="$_portal [$_more]:$2" ;; *) _portal="$_portal $_more:$2" ;; esac
        done
        note iscsi "$3" "$_portal" ours
        mtus_up "$1"
        for _each in $_portal; do
            root "recording $3" iscsiadm -m node -T "$3" -p "$_each" -o new
            iscsi_set "$3" "$_each" "node.conn[0].iscsi.HeaderDigest" "${5:-None}"
            iscsi_set "$3" "$_each" "node.conn[0].iscsi.DataDigest" "${6:-None}"
            iscsi_set "$3" "$_each" node.startup manual
            [ -z "$CHAP_SECRET" ] || iscsi_proven "$3" "$_each"
        done
    fi
    for _each in $_portal; do root "logging in to $3" iscsiadm -m node -T "$3" -p "$_each" --login; done
    until_true "$WAIT_S" has_session "$3" && until_true "$WAIT_S" has_disk "$3" "$4" || die "not_found $3 is logged in, but shows no LUN $4"
    _name=$(iscsi_disk "$3" "$4")
    _session=$(iscsi_session "$3")
    if [ -n "$PORTALS" ] && ! until_true "$WAIT_S" mpath_whole "$_name" "$(echo "$_portal" | wc -w)"; then
        mpath "$_name" >/dev/null || die "not_found $3 has several portals, but $_name no multipath device: is multipathd running?"
        die "not_found the multipath device of $_name does not get a path over each of: $_portal"
    fi
    # Where multipathd took the disk, the device above it is the path.
    _above=$(mpath "$_name") || _above=
    echo "DEVICE=/dev/${_above:-$_name}"
    scsi_policy "$_name"
    scsi_depth "$_name"
    fact paths "$(for _each in "$SYSFS"/class/iscsi_session/session*; do [ "$(content "$_each/targetname")" != "$3" ] || echo; done | wc -l)"
    # A target may give its unit no name: then its place is all there is.
    _wwid=$(content "$SYSFS/block/$_name/device/wwid" | sed 's/ *$//')
    echo "ID=${_wwid:-$3 LUN $4}"
    fact model "$(content "$SYSFS/block/$_name/device/vendor" | sed 's/ *$//') $(content "$SYSFS/block/$_name/device/model" | sed 's/ *$//')"
    fact queue_depth "$(content "$SYSFS/block/$_name/device/queue_depth")"
    fact multipath "${_above:+$(content "$SYSFS/block/$_above/dm/name")}"
    for _connection in "$_session"/device/connection*/iscsi_connection/*; do
        fact header_digest "$(on_off "$(content "$_connection/header_digest")")"
        fact data_digest "$(on_off "$(content "$_connection/data_digest")")"
        fact address "$(content "$_connection/address"):$(content "$_connection/port")"
        break
    done
}
on_off() { case "$1" in 1) echo on ;; 0) echo off ;; esac; }

# down_iscsi IQN PORTALS OWNER
down_iscsi() {
    for _each in $2; do
        no_session "$1" || root "logging out of $1" iscsiadm -m node -T "$1" -p "$_each" --logout
    done
    until_true "$WAIT_S" no_session "$1" || die "in_use $1 stays logged in"
    forget_iscsi "$@"
}

# forget_iscsi IQN PORTALS OWNER: the records, with their secrets.
forget_iscsi() {
    for _each in $2; do
        [ "$3" = theirs ] || ! (root "" iscsiadm -m node -T "$1" -p "$_each") >/dev/null 2>&1 ||
            root "forgetting $1" iscsiadm -m node -T "$1" -p "$_each" -o delete
    done
}

# --- NFS, by mount

mounted() { grep -q " $1 nfs" "$PROCFS/self/mounts"; }
not_mounted() { ! mounted "$1"; }

# nfs_stats FOLDER: what the kernel says of this mount (/proc/self/mountstats).
nfs_stats() {
    awk -v folder="$1" '$1 == "device" { here = $5 == folder } here' "$PROCFS/self/mountstats"
}

# up_nfs ADDRESS PORT EXPORT FILE VERSION CONNECTIONS
up_nfs() {
    _mount=$FOLDER/mount${SLOT:+-$SLOT}
    not_mounted "$_mount" || die "in_use something is mounted on $_mount on this host, and no journal tells of it; unmount it"
    note nfs "$_mount"
    mtus_up "$1"
    mkdir -p "$_mount" || die "disk_full $_mount cannot be made"
    _options="vers=$5,proto=tcp,port=$2,hard,noatime,nosuid,nodev,noexec${6:+,nconnect=$6}"
    # Version 3 locks by another service, which is asked for nothing here.
    [ "$5" != 3 ] || _options=$_options,nolock
    case "$1" in *:*) _address="[$1]" ;; *) _address=$1 ;; esac
    root "mounting $1:$3" mount -t nfs -o "$_options" "$_address:$3" "$_mount"
    mounted "$_mount" || die "not_found $1:$3 was mounted, but is not to be seen"
    [ -f "$_mount/$4" ] || die "not_found $1:$3 has no file $4: make it first, as large as the volume (truncate -s)"
    echo "DEVICE=$_mount/$4"
    # Asked for locks, some NFSv4 servers keep the asker waiting; who says which file it is, is not asked.
    echo "FILE=$(stat -c '%d %i' "$_mount/$4")"
    # A file has no identity of its own that outlives a mount but its place.
    echo "ID=$1:$3/$4 inode $(stat -c %i "$_mount/$4" 2>/dev/null)"
    _found=$(nfs_stats "$_mount")
    fact vers "$(echo "$_found" | sed -n 's/.*[, ]vers=\([0-9.]*\).*/\1/p' | head -n 1)"
    fact nconnect "$(echo "$_found" | grep -c 'xprt:')"
    for _size in rsize wsize; do
        fact $_size "$(echo "$_found" | sed -n "s/.*[, ]$_size=\([0-9]*\).*/\1/p" | head -n 1)"
    done
}

# down_nfs FOLDER
down_nfs() {
    not_mounted "$1" || (root "unmounting $1" umount "$1") 2>/dev/null || root "unmounting $1" umount -f -l "$1"
    until_true "$WAIT_S" not_mounted "$1" || die "in_use $1 stays mounted"
    [ ! -d "$1" ] || rmdir "$1" 2>/dev/null || :
}

# --- Fibre Channel, by what the zones and the array let through

# fc_disk WWPN LUN: the name of its block device.
fc_disk() {
    for _target in "$SYSFS"/class/fc_transport/target*; do
        [ "$(content "$_target/port_name")" = "0x$1" ] || continue
        for _block in "$_target"/device/*:"$2"/block/*; do
            [ -d "$_block" ] && echo "${_block##*/}" && return
        done
    done
    return 1
}
has_fc_disk() { fc_disk "$@" >/dev/null; }

fc_ports() {
    for _port in "$SYSFS"/class/fc_remote_ports/rport-*; do
        [ "$(content "$_port/port_name") $(content "$_port/port_state")" != "0x$1 Online" ] || echo "${_port##*/}"
    done
}

# up_fc WWPN LUN: the target's port, 16 hexadecimal digits
up_fc() {
    [ -d "$SYSFS/class/fc_host" ] || die "missing this host has no Fibre Channel port"
    [ -n "$(fc_ports "$1")" ] || die "not_found no port of this host sees $1: zoning, cabling or the target's port"
    # What a rescan adds is removed again; what is there stays.
    if has_fc_disk "$1" "$2"; then note fc "$1" "$2" theirs
    else
        note fc "$1" "$2" ours
        for _host in "$SYSFS"/class/fc_host/host*; do
            echo "- - $2" | (root "rescanning ${_host##*/}" tee "$SYSFS/class/scsi_host/${_host##*/}/scan") || exit 1
        done
        until_true "$WAIT_S" has_fc_disk "$1" "$2" || die "not_found $1 shows no LUN $2 to this host: is it mapped?"
    fi
    _name=$(fc_disk "$1" "$2")
    _above=$(mpath "$_name") || _above=
    echo "DEVICE=/dev/${_above:-$_name}"
    _wwid=$(content "$SYSFS/block/$_name/device/wwid" | sed 's/ *$//')
    echo "ID=${_wwid:-$1 LUN $2}"
    scsi_policy "$_name"
    scsi_depth "$_name"
    fact model "$(content "$SYSFS/block/$_name/device/vendor" | sed 's/ *$//') $(content "$SYSFS/block/$_name/device/model" | sed 's/ *$//')"
    fact queue_depth "$(content "$SYSFS/block/$_name/device/queue_depth")"
    fact multipath "${_above:+$(content "$SYSFS/block/$_above/dm/name")}"
    fact paths "${_above:+$(ls "$SYSFS/block/$_above/slaves" | wc -l)}"
    for _host in "$SYSFS"/class/fc_host/host*; do
        fact "link_speed_${_host##*/}" "$(content "$_host/speed")"
    done
}

# down_fc WWPN LUN OWNER
down_fc() {
    [ "$3" = ours ] || return 0
    while _gone=$(fc_disk "$1" "$2"); do
        # Where multipathd holds it, its map goes first: the kernel removes no disk that is in use.
        _map=$(mpath "$_gone") && root "removing the map above $_gone" dmsetup remove "$(content "$SYSFS/block/$_map/dm/name")"
        echo 1 | (root "removing $_gone" tee "$SYSFS/block/$_gone/device/delete") || exit 1
        [ "$(fc_disk "$1" "$2")" != "$_gone" ] || die "in_use $_gone stays"
    done
}

# fc_name FOLDER: of a port, as nvme-cli takes it.
fc_name() { echo "nn-$(content "$1/node_name"):pn-$(content "$1/port_name")"; }

# up_fc_nvme WWPN NQN NSID QUEUES: over every port of this host that sees the target's
up_fc_nvme() {
    [ -d "$SYSFS/class/fc_host" ] || die "missing this host has no Fibre Channel port"
    # Many systems connect what they find by themselves (nvme-stas, nvmf-autoconnect).
    no_controller "$2" || die "in_use $2 is connected on this host already, and not by iotax; disconnect it (nvme disconnect -n $2), or name its device: /dev/disk/by-id/…"
    _ports=$(fc_ports "$1")
    [ -n "$_ports" ] || die "not_found no port of this host sees $1: zoning, cabling or the target's port"
    note fc-nvme "$2"
    [ -e "$FABRICS" ] || root "loading nvme-fc" modprobe nvme-fc
    for _port in $_ports; do
        _number=${_port#rport-}
        _there=$(fc_name "$SYSFS/class/fc_remote_ports/$_port")
        _here=$(fc_name "$SYSFS/class/fc_host/host${_number%%:*}")
        if [ -n "$DHCHAP_SECRET" ]; then nvme_proven "transport=fc,traddr=$_there,host_traddr=$_here" "$2" "$1" "$4"
        else root "connecting $2 at $1" nvme connect -t fc -a "$_there" -w "$_here" -n "$2" ${4:+-i "$4"}; fi
        fact "link_speed_host${_number%%:*}" "$(content "$SYSFS/class/fc_host/host${_number%%:*}/speed")"
    done
    nvme_shown "$2" "$3"
}

# --- what this host has already

# up_local PATH: a device or file, with what tells it from any other that may have this name tomorrow.
up_local() {
    [ -e "$1" ] || die "not_found $1 is not on this host"
    _real=$(readlink -f "$1")
    _name=${_real##*/}
    echo "DEVICE=$_real"
    if [ -b "$_real" ]; then
        _entry=$SYSFS/class/block/$_name _part=
        # A partition is one of its disk, whatever that is called by now.
        _number=$(content "$_entry/partition")
        if [ -n "$_number" ]; then
            _part=" partition $_number from $(content "$_entry/start")"
            _entry=$(readlink -f "$_entry")/..
        fi
        echo "ID=$(identity "$_entry")$_part"
    else
        echo "ID=inode $(stat -c '%d:%i' "$_real")"
    fi
}

# identity FOLDER: of a disk or of a device made of others, by its folder in sysfs.
identity() {
    for _place in wwid device/wwid dm/uuid md/uuid uuid serial; do
        _id=$(content "$1/$_place" | sed 's/ *$//')
        [ -z "$_id" ] || { echo "$_place $_id"; return; }
    done
    # It has no name of its own, but since Linux 5.15 a number that no other disk has had since the boot.
    _id=$(content "$1/diskseq")
    echo "$(content "$1/dev")${_id:+ sequence $_id}"
}

# --- all of them

put_all_back() {
    while read -r _line; do
        case "$_line" in "PUT BACK "*) (put_back ${_line#PUT BACK }) </dev/null || exit 1 ;; esac
    done <"$JOURNAL"
}

# earlier JOURNAL: of an earlier boot nothing is left but the entry, and what open-iscsi has on disk.
earlier() {
    { read -r _kind; read -r _first; read -r _second; read -r _third; } <"$1"
    if [ "$_kind" = iscsi ]; then
        # Somebody may have logged in by it since, and would not come back after a lost connection without it.
        no_session "$_first" || {
            [ "$_third" = theirs ] || echo "LEFT open-iscsi's record of $_first, which iotax made before this host was booted:" \
                "somebody is logged in by it. Log out, iscsiadm -m node -T $_first --logout, and clean again"
            return 0
        }
        forget_iscsi "$_first" "$_second" "$_third"
    fi
    rm -f "$1"
}

down() {
    for _old in "$FOLDER/path-$(uname -n)-"*; do
        case "$_old" in "$JOURNALS" | "$JOURNALS".*) continue ;; esac
        [ ! -f "$_old" ] || earlier "$_old"
    done
    # Nothing of it outlives a boot.
    for _old in "$FOLDER/using-$(uname -n)-"*; do
        [ "$_old" = "$USING" ] || rm -f "$_old"
    done
    if [ -f "$USING" ]; then
        read -r _script <"$USING"
        (. "$_script" && down_using) || exit 1
    fi
    # One that stays must not keep the others up.
    _stays=0
    for JOURNAL in "$JOURNALS" "$JOURNALS".*; do
        (down_one) || _stays=1
    done
    JOURNAL=$JOURNALS
    return "$_stays"
}

# down_one: what its journal holds.
down_one() {
    case "$JOURNAL" in *.part) return 0 ;; esac
    [ -f "$JOURNAL" ] || return 0
    { read -r _kind; read -r _first; read -r _second; read -r _third; } <"$JOURNAL"
    case "$_kind" in
    nvme-tcp | fc-nvme) down_nvme "$_first" ;;
    iscsi) down_iscsi "$_first" "$_second" "$_third" ;;
    nfs) down_nfs "$_first" ;;
    fc)
        put_all_back
        down_fc "$_first" "$_second" "$_third"
        ;;
    esac
    [ "$_kind" = fc ] || put_all_back
    rm -f "$JOURNAL"
    echo "DOWN $_kind $_first"
}

up() {
    case "$1" in
    slot=*)
        SLOT=${1#*=}
        JOURNAL=$JOURNALS.$SLOT
        shift
        _mine=down_one
        ;;
    *) _mine=down ;;
    esac
    # What is asked of us on standard input is nobody else's to read.
    "$_mine" >/dev/null </dev/null || exit 1
    MTU='' POLICY='' DEPTH='' PORTALS=''
    HIDDEN='' CHAP_USER='' CHAP_SECRET='' MUTUAL_USER='' MUTUAL_SECRET='' DHCHAP_SECRET='' DHCHAP_CTRL_SECRET=''
    while :; do
        case "$1" in
        secrets=*) take_secrets ;;
        mtu=*) MTU=${1#*=} ;;
        policy=*) POLICY=${1#*=} ;;
        depth=*) DEPTH=${1#*=} ;;
        portals=*) PORTALS=${1#*=} ;;
        *) break ;;
        esac
        shift
    done
    _up=$1
    shift
    case "$_up" in
    nvme-tcp) set -- up_nvme "$@" ;;
    iscsi) set -- up_iscsi "$@" ;;
    nfs) set -- up_nfs "$@" ;;
    fc) set -- up_fc "$@" ;;
    fc-nvme) set -- up_fc_nvme "$@" ;;
    *) set -- up_local "$@" ;;
    esac
    # What came up half is taken down; why it did not come up is what is said.
    ("$@") || {
        ("$_mine") >/dev/null 2>&1
        exit 1
    }
}

# Two locks, each this shell's alone: what it starts must not keep them, so that is given neither (8>&- 9>&-). Descriptor 9 is the
# study's, held as long as the study is at work here. Descriptor 8 is held by whoever makes or takes down anything: a study that is
# cut off may leave a script that still makes something, and what takes everything down waits for its end.
STUDY=$FOLDER/lock-$(uname -n)
WORK=$FOLDER/work-$(uname -n)

# lockable FILE KIND: KIND of failure where it cannot be written.
lockable() {
    command -v flock >/dev/null 2>&1 || die "missing flock is not installed on this host (util-linux)"
    mkdir -p "$FOLDER" && touch "$1" || die "$2 $FOLDER cannot be written"
}

lock() {
    lockable "$STUDY" denied
    exec 9>"$STUDY"
    # Whoever looks whether it is held holds it for a moment.
    until_true 1 flock -n 9 || die "in_use another study of iotax uses this host"
}

# making COMMAND...: alone, and only while its study is at work: later, nobody would take down what it makes.
making() {
    lockable "$WORK" disk_full
    exec 8>"$WORK"
    flock 8
    [ ! -e "$STUDY" ] || ! flock -n "$STUDY" true || die "in_use the study that wants this of the host has ended there"
    ("$@") 8>&-
}

# down_alone: what makes something for long, such as a database, ends when what it uses is taken down.
down_alone() {
    lockable "$WORK" denied
    exec 8>"$WORK"
    until_true "$WAIT_S" flock -n 8 || (down) 8>&- 9>&-
    flock 8
    (down) 8>&- 9>&-
}

clean() {
    lock
    down_alone || exit 1
    rm -f "$STUDY" "$WORK"
}

keep() {
    lock
    # A session that hangs up must not keep this from ending in order.
    trap '' HUP TERM PIPE
    (down_alone) >&2
    (trap - HUP TERM PIPE; exec "$1" session) 9>&-
    down_alone >&2
    # Before the other lock, so that whoever waits for that one finds that the study has ended.
    exec 9>&-
}

command=$1
shift
case "$command" in
clean | keep) "$command" "$@" ;;
up) making up "$@" ;;
down) down_alone ;;
with)
    WITH=$1
    shift
    . "$WITH"
    case "$1" in
    *_begin | *_build) making "$@" ;;
    *) "$@" ;;
    esac
    ;;
*) die "usage paths.sh up|down|clean|keep|with" ;;
esac
