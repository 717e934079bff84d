"""A simulated site: SSH servers that answer as hosts whose kernels bring up every path that is requested.

Run as a program: `python -m hosts.stub_site FOLDER`, in the folder of the tests. FOLDER/site.json has `count` and, by
host number, `lacks` (missing commands) and `holds` (contents of its volumes, if not zeros). It writes the ports, one
per line, and runs until its input ends. Nothing here writes to a volume; every task but a check is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import asyncssh

from .stub_hosts import Server

SIZE_BYTES = 1 << 40


class SiteHost:
    """One host; numbers start at 1."""

    def __init__(self, number: int, digest: str, lacks: list[str], holds: str) -> None:
        self._number, self._digest, self._lacks, self._holds = number, digest, lacks, holds

    async def serve(self, process: asyncssh.SSHServerProcess[str]) -> None:
        with contextlib.suppress(OSError):
            command = process.command or ""
            if command.startswith("exec "):
                await self._engine(process, command)
            else:
                if command.startswith("cat >"):
                    await process.stdin.read()
                status, said = self._shell(command)
                (process.stderr if status else process.stdout).write(said)
                process.exit(status)

    async def _engine(self, process: asyncssh.SSHServerProcess[str], command: str) -> None:
        document = json.loads(await process.stdin.readline())
        if command.endswith(" load"):
            self._say(process, **self._checked(document))
            process.exit(0)
            return
        self._say(process, event="armed", engine_version="stub")
        while line := await process.stdin.readline():
            if json.loads(line)["command"] == "clock":
                self._say(process, event="clock", unix_ns=time.time_ns(), error_ns=1000)
        process.exit(0)

    def _checked(self, document: dict[str, Any]) -> dict[str, Any]:
        if document["task"] != "check":
            return {"event": "error", "kind": "usage", "message": "this site can be checked alone", "where": "task"}
        held = {"holds": "foreign", "what": self._holds, "at_bytes": 512} if self._holds else {"holds": "zeros"}
        return {"event": "checked", "size_bytes": SIZE_BYTES, "identity": {"device": self._number, "inode": 0}} | held

    def _shell(self, command: str) -> tuple[int, str]:
        if command.startswith("sh .cache/iotax/paths-"):
            return 0, self._path(shlex.split(command)[2:])
        if "command -v esxtop" in command:
            return 0, "VMkernel 7.0.3\nx86_64\n" + ("" if "esxtop" in self._lacks else "/usr/sbin/esxtop\n")
        if "uname -r" in command:
            return 0, "6.1.0\nx86_64\n32\nall\niscsi\nnvme-tcp\nnfs3\nnfs4.1\n"
        if "for each in" in command:
            names = shlex.split(command.partition("for each in ")[2].partition(";")[0])
            found = (Path(name).name for name in names)
            return 0, "".join(f"{name} is missing\n" if name in self._lacks else f"OK {name}\n" for name in found)
        if "ip -o route get" in command:
            return 0, "ens1f0\n9000\n25000\n"
        if "lsblk" in command:
            return 0, "sda2: ext4 /\n"
        if "sha256sum" in command:
            return 0, f"{self._digest} engine\n"
        if "--version" in command:
            return 0, "iotax-engine stub\n"
        if command.startswith(
            ("cat >.cache/iotax/paths-", "cat >.cache/iotax/database-", "cat >.cache/iotax/guest-disk-")
        ):
            return 0, ""
        return 1, f"nobody expected: {command}\n"

    def _path(self, words: list[str]) -> str:
        """What a kernel reports of a path that came up as requested."""
        command, *asked = words
        if command == "with" and asked[1] == "guest_disk":
            return "DEVICE=/dev/vdb\n"
        if command != "up":
            return ""
        set_first = dict(word.split("=", 1) for word in asked if word.split("=")[0] in ("mtu", "policy", "depth"))
        asked = [word for word in asked if word.split("=")[0] not in ("mtu", "policy", "depth", "portals")]
        names = {"mtu": "mtu", "policy": "path_policy", "depth": "queue_depth"}
        facts = {names[name]: value for name, value in set_first.items()}
        kind, *rest = asked
        device, identity = "/dev/dm-3", f"dm/uuid mpath-3600a0980{self._number:08x}"
        if kind == "nfs":
            address, _, export, file, version, connections = rest
            facts |= {"vers": version, "nconnect": connections or "1"}
            device, identity = f"/home/bench/.cache/iotax/mount/{file}", f"{address}:{export}/{file} inode 64"
        elif kind == "iscsi":
            device, identity = "/dev/sdq", f"naa.600a0980{self._number:08x}"
        elif kind == "nvme-tcp":
            _, _, _, namespace, queues, *_ = rest
            device, identity, facts["queues"] = f"/dev/nvme1n{namespace}", f"uuid.{self._number}", queues or "32"
        found = [f"DEVICE={device}", f"ID={identity}", *(f"FACT {name}={value}" for name, value in facts.items())]
        return "".join(f"{line}\n" for line in (*found, *(["FILE=50 64"] if kind == "nfs" else [])))

    @staticmethod
    def _say(process: asyncssh.SSHServerProcess[str], **event: object) -> None:
        process.stdout.write(json.dumps(event) + "\n")


async def main(folder: Path) -> None:
    site, digest = json.loads((folder / "site.json").read_text()), (folder / "digest").read_text()
    key = asyncssh.generate_private_key("ssh-ed25519")
    ports = []
    for number in range(1, site["count"] + 1):
        host = SiteHost(number, digest, site["lacks"].get(str(number), []), site["holds"].get(str(number), ""))
        server = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Server, server_host_keys=[key], process_factory=host.serve
        )
        ports.append(server.get_port())
    public = key.export_public_key().decode().strip()
    (folder / ".ssh/known_hosts").write_text("".join(f"[127.0.0.1]:{port} {public}\n" for port in ports))
    print("\n".join(map(str, ports)), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
