# TLS 1.3 of the kernels: ENCRYPTION is tls. tlshd shakes hands, and the kernels encrypt. NVMe/TCP has a pre-shared key for each initiator (NVMe/TCP
# transport 1.1 section 3.6.1), NFS a certificate of the storage's addresses (RFC 9289). The storage guest makes both; what an initiator is
# given goes through the lab, over no link.
TLS=/run/tls$IN_STORAGE
TLS_PORTS='( dport = :2049 or dport = :4420 )'

# tls_up HOST: the storage guest has SECRET and says a line `GIVE` for each initiator, which is given CERTIFICATE and PSK.
tls_up() {
    # Without them the kernel takes AES in C.
    modprobe -a aesni_intel ghash_clmulni_intel 2>/dev/null
    load tls nvme_keyring tcp_diag
    mkdir -p -m 700 $TLS
    cat >$TLS/config <<END
[authenticate.client]
x509.truststore = $TLS/certificate
[authenticate.server]
x509.certificate = $TLS/certificate
x509.private_key = $TLS/key
END
    if [ $1 = 1 ]; then
        certificate_up
        for _client in $(seq 0 $((${CLIENTS:-1} - 1))); do
            PSK=$(printf %s "$SECRET $_client" | sha256sum | cut -c 1-64)
            psk_up $_client
            echo "GIVE CERTIFICATE=$(base64 $TLS/certificate | tr -d '\n'); PSK=$PSK"
        done
    else
        echo "$CERTIFICATE" | base64 -d >$TLS/certificate || die "no certificate"
        psk_up ${CLIENT:-0}
    fi
    _daemon=$(command -v tlshd || echo /opt/tlshd/run)
    $_daemon -s -c $TLS/config >$TLS/log 2>&1 </dev/null &
    echo $! >$TLS/pid
    until_true 10 tlshd_listens_or_ended
    kill -0 $(cat $TLS/pid) 2>/dev/null || die "tlshd: $(cat $TLS/log)"
}

# tlshd_listens_or_ended: to the kernel, which says which process has a netlink socket, and the first 32 groups that it hears.
tlshd_listens_or_ended() {
    awk -v pid=$(cat $TLS/pid) '$2 == 16 && $3 % 4194304 == pid && $4 !~ /^0*$/ { found = 1 } END { exit !found }' /proc/net/netlink ||
        ! kill -0 $(cat $TLS/pid) 2>/dev/null
}

# tlshd_said: its last line, which holds no key.
tlshd_said() { [ "$ENCRYPTION" != tls ] || tail -n 1 $TLS/log; }

# psk_up CLIENT: PSK as the TLS PSK of this initiator's, which both kernels find by its identity. Nothing is derived from another key.
psk_up() {
    echo $PSK | keyctl padd -x psk "NVMe0R01 $(host_nqn $1) $(nqn_of $(volume_number $1))" %:.nvme >/dev/null 2>$TLS/err ||
        die "keyctl: $(cat $TLS/err)"
}

# certificate_up: of all addresses of the storage, with a new key. Guests' clocks may run apart, so it is valid at any time.
certificate_up() {
    _names=$(for path in $(paths); do printf ',IP:10.0.%s.1' $path; done)
    cat >$TLS/openssl.cnf <<END
[req]
distinguished_name = nobody
[nobody]
[ca]
default_ca = storage
[storage]
database = $TLS/index
new_certs_dir = $TLS
rand_serial = yes
default_md = sha256
policy = name
x509_extensions = addresses
[name]
commonName = supplied
[addresses]
subjectAltName = ${_names#,}
basicConstraints = critical, CA:true
END
    : >$TLS/index
    tls_openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=storage -keyout $TLS/key -out $TLS/request
    tls_openssl ca -batch -selfsign -notext -startdate 20000101000000Z -enddate 20991231235959Z \
        -keyfile $TLS/key -in $TLS/request -out $TLS/certificate
    # tlshd takes no others.
    chmod 600 $TLS/key && chmod 644 $TLS/certificate || die "no certificate"
}

# tls_openssl COMMAND OPTIONS...
tls_openssl() {
    _command=$1
    shift
    openssl $_command -config $TLS/openssl.cnf "$@" >$TLS/err 2>&1 || die "openssl $_command: $(cat $TLS/err)"
}

tls_down() {
    kill $(cat $TLS/pid)
    until_true 10 sh -c "! kill -0 $(cat $TLS/pid) 2>/dev/null" || die "tlshd does not end"
    keyctl clear %:.nvme || die "the keys do not go"
    rm -rf $TLS
}

# tls_connections ADDRESS: of the protocol's to that address, a line each: BYTES-OUT BYTES-IN CIPHER, as the kernel says; plain
# where the kernel does not both encrypt and decrypt.
tls_connections() {
    ss -HOtien state established dst $1 "$TLS_PORTS" | awk '
        function after(word) { for (i = 1; i <= NF; i++) if (index($i, word) == 1) return $i == word ? $(i + 1) : substr($i, length(word) + 1) }
        { tls = /tcp-ulp-tls/ && after("rxconf:") ~ /sw|hw/ && after("txconf:") ~ /sw|hw/
          printf "%.0f %.0f %s\n", after("bytes_acked:"), after("bytes_received:"), tls ? after("cipher:") : "plain" }'
}

# by_tls ADDRESS: whether all of them are encrypted.
by_tls() {
    command -v ss >/dev/null || return 1
    tls_connections $1 | awk '$3 == "plain" { plain = 1 } END { exit !(NR && !plain) }'
}

# tls_bytes ADDRESS: sent and received over all of them so far.
tls_bytes() { tls_connections $1 | awk '{ sent += $1; received += $2 } END { printf "%.0f %.0f\n", sent, received }'; }

# tls_cipher ADDRESS: what they agreed on, and the driver.
tls_cipher() {
    tls_connections $1 | awk '{ print $3 }' | sort -u | while read -r _cipher; do
        case "$_cipher" in
        aes-gcm-*) echo "$_cipher, $(driver_of "gcm(aes)")" ;;
        *) echo "$_cipher" ;;
        esac
    done | paste -s -d ';' -
}
