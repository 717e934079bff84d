# What took effect, as the initiator's kernel says: FACT NAME=VALUE, named like the fields of a study; and how much went
# over each path so far: PATH NAME IOS BYTES.

fact() { echo "FACT $1=$2"; }

facts_of() {
    fact kernel "$(uname -r)"
    case "$1" in
    local | fcp-loop | fc-nvme) ;;
    *) link_facts "$1" ;;
    esac
    case "$1" in
    nfs*) nfs_facts "$1" ;;
    nvme-* | fc-nvme) nvme_facts "$1" ;;
    iscsi) iscsi_facts ;;
    esac
    case "$1" in
    iscsi | fcp) [ "${PATHS:-1}" = 1 ] || multipath_facts ;;
    esac
    [ "$ATTACH" != vduse ] || { . /lab/controllers.sh && vduse_facts; }
}

# target_facts PROTOCOL: the target's kernel, and who listens there, by the name that a study gives it.
target_facts() {
    ! elsewhere || { in_storage target_facts "$@"; return; }
    fact target_kernel "$(uname -r)"
    case "$1" in
    nfs*) _port=2049 ;;
    iscsi) _port=3260 ;;
    nvme-tcp) _port=4420 ;;
    *) return 0 ;;
    esac
    _owner=$(owner_of $_port)
    case "$_owner" in
    ganesha.nfsd) fact target ganesha ;;
    tgtd) fact target tgt ;;
    iotax-engine) fact target iotax ;;
    *) fact target "$_owner" ;;
    esac
}

# owner_of PORT: the program that listens there; kernel where no process has the socket, nobody where there is none.
# The engine may be started by a loader, whose name its process then has.
owner_of() {
    _socket=$(cat /proc/net/tcp /proc/net/tcp6 | awk -v port="$(printf ':%04X' $1)" \
        '$4 == "0A" && $2 ~ port "$" { print $10; exit }')
    [ -n "$_socket" ] || { echo nobody; return; }
    _process=$(ls -l /proc/[0-9]*/fd 2>/dev/null | awk -v wanted="socket:[$_socket]" \
        '/^\/proc/ { split($1, part, "/") } $NF == wanted { print part[3]; exit }')
    [ -n "$_process" ] || { echo kernel; return; }
    case "$(tr '\0' ' ' </proc/$_process/cmdline)" in
    *iotax-engine*) echo iotax-engine ;;
    *nvmf_tgt*) echo nvmf_tgt ;; # its main thread, which names the process, is reactor_0
    *) cat /proc/$_process/comm ;;
    esac
}

link_facts() {
    # A Fibre Channel frame fits only a larger one, whatever the study says of Ethernet.
    [ -n "$APART" ] || [ -z "$ONE_GUEST" ] || return 0
    [ "$1" = fcp ] || fact mtu "$(cat /sys/class/net/$(link_of ${CLIENT:-0})/mtu)"
    case "$1" in
    nfs* | iscsi | nvme-tcp) encryption_facts ;;
    esac
    /usr/sbin/tc qdisc show dev $(link_of ${CLIENT:-0}) | awk '
        function after(word) { for (i = 1; i < NF; i++) if ($i == word) return $(i + 1) }
        $2 == "tbf" { print "FACT link_rate=" after("rate") }
        $2 == "netem" { print "FACT link_delay=" after("delay") }'
}

# nvme_facts PROTOCOL: of the first controller over its transport.
nvme_facts() {
    case "$1" in
    fc-nvme) _transport=fc ;;
    *) _transport=${1#nvme-} ;;
    esac
    _controller=$(dirname "$(grep -lx $_transport /sys/class/nvme/nvme*/transport | head -n 1)")
    fact io_queues $(($(cat $_controller/queue_count) - 1)) # one is for administration
    # The kernel takes no connection whose ends disagree about digests, and does not show them.
    [ -z "$HEADER_DIGEST" ] || fact header_digest 1
    [ -z "$DATA_DIGEST" ] || fact data_digest 1
    [ -z "$KEEP_ALIVE" ] || fact keep_alive "$(cat $_controller/kato)s"
    [ -z "$RECONNECT_DELAY" ] || fact reconnect_delay "$(cat $_controller/reconnect_delay)s"
    [ "${PATHS:-1}" = 1 ] || {
        fact paths "$(ls -d /sys/block/nvme*c*n1 | wc -l)"
        fact path_policy "$(cat /sys/class/nvme-subsystem/nvme-subsys*/iopolicy)"
    }
}

# nfs_facts PROTOCOL
nfs_facts() {
    fact nconnect "$(paths_of "$1" | wc -l)"
    [ -z "$TIMEO" ] || fact timeo "$(sed -n "s|.* /mnt/$1 .*[ ,]timeo=\([0-9]*\).*|\100ms|p" /proc/mounts)"
}

iscsi_facts() {
    [ -z "$KEEP_ALIVE" ] || fact keep_alive "$(cat /sys/class/iscsi_connection/*/ping_tmo | sort -u)s"
    [ -z "$REPLACEMENT_TIMEOUT" ] || fact replacement_timeout "$(cat /sys/class/iscsi_session/*/recovery_tmo | sort -u)s"
    for name in header_digest data_digest; do
        fact $name "$(cat /sys/class/iscsi_connection/*/$name | sort -u)"
    done
}

multipath_facts() {
    fact paths "$(ls -d /sys/block/dm-0/slaves/* | wc -l)"
    # `… multipath FEATURES HANDLERS GROUPS FIRST SELECTOR …`: several groups are one path and its stand-ins.
    dmsetup table paths | awk '{ policy = $8 == "queue-length" ? "queue-depth" : $8
        print "FACT path_policy=" ($6 > 1 ? "fixed" : policy) }'
}

# paths_of PROTOCOL
paths_of() {
    case "$1" in
    nfs*) awk -v at="/mnt/$1" '$1 == "device" { own = $5 == at } own && $1 == "xprt:" { print "PATH connection" ++n, $8, 0 }' \
        /proc/self/mountstats ;;
    nvme-tcp) for path in /sys/block/nvme*c*n1; do path_line ${path##*/} $path/stat; done ;;
    iscsi | fcp) for path in /sys/block/sd?; do path_line ${path##*/} $path/stat; done ;;
    esac
}

# path_line NAME STAT: Documentation/block/stat.rst; sectors have 512 bytes.
path_line() { awk -v name=$1 '{ printf "PATH %s %d %.0f\n", name, $1 + $5, ($3 + $7) * 512 }' $2; }
