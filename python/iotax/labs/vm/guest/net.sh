# The links under test: eth0, eth1 and so on, PATHS in all; over ethN, 10.0.N.1 is the storage guest, 10.0.N.2 the initiator.
# Of several CLIENTS, each has one link: the storage guest's ethN, and the eth0 of the initiator whose CLIENT is N.

# paths: the numbers of this guest's links: 0, or 0, 1 and so on.
paths() {
    if [ -n "$CLIENT" ]; then echo $CLIENT; else seq 0 $((${PATHS:-1} * ${CLIENTS:-1} - 1)); fi
}

# link_of NUMBER: its device.
link_of() {
    if [ -n "$APART" ]; then echo veth$1; elif [ -n "$CLIENT" ]; then echo eth0; else echo eth$1; fi
}

# With APART both halves stand in one guest, and the target's in a network of its own, in_storage, with a link between them.
elsewhere() { [ -n "$APART" ] && [ -z "$IN_STORAGE" ]; }

# in_storage FUNCTION ARGUMENTS...: there; all settings are exported.
in_storage() {
    if [ ! -e /run/netns/storage ]; then
        load veth
        $IP netns add storage && $IP link add veth0 type veth peer name veth0 netns storage || die "no link to the storage"
        in_storage ip link set lo up
    fi
    IN_STORAGE=1 nsenter -n/run/netns/storage sh -c '. /lab/lib.sh; "$@"' storage "$@"
}

# net_up HOST: every link at $MTU, shaped by $LINK_RATE and $LINK_DELAY; HOST is 1 or 2.
net_up() {
    # By its name an NFS 4 server tells one client from another.
    [ -z "$CLIENT" ] || hostname initiator$CLIENT
    for path in $(paths); do
        _link=$(link_of $path)
        ip link set $_link mtu "${MTU:-1500}" up || die "$_link cannot be set to MTU ${MTU:-1500}"
        # Of an encrypted tunnel the addresses are its own.
        [ "$ENCRYPTION" = wireguard ] || ip addr add 10.0.$path.$1/24 dev $_link 2>/dev/null || :
        shape $_link
    done
    # Both halves in one kernel meet on the loopback device, which then is as narrow as the link.
    [ -z "$ONE_GUEST" ] || ip link set lo mtu "${MTU:-1500}"
}

# shape DEVICE: what leaves it. Each end shapes its own, so both directions are. Nothing is dropped for want of room,
# for neither Fibre Channel nor a lab's patience bears it. By path, for busybox has a tc of its own that knows less.
shape() {
    /usr/sbin/tc qdisc del dev $1 root 2>/dev/null
    [ -n "$LINK_RATE$LINK_DELAY" ] || return 0
    load sch_tbf sch_netem
    _at=root
    if [ -n "$LINK_RATE" ]; then
        # A burst of 10 ms: a guest's timers are no finer when its host is busy.
        _burst=$((LINK_RATE / 800))
        [ $_burst -ge 32768 ] || _burst=32768
        /usr/sbin/tc qdisc add dev $1 root handle 1: tbf rate ${LINK_RATE}bit burst $_burst limit 67108864 ||
            die "tbf on $1"
        _at="parent 1:1"
    fi
    [ -z "$LINK_DELAY" ] || /usr/sbin/tc qdisc add dev $1 $_at netem delay ${LINK_DELAY}us limit 100000 ||
        die "netem on $1"
}

# rdma_up: RDMA over Converged Ethernet in software on the link.
rdma_up() {
    load crc32_generic rdma_rxe rdma_cm
    [ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev eth0 || die "rdma link add"
}
