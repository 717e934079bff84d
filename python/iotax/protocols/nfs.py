"""NFS, versions 3, 4.1 and 4.2."""

from __future__ import annotations

from collections.abc import Sequence

from iotax.protocols.base import FIO, WHERE, Protocol, Query, Scheme, is_port


def _wrong(_host: str, names: Sequence[str], query: Query) -> str:
    if len(names) < 2:
        return "the export or the file is missing"
    if "mountport" in query and not is_port(query["mountport"][0]):
        return "mountport is not a port"
    return ""


def _client(host: str, port: int, path: str, query: Query, read_only: bool) -> list[str]:
    mountport = query.get("mountport", [str(port)])[0]
    ip_version = "6" if ":" in host else ""
    options = f"vers=3,proto=tcp{ip_version},nolock,mountproto=tcp{ip_version},port={port},mountport={mountport}"
    return _mounted(host, path, options, read_only)


def _client_41(host: str, port: int, path: str, _query: Query, read_only: bool) -> list[str]:
    ip_version = "6" if ":" in host else ""
    return _mounted(host, path, f"vers=4.1,proto=tcp{ip_version},port={port}", read_only)


def _mounted(host: str, path: str, options: str, read_only: bool) -> list[str]:
    export, _, file = path.rpartition("/")
    mounted = f"/mnt/{export.rpartition('/')[2]}"
    source = f"[{host}]:/{export}" if ":" in host else f"{host}:/{export}"
    return [
        f"mkdir -p {mounted} && mount -t nfs -o {options}{',ro' if read_only else ''} {source} {mounted}",
        f"{FIO} --filename={mounted}/{file}",
        f"umount {mounted}",
    ]


_VERSIONS = (
    "nfs:// is NFSv3; NFSv4.1 is nfs41://HOST/EXPORT/FILE, and any version goes through a kernel in the hosts lab: "
    "kernel:nfs://HOST/EXPORT/FILE?vers=4.2"
)
NFS = Scheme(
    name="nfs",
    port=2049,
    title="NFSv3",
    form="nfs://HOST[:PORT]/EXPORT/FILE[?mountport=N]",
    wrong=_wrong,
    query=("mountport",),
    elsewhere=dict.fromkeys(("version", "vers", "nfsvers"), _VERSIONS),
    hints={
        "refused": "is the NFS server up, and is it the right port ({usual_port} unless the endpoint names one)? "
        "Without a port in the endpoint, the portmapper on port 111 must answer too",
        "not_found": "the server answers: check the export and the file; `showmount -e {host}` lists its exports",
        "wrong_kind": "name a regular file in the export",
        "denied": f"check the hosts that the export allows, its squashing, and `uid:` and `gid:` {WHERE}; "
        "a Linux server needs `insecure` where iotax is not root",
    },
    kernel_title="NFS by each host's kernel",
    kernel_form="kernel:nfs://HOST[:PORT]/EXPORT/FILE[?vers=3|4.1|4.2&nconnect=N]",
    kernel_query=("vers", "nconnect"),
)
_NFS41 = Scheme(
    name="nfs41",
    port=2049,
    title="NFSv4.1",
    form="nfs41://HOST[:PORT][,HOST…]/EXPORT/FILE",
    wrong=_wrong,
    elsewhere=dict.fromkeys(("version", "vers", "nfsvers"), _VERSIONS),
    hints={
        "refused": "is the NFS server up, and is it the right port ({usual_port} unless the endpoint names one)?",
        "not_found": "the server answers: check the export and the file, from the root that the server shows",
        "wrong_kind": "name a regular file in the export",
        "denied": f"check the hosts that the export allows, its squashing, and `uid:` and `gid:` {WHERE}; "
        "a Linux server needs `insecure` where iotax is not root",
    },
)
NFS3 = Protocol(
    name="nfs3",
    title="NFSv3",
    family="nfs",
    colour="vermilion",
    labs=("loopback", "vm", "hosts", "sim"),
    scheme=NFS,
    options=frozenset({"uid", "gid"}),
    kernel_module="nfs",
    client=_client,
)
NFS41 = Protocol(
    name="nfs4.1",
    title="NFSv4.1",
    family="nfs",
    colour="wine",
    labs=("loopback", "vm", "hosts", "sim"),
    scheme=_NFS41,
    served_port=2050,
    options=frozenset({"uid", "gid"}),
    has_paths=True,
    client=_client_41,
)
NFS42 = Protocol(name="nfs4.2", title="NFSv4.2", colour="pine", family="nfs")
"""Only as a path of a host's own kernel."""
