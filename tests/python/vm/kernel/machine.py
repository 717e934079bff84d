"""One virtual machine next to the engine on this host, with QEMU's user networking between them.

The guest reaches a server on this host's loopback at GATEWAY with the same port. This host reaches the guest's servers
through forwarded ports. The forwarding is transparent, so the kernel's protocol stacks talk directly to iotax's.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_process import ready, started
from iotax.engine import find_engine
from iotax.labs.vm import accelerator
from iotax.labs.vm.guests import BOOT_S, Guest
from iotax.labs.vm.image import build
from iotax.labs.vm.qemu import Machine, require_qemu

from .overlay import with_tools

GATEWAY = "10.0.0.254"
"""This host's loopback as the guest sees it."""
_GUEST = "10.0.0.1"
_SERVICES = {"iscsi": 3260, "nvme-tcp": 4420, "nfs3": 2049, "mountd": 20048}
_MEMORY_BYTES = 1 << 30
_PROCESSORS = 4
"""The kernel opens at most one NVMe I/O queue per processor."""


class KernelMachine:
    """A guest with the lab's image, the tests' tools, and `files` below /test."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="iotax-vm-"))
        self.ports = dict(zip(_SERVICES, free_ports(len(_SERVICES)), strict=True))
        forwards = "".join(
            f",hostfwd=tcp:127.0.0.1:{self.ports[name]}-{_GUEST}:{port}" for name, port in _SERVICES.items()
        )
        try:
            image = with_tools(build(find_engine(), lambda _: None), self._folder, files or {})
            chosen, _ = accelerator.choose(image, "auto", require_qemu())
            machine = Machine(
                "initiator",
                memory_bytes=_MEMORY_BYTES,
                accelerator=chosen,
                cpus=_PROCESSORS,
                devices=(
                    "-netdev",
                    f"user,id=host,ipv6=off,net=10.0.0.0/24,host={GATEWAY},dhcpstart=10.0.0.100{forwards}",
                    *("-device", "virtio-net-pci,netdev=host,romfile="),
                ),
            )
            self._guest = Guest(machine, image, self._folder)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        try:
            self._guest.boot(time.monotonic() + 2 * BOOT_S)  # other tests run at the same time
            self.run("net_up 1")
        except BaseException:
            self.close()
            raise

    def run(self, script: str, timeout_s: float = 120.0) -> list[str]:
        """Runs a script in the guest with the tests' functions; returns its lines. Raises StepFailed."""
        return [line for line in self._guest.run(f". /test/lib.sh; {script}", timeout_s) if line]

    def alive(self) -> bool:
        return self._guest.alive()

    def close(self) -> None:
        self._guest.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Server:
    """iotax's server on this host. It can be killed, and starts again with the same addresses."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        self._process = started(find_engine(), "serve", self._document)
        event = ready(self._process)
        self.portals = {each["protocol"]: each for each in event["portals"]}
        for export, portal in zip(self._document["exports"], event["portals"], strict=True):
            export["listen"] = portal["address"]

    def port(self, protocol: str) -> int:
        return int(self.portals[protocol]["address"].rpartition(":")[2])

    def command(self, command: dict[str, Any]) -> dict[str, Any]:
        """The server's answer."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def kill(self) -> None:
        """Kills the server as a crash would: it flushes nothing and informs no client."""
        assert self._process is not None
        self._process.kill()
        self._wait()

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin
            self._process.stdin.close()
            self._wait()

    def _wait(self) -> None:
        assert self._process is not None and self._process.stdout is not None and self._process.stdin is not None
        self._process.wait(timeout=180)
        self._process.stdout.close()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process = None


def file_volume(path: Path, size_bytes: int) -> dict[str, Any]:
    """A volume that outlives its server. To the next server the data are foreign; `destroy` lets it continue."""
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return {
        "name": "v0",
        "media": "file",
        "path": str(path),
        "destroy": str(path),
        "size_bytes": size_bytes,
        "direct": False,
    }


def free_ports(count: int) -> list[int]:
    """Chooses ports below the ephemeral range; a connection could otherwise take the port of a stopped server."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found += [port] if port not in found else []
    return found
