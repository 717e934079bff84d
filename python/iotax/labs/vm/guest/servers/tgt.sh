# tgt: an iSCSI target that is a program. Its LUN 0 is the controller, the volume is LUN 1.
target_up() {
    net_up 1
    mkdir -p /run/tgtd
    tgtd -f --iscsi portal=$STORAGE:3260 >/run/tgtd.log 2>&1 </dev/null &
    until_true 20 tgt_does --mode target --op show || die "tgtd does not answer: $(tail -n 3 /run/tgtd.log)"
    tgt_set --mode target --op new --tid 1 --targetname $IQN
    tgt_set --mode logicalunit --op new --tid 1 --lun 1 --backing-store $VOLUME
    for _digest in HeaderDigest DataDigest; do
        tgt_set --mode target --op update --tid 1 --name $_digest --value CRC32C,None
    done
    tgt_set --mode target --op bind --tid 1 --initiator-address ALL
}

tgt_does() { tgtadm --lld iscsi "$@" >/run/tgtadm.log 2>&1; }
tgt_set() { tgt_does "$@" || die "tgtadm $*: $(cat /run/tgtadm.log)"; }

# It ignores SIGTERM.
target_down() {
    killall -9 tgtd
    until_true 10 sh -c '! pidof tgtd >/dev/null' || die "tgtd does not end"
}
