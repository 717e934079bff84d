# The kernel's NVMe drivers with authentication in place of the stock ones.
auth_up() {
    # What they need stays where they have been.
    load nvme-tcp nvmet-tcp
    rmmod nvmet_tcp nvmet nvme_tcp nvme_fabrics nvme_core || die "rmmod"
    # Private keys of RFC 7919's groups are drawn from crypto's own generator.
    load sha512_generic drbg
    for _module in ffdhe nvme-common nvme-core nvme-fabrics nvme-tcp nvmet nvmet-tcp; do
        insmod /test/$_module.ko || die "insmod $_module"
    done
}

# only HOST KEY CONTROLLER_KEY HASH GROUP: nvmet lets in this host alone, who must prove itself.
only() {
    _host=$CONFIG/nvmet/hosts/$1
    mkdir -p $_host || die "no host"
    echo "$2" >$_host/dhchap_key || die "no key"
    [ -z "$3" ] || echo "$3" >$_host/dhchap_ctrl_key || die "no controller key"
    echo "hmac($4)" >$_host/dhchap_hash || die "hash $4"
    echo "$5" >$_host/dhchap_dhgroup || die "group $5"
    echo 0 >$CONFIG/nvmet/subsystems/$NQN/attr_allow_any_host
    ln -s $_host $CONFIG/nvmet/subsystems/$NQN/allowed_hosts/$1
}

anyone() { rm $CONFIG/nvmet/subsystems/$NQN/allowed_hosts/$1; rmdir $CONFIG/nvmet/hosts/$1; }
