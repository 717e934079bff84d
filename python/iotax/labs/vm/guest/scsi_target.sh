# The kernel's SCSI target: the volume as a fileio backstore, shared by iSCSI, iSER and FCP.
TARGET=$CONFIG/target
BACKSTORE=$TARGET/core/fileio_0/volume

backstore_up() {
    load target_core_mod target_core_file
    mkdir -p $BACKSTORE || die "the SCSI target has no fileio backstore"
    echo "fd_dev_name=$VOLUME,fd_dev_size=$(stat -c %s $VOLUME),fd_buffered_io=1" >$BACKSTORE/control || die "backstore"
    echo 1 >$BACKSTORE/enable || die "the backstore cannot be enabled"
}

backstore_down() { rmdir $BACKSTORE $TARGET/core/fileio_0; }
