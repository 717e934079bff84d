# Encryption of the links under test: ENCRYPTION is ipsec, wireguard, krb5p or krb5i (kerberos.sh) or tls (tls.sh), empty where there is none. A protocol's
# addresses stay the same: under WireGuard a tunnel has them, and the link below it has others.
IP=/usr/bin/ip # busybox has an ip of its own that knows no IPsec
CIPHER="rfc4106(gcm(aes))"
WG_KEY=/run/wireguard.key$IN_STORAGE

# encryption_up HOST: SECRET is for ipsec, Kerberos and tls, KEYTAB (Kerberos), CERTIFICATE and PSK (tls) for an initiator, PEERS (NUMBER=KEY of
# the other end of each link) for wireguard.
encryption_up() {
    [ $1 = 2 ] || ! elsewhere || { in_storage encryption_up 1; return; }
    case "$ENCRYPTION" in
    krb5*) kerberos_up $1; return ;;
    tls) tls_up $1; return ;;
    esac
    for path in $(paths); do ${ENCRYPTION}_up $path $1 $((3 - $1)); done
}

# ipsec_up NUMBER OWN OTHER: transport mode, AES-GCM with 128 bits, a key for each direction, and nothing that is not encrypted.
ipsec_up() {
    # Without its instructions the kernel takes AES in C.
    modprobe -a ghash_clmulni_intel aesni_intel 2>/dev/null
    load esp4 xfrm_user
    _own=10.0.$1.$2 _other=10.0.$1.$3
    xfrm state add src $_own dst $_other $(security $1 $2) aead "$CIPHER" 0x$(ipsec_key $1 $2) 128
    xfrm state add src $_other dst $_own $(security $1 $3) aead "$CIPHER" 0x$(ipsec_key $1 $3) 128
    xfrm policy add src $_own dst $_other dir out tmpl src $_own dst $_other proto esp reqid $(($1 + 1)) mode transport
    xfrm policy add src $_other dst $_own dir in tmpl src $_other dst $_own proto esp reqid $(($1 + 1)) mode transport
}

# xfrm WORDS...: its errors may hold a key, which nobody must see.
xfrm() { $IP xfrm "$@" 2>/run/xfrm.err || die "ip xfrm $1 $2: $(sed 's/0x[0-9a-f]*/KEY/g' /run/xfrm.err)"; }

# security NUMBER SENDER: of what the sender's end of a link sends.
security() { echo proto esp spi $((256 + 2 * $1 + $2)) reqid $(($1 + 1)) mode transport replay-window 32; }

# ipsec_key NUMBER SENDER: 128 bits and 32 bits of salt (RFC 4106 section 8.1). No two directions share one.
ipsec_key() { printf %s "$SECRET $1 $2" | sha256sum | cut -c 1-40; }

# wireguard_public HOST: a new key of this end; what the others may know of it.
wireguard_public() {
    [ $1 = 2 ] || ! elsewhere || { in_storage wireguard_public 1; return; }
    (umask 077 && wg genkey >$WG_KEY) || die "wg genkey"
    echo "PUBLIC=$(wg pubkey <$WG_KEY)"
}

# wireguard_up NUMBER OWN OTHER
wireguard_up() {
    load wireguard
    _link=$(link_of $1) _port=$((51820 + $1))
    ip addr flush dev $_link
    ip addr add 10.64.$1.$2/24 dev $_link && ip link set $_link mtu "${MTU:-1500}" up || die "$_link cannot be set up"
    $IP link add wg$1 type wireguard || die "no WireGuard interface"
    _peer=$(echo "$PEERS" | tr ' ' '\n' | sed -n "s/^$1=//p")
    wg set wg$1 listen-port $_port private-key $WG_KEY peer $_peer allowed-ips 10.0.$1.$3/32 \
        endpoint 10.64.$1.$3:$_port || die "wg set"
    # As wg-quick has it: room for IPv6, UDP and its own header.
    ip addr add 10.0.$1.$2/24 dev wg$1 && ip link set wg$1 mtu $((${MTU:-1500} - 80)) up || die "wg$1 cannot be set up"
}

# encryption_down HOST
encryption_down() {
    [ $1 = 2 ] || ! elsewhere || { in_storage encryption_down 1; return; }
    case "$ENCRYPTION" in
    krb5*) kerberos_down $1 ;;
    tls) tls_down ;;
    ipsec) $IP xfrm policy flush && $IP xfrm state flush || die "ip xfrm flush" ;;
    wireguard)
        for path in $(paths); do
            ip link del wg$path && ip addr flush dev $(link_of $path) || die "wg$path does not go"
        done
        rm -f $WG_KEY
        ;;
    esac
}

# encrypted NUMBER: what encrypts what this initiator says to the storage guest over a link, by which device it goes, and
# how many bytes were encrypted and decrypted so far, all as the kernel says.
encrypted() {
    _own=10.0.$1.2 _other=10.0.$1.1
    _device=$($IP -o route get $_other | sed 's/.* dev \([^ ]*\).*/\1/')
    case "$_device" in
    wg*) echo wireguard $_device $(wg show $_device transfer | awk '{ print $3, $2 }') ;;
    *)
        if policy_is $_own $_other out && policy_is $_other $_own in; then
            echo ipsec $_device $(security_bytes $_own $_other) $(security_bytes $_other $_own)
        elif by_kerberos $KRB5P; then
            echo krb5p $_device $(called_bytes)
        elif by_kerberos $KRB5I; then
            echo krb5i $_device $(called_bytes)
        elif by_tls $_other; then
            echo tls $_device $(tls_bytes $_other)
        else
            echo none $_device 0 0
        fi
        ;;
    esac
}

# policy_is FROM TO DIRECTION: whether what goes that way must be encrypted.
policy_is() { $IP xfrm policy list src $1 dst $2 dir $3 2>/dev/null | grep -q "proto esp"; }

# security_bytes FROM TO: so far; without the keys, which the tool shows too.
security_bytes() {
    $IP -s xfrm state list nokeys src $1 dst $2 |
        awk '/lifetime current/ { getline; sum += $1 } END { printf "%.0f\n", sum }'
}

# encrypted_bytes: over all links so far.
encrypted_bytes() {
    for path in $(paths); do encrypted $path; done | awk '{ sum += $3 + $4 } END { printf "ENCRYPTED %.0f\n", sum }'
}

# encryption_facts: the state as it was read. What encrypts nothing in one of its directions counts as none.
encryption_facts() {
    for path in $(paths); do
        echo $path $(encrypted $path)
    done | awk -v asked="$ENCRYPTION" '{
        kind = $4 > 0 && $5 > 0 ? $2 : "none"
        all = NR == 1 || all == kind ? kind : "none"
        read = read (NR > 1 ? "; " : "") "10.0." $1 ".1 by " $3 ", " $2 ", " $4 " bytes out, " $5 " in"
    } END { print "FACT encryption=" all; if (all != "none" || asked) print "FACT encryption_read=" read }'
    case "$ENCRYPTION" in
    ipsec) fact cipher "$(driver_of "$CIPHER")" ;;
    tls) fact cipher "$(tls_cipher $STORAGE)" ;;
    esac
    # The kernel takes no driver that may sleep.
    [ "$ENCRYPTION" != krb5p ] || fact cipher "$(awk \
        '/^name/ { name = $3 } /^driver/ { driver = $3 } /^priority/ { of = $3 }
         /^async/ && name == "cts(cbc(aes))" && $3 == "no" && of > most { most = of; best = driver } END { print best }' /proc/crypto)"
}

# driver_of CIPHER: the one that the kernel prefers.
driver_of() {
    awk -v cipher="$1" '/^name/ { name = $3 } /^driver/ { driver = $3 } /^priority/ && name == cipher && $3 > most { most = $3; best = driver }
        END { print best }' /proc/crypto
}
