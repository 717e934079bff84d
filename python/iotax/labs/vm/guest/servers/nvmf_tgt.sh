# SPDK's NVMe target, the user's own build: SERVER_PROGRAM starts it. It sleeps while nothing comes (interrupt mode), since
# polling would count as work. It has no huge pages and small pools, because a guest has little memory.
target_up() {
    net_up 1
    mkdir -p /var/tmp # where it locks its processor
    rm -f /run/nvmf_tgt.log
    cat >/run/nvmf_tgt.json <<EOF
{"subsystems": [
  {"subsystem": "iobuf", "config": [
    {"method": "iobuf_set_options", "params": {"small_pool_count": 2048, "large_pool_count": 256}}]},
  {"subsystem": "bdev", "config": [
    {"method": "bdev_set_options", "params": {"bdev_io_pool_size": 8192, "bdev_io_cache_size": 256}},
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
    nvmf_listens || die "nvmf_tgt does not serve: $(tail -n 12 /run/nvmf_tgt.log)"
}

nvmf_listens() { grep -q ':1144 00000000:0000 0A' /proc/net/tcp; } # port 4420
nvmf_listens_or_ended() { nvmf_listens || ! kill -0 "$(cat /run/nvmf_tgt.pid)" 2>/dev/null; }

target_dies() { kill -9 "$(cat /run/nvmf_tgt.pid)"; }

target_down() {
    kill "$(cat /run/nvmf_tgt.pid)"
    until_true 20 sh -c '! kill -0 $(cat /run/nvmf_tgt.pid) 2>/dev/null' || die "nvmf_tgt does not end"
}
