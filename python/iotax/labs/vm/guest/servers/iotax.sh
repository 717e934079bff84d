# iotax's own server, on the volume's file as it is, or on media that are a model: MODELLED, the volume as the engine's document
# says it, without its name.
case "$PROTOCOL" in
nfs*) _name=volume _port=2049 ;;
iscsi) _name=kernel _port=3260 ;;
nvme-tcp) _name=kernel _port=4420 ;;
esac
MOUNT_PORT=2049

target_up() {
    net_up 1
    _volume='"media":"file","path":"'$VOLUME'","size_bytes":0,"keep":true}'
    [ -z "$MODELLED" ] || _volume=${MODELLED#?}
    # What an earlier server said is not this one's.
    rm -f /run/serve.in /run/serve.out
    mkfifo /run/serve.in
    exec 5<>/run/serve.in
    cat >&5 <<EOF
{"volumes":[{"name":"$_name",$_volume],"exports":[{"protocol":"$PROTOCOL","listen":"$STORAGE:$_port","volume":"$_name"}]}
EOF
    /opt/iotax/run serve <&5 >/run/serve.out 2>/run/serve.err &
    echo $! >/run/serve.pid
    until_true 300 grep -q '"ready"' /run/serve.out || die "iotax does not serve: $(tail -n 3 /run/serve.out /run/serve.err)"
}

# ask COMMAND EVENT: what the server answers.
ask() {
    _known=$(grep -c "\"$2\"" /run/serve.out)
    echo "{\"command\":$1}" >/run/serve.in
    until_true 300 sh -c "[ \$(grep -c '\"$2\"' /run/serve.out) -gt $_known ]" || die "iotax does not answer: $(tail -n 3 /run/serve.out /run/serve.err)"
    grep "\"$2\"" /run/serve.out | tail -n 1
}

# media_fill: the pattern in modelled media again.
media_fill() { ask "\"fill\",\"volume\":\"$_name\"" filled >/dev/null; }

# media_status: what they did since the server started.
media_status() { ask '"status"' status; }

target_dies() { kill -9 "$(cat /run/serve.pid)"; }

target_down() {
    kill "$(cat /run/serve.pid)"
    until_true 20 sh -c '! kill -0 $(cat /run/serve.pid) 2>/dev/null' || die "iotax does not end"
}
