# What the kernel tests share, over the lab's own functions.
. /lab/lib.sh
GATEWAY=10.0.0.254
STUBS=/test/stubs

# checked COMMAND...: its output only where it fails.
checked() { "$@" >/run/checked.log 2>&1 || die "$*: $(tail -n 30 /run/checked.log)"; }

# is WANTED FOUND WHAT
is() { [ "$1" = "$2" ] || die "$3: $2, not $1"; }

# refuses COMMAND...
refuses() { ! "$@" >/dev/null 2>&1 || die "$* should have failed"; }

drop_caches() { sync; echo 3 >/proc/sys/vm/drop_caches; }

# fio NAME FILE OPTIONS...: verified by checksum; the first wrong block ends it. SIGPIPE is ignored: Linux's NVMe/TCP
# host sends from the process that submits, without MSG_NOSIGNAL, and so kills it where the connection is just lost.
fio() {
    _name=$1 _file=$2
    shift 2
    (
        trap "" PIPE
        export LD_LIBRARY_PATH=$STUBS
        exec /usr/bin/fio --name="$_name" --filename="$_file" --verify=crc32c --verify_fatal=1 \
            --ioengine=libaio --randseed=7 "$@"
    ) >/run/fio.log 2>&1 </dev/null || die "fio $*: $(head -n 12 /run/fio.log)"
    grep -q 'err= 0' /run/fio.log || die "fio $*: $(head -n 12 /run/fio.log)"
}

# exercise FILE SEED OPERATIONS BYTES
exercise() {
    if [ -e /opt/iotax/loader ]; then
        checked /opt/iotax/loader --library-path /opt/iotax /test/exercise_file "$@"
    else
        checked /test/exercise_file "$@"
    fi
}

# leave: whatever a test left behind goes: loads, mounts, sessions, controllers.
leave() {
    killall -9 fio exercise_file 2>/dev/null
    for _mount in /mnt/fs /mnt/nfs; do
        ! mounted $_mount || umount $_mount || umount -f -l $_mount
    done
    if pidof iscsid >/dev/null; then
        iscsiadm -m node --logout >/dev/null 2>&1
        rm -rf /var/lib/iscsi/nodes /var/lib/iscsi/send_targets
    fi
    for _controller in /sys/class/nvme/nvme*; do
        [ ! -e $_controller ] || echo 1 >$_controller/delete_controller
    done
    until_true 10 sh -c '! ls -d /dev/sd? /dev/nvme?n? >/dev/null 2>&1' || die "a disk stays"
}

# start_fio NAME FILE OPTIONS...: in the background; end_fio waits for it.
start_fio() {
    rm -f /run/fio.status
    ( (fio "$@") 2>/run/fio.err; echo $? >/run/fio.status) </dev/null >/dev/null 2>/dev/null &
}

# end_fio SECONDS
end_fio() {
    until_true $1 test -s /run/fio.status || die "fio does not end: $(tail -n 5 /run/fio.log)"
    [ "$(cat /run/fio.status)" = 0 ] || die "$(cat /run/fio.err)"
}

fio_runs() { [ ! -s /run/fio.status ] || die "fio has ended: $(cat /run/fio.err /run/fio.log)"; }

make_file_system() {
    case $1 in
    ext4) checked /usr/sbin/mke2fs -q -F -t ext4 $2 ;;
    xfs) checked /usr/sbin/mkfs.xfs -q -f $2 ;;
    esac
}

check_file_system() {
    case $1 in
    ext4) checked /usr/sbin/e2fsck -f -n $2 ;;
    xfs) checked /usr/sbin/xfs_repair -n $2 ;;
    esac
}

# copies FOLDER MIB: files of fio's, and a copy of each.
copies() {
    mkdir -p $1/from
    LD_LIBRARY_PATH=$STUBS checked /usr/bin/fio --name=files --directory=$1/from --nrfiles=16 --size=${2}m --rw=write \
        --bs=256k --verify=crc32c --do_verify=0 --end_fsync=1
    checked cp -r $1/from $1/to
}

# copy_and_compare FOLDER MIB: with nothing left in a cache.
copy_and_compare() {
    copies $1 $2
    compare $1
}

# compare FOLDER: by path, for busybox has a cmp of its own, which goes byte by byte.
compare() {
    drop_caches
    for _file in $1/from/*; do
        checked /usr/bin/cmp $_file $1/to/${_file##*/}
    done
}

# file_system_holds KIND DEVICE MIB OPERATIONS: everything that a file system on the device goes through.
file_system_holds() {
    load $1
    mkdir -p /mnt/fs
    make_file_system $1 $2
    mount -t $1 $2 /mnt/fs || die "mount $1"
    fio file /mnt/fs/fio --size=4m --rw=randwrite --bs=512-64k
    fio direct /mnt/fs/direct --size=4m --rw=randwrite --bs=4k-128k --direct=1 --iodepth=16
    exercise /mnt/fs/exercised 11 $4 2000000
    copy_and_compare /mnt/fs $3
    umount /mnt/fs || die "umount"
    check_file_system $1 $2
    mount -t $1 $2 /mnt/fs || die "second mount $1"
    compare /mnt/fs
    fio file /mnt/fs/fio --size=4m --rw=randwrite --bs=512-64k --verify_only
    rm -r /mnt/fs/from
    [ "$(cat /sys/block/${2#/dev/}/queue/discard_max_bytes)" = 0 ] || checked fstrim /mnt/fs
    umount /mnt/fs || die "second umount"
    check_file_system $1 $2
}

# large_copies KIND DEVICE MIB: copied to a new file system, compared after another mount.
large_copies() {
    load $1
    mkdir -p /mnt/fs
    make_file_system $1 $2
    mount -t $1 $2 /mnt/fs || die "mount $1"
    copies /mnt/fs $3
    umount /mnt/fs || die "umount"
    check_file_system $1 $2
    mount -t $1 $2 /mnt/fs || die "second mount $1"
    compare /mnt/fs
    umount /mnt/fs || die "second umount"
}
