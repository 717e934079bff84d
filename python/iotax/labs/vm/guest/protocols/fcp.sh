# SCSI over Fibre Channel (FCP), carried by Ethernet (FCoE) in VN2VN mode: no switch, no fcoe-utils, no DCB.
. /lab/scsi_target.sh
STORAGE_WWPN=20:00:52:54:00:00:00:01 INITIATOR_WWPN=20:00:52:54:00:00:00:02
TPG=$TARGET/fc/$STORAGE_WWPN/tpgt_1

# In one guest, the two ports are the ends of a virtual cable.
STORAGE_PORT=${ONE_GUEST:+fc0} INITIATOR_PORT=${ONE_GUEST:+fc1}
STORAGE_PORT=${STORAGE_PORT:-eth0} INITIATOR_PORT=${INITIATOR_PORT:-eth0}

cable_up() {
    [ -e /sys/class/net/fc0 ] && return
    load veth
    # The other end gets a name of the kernel's choice.
    ip link add fc0 type veth || die "no virtual cable"
    ip link set "$(cd /sys/class/net && ls -d veth*)" name fc1 || die "the virtual cable has one end"
    ip link set fc0 address 52:54:00:00:00:01
    ip link set fc1 address 52:54:00:00:00:02
}

# fcoe_create INTERFACE: the port, still disabled. Full frames of 2112 bytes want an MTU of 2158 (FC-BB-5 §7.7).
fcoe_create() {
    load libfc libfcoe fcoe
    [ -z "$ONE_GUEST" ] || cable_up
    [ "${MTU:-1500}" -ge 2158 ] || MTU=2158
    ip link set $1 down
    ip link set $1 mtu $MTU promisc on up || die "$1 cannot be set to MTU $MTU"
    _before=$(ls -d /sys/bus/fcoe/devices/ctlr_* 2>/dev/null | wc -l)
    echo $1 >/sys/bus/fcoe/ctlr_create || die "FCoE on $1"
    until_true 5 sh -c "[ \$(ls -d /sys/bus/fcoe/devices/ctlr_* 2>/dev/null | wc -l) -gt $_before ]" ||
        die "no FCoE controller came"
    CONTROLLER=$(ls -d /sys/bus/fcoe/devices/ctlr_* | sort -t_ -k2n | tail -n 1)
    echo vn2vn >$CONTROLLER/mode || die "no VN2VN mode"
    echo $CONTROLLER >/run/fcoe.$1
}

# fcoe_destroy INTERFACE
fcoe_destroy() {
    echo 0 >"$(cat /run/fcoe.$1)/enabled"
    echo $1 >/sys/bus/fcoe/ctlr_destroy || die "FCoE teardown"
    ip link set $1 promisc off
}

# The target's rights stand before its port logs in: else it answers process logins without the target role.
target_up() {
    backstore_up
    fcoe_create $STORAGE_PORT
    load tcm_fc
    mkdir -p $TPG/lun/lun_0 || die "the FC target cannot be made"
    ln -s $BACKSTORE $TPG/lun/lun_0/volume || die "the LUN cannot be mapped"
    mkdir -p $TPG/acls/$INITIATOR_WWPN/lun_0 || die "no rights for the initiator"
    ln -s $TPG/lun/lun_0 $TPG/acls/$INITIATOR_WWPN/lun_0/volume || die "the LUN is not mapped to the initiator"
    echo 1 >$CONTROLLER/enabled || die "the FCoE port cannot be enabled"
}
target_down() {
    fcoe_destroy $STORAGE_PORT
    rm $TPG/acls/$INITIATOR_WWPN/lun_0/volume && rmdir $TPG/acls/$INITIATOR_WWPN/lun_0 $TPG/acls/$INITIATOR_WWPN &&
        rm $TPG/lun/lun_0/volume && rmdir $TPG/lun/lun_0 $TPG $TARGET/fc/$STORAGE_WWPN || die "FC target teardown"
    backstore_down
}
initiator_up() {
    load sd_mod
    fcoe_create $INITIATOR_PORT
    echo 1 >$CONTROLLER/enabled || die "the FCoE port cannot be enabled"
    block_device '/dev/sd?' || die "no disk came over FC"
}
initiator_down() {
    for disk in /sys/block/sd?; do echo 1 >"$disk/device/delete"; done
    fcoe_destroy $INITIATOR_PORT
}
