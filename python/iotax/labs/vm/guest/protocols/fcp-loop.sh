# SCSI with nothing of a transport: initiator and target in one kernel, tcm_loop for the adapter between them.
. /lab/scsi_target.sh
WWPN=fc.2000525400000001
INITIATOR_WWPN=fc.2000525400000002
TPG=$TARGET/loopback/$WWPN/tpgt_1

target_up() {
    backstore_up
    load tcm_loop
    mkdir -p $TPG/lun/lun_0 || die "the loopback target cannot be made"
}
target_down() {
    rmdir $TPG/lun/lun_0 $TPG ${TPG%/*} || die "loopback target teardown"
    backstore_down
}
# The disk comes and goes with the link to the LUN.
initiator_up() {
    load sd_mod
    echo $INITIATOR_WWPN >$TPG/nexus || die "no nexus with the loopback target"
    disks_now
    ln -s $BACKSTORE $TPG/lun/lun_0/volume || die "the LUN cannot be mapped"
    new_disk || die "the disk of the loopback target has no size"
}
initiator_down() {
    rm $TPG/lun/lun_0/volume && echo NULL >$TPG/nexus || die "loopback initiator teardown"
}
