# iotax's own server, on the volume's file as it is.
case "$PROTOCOL" in
nfs*) _name=volume _port=2049 ;;
iscsi) _name=kernel _port=3260 ;;
nvme-tcp) _name=kernel _port=4420 ;;
esac
MOUNT_PORT=2049

target_up() {
    net_up 1
    rm -f /run/serve.in
    mkfifo /run/serve.in
    exec 5<>/run/serve.in
    cat >&5 <<EOF
{"volumes":[{"name":"$_name","media":"file","path":"$VOLUME","size_bytes":0,"keep":true}],"exports":[{"protocol":"$PROTOCOL","listen":"$STORAGE:$_port","volume":"$_name"}]}
EOF
    /opt/iotax/run serve <&5 >/run/serve.out 2>/run/serve.err &
    echo $! >/run/serve.pid
    until_true 30 grep -q '"ready"' /run/serve.out || die "iotax does not serve: $(tail -n 3 /run/serve.out /run/serve.err)"
}

target_down() {
    kill "$(cat /run/serve.pid)"
    until_true 20 sh -c '! kill -0 $(cat /run/serve.pid) 2>/dev/null' || die "iotax does not end"
}
