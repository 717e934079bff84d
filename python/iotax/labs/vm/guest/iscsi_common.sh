# iSCSI, over TCP or (ISER=1) over RDMA: the kernel's target and open-iscsi.
. /lab/scsi_target.sh
. /lab/multipath.sh

# Each of several paths is a portal group, since LIO's access states are those of groups.
iscsi_target_up() {
    net_up 1
    backstore_up
    load iscsi_target_mod
    if [ "${PATHS:-1}" = 1 ]; then
        portals_up 1 $(paths)
        return
    fi
    for path in $(paths); do
        portals_up $(($path + 1)) $path
        group_up $(($path + 1))
    done
}

# portals_up TAG PATH...: a portal group with the portals of these paths.
portals_up() {
    TPG=$TARGET/iscsi/$IQN/tpgt_$1
    shift
    mkdir -p $TPG || die "the iSCSI target cannot be made"
    for path; do mkdir $TPG/np/10.0.$path.1:3260 || die "no portal on 10.0.$path.1"; done
    for number in $(volumes); do
        mkdir $TPG/lun/lun_$number && ln -s $(backstore_of $number) $TPG/lun/lun_$number/volume || die "no LUN $number"
    done
    echo 0 >$TPG/attrib/authentication
    echo 0 >$TPG/attrib/demo_mode_write_protect
    echo 1 >$TPG/attrib/generate_node_acls
    echo 1 >$TPG/attrib/cache_dynamic_acls
    [ "${VOLUMES:-1}" = 1 ] || masks_up
    [ -z "$ISER" ] || echo 1 >$TPG/np/$STORAGE:3260/iser || die "the portal cannot listen on RDMA"
    echo 1 >$TPG/enable || die "the iSCSI target cannot be enabled"
}

# group_of TAG: where the access of a portal group to the volume is.
group_of() { echo $BACKSTORE/alua/path$1; }

# group_up TAG: only the target changes the access (implicit ALUA), as events do.
group_up() {
    mkdir $(group_of $1) && echo $1 >$(group_of $1)/tg_pt_gp_id && echo 1 >$(group_of $1)/alua_access_type &&
        echo path$1 >$TARGET/iscsi/$IQN/tpgt_$1/lun/lun_0/alua_tg_pt_gp || die "no access states for path $1"
}

# masks_up: each client sees its own volume alone, as LUN 0.
masks_up() {
    for number in $(volumes); do
        _acl=$TPG/acls/$(initiator_iqn $number)
        mkdir -p $_acl/lun_0 && ln -s $TPG/lun/lun_$number $_acl/lun_0/volume || die "no mask for client $number"
    done
}

iscsi_target_down() {
    for group in $TARGET/iscsi/$IQN/tpgt_*; do echo 0 >$group/enable; done
    for group in $TARGET/iscsi/$IQN/tpgt_*; do
        for acl in $group/acls/*; do
            [ ! -d $acl/lun_0 ] || { rm $acl/lun_0/volume && rmdir $acl/lun_0; } || die "iSCSI mask teardown"
            [ ! -d "$acl" ] || rmdir "$acl"
        done
        rm $group/lun/*/volume && rmdir $group/lun/* $group/np/* $group || die "iSCSI target teardown"
    done
    rmdir $TARGET/iscsi/$IQN || die "iSCSI target teardown"
    backstore_down
}

iscsi_initiator_up() {
    net_up 2
    # An emulated machine may be slow to answer; a lab that reconnects in the middle of a trial measures nothing. Where
    # EVENTS happen, the defaults are open-iscsi's.
    _keep_alive=${KEEP_ALIVE:-${EVENTS:+5}}
    iscsid_with <<EOF
node.startup = manual
node.session.cmds_max = 128
node.session.queue_depth = 128
node.conn[0].timeo.noop_out_interval = ${_keep_alive:-0}
node.conn[0].timeo.noop_out_timeout = ${_keep_alive:-0}
node.session.timeo.replacement_timeout = ${REPLACEMENT_TIMEOUT:-120}
node.conn[0].timeo.login_timeout = 30
node.conn[0].iscsi.HeaderDigest = ${HEADER_DIGEST:-None}
node.conn[0].iscsi.DataDigest = ${DATA_DIGEST:-None}
EOF
    disks_now
    if [ "${PATHS:-1}" = 1 ]; then
        iscsi_login $1 10.0.$(paths).1:3260,1
        new_disk || die "logged in, but no disk came"
    else
        load scsi_dh_alua
        for path in $(paths); do iscsi_login $1 10.0.$path.1:3260,$(($path + 1)); done
        multipath_up
    fi
}

# iscsid_with: open-iscsi's daemon; its settings on standard input.
iscsid_with() {
    load sd_mod
    mkdir -p /etc/iscsi /run/lock/iscsi /var/lib/iscsi
    echo "InitiatorName=$INITIATOR_IQN" >/etc/iscsi/initiatorname.iscsi
    cat >/etc/iscsi/iscsid.conf
    pidof iscsid >/dev/null || iscsid -p /run/iscsid.pid >/run/iscsid.log 2>&1 || die "iscsid: $(cat /run/iscsid.log)"
    until_true 5 sh -c 'iscsiadm -m iface >/dev/null 2>&1' || die "iscsid does not answer"
}

# iscsi_login TRANSPORT PORTAL,GROUP
iscsi_login() {
    iscsiadm -m node -T $IQN -p $2 -o new >/run/iscsiadm.log 2>&1 || die "$(cat /run/iscsiadm.log)"
    iscsiadm -m node -T $IQN -p $2 -o update -n iface.transport_name -v "$1" || die "no iSCSI transport $1"
    iscsiadm -m node -T $IQN -p $2 --login >/run/iscsiadm.log 2>&1 || die "login: $(cat /run/iscsiadm.log)"
}

iscsi_initiator_down() {
    multipath_down
    iscsiadm -m node -T $IQN --logout >/run/iscsiadm.log 2>&1 || die "logout: $(cat /run/iscsiadm.log)"
    iscsiadm -m node -T $IQN -o delete >/run/iscsiadm.log 2>&1 || die "$(cat /run/iscsiadm.log)"
}
