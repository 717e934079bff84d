# Kerberos for NFS (RPCSEC_GSS, RFC 2203): ENCRYPTION is krb5p, with which the kernels encrypt every call and reply, or krb5i, with which they only
# sign them. The storage guest is the realm's
# KDC and makes all keys. Those of the initiators go through the lab, over no link.
REALM=IOTAX
KERBEROS=/run/kerberos$IN_STORAGE
KERBEROS_S=45 # less than the lab waits for a step
KEY_TYPE=aes256-cts-hmac-sha1-96
PIPES=$KERBEROS/pipes
KRB5I=390004 KRB5P=390005 # RPC_AUTH_GSS_KRB5I and RPC_AUTH_GSS_KRB5P of Linux
# Nobody replays a login here.
export KRB5RCACHENAME=none:
export KRB5_CONFIG=$KERBEROS/krb5.conf KRB5_KDC_PROFILE=$KERBEROS/kdc.conf KRB5_KTNAME=$KERBEROS/keytab

# kerberos_up HOST: the storage guest says a line `GIVE` for each link; an initiator is given KEYTAB, and the storage guest SECRET.
kerberos_up() {
    # Without them the kernel takes AES and SHA in C.
    modprobe -a aesni_intel sha1_ssse3 sha512_ssse3 2>/dev/null
    load auth_rpcgss rpcsec_gss_krb5
    mkdir -p -m 700 $KERBEROS
    # Guests' clocks may run at different paces, and no name is resolved.
    cat >$KRB5_CONFIG <<END
[libdefaults]
default_realm = $REALM
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
clockskew = 1000000
[realms]
$REALM = {
    kdc = $STORAGE
}
END
    if [ $1 = 1 ]; then
        kdc_up
        principal nfs/storage $KRB5_KTNAME
        for path in $(paths); do
            principal nfs/initiator$path $KERBEROS/initiator$path
            echo "GIVE KEYTAB=$(base64 $KERBEROS/initiator$path | tr -d '\n')"
        done
        rpc.svcgssd -n 2>/run/kerberos.err || die "rpc.svcgssd: $(cat /run/kerberos.err)"
        until_true 20 opened rpc.svcgssd auth.rpcsec.init/channel || die "rpc.svcgssd does not hear the kernel"
    else
        # The name of the address that is mounted is the server's.
        grep -q "^$STORAGE " /etc/hosts || echo "$STORAGE storage" >>/etc/hosts
        echo "$KEYTAB" | base64 -d >$KRB5_KTNAME || die "no key"
        mkdir -p $PIPES && mount -t rpc_pipefs pipefs $PIPES || die "no rpc_pipefs"
        rpc.gssd -D -p $PIPES -d $KERBEROS -k $KRB5_KTNAME 2>/run/kerberos.err || die "rpc.gssd: $(cat /run/kerberos.err)"
        # While it has opened no pipe, the kernel asks nobody, and denies a mount.
        until_true 20 opened rpc.gssd "$PIPES/gssd/.*/gssd" || die "rpc.gssd does not hear the kernel"
    fi
}

# opened PROGRAM PATTERN: whether it has opened a file whose name matches.
opened() { for _pid in $(pidof $1); do ls -l /proc/$_pid/fd; done 2>/dev/null | grep -q -- "-> .*$2$"; }

kdc_up() {
    cat >$KRB5_KDC_PROFILE <<END
[realms]
$REALM = {
    database_name = $KERBEROS/principal
    key_stash_file = $KERBEROS/stash
    acl_file = $KERBEROS/acl
    supported_enctypes = $KEY_TYPE:normal
    max_life = 7d
}
END
    kdb5_util create -s -r $REALM -P "$SECRET" >/run/kerberos.err 2>&1 || die "kdb5_util: $(cat /run/kerberos.err)"
    krb5kdc -P $KERBEROS/kdc.pid >/run/kerberos.err 2>&1 || die "krb5kdc: $(cat /run/kerberos.err)"
}

# principal NAME KEYTAB: with a new key, which goes into this file.
principal() {
    kadmin "addprinc -randkey $1" && kadmin "ktadd -norandkey -k $2 $1"
    [ -s $2 ] || die "kadmin.local made no key for $1: $(cat /run/kerberos.err)"
}

kadmin() { kadmin.local -q "$1" >/run/kerberos.err 2>&1 || die "kadmin.local: $(cat /run/kerberos.err)"; }

# kerberos_down HOST
kerberos_down() {
    if [ $1 = 1 ]; then
        killall rpc.svcgssd krb5kdc
        until_true 10 sh -c '! pidof rpc.svcgssd krb5kdc >/dev/null' || die "the KDC does not end"
    else
        killall rpc.gssd
        until_true 10 sh -c '! pidof rpc.gssd >/dev/null' && umount $PIPES || die "rpc.gssd does not end"
    fi
    rm -rf $KERBEROS
}

# by_kerberos FLAVOUR: whether every NFS mount has its calls encrypted or signed so, as the kernel says.
by_kerberos() {
    awk -v wanted="pseudoflavor=$1" '/^[ \t]*sec:/ { all++; of += index($0, wanted) > 0 } END { exit !(all && of == all) }' \
        /proc/self/mountstats
}

# called_bytes: sent and received by the calls of all NFS mounts so far.
called_bytes() {
    awk '/^[ \t]+[A-Z_0-9]+: [0-9]/ { sent += $5; received += $6 } END { printf "%.0f %.0f\n", sent, received }' \
        /proc/self/mountstats
}
