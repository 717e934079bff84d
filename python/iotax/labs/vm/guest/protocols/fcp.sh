# SCSI over Fibre Channel (FCP), carried by Ethernet (FCoE) in VN2VN mode: no switch, no fcoe-utils, no DCB.
. /lab/scsi_target.sh
STORAGE_WWPN=20:00:52:54:00:00:00:01 INITIATOR_WWPN=20:00:52:54:00:00:00:02
TPG=$TARGET/fc/$STORAGE_WWPN/tpgt_1

# fcoe_create: the port, still disabled. Full frames of 2112 bytes want an MTU of 2158 (FC-BB-5 §7.7).
fcoe_create() {
    load libfc libfcoe fcoe
    [ "${MTU:-1500}" -ge 2158 ] || MTU=2158
    ip link set eth0 down
    ip link set eth0 mtu $MTU promisc on up || die "eth0 cannot be set to MTU $MTU"
    echo eth0 >/sys/bus/fcoe/ctlr_create || die "FCoE on eth0"
    until_true 5 sh -c 'ls -d /sys/bus/fcoe/devices/ctlr_* >/dev/null 2>&1' || die "no FCoE controller came"
    CONTROLLER=$(ls -d /sys/bus/fcoe/devices/ctlr_* | tail -n 1)
    echo vn2vn >$CONTROLLER/mode || die "no VN2VN mode"
}

fcoe_destroy() {
    for controller in /sys/bus/fcoe/devices/ctlr_*; do
        [ ! -e "$controller" ] || echo 0 >"$controller/enabled"
    done
    echo eth0 >/sys/bus/fcoe/ctlr_destroy || die "FCoE teardown"
    ip link set eth0 promisc off
}

# The target's rights stand before its port logs in: else it answers process logins without the target role.
target_up() {
    backstore_up
    fcoe_create
    load tcm_fc
    mkdir -p $TPG/lun/lun_0 || die "the FC target cannot be made"
    ln -s $BACKSTORE $TPG/lun/lun_0/volume || die "the LUN cannot be mapped"
    mkdir -p $TPG/acls/$INITIATOR_WWPN/lun_0 || die "no rights for the initiator"
    ln -s $TPG/lun/lun_0 $TPG/acls/$INITIATOR_WWPN/lun_0/volume || die "the LUN is not mapped to the initiator"
    echo 1 >$CONTROLLER/enabled || die "the FCoE port cannot be enabled"
}
target_down() {
    fcoe_destroy
    rm $TPG/acls/$INITIATOR_WWPN/lun_0/volume && rmdir $TPG/acls/$INITIATOR_WWPN/lun_0 $TPG/acls/$INITIATOR_WWPN &&
        rm $TPG/lun/lun_0/volume && rmdir $TPG/lun/lun_0 $TPG $TARGET/fc/$STORAGE_WWPN || die "FC target teardown"
    backstore_down
}
initiator_up() {
    load sd_mod
    fcoe_create
    echo 1 >$CONTROLLER/enabled || die "the FCoE port cannot be enabled"
    block_device '/dev/sd?' || die "no disk came over FC"
}
initiator_down() {
    for disk in /sys/block/sd?; do echo 1 >"$disk/device/delete"; done
    fcoe_destroy
}
