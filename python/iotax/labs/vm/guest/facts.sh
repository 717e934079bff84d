# What took effect, as the initiator's kernel says: FACT NAME=VALUE, named like the fields of a study; and how much went
# over each path so far: PATH NAME IOS BYTES.

fact() { echo "FACT $1=$2"; }

facts_of() {
    case "$1" in
    local | fcp-loop | fc-nvme) ;;
    *) link_facts "$1" ;;
    esac
    case "$1" in
    nfs*) fact nconnect "$(paths_of "$1" | wc -l)" ;;
    nvme-* | fc-nvme) nvme_facts ;;
    iscsi) iscsi_facts ;;
    esac
    case "$1" in
    iscsi | fcp) [ "${PATHS:-1}" = 1 ] || multipath_facts ;;
    esac
}

link_facts() {
    # A Fibre Channel frame fits only a larger one, whatever the study says of Ethernet.
    [ "$1" = fcp ] || [ -n "$ONE_GUEST" ] || fact mtu "$(cat /sys/class/net/eth0/mtu)"
    /usr/sbin/tc qdisc show dev eth0 | awk '
        function after(word) { for (i = 1; i < NF; i++) if ($i == word) return $(i + 1) }
        $2 == "tbf" { print "FACT link_rate=" after("rate") }
        $2 == "netem" { print "FACT link_delay=" after("delay") }'
}

nvme_facts() {
    fact io_queues $(($(cat /sys/class/nvme/nvme0/queue_count) - 1)) # one is for administration
    # The kernel takes no connection whose ends disagree about digests, and does not show them.
    [ -z "$HEADER_DIGEST" ] || fact header_digest 1
    [ -z "$DATA_DIGEST" ] || fact data_digest 1
    [ "${PATHS:-1}" = 1 ] || {
        fact paths "$(ls -d /sys/block/nvme*c*n1 | wc -l)"
        fact path_policy "$(cat /sys/class/nvme-subsystem/nvme-subsys*/iopolicy)"
    }
}

iscsi_facts() {
    for name in header_digest data_digest; do
        fact $name "$(cat /sys/class/iscsi_connection/*/$name | sort -u)"
    done
}

multipath_facts() {
    fact paths "$(ls -d /sys/block/dm-0/slaves/* | wc -l)"
    # `… multipath FEATURES HANDLERS GROUPS FIRST SELECTOR …`: two groups are one path and its stand-in.
    dmsetup table paths | awk '{ policy = $8 == "queue-length" ? "queue-depth" : $8
        print "FACT path_policy=" ($6 > 1 ? "fixed" : policy) }'
}

# paths_of PROTOCOL
paths_of() {
    case "$1" in
    nfs*) awk '$1 == "xprt:" { print "PATH connection" ++n, $8, 0 }' /proc/self/mountstats ;;
    nvme-tcp) for path in /sys/block/nvme*c*n1; do path_line ${path##*/} $path/stat; done ;;
    iscsi | fcp) for path in /sys/block/sd?; do path_line ${path##*/} $path/stat; done ;;
    esac
}

# path_line NAME STAT: Documentation/block/stat.rst; sectors have 512 bytes.
path_line() { awk -v name=$1 '{ printf "PATH %s %d %.0f\n", name, $1 + $5, ($3 + $7) * 512 }' $2; }
