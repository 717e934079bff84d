"""Hundreds of hosts in one process: SSH servers that answer as the engine does, but do no I/O.

Run as a program: `python stub_hosts.py FOLDER COUNT LATE SET_NS`. It writes COUNT ports, one per line, and runs until
its input ends. Then `told` in FOLDER has the time at which each host received its start command. The first LATE hosts
answer that the start time has passed. The last host's clock is set forward by SET_NS after it was compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path

import asyncssh


class Stub:
    """One host: records when it received its start command, and answers."""

    def __init__(self, told: list[int], digest: str, *, late: bool, set_ns: int) -> None:
        self._told, self._digest, self._late, self._set_ns = told, digest, late, set_ns

    async def serve(self, process: asyncssh.SSHServerProcess[str]) -> None:
        # The test may end an engine in its window. It is gone when the window ends, but its connection remains.
        with contextlib.suppress(OSError):
            await self._serve(process)

    async def _serve(self, process: asyncssh.SSHServerProcess[str]) -> None:
        command = process.command or ""
        if " session" not in command:
            process.stdout.write(self._shell(command))
            process.exit(0)
            return
        for _ in range(command.count("IFS= read -r")):
            await process.stdin.readline()
        document = json.loads(await process.stdin.readline())
        for load in document["loads"]:
            self._say(process, event="connected", driver="stub", endpoint=load["load"]["endpoint"])
        self._say(process, event="armed", engine_version="stub")
        while line := await process.stdin.readline():
            said = json.loads(line)
            if said["command"] == "clock":
                self._say(process, event="clock", unix_ns=time.time_ns(), error_ns=None)
            elif said["command"] == "start":
                await self._run(process, document, said["at_unix_ns"])
        process.exit(0)

    async def _run(self, process: asyncssh.SSHServerProcess[str], document: dict, at_ns: int) -> None:
        if self._late:
            self._say(
                process, event="error", kind="late", message="the start was over when it was heard", where="start"
            )
            return
        self._told.append(time.time_ns())
        self._say(process, event="started", left_ns=at_ns - time.time_ns() - self._set_ns)
        end_ns = at_ns + document["settle_ns"] + document["slice_ns"]
        await asyncio.sleep(max(0.0, (end_ns - time.time_ns()) / 1e9))
        window = {"start_unix_ns": end_ns - document["slice_ns"], "start_ns": 0, "duration_ns": document["slice_ns"]}
        machine = {"cores": [], "busy_ns": 1_000_000}
        self._say(process, event="observed", window=window, machine=machine)
        for load in document["loads"]:
            self._say(process, event="result", **result(load["load"]["endpoint"], window, machine))

    @staticmethod
    def _say(process: asyncssh.SSHServerProcess[str], **event: object) -> None:
        process.stdout.write(json.dumps(event) + "\n")

    def _shell(self, command: str) -> str:
        """Answers the few shell commands that come before an engine starts."""
        if "sha256sum" in command:
            return f"{self._digest} engine\n"
        return "iotax-engine stub\n" if "--version" in command else ""


def result(endpoint: str, window: dict, machine: dict) -> dict[str, object]:
    counts = [[1000 + 16 * step, 50] for step in range(400)]
    ios = sum(count for _, count in counts)
    total_ns = sum(value * count for value, count in counts)
    stream = {
        "ios": ios, "bytes": 4096 * ios, "errors": 0, "latency_sum_ns": total_ns, "latency_min_ns": 1000,
        "latency_max_ns": 7400, "histogram": {"significant_digits": 3, "counts": counts},
    }  # fmt: skip
    nothing = stream | {"ios": 0, "bytes": 0, "latency_sum_ns": 0, "latency_min_ns": 0, "latency_max_ns": 0}
    nothing["histogram"] = {"significant_digits": 3, "counts": []}
    initiator = {"pid": 1, "total_ns": 900_000, "user_ns": 500_000, "system_ns": 400_000}
    return {
        "engine_version": "stub", "driver": "stub", "endpoint": endpoint, "window": window, "read": stream,
        "write": nothing, "cpu": {"initiator": initiator, "machine": machine}, "series": [],
        "outstanding": {"workers": 1, "per_worker": 1, "mean": 1.0},
    }  # fmt: skip


class Server(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        del username
        return False  # accept every login: it listens on loopback for one test


async def main(folder: Path, count: int, late: int, set_ns: int) -> None:
    digest = (folder / "digest").read_text()
    key = asyncssh.generate_private_key("ssh-ed25519")
    told: list[int] = []
    ports = []
    for number in range(count):
        stub = Stub(told, digest, late=number < late, set_ns=set_ns if number == count - 1 else 0)
        server = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Server, server_host_keys=[key], process_factory=stub.serve
        )
        ports.append(server.get_port())
    public = key.export_public_key().decode().strip()
    (folder / "known_hosts").write_text("".join(f"[127.0.0.1]:{port} {public}\n" for port in ports))
    print("\n".join(map(str, ports)), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    (folder / "told").write_text("\n".join(map(str, told)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
