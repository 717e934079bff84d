"""The hosts lab's script on a real kernel, against a real kernel's targets: two guests of the vm lab."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import shlex
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.engine import EngineError, find_engine
from iotax.labs.hosts.paths import Attached, attached_of, mismatches, words
from iotax.labs.load import run_task
from iotax.labs.vm import accelerator
from iotax.labs.vm.guests import Guests, StepFailed
from iotax.labs.vm.image import build
from iotax.labs.vm.qemu import require_qemu
from iotax.study import Settings, Study
from vm.needed import require

pytestmark = pytest.mark.long

MIB = 1 << 20
NQN, IQN = "nqn.2026-11.io.iotax:kernel", "iqn.2026-11.io.iotax:kernel"
# What nvme-cli does with these options; the guest has no nvme-cli.
NVME = """#!/bin/sh
command=$1 options=transport=tcp
shift
while [ $# -gt 0 ]; do
    case "$1" in
    -a) options=$options,traddr=$2 ;; -s) options=$options,trsvcid=$2 ;; -n) options=$options,nqn=$2 ;;
    -i) options=$options,nr_io_queues=$2 ;; --hdr-digest) options=$options,hdr_digest ;;
    esac
    shift
done
case "$command" in
connect) echo "$options,hostnqn=nqn.2014-08.org.example:me" >/dev/nvme-fabrics ;;
disconnect) for each in /sys/class/nvme/nvme*; do echo 1 >$each/delete_controller; done ;;
esac
"""
# The guests' `mount` is busybox's, which does not support the options of nfs-common's.
MOUNT = """#!/bin/sh
[ "$1 $2 $3" = "-t nfs -o" ] || exec busybox mount "$@"
exec mount.nfs "$5" "$6" -o "$4"
"""


@pytest.fixture(scope="module")
def guests() -> Iterator[Guests]:
    image = build(require(), lambda _: None)
    kind, _ = accelerator.choose(image, "auto", require_qemu())
    running = Guests(image, accelerator=kind, clock="host", volume_bytes=32 * MIB)
    with contextlib.closing(running):
        running["storage"].run(f"volume_up {16 * MIB}")
        script = (resources.files("iotax.labs.hosts") / "remote" / "paths.sh").read_bytes()
        written = {"/run/paths.sh": script, "/usr/bin/nvme": NVME.encode(), "/run/bin/mount": MOUNT.encode()}
        running["initiator"].run("mkdir -p /run/bin")
        for path, data in written.items():
            packed = base64.b64encode(gzip.compress(data)).decode()
            running["initiator"].run(f"echo {packed} | base64 -d | gunzip >{path}; chmod 755 {path}")
        running["initiator"].run(
            "net_up 2; load nvme_tcp iscsi_tcp nfsv3 nfsv4; . /lab/iscsi_common.sh; iscsid_with </dev/null"
        )
        yield running


def settings(uri: str, **connection: Any) -> Settings:
    document = {
        "name": "x", "question": "?", "lab": {"hosts": {"initiators": ["h1"]}}, "volume": {"size": "16MiB"},
        "factors": {"protocol": {"a": uri}}, "baseline": {"protocol": "a"}, "connection": connection,
    }  # fmt: skip
    return Study.model_validate(document).settings({"protocol": "a"})


def script(guests: Guests, *said: str) -> list[str]:
    return guests["initiator"].run(f"PATH=/run/bin:$PATH HOME=/root sh /run/paths.sh {shlex.join(said)}", timeout_s=120)


def up(guests: Guests, uri: str, **connection: Any) -> Attached:
    asked = settings(uri, **connection)
    attached = attached_of("h1", "\n".join(script(guests, "up", *words(uri, asked))))
    assert mismatches(uri, asked, attached.facts) == []
    return attached


def check(guests: Guests, attached: Attached, **more: Any) -> dict[str, Any]:
    document = {"task": "check", "endpoint": attached.endpoint, "options": {}, **more}
    document |= {"judged": dict(attached.file)} if attached.file else {}
    document = json.loads(json.dumps(document))
    return run_task(find_engine(), document, "checked", lambda _: None, place=guests["initiator"].port, silence_s=60.0)


PATHS = {
    "nvme-tcp": (f"kernel:nvme-tcp://10.0.0.1/{NQN}?ns=1&queues=1", {"header_digest": True}),
    "iscsi": (f"kernel:iscsi://10.0.0.1/{IQN}/0", {"data_digest": True}),
    "nfs3": ("kernel:nfs://10.0.0.1/volume/data?vers=3&nconnect=2", {}),
    "nfs4.1": ("kernel:nfs://10.0.0.1/volume/data?vers=4.1&nconnect=2", {}),
}


@pytest.mark.parametrize("protocol", PATHS)
def test_a_path_of_a_real_kernel_comes_up_is_read_back_and_goes(guests: Guests, protocol: str) -> None:
    uri, connection = PATHS[protocol]
    digest = "DATA_DIGEST=CRC32C; " if protocol == "iscsi" else ""
    guests["storage"].run(f"{digest}step {protocol} target_up")
    try:
        attached = up(guests, uri, **connection)
        assert attached.identity
        checked = check(guests, attached)
        assert (checked["size_bytes"], checked["holds"]) == (16 * MIB, "zeros")
        # The volume has the same identity after it is brought up again.
        assert up(guests, uri, **connection).identity == attached.identity
        journal = guests["initiator"].run("ls /root/.cache/iotax")
        assert sum(name.startswith("path-") for line in journal for name in line.split()) == 1
        assert script(guests, "down")[0].startswith("DOWN ")
        with pytest.raises(EngineError, match=r"No such file|not_found|No such device"):
            check(guests, attached)
        assert script(guests, "down") == []
    finally:
        with contextlib.suppress(StepFailed):
            script(guests, "down")
        guests["storage"].run(f"step {protocol} target_down")


def test_what_is_connected_already_is_refused_and_stays(guests: Guests) -> None:
    uri, _ = PATHS["nvme-tcp"]
    guests["storage"].run("step nvme-tcp target_up")
    guests["initiator"].run(f"nvme connect -a 10.0.0.1 -s 4420 -n {NQN}")
    with pytest.raises(StepFailed, match=r"in_use .* not by iotax"):
        up(guests, uri)
    assert script(guests, "down") == []
    assert guests["initiator"].run("cat /sys/class/nvme/nvme0/subsysnqn") == [NQN]
    guests["initiator"].run("nvme disconnect")
    guests["storage"].run("step nvme-tcp target_down")
