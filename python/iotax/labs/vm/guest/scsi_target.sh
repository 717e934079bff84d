# The kernel's SCSI target: each volume as a fileio backstore, shared by iSCSI, iSER and FCP.
TARGET=$CONFIG/target
BACKSTORE=$TARGET/core/fileio_0/volume

# backstore_of NUMBER: of the volume with that number; the first one's is $BACKSTORE.
backstore_of() { echo $BACKSTORE${1#0}; }

backstore_up() {
    load target_core_mod target_core_file
    for number in $(volumes); do
        _file=$(volume_of $number) _store=$(backstore_of $number)
        # Another protocol's target may have it up.
        [ ! -d $_store ] || continue
        mkdir -p $_store || die "the SCSI target has no fileio backstore"
        echo "fd_dev_name=$_file,fd_dev_size=$(stat -c %s $_file),fd_buffered_io=1" >$_store/control || die "backstore"
        echo 1 >$_store/enable || die "the backstore cannot be enabled"
    done
}

backstore_down() {
    for group in $BACKSTORE/alua/path*; do [ ! -d $group ] || rmdir $group; done
    rmdir $BACKSTORE* $TARGET/core/fileio_0
}
