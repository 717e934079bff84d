# open-iscsi against a portal at $GATEWAY:$PORT.
. /lab/iscsi_common.sh

# A server that comes back within two minutes has not lost a disk.
iscsid_up() {
    load iscsi_tcp
    iscsid_with <<EOF
node.startup = manual
node.session.cmds_max = 128
node.session.queue_depth = 64
node.session.timeo.replacement_timeout = 120
node.conn[0].timeo.noop_out_interval = 5
node.conn[0].timeo.noop_out_timeout = 30
node.conn[0].timeo.login_timeout = 30
EOF
}

# login IQN KEY VALUE...: with parameters as open-iscsi names them.
login() {
    record "$@"
    checked iscsiadm -m node -T $1 -p $GATEWAY:$PORT --login
    block_device '/dev/sd?' || die "logged in, but no disk came"
}

# refused_login IQN KEY VALUE...
refused_login() {
    record "$@"
    refuses iscsiadm -m node -T $1 -p $GATEWAY:$PORT --login
    checked iscsiadm -m node -T $1 -o delete
}

record() {
    _iqn=$1
    shift
    checked iscsiadm -m node -T $_iqn -p $GATEWAY:$PORT -o new
    while [ $# -gt 0 ]; do
        checked iscsiadm -m node -T $_iqn -o update -n "$1" -v "$2"
        shift 2
    done
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
