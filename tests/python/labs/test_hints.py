"""The hint after an endpoint refuses iotax fits the endpoint's protocol."""

import pytest

from iotax.engine import EngineError
from iotax.labs.guard import hint

NFS = "nfs://filer/export/file"
ISCSI = "iscsi://array:3261/iqn.2001-05.org.example:vol1/0"
NVME = "nvme-tcp://array/nqn.2014-08.org.example:vol1?ns=1"
FILE, DEVICE = "local:/srv/volume.img", "local:/dev/nvme7n1"
OTHERS = {
    NFS: ("IQN", "LUN", "NQN", "chap", "initiator"),
    ISCSI: ("export", "NQN", "uid", "dhchap"),
    NVME: ("export", "IQN", "LUN", "uid", "user:"),
    FILE: ("export", "IQN", "NQN", "initiator"),
    DEVICE: ("export", "IQN", "NQN", "truncate"),
}
"""Words that do not apply to this endpoint."""


@pytest.mark.parametrize(
    ("endpoint", "kind", "message", "said"),
    [
        (NFS, "refused", "connection refused", "is the NFS server up, and is it the right port (2049"),
        (NFS, "not_found", "the server has no such export", "`showmount -e filer` lists its exports"),
        (NFS, "denied", "RFC 1813 §2.6: permission denied", "its squashing, and `uid:` and `gid:` under connection"),
        (NFS, "wrong_kind", "not a regular file", "name a regular file in the export"),
        (ISCSI, "refused", "connection refused", "the right port (3260"),
        (ISCSI, "not_found", "no such target", "`iscsiadm -m discovery -t sendtargets -p array` lists its names"),
        (ISCSI, "wrong_kind", "the LUN is not a block device", "tgt's disks begin at 1"),
        (ISCSI, "unauthenticated", "authentication failed", "the target asks for CHAP: correct or give `chap: {user: "),
        (
            ISCSI,
            "unauthenticated",
            "RFC 7143 §12.1: the target chose a method that was not offered",
            "the target asks for CHAP: correct or give `chap: {user: …, secret_file: …}` under connection, or beside "
            "this label's endpoint",
        ),
        (ISCSI, "denied", "this initiator is not allowed", "let this initiator's name in at the target"),
        (NVME, "refused", "connection refused", "the right port (4420"),
        (NVME, "not_found", "is the subsystem's NQN right?", "`nvme discover -t tcp -a array -s 4420` lists"),
        (NVME, "unauthenticated", "the controller asks for authentication", "`dhchap: {secret_file: …}`"),
        (
            NVME,
            "unauthenticated",
            "authentication failed: is the secret right?",
            "correct or give `dhchap: {secret_file: …}`",
        ),
        (NVME, "denied", "Connect refused: this host is not allowed", "let this host's NQN in at the target"),
        (FILE, "not_found", "No such file", "`truncate -s 1G /srv/volume.img` makes one"),
        (DEVICE, "not_found", "No such file", "there is no such device; `lsblk` lists this machine's"),
        (DEVICE, "denied", "Permission denied", "often group disk"),
    ],
)
def test_a_hint_speaks_of_the_endpoints_own_protocol(endpoint: str, kind: str, message: str, said: str) -> None:
    found = hint(endpoint, EngineError(kind, message, endpoint))
    assert said in found
    assert not [word for word in OTHERS[endpoint] if word in found]


@pytest.mark.parametrize("endpoint", OTHERS)
@pytest.mark.parametrize("kind", ["refused", "not_found", "wrong_kind", "denied", "unauthenticated", "busy"])
def test_the_kind_chooses_the_hint_whatever_the_message_says(endpoint: str, kind: str) -> None:
    words = "no block device; authentication failed; a method that was not offered; no such file; read-only"
    assert hint(endpoint, EngineError(kind, words, endpoint)) == hint(endpoint, EngineError(kind, "", endpoint))


@pytest.mark.parametrize("endpoint", OTHERS)
def test_nothing_is_said_of_what_no_protocol_knows_better(endpoint: str) -> None:
    assert hint(endpoint, EngineError("internal", "something else", endpoint)) == ""
