"""How clients reach what is served: commands to paste, from the endpoints of the server's `ready` line."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

TITLES = {"nfs3": "NFSv3", "iscsi": "iSCSI", "nvme-tcp": "NVMe/TCP"}
_FIO = "fio --name=reads --direct=1 --rw=randread --bs=4k --iodepth=32 --ioengine=libaio --time_based --runtime=10"


def reachable(endpoint: str) -> str:
    """The endpoint as clients write it: a server that listens on every address is named by this machine's name."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if not ip_address(host).is_unspecified:
        return endpoint
    return parts._replace(netloc=f"{socket.gethostname()}:{parts.port}").geturl()


def commands(protocol: str, endpoint: str, read_only: bool = False) -> list[str]:
    """For a Linux client, as root: connect, load, disconnect."""
    parts = urlsplit(endpoint)
    host, port, path = parts.hostname or "", parts.port, parts.path.strip("/")
    portal = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if protocol == "nvme-tcp":
        return [
            f"nvme discover -t tcp -a {host} -s {port}",
            f"nvme connect -t tcp -a {host} -s {port} -n {path}",
            f"{_FIO} --filename=/dev/nvme0n1    # the device that `nvme list` shows",
            f"nvme disconnect -n {path}",
        ]
    if protocol == "iscsi":
        name, _, lun = path.partition("/")
        return [
            f"iscsiadm -m discovery -t sendtargets -p {portal}",
            f"iscsiadm -m node -T {name} -p {portal} --login",
            f"{_FIO} --filename=/dev/disk/by-path/ip-{portal}-iscsi-{name}-lun-{lun}",
            f"iscsiadm -m node -T {name} -p {portal} --logout",
        ]
    export, _, file = path.rpartition("/")
    mountport = parse_qs(parts.query).get("mountport", [str(port)])[0]
    mounted = f"/mnt/{export.rpartition('/')[2]}"
    ip_version = "6" if ":" in host else ""
    options = f"vers=3,proto=tcp{ip_version},nolock,mountproto=tcp{ip_version},port={port},mountport={mountport}"
    source = f"[{host}]:/{export}" if ":" in host else f"{host}:/{export}"
    return [
        f"mkdir -p {mounted} && mount -t nfs -o {options}{',ro' if read_only else ''} {source} {mounted}",
        f"{_FIO} --filename={mounted}/{file}",
        f"umount {mounted}",
    ]
