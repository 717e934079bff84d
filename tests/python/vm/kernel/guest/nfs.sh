# The kernel's NFS client against an export at $GATEWAY:$PORT, of version $VERSION (3 where it is not set).
VERSION=${VERSION:-3}
load nfsv${VERSION%.*}
M=/mnt/nfs

# mount_nfs EXPORT OPTIONS
mount_nfs() {
    mkdir -p $M
    of_version=""
    [ $VERSION = 3 ] && of_version=",nolock,mountproto=tcp,mountport=$PORT"
    checked mount.nfs $GATEWAY:/$1 $M -o "vers=$VERSION,proto=tcp,hard,port=$PORT,timeo=50$of_version${2:+,$2}"
}

unmount_nfs() { checked umount $M; }

# calls PROCEDURE: how many the mount has sent so far.
calls() { awk "/^[ \t]*$1:/ {n += \$2} END {print \"$1\", n + 0}" /proc/self/mountstats; }

# write_slowly MIB: to the volume's file, all of it flushed at once and in the background; $WRITTEN is what it must hold.
WRITTEN=/run/written
write_slowly() {
    dd if=/dev/urandom of=$WRITTEN bs=1M count=$1 2>/dev/null
    rm -f /run/dd.status
    (
        dd if=$WRITTEN of=$M/data bs=1M conv=notrunc,fsync
        echo $? >/run/dd.status
    ) </dev/null >/dev/null 2>&1 &
}

# Every WRITE is answered, and the COMMIT after them is on its way.
uncommitted() { [ "$(calls WRITE)" = "WRITE $1" ] && [ "$(calls COMMIT)" = "COMMIT 0" ]; }

# The volume's file as a block device.
attach() {
    load loop
    checked losetup /dev/loop0 $M/data
}

detach() { checked losetup -d /dev/loop0; }

# A directory of $1 files, listed whole by a client that knows nothing of it.
large_directory() {
    mkdir $M/many
    _n=0
    while [ $_n -lt $1 ]; do
        : >$M/many/a-file-with-a-name-of-some-length-$_n
        _n=$((_n + 1))
    done
    unmount_nfs
    mount_nfs v0
    is $1 $(ls $M/many | sort -u | wc -l) "files listed"
    is $1 $(ls -l $M/many | grep -c '^-rw') "files listed with their attributes"
    is $1 $(find $M/many -type f | wc -l) "files found"
}

names() {
    mkdir $M/names
    cd $M/names
    echo old >old; echo new >new
    mv -f new old
    is new "$(cat old)" "a file renamed over another"
    refuses ls new
    mkdir -p one/two; echo deep >one/two/three
    mv one/two/three .
    is deep "$(cat three)" "a file moved up"
    refuses mv three one/two/three/four
    refuses rmdir one
    mkdir empty
    mv -T empty one/two 2>/dev/null || die "a folder renamed over an empty one"
    ln -s old pointer
    is old "$(readlink pointer)" "a symbolic link"
    is new "$(cat pointer)" "a symbolic link followed"
    ln -s "$(printf %01000d 0)" long
    is 1000 "$(readlink long | tr -d '\n' | wc -c)" "a long symbolic link"
    ln old other
    is 2 "$(stat -c %h old)" "links of a file"
    is "$(stat -c %i old)" "$(stat -c %i other)" "one file of two names"
    rm old
    is new "$(cat other)" "a file whose first name is gone"
    _long=$(printf %0255d 0)
    echo long >$_long
    is long "$(cat $_long)" "a name of 255 bytes"
    refuses sh -c ": >${_long}0"
    mkfifo fifo; [ -p fifo ] || die "no FIFO"
    exec 6<>other
    rm other
    echo still >&6
    exec 6>&-
    is "" "$(ls -A | grep '^\.nfs')" "a file removed while open"
    set -C
    (: >once) || die "an exclusive create"
    refuses sh -C -c ': >once'
    set +C
    chmod 4755 once; is 4755 $(stat -c %a once) "mode"
    chown 12:34 once; is 12:34 $(stat -c %u:%g once) "owner"
    touch -d '2001-02-03 04:05:06' once; is 981173106 $(stat -c %Y once) "time"
    cd /
}

# punched FILE: a hole in its first MiB, with ends within blocks.
punched() {
    tr '\0' x </dev/zero | dd of=$1 bs=64k count=16 iflag=fullblock conv=notrunc 2>/dev/null
    _size=$(stat -c %s $1)
    checked /usr/sbin/fallocate --punch-hole --offset 100001 --length 300000 $1
    is $_size $(stat -c %s $1) "size after a hole"
    drop_caches
    is 748576 $(head -c 1048576 $1 | tr -d '\0' | wc -c) "bytes that a hole left"
    is 100001 $(head -c 100001 $1 | tr -d '\0' | wc -c) "bytes before a hole"
}

# What NFSv4.2 adds: holes made and found, and room.
holes() {
    punched $M/data
    punched $M/punched
    used=$(stat -c %b $M/punched)
    [ $used -lt 1900 ] || die "a file with a hole takes $used blocks of its 2048"
    # Looks for data and for holes, and makes more of those.
    dd if=/dev/zero of=$M/zeros bs=1M count=4 2>/dev/null
    checked /usr/sbin/fallocate --dig-holes $M/zeros
    [ $(stat -c %b $M/zeros) -lt 200 ] || die "zeros were dug and take room"
    checked /usr/sbin/fallocate --length 3M $M/room
    is 3145728 $(stat -c %s $M/room) "size of a file that was given room"
    is 0 $(tr -d '\0' <$M/room | wc -c) "bytes that are not zero in room"
    checked /usr/sbin/fallocate --length 1M $M/data
    refuses /usr/sbin/fallocate --offset $(stat -c %s $M/data) --length 1M $M/data
    drop_caches
    is 748576 $(head -c 1048576 $M/data | tr -d '\0' | wc -c) "bytes of a volume that was given room"
    calls SEEK; calls ALLOCATE; calls DEALLOCATE
}

contents() {
    mkdir $M/contents
    cd $M/contents
    # Sparse: nothing was written where zeros are read.
    truncate -s 20M sparse
    is 20971520 $(stat -c %s sparse) "size"
    printf middle | dd of=sparse bs=1 seek=10000000 conv=notrunc 2>/dev/null
    drop_caches
    is middle "$(dd if=sparse bs=1 skip=10000000 count=6 2>/dev/null)" "data in a hole"
    is 6 $(tr -d '\0' <sparse | wc -c) "bytes that are not zero in a sparse file"
    # Truncated and grown again, the tail is zeros.
    tr '\0' x </dev/zero | dd of=cut bs=64k count=16 iflag=fullblock 2>/dev/null
    truncate -s 500001 cut
    truncate -s 1M cut
    drop_caches
    is 500001 $(tr -d '\0' <cut | wc -c) "bytes that a truncation left"
    is 1048576 $(stat -c %s cut) "size after truncation"
    # What one client appends, another open file sees.
    echo one >appended; echo two >>appended
    is "one two" "$(tr '\n' ' ' <appended | sed 's/ $//')" "an appended file"
    # Over a file that was longer.
    echo short >cut
    is short "$(cat cut)" "a file written anew"
    cd /
}
