# nfs-ganesha: an NFS server that is a program, on the volume's folder through its VFS backend.
target_up() {
    net_up 1
    mkdir -p /run/rpcbind /var/lib/nfs/ganesha /run/ganesha
    pidof rpcbind >/dev/null || rpcbind -w || die "rpcbind"
    ln -sf /proc/self/mounts /etc/mtab # where it looks for what it exports
    cat >/run/ganesha.conf <<EOF
NFS_CORE_PARAM { Protocols = 3, 4; Enable_NLM = false; Enable_RQUOTA = false; MNT_Port = 20048; fsid_device = true; }
NFSv4 { Graceless = true; UseGetpwnam = true; }
EXPORT {
    Export_Id = 1; Path = /volume; Pseudo = /volume; Protocols = 3, 4; Transports = TCP;
    Access_Type = RW; Squash = none; SecType = sys; FSAL { Name = VFS; }
}
EOF
    ganesha.nfsd -F -f /run/ganesha.conf -L /run/ganesha.log -p /run/ganesha.pid >/run/ganesha.out 2>&1 </dev/null &
    until_true 30 grep -qs "NFS SERVER INITIALIZED" /run/ganesha.log || die "ganesha: $(tail -n 5 /run/ganesha.log)"
    ! grep -q "No export entries" /run/ganesha.log || die "ganesha exports nothing: $(grep CRIT /run/ganesha.log)"
}

target_dies() {
    killall -9 ganesha.nfsd
    rm -f /run/ganesha.log
}

target_down() {
    kill "$(cat /run/ganesha.pid)"
    until_true 20 sh -c '! pidof ganesha.nfsd >/dev/null' || die "ganesha does not end"
    rm -f /run/ganesha.log
}
