# SCSI over Fibre Channel (FCP), carried by Ethernet (FCoE) in VN2VN mode: no switch, no fcoe-utils, no DCB.
. /lab/scsi_target.sh
. /lab/multipath.sh

# WWPN = 20:00:MAC; the last byte of a MAC address says whose it is, the one before it on which path.
storage_wwpn() { echo 20:00:52:54:00:00:0$1:01; }
initiator_wwpn() { echo 20:00:52:54:00:00:0$1:02; }
tpg() { echo $TARGET/fc/$(storage_wwpn $1)/tpgt_1; }

# Full frames need another MTU than the study says of Ethernet: beside other protocols FCP has a link of its own.
[ -z "$TURNS" ] || [ -n "$ONE_GUEST" ] || paths() { echo 1; }

# In one guest, the two ports are the ends of a virtual cable.
storage_port() { [ -z "$ONE_GUEST" ] && echo eth$1 || echo fc0; }
initiator_port() { [ -z "$ONE_GUEST" ] && echo eth$1 || echo fc1; }

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
    shape $1
    _before=$(ls -d /sys/bus/fcoe/devices/ctlr_* 2>/dev/null | wc -l)
    echo $1 >/sys/bus/fcoe/ctlr_create || die "FCoE on $1"
    until_true 5 sh -c "[ \$(ls -d /sys/bus/fcoe/devices/ctlr_* 2>/dev/null | wc -l) -gt $_before ]" ||
        die "no FCoE controller came"
    CONTROLLER=$(ls -d /sys/bus/fcoe/devices/ctlr_* | sort -t_ -k2n | tail -n 1)
    echo VN2VN >$CONTROLLER/mode || die "no VN2VN mode"
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
    for path in $(paths); do
        fcoe_create $(storage_port $path)
        load tcm_fc
        _tpg=$(tpg $path)
        _acl=$_tpg/acls/$(initiator_wwpn $path)
        mkdir -p $_tpg/lun/lun_0 || die "the FC target cannot be made"
        ln -s $BACKSTORE $_tpg/lun/lun_0/volume || die "the LUN cannot be mapped"
        mkdir -p $_acl/lun_0 || die "no rights for the initiator"
        ln -s $_tpg/lun/lun_0 $_acl/lun_0/volume || die "the LUN is not mapped to the initiator"
        echo 1 >$CONTROLLER/enabled || die "the FCoE port cannot be enabled"
    done
}
target_down() {
    for path in $(paths); do
        fcoe_destroy $(storage_port $path)
        _tpg=$(tpg $path)
        _acl=$_tpg/acls/$(initiator_wwpn $path)
        rm $_acl/lun_0/volume && rmdir $_acl/lun_0 $_acl &&
            rm $_tpg/lun/lun_0/volume && rmdir $_tpg/lun/lun_0 $_tpg ${_tpg%/*} || die "FC target teardown"
    done
    backstore_down
}
initiator_up() {
    load sd_mod
    disks_now
    # One path after the other, so that the first disk is the first path's.
    for path in $(paths); do
        fcoe_create $(initiator_port $path)
        echo 1 >$CONTROLLER/enabled || die "the FCoE port cannot be enabled"
        if [ "${PATHS:-1}" = 1 ]; then
            new_disk || die "no disk came over FC"
        else
            until_true 20 sh -c "[ \$(ls -d /sys/block/sd? 2>/dev/null | wc -l) -gt $path ]" || die "no disk came over FC"
        fi
    done
    patience
    if [ "${PATHS:-1}" != 1 ]; then
        multipath_up
    fi
}
# patience: a port takes another for gone that is silent for 20 s of its own clock (a VN2VN beacon comes every 8 s), and emulated
# guests' clocks run apart. It is back with the next beacon; until then I/O waits, and no disk is given up.
patience() {
    for port in /sys/class/fc_remote_ports/rport*; do echo 600 >$port/dev_loss_tmo || die "no longer wait for a port"; done
    for disk in /sys/block/sd?; do echo 600 >$disk/device/timeout || die "no longer wait for a disk"; done
}
initiator_down() {
    multipath_down
    for disk in /sys/block/sd?; do echo 1 >"$disk/device/delete"; done
    for path in $(paths); do fcoe_destroy $(initiator_port $path); done
}
