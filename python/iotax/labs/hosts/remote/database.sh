# A database on a path that is up: on a device a file system with PostgreSQL's files, beside a file of a mount a folder with
# them. `paths.sh with` reads this behind its own functions; what postgres.sh has stands above. What is begun is written into a
# journal first, so that whoever takes the path down ends it.
#
#   database_ready DEVICE                      fails with what this host lacks
#   database_holds DEVICE                      OURS on standard output where an earlier database is all that it holds
#   database_build DEVICE BYTES SCALE INITDB_OPTIONS
#   database_begin DEVICE MEMORY_BYTES SERVER_OPTIONS CLIENTS PGBENCH_OPTIONS
#   database_checkpoint
#   database_end BEGIN_US END_US               of the window, by this host's clock: LOG, CLOCK, USE, CHECKPOINTS, VERSION
CGROUPS=${CGROUPS:-/sys/fs/cgroup}
LABEL=iotax-pgbench
# Of the control group that limits the memory, once it is known.
GROUP='' LIMIT=''
SAMPLE_S=0.25
if [ "$(id -u)" = 0 ]; then RUN=/run/iotax-database OWNER=postgres
else RUN=$FOLDER/run-$(uname -n) OWNER=$(id -un); fi
PG=${PG:-$(for _each in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/lib/postgresql*/bin /usr/bin; do
    [ ! -x "$_each/initdb" ] || [ ! -x "$_each/pgbench" ] || echo "$_each"
done | sort -V | tail -n 1)}

# as_postgres COMMAND: as the login, or where that is root, as the user of PostgreSQL's packages.
as_postgres() { if [ "$(id -u)" = 0 ]; then su -s /bin/sh postgres -c "$1"; else sh -c "$1"; fi; }
join_group() { [ -z "$GROUP" ] || sh -c 'echo $PPID' | (root "joining the group of the database's memory" tee "$GROUP/cgroup.procs") || exit 1; }

on_disk() { [ -b "$1" ]; }
files_are_up() { grep -q " $RUN/mount " "$PROCFS/self/mounts"; }
gone() { [ ! -e "/proc/$1" ]; }

# data_of DEVICE: where PostgreSQL's files are. Root's home is closed to others, and mounts of files stand in it.
data_of() {
    if on_disk "$1" || [ "$(id -u)" = 0 ]; then PGDATA=$RUN/mount/data; else PGDATA=$1.database/data; fi
}

database_ready() {
    [ -n "$PG" ] || die "missing PostgreSQL is not installed on this host: initdb, postgres, psql and pgbench in one folder"
    for _each in initdb postgres psql pgbench; do
        [ -x "$PG/$_each" ] || die "missing $PG has no $_each"
    done
    [ "$(id -u)" != 0 ] || id -u postgres >/dev/null 2>&1 || die "missing PostgreSQL does not run as root, and this host has no user postgres"
    group_of_memory
    on_disk "$1" || case "$1" in
    "$FOLDER"/mount/*) ;;
    *) die "usage $1 is a file of this host: a database takes a device, or a file of kernel:nfs://" ;;
    esac
}

# group_of_memory: $GROUP, and which of its files limits it.
group_of_memory() {
    if grep -qsw memory "$CGROUPS/cgroup.controllers"; then GROUP=$CGROUPS/iotax-database LIMIT=memory.max
    elif [ -d "$CGROUPS/memory" ]; then GROUP=$CGROUPS/memory/iotax-database LIMIT=memory.limit_in_bytes
    else die "missing no control group of this host limits memory"; fi
}

database_holds() {
    [ ! -e "$1.database/made_by_iotax" ] || { echo OURS; return; }
    # Where ext4 keeps its label (Documentation/filesystems/ext4/super.rst). A file may be served as a device, too.
    (root "reading the label of $1" dd if="$1" bs=1 skip=1144 count=${#LABEL} status=none && [ "$_said" = "$LABEL" ]) 2>/dev/null &&
        echo OURS || :
}

# database_using DEVICE: the journal says what else is set back.
database_using() {
    set -- "$1"
    for _each in $DIRTY; do set -- "$@" "$(content "$PROCFS/sys/vm/$_each")"; done
    using "$@"
    [ "$(id -u)" != 0 ] || chown postgres "$RUN"
}
DIRTY="dirty_bytes dirty_background_bytes dirty_ratio dirty_background_ratio"

# kernel_set NAME VALUE: below /proc/sys/vm.
kernel_set() { echo "$2" | (root "setting vm.$1 to $2" tee "$PROCFS/sys/vm/$1") || exit 1; }

# files_up DEVICE
files_up() {
    mkdir -p "$RUN/mount"
    if on_disk "$1"; then root "mounting $1" mount -t ext4 -o noatime,nosuid,nodev,noexec "$1" "$RUN/mount"
    elif [ "$(id -u)" = 0 ]; then root "mounting $1.database" mount --bind "$1.database" "$RUN/mount"; fi
    data_of "$1"
}

database_build() {
    database_using "$1"
    if on_disk "$1"; then
        # By path: busybox has one of its own, which its own timeout would take.
        (WAIT_S=600 && root "making a file system on $1" "$(command -v mke2fs || echo mke2fs)" -q -t ext4 -F -b 4096 -m 0 -L $LABEL -J size=8 \
            -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$1" $(($2 / 4096))) || exit 1
    else
        [ ! -e "$1.database" ] || [ -e "$1.database/made_by_iotax" ] ||
            die "in_use $1.database is there, and iotax did not make it: nothing was changed"
        (WAIT_S=120 && root "removing the earlier database" rm -rf "$1.database") || exit 1
        mkdir "$1.database" && touch "$1.database/made_by_iotax" || die "denied $1.database cannot be made: may this login write there?"
    fi
    files_up "$1"
    # A file system on a device is root's.
    [ -w "${PGDATA%/data}" ] && mkdir "$PGDATA" || root "making $PGDATA" mkdir "$PGDATA"
    [ -O "$PGDATA" ] && [ "$(id -u)" != 0 ] || root "giving $PGDATA to $OWNER" chown "$OWNER" "$PGDATA"
    tables_build "$3" "$4"
    down_using
}

database_begin() {
    database_using "$1"
    files_up "$1"
    group_of_memory
    [ "$LIMIT" != memory.max ] || grep -qw memory "$CGROUPS/cgroup.subtree_control" ||
        echo +memory | (root "controlling memory" tee "$CGROUPS/cgroup.subtree_control") || exit 1
    root "making $GROUP" mkdir -p "$GROUP"
    echo "$2" | (root "limiting the database's memory to $2 bytes" tee "$GROUP/$LIMIT") || exit 1
    # What is not yet written counts too, and NFS does not write it for the sake of a group.
    kernel_set dirty_bytes $(($2 / 8))
    kernel_set dirty_background_bytes $(($2 / 16))
    echo 3 | (root "dropping caches" tee "$PROCFS/sys/vm/drop_caches") || exit 1
    server_up "$3"
    pgbench_up "$4" "$5"
    touch "$RUN/sampling"
    # Not every `date` knows less than seconds: what is sampled has the uptime, and PostgreSQL tells how they differ.
    { uptime && sql -c "select extract(epoch from clock_timestamp())" && uptime; } | tr '\n' ' ' >"$RUN/clock"
    (while [ -e "$RUN/sampling" ]; do
        echo "$(uptime) $(used "$1")"
        sleep $SAMPLE_S
    done) >"$RUN/use" 2>/dev/null </dev/null &
}

database_checkpoint() { checkpoint_in 0; }

uptime() { read -r _up _ </proc/uptime && echo "$_up"; }

# used DEVICE
used() {
    if on_disk "$1"; then used_of_disks $(statistics_of "${1##*/}"); else nfs_stats "$FOLDER/mount" | used_of_mounts; fi
}

# statistics_of NAME: of a namespace with several paths the kernel counts on each.
statistics_of() {
    ls -d "$SYSFS"/block/"${1%n*}"c*n"${1##*n}"/stat 2>/dev/null | grep . || echo "$SYSFS/class/block/$1/stat"
}

database_end() {
    { read -r _; read -r _device; } <"$USING"
    data_of "$_device"
    has_ended || pgbench_down
    database_told
    # What began before the window's end and ended after its begin.
    awk -v begin="$1" -v end="$2" '{ at = $5 * 1000000 + $6 } at >= begin && at - $3 < end { print "LOG " $0 }' "$RUN"/pgbench/pgbench_log.*
    echo "CLOCK $(cat "$RUN/clock")"
    sed 's/^/USE /' "$RUN/use"
    server_down
    down_using
}

# down_using: whatever was begun ends, and everything is as it was.
down_using() {
    [ -f "$USING" ] || return 0
    { read -r _; read -r _device; for _each in $DIRTY; do read -r "_$_each"; done; } <"$USING"
    data_of "$_device"
    rm -f "$RUN/sampling"
    [ ! -e "$RUN/pgbench/pid" ] || has_ended || kill "$(cat "$RUN/pgbench/pid")" 2>/dev/null
    # A server that does not end by itself is killed: its data are pgbench's.
    for _signal in INT QUIT KILL; do
        _pid=$(head -n 1 "$PGDATA/postmaster.pid" 2>/dev/null) && [ -n "$_pid" ] || break
        kill "-$_signal" "$_pid" 2>/dev/null
        until_true "$WAIT_S" gone "$_pid" && break
    done
    if [ -n "$_dirty_bytes" ] && [ "$(content "$PROCFS/sys/vm/dirty_bytes")" != "$_dirty_bytes" ]; then
        if [ "$_dirty_bytes" = 0 ]; then kernel_set dirty_ratio "$_dirty_ratio"; else kernel_set dirty_bytes "$_dirty_bytes"; fi
        if [ "$_dirty_background_bytes" = 0 ]; then kernel_set dirty_background_ratio "$_dirty_background_ratio"
        else kernel_set dirty_background_bytes "$_dirty_background_bytes"; fi
    fi
    ! files_are_up || root "unmounting $_device" umount "$RUN/mount"
    for _each in "$CGROUPS/iotax-database" "$CGROUPS/memory/iotax-database"; do
        [ ! -d "$_each" ] || (root "removing $_each" rmdir "$_each") 2>/dev/null
    done
    # Nothing below a mount is removed.
    [ ! -e "$RUN/mount" ] || rmdir "$RUN/mount" 2>/dev/null || die "in_use $RUN/mount is still mounted"
    rm -rf "$RUN" "$USING"
}
