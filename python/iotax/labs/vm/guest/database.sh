# PostgreSQL on a file system on the volume, and pgbench beside it. The file system is made once without any protocol, and
# copied for each further guest: over a block protocol the initiator mounts its device, over NFS the storage guest mounts
# the volumes and exports them.
PG=$(echo /usr/lib/postgresql/*/bin)
DATABASE=/mnt/database
RUN=/run/postgresql
GROUP=/sys/fs/cgroup/database
. /lab/postgres.sh

# folder_of NUMBER: where that volume's file system is mounted.
folder_of() { echo $DATABASE${1#0}; }

# file_system_up DEVICE [FOLDER]: DEVICE, or the file that is a volume, at FOLDER; at $DATABASE where none is given.
file_system_up() {
    load ext4 loop
    _folder=${2:-$DATABASE}
    mkdir -p $_folder
    case "$1" in
    $VOLUME*) mount -o loop,noatime "$1" $_folder || die "the volume's file system cannot be mounted" ;;
    *) mount -t ext4 -o noatime "$1" $_folder || die "the file system on $1 cannot be mounted" ;;
    esac
}

# file_system_down [FOLDER]
file_system_down() { umount ${1:-$DATABASE} || die "the file system is in use"; }

# data_of DEVICE: where PostgreSQL's files are.
data_of() {
    case "$1" in
    /mnt/nfs*/*) PGDATA=${1%/*}/data ;;
    *) PGDATA=$DATABASE/data ;;
    esac
}

# as_postgres COMMAND: PostgreSQL does not run as root.
as_postgres() { su -s /bin/sh postgres -c "$1"; }

join_group() { [ ! -d $GROUP ] || sh -c "echo \$PPID >$GROUP/cgroup.procs"; }
run_folder() { mkdir -p $RUN && chown postgres $RUN && chmod 1777 /dev/shm; }

# memory_up BYTES: a group whose processes, with the cached pages of their files, have so much memory.
memory_up() {
    mounted /sys/fs/cgroup || mount -t cgroup2 cgroup /sys/fs/cgroup || die "no control groups"
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control || die "no control of memory"
    mkdir -p $GROUP
    echo "$1" >$GROUP/memory.max || die "the database's memory cannot be limited to $1 bytes"
    # What is not yet written counts too, and NFS does not write it for the sake of a group.
    echo $(($1 / 8)) >/proc/sys/vm/dirty_bytes
    echo $(($1 / 16)) >/proc/sys/vm/dirty_background_bytes
}

# database_build SCALE INITDB_OPTIONS: a file system on the whole volume with pgbench's tables, and nobody uses it.
database_build() {
    # By path: busybox has one of its own.
    /usr/sbin/mke2fs -q -t ext4 -F -b 4096 -m 0 -J size=8 -E lazy_itable_init=0,lazy_journal_init=0 $VOLUME >/run/mke2fs.log 2>&1 ||
        die "no file system can be made: $(cat /run/mke2fs.log)"
    file_system_up $VOLUME
    data_of $VOLUME
    mkdir $PGDATA && chown postgres $PGDATA
    run_folder
    tables_build "$1" "$2"
    file_system_down
}

# database_copies COUNT: the same on so many volumes in all.
database_copies() {
    for _number in $(seq 1 $(($1 - 1))); do
        cp $VOLUME "$(volume_of $_number)" || die "the database cannot be copied"
    done
}

# database_begin DEVICE MEMORY_BYTES SERVER_OPTIONS CLIENTS PGBENCH_OPTIONS WARMUP_S: PostgreSQL and pgbench are up and every
# client is connected, since WARMUP_S seconds.
database_begin() {
    data_of "$1"
    case "$1" in /mnt/nfs*/*) ;; *) file_system_up "$1" ;; esac
    memory_up "$2"
    run_folder
    server_up "$3"
    pgbench_up "$4" "$5"
    sleep "$6"
}

# window_begin DEVICE CHECKPOINT_S: with a checkpoint so many seconds later.
window_begin() {
    checkpoint_in "$2"
    edge "$1"
}

# counted_begin DEVICE: what ran so far was to warm up.
counted_begin() {
    pgbench_down
    rm -f $RUN/pgbench/pgbench_log.*
    checkpoints >$RUN/pgbench/checkpoints || die "no answer"
    edge "$1"
}

# counted_window DEVICE TRANSACTIONS CLIENTS PGBENCH_OPTIONS: until each client has done so many, and with a checkpoint at once.
counted_window() {
    checkpoint_in 0
    (pgbench_with -t "$2" -c "$3" $4) >$RUN/pgbench/said 2>&1 || die "pgbench: $(why $RUN/pgbench/said)"
    edge "$1"
}

# edge DEVICE: the clocks, by the shell alone, and what was read and written on the device so far.
edge() {
    read -r uptime _ </proc/uptime
    read -r stat </proc/stat
    echo "EDGE $EPOCHREALTIME"
    echo "COUNTERS $uptime $stat"
    case "$1" in
    /mnt/nfs*/*) echo "USE $(used_of_mounts </proc/self/mountstats)" ;;
    *) echo "USE $(used_of_disks $(device_stats "$1"))" ;;
    esac
}

# device_stats DEVICE: Documentation/block/stat.rst.
device_stats() {
    case "$1" in
    $VOLUME) echo /sys/block/loop0/stat ;;
    /dev/nvme*) ls -d /sys/block/nvme*c*n1/stat 2>/dev/null || echo /sys/block/${1#/dev/}/stat ;;
    *) echo /sys/block/${1#/dev/}/stat ;;
    esac
}

# timed_window DEVICE RUNTIME_S
timed_window() {
    sleep "$2"
    edge "$1"
}

# database_end DEVICE: pgbench ends and tells each transaction; then PostgreSQL ends.
database_end() {
    has_ended || pgbench_down
    database_told
    sed 's/^/LOG /' $RUN/pgbench/pgbench_log.*
    data_of "$1"
    server_down
    case "$1" in /mnt/nfs*/*) ;; *) file_system_down ;; esac
    rmdir $GROUP 2>/dev/null
    :
}
