# open-iscsi against a portal at $GATEWAY:$PORT.
iscsid_up() {
    load iscsi_tcp sd_mod
    mkdir -p /etc/iscsi /run/lock/iscsi /var/lib/iscsi
    echo "InitiatorName=$INITIATOR_IQN" >/etc/iscsi/initiatorname.iscsi
    # A server that comes back within two minutes has not lost a disk.
    cat >/etc/iscsi/iscsid.conf <<EOF
node.startup = manual
node.session.cmds_max = 128
node.session.queue_depth = 64
node.session.timeo.replacement_timeout = 120
node.conn[0].timeo.noop_out_interval = 5
node.conn[0].timeo.noop_out_timeout = 30
node.conn[0].timeo.login_timeout = 30
EOF
    pidof iscsid >/dev/null || checked iscsid -p /run/iscsid.pid
    until_true 5 sh -c 'iscsiadm -m iface >/dev/null 2>&1' || die "iscsid does not answer"
}

# login IQN KEY VALUE...: with parameters as open-iscsi names them.
login() {
    _iqn=$1
    shift
    checked iscsiadm -m node -T $_iqn -p $GATEWAY:$PORT -o new
    while [ $# -gt 0 ]; do
        checked iscsiadm -m node -T $_iqn -o update -n "$1" -v "$2"
        shift 2
    done
    checked iscsiadm -m node -T $_iqn -p $GATEWAY:$PORT --login
    block_device '/dev/sd?' || die "logged in, but no disk came"
}

# discovered: what SendTargets names. None of it is kept: the portal is not where the guest reaches it.
discovered() {
    iscsiadm -m discovery -t sendtargets -p $GATEWAY:$PORT || die "discovery"
    rm -rf /var/lib/iscsi/nodes /var/lib/iscsi/send_targets
}

logout() {
    checked iscsiadm -m node -T $1 --logout
    checked iscsiadm -m node -T $1 -o delete
    until_true 5 sh -c '! ls -d /dev/sd? >/dev/null 2>&1' || die "logged out, but the disk stays"
}

# negotiated KEY: what the session and its connection came to, as the kernel has it.
negotiated() {
    for _file in /sys/class/iscsi_connection/connection*/$1 /sys/class/iscsi_session/session*/$1; do
        [ ! -e $_file ] || cat $_file
    done
}
