# SPDK's NVMe target, the user's own build: SERVER_PROGRAM starts it. It sleeps while nothing comes (interrupt mode), since
# polling would count as work. Without huge pages, of which a guest has none to spare.
target_up() {
    net_up 1
    rm -f /run/nvmf_tgt.log
    cat >/run/nvmf_tgt.json <<EOF
{"subsystems": [
  {"subsystem": "bdev", "config": [
    {"method": "bdev_aio_create", "params": {"name": "volume", "filename": "$VOLUME", "block_size": 512}}]},
  {"subsystem": "nvmf", "config": [
    {"method": "nvmf_create_transport", "params": {"trtype": "TCP"}},
    {"method": "nvmf_create_subsystem", "params": {"nqn": "$NQN", "allow_any_host": true}},
    {"method": "nvmf_subsystem_add_ns", "params": {"nqn": "$NQN", "namespace": {"bdev_name": "volume", "nsid": 1}}},
    {"method": "nvmf_subsystem_add_listener", "params": {"nqn": "$NQN", "listen_address":
      {"trtype": "TCP", "adrfam": "IPv4", "traddr": "$STORAGE", "trsvcid": "4420"}}}]}
]}
EOF
    # The image has no configuration of OpenSSL, which SPDK reads as it starts.
    OPENSSL_CONF=/dev/null $SERVER_PROGRAM -m 0x1 --no-huge -s 256 --interrupt-mode -c /run/nvmf_tgt.json -r /run/nvmf_tgt.sock \
        >/run/nvmf_tgt.log 2>&1 </dev/null &
    echo $! >/run/nvmf_tgt.pid
    until_true 60 nvmf_listens_or_ended
    nvmf_listens || die "nvmf_tgt does not serve: $(tail -n 5 /run/nvmf_tgt.log)"
}

nvmf_listens() { grep -q ':1144 00000000:0000 0A' /proc/net/tcp; } # port 4420
nvmf_listens_or_ended() { nvmf_listens || ! kill -0 "$(cat /run/nvmf_tgt.pid)" 2>/dev/null; }

target_down() {
    kill "$(cat /run/nvmf_tgt.pid)"
    until_true 20 sh -c '! kill -0 $(cat /run/nvmf_tgt.pid) 2>/dev/null' || die "nvmf_tgt does not end"
}
