# The kernel's NFS server and client over TCP. The volume's folder is exported; the load opens the file in it. With
# FILE_SYSTEM the file system on each volume is exported in its place, and what is synchronous for the client is so here.
NFSD=/proc/fs/nfsd
[ -z "$FILE_SYSTEM" ] || . /lab/database.sh

# export_of NUMBER FOLDER MODE: a line of /etc/exports. With Kerberos the initiator is its machine, nobody's user: it may what root may.
export_of() {
    _security=sec=sys
    case "$ENCRYPTION" in krb5*) _security=sec=$ENCRYPTION,anonuid=0,anongid=0 ;; esac
    echo "$2 *(rw,$3,$_security,no_root_squash,no_subtree_check,insecure,fsid=$(($1 + 1)))"
}

exports() {
    if [ -z "$FILE_SYSTEM" ]; then
        export_of 0 /volume async
    else
        for _number in $(volumes); do export_of $_number $(folder_of $_number) sync; done
    fi
}

nfs_target_up() {
    net_up 1
    if ! mounted $NFSD; then
        load nfsd
        mount -t nfsd nfsd $NFSD || die "no nfsd file system"
        mkdir -p /var/lib/nfs/sm /var/lib/nfs/rpc_pipefs /var/lib/nfs/nfsdcld /var/lib/nfs/v4recovery /run/rpcbind
        mount -t rpc_pipefs pipefs /var/lib/nfs/rpc_pipefs || die "no rpc_pipefs"
        touch /var/lib/nfs/etab /var/lib/nfs/rmtab
        pidof rpcbind >/dev/null || rpcbind -w || die "rpcbind"
        nfsdcld || die "nfsdcld"
    fi
    if [ -n "$FILE_SYSTEM" ]; then
        for _number in $(volumes); do file_system_up $(volume_of $_number) $(folder_of $_number); done
    fi
    exports >/etc/exports
    exportfs -r || die "exportfs"
    # The other version's step may have started it.
    [ "$(cat $NFSD/threads)" = 0 ] || return 0
    # The grace period would make the first minute of writes wait.
    echo 10 >$NFSD/nfsv4gracetime 2>/dev/null
    echo 10 >$NFSD/nfsv4leasetime 2>/dev/null
    rpc.nfsd -V 3 -V 4.1 -V 4.2 "${NFS_THREADS:-8}" || die "rpc.nfsd"
    pidof rpc.mountd >/dev/null || rpc.mountd -p 20048 || die "rpc.mountd"
    # After its death clients claim again what they had open, and the grace period ends with the last of them.
    [ -e /run/killed ] || echo Y >$NFSD/v4_end_grace 2>/dev/null
    # lockd's holds for NFS 4 as well: whoever asks for a lock waits for 50 s.
    echo Y >/proc/fs/lockd/nlm_end_grace || die "the grace period of locks does not end"
}

# Without its exports it would answer I/Os with errors.
nfs_target_dies() { rpc.nfsd 0 || die "nfsd does not stop"; }

nfs_target_down() {
    exportfs -ua
    rpc.nfsd 0 || die "nfsd does not stop"
    exportfs -f
    # Another server's mount service has the same port. Asked to end, it takes 3 s to tell a portmapper that nobody asks.
    killall -KILL rpc.mountd
    until_true 10 sh -c '! pidof rpc.mountd >/dev/null' || die "rpc.mountd does not end"
    if [ -n "$FILE_SYSTEM" ]; then
        for _number in $(volumes); do file_system_down $(folder_of $_number); done
    fi
}

# nfs_initiator_up VERSION
nfs_initiator_up() {
    net_up 2
    load nfsv3 nfsv4
    _mount=/mnt/$PROTOCOL
    mkdir -p $_mount
    _options="vers=$1,proto=tcp,hard,noatime"
    [ "$1" != 3 ] || _options="$_options,nolock,mountproto=tcp,mountport=${MOUNT_PORT:-20048},port=2049"
    case "$ENCRYPTION" in
    krb5*) _options="$_options,sec=$ENCRYPTION" ;;
    tls) _options="$_options,xprtsec=tls" ;;
    esac
    [ -z "$NCONNECT" ] || _options="$_options,nconnect=$NCONNECT"
    [ -z "$TIMEO" ] || _options="$_options,timeo=$TIMEO"
    _own=$(own_volume) _export=/volume
    _file=data${_own#0}
    [ -z "$FILE_SYSTEM" ] || _export=$(folder_of $_own) _file=data
    if [ "${ENCRYPTION#krb5}" != "$ENCRYPTION" ]; then
        # A server that cannot decrypt a call answers none: the mount would try again for minutes.
        timeout -k 5 $KERBEROS_S mount.nfs $STORAGE:$_export $_mount -o $_options >/run/mount.log 2>&1 || {
            _why=$(cat /run/mount.log)
            case "$(uname -r)" in 6.1.*) _why="$_why; the server of Linux 6.1.0-56 answers no call of krb5p: say kernel: \"6.12\"" ;; esac
            die "mount -o $_options within $KERBEROS_S s: $_why"
        }
    else
        # Of TLS each try is a handshake.
        [ "$ENCRYPTION" = tls ] && _seconds=2 || _seconds=20
        until_true $_seconds sh -c "mount.nfs $STORAGE:$_export $_mount -o $_options >/run/mount.log 2>&1" ||
            die "mount -o $_options: $(cat /run/mount.log) $(tlshd_said)"
    fi
    _file=$_mount/$_file
    [ -e $_file ] || die "mounted, but the volume's file is not there"
    echo "DEVICE=$_file"
}

nfs_initiator_down() { umount /mnt/$PROTOCOL || die "umount"; }
