"""What to do about an endpoint that does not let us in, in the words of its own protocol."""

from __future__ import annotations

from urllib.parse import urlsplit

from iotax.engine import EngineError
from iotax.study.kernel_path import PORTS

_WHERE = "under connection, or beside this label's endpoint"
_REFUSED = {
    "nfs": "is the NFS server up, and is it the right port (2049 unless the endpoint names one)?",
    "iscsi": "is the target up, and is it the right port (3260 unless the endpoint names one)?",
    "nvme-tcp": "is the target up, and is it the right port (4420 unless the endpoint names one)?",
}
_NOT_FOUND = {
    "nfs": "the server answers: check the export and the file; `showmount -e {host}` lists its exports",
    "iscsi": "the target answers: check the IQN and the LUN; "
    "`iscsiadm -m discovery -t sendtargets -p {host}` lists its names",
    "nvme-tcp": "the target answers: check the NQN and `?ns=`; "
    "`nvme discover -t tcp -a {host} -s {port}` lists its subsystems",
}
_DENIED = {
    "nfs": f"check the hosts that the export allows, its squashing, and `uid:` and `gid:` {_WHERE}; "
    "a Linux server needs `insecure` where iotax is not root",
    "iscsi": f"let this initiator's name in at the target, or name another by `initiator:` {_WHERE}",
    "nvme-tcp": f"let this host's NQN in at the target, or name another by `initiator:` {_WHERE}",
}
_UNAUTHENTICATED = {
    "iscsi": f"the target asks for CHAP: correct or give `chap: {{{{user: …, secret_file: …}}}}` {_WHERE}",
    "nvme-tcp": f"correct or give `dhchap: {{{{secret_file: …}}}}` {_WHERE}",
}
_WRONG_KIND = {
    "nfs": "name a regular file in the export",
    "iscsi": "it holds something else than a disk, as LUN 0 of tgt does, which is its controller: "
    "tgt's disks begin at 1",
}
_BY_KIND = {
    "refused": _REFUSED,
    "not_found": _NOT_FOUND,
    "wrong_kind": _WRONG_KIND,
    "denied": _DENIED,
    "unauthenticated": _UNAUTHENTICATED,
}


def hint(endpoint: str, error: EngineError) -> str:
    """Empty where nothing better than the error itself can be said."""
    if endpoint.startswith("local:"):
        return _of_path(endpoint.removeprefix("local:"), error.kind)
    parts = urlsplit(endpoint)
    words = _BY_KIND.get(error.kind, {}).get(parts.scheme, "")
    return words.format(host=parts.hostname, port=parts.port or PORTS[parts.scheme]) if words else ""


def _of_path(path: str, kind: str) -> str:
    device = path.startswith("/dev/")
    if kind == "not_found":
        if device:
            return "there is no such device; `lsblk` lists this machine's"
        return f"there is no such file; `truncate -s 1G {path}` makes one"
    if kind == "denied":
        return f"this user may not open it; `ls -l {path}` says who may" + (", often group disk" if device else "")
    return ""
