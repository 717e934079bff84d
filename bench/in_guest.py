"""How many instructions an I/O takes with more threads of the target, in a guest of eight processors.

A virtual machine whose clock counts instructions runs its processors in turn. Its time is the sum of what all of them
execute, 4 ns per instruction. While at least one processor has work, an I/O takes as much time as all instructions
spent on it: kernel, load and target together. While none has work, the guest's time advances with the host's. The
largest possible share of such idle time is reported: it follows from how long QEMU's thread slept during the load.

QEMU before 8.1 does not start the second processor of such a machine. The first one waits for it, and uses the
instructions of both. `python -m bench.in_guest` prints a table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.process import FailedError, UnavailableError
from iotax.engine import EngineError, find_engine
from iotax.labs.load import run_load
from iotax.labs.vm.counters import processor_threads
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import BOOT_S, Guest
from iotax.labs.vm.image import build
from iotax.labs.vm.qemu import Machine, require_qemu

PROTOCOLS = ("nvme-tcp", "iscsi", "nfs3")
THREADS = (1, 2, 4, 8)
QEMU_MIN = (8, 1)
INSTRUCTION_NS = 4
"""Guest time per instruction."""
_PROCESSORS = 8
_MONITOR_S = 20.0
_DEPTH = 8
_VOLUME_BYTES = 16 << 20
_MEMORY_BYTES = 768 << 20
_WARMUP_NS = 300_000_000
_SERVE = """
rm -f /run/serve.in /run/serve.out
mkfifo /run/serve.in
exec 5<>/run/serve.in
printf '%s\\n' {document} >&5
/opt/iotax/run serve <&5 >/run/serve.out 2>/run/serve.err &
echo $! >/run/serve.pid
until_true 300 grep -q '"ready"' /run/serve.out || die "iotax does not serve: $(cat /run/serve.err)"
cat /run/serve.out
"""
_END = "kill $(cat /run/serve.pid); until_true 50 sh -c '! kill -0 $(cat /run/serve.pid) 2>/dev/null'"


@dataclass(frozen=True)
class Counted:
    """Totals of all processors of the guest in the window of one load."""

    ios: int
    instructions: float
    """Per I/O: initiator, target and kernel together."""
    idle_share_max: float
    """Largest possible share of the window in which all processors were idle."""


@contextmanager
def guest_of(processors: int) -> Generator[Guest]:
    """A running guest. Raises UnavailableError if QEMU cannot run it."""
    try:
        version = require_qemu()
        if version_of(version) < QEMU_MIN:
            raise UnavailableError(
                f"QEMU {version} starts one processor where instructions are counted; 8.1 starts more"
            )
        image = build(find_engine(), lambda said: print(said, file=sys.stderr))
        with tempfile.TemporaryDirectory() as folder:
            guest = Guest(Machine("bench", _MEMORY_BYTES, "tcg", "icount", processors), image, Path(folder))
            try:
                guest.boot(time.monotonic() + BOOT_S)
                yield guest
            finally:
                guest.close()
    except VmFault as fault:
        raise UnavailableError(str(fault)) from fault


def version_of(said: str) -> tuple[int, int]:
    """Major and minor version from a string such as `10.0.2 (Debian …)`."""
    found = re.match(r"(\d+)\.(\d+)", said)
    if found is None:
        raise UnavailableError(f"QEMU says no version: {said}")
    return int(found[1]), int(found[2])


def measure(guest: Guest, protocol: str, direction: str, threads: int, window_s: float) -> Counted:
    """Counts one load: a client for each thread of the target, on a thread of its own. Raises EngineError if the run
    fails."""
    thread = _thread(guest)
    said = guest.run(_SERVE.format(document=shlex.quote(json.dumps(_server(protocol, threads)))))
    ready = next(event for event in map(json.loads, said) if event["event"] == "ready")
    try:
        document = _load(ready["portals"][0]["endpoint"], direction, threads, window_s)
        before_ns = _asleep_ns(thread)
        result = run_load(find_engine(), document, lambda _: None, place=guest.port).result
        asleep_ns = _asleep_ns(thread) - before_ns
    finally:
        guest.run(_END)
    return Counted(
        ios=result.ios,
        instructions=result.window.duration_ns / INSTRUCTION_NS / result.ios,
        idle_share_max=asleep_ns / result.window.duration_ns,
    )


def _thread(guest: Guest) -> Path:
    """The one thread of QEMU that runs all the guest's processors in turn: its schedstat file."""
    threads = processor_threads(guest.monitor.execute("query-cpus-fast", timeout_s=_MONITOR_S))
    if len(threads) != 1:
        raise FailedError(f"QEMU runs the guest's processors on {len(threads)} threads")
    return Path(f"/proc/{guest.pid}/task/{threads[0]}/schedstat")


def _asleep_ns(thread: Path) -> int:
    """A clock that advances while the thread neither runs nor waits for a processor of the host."""
    ran_ns, waited_ns, _ = map(int, thread.read_text().split())
    return time.monotonic_ns() - ran_ns - waited_ns


def _server(protocol: str, threads: int) -> dict[str, Any]:
    """A server's document: a volume in memory over one protocol."""
    return {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": _VOLUME_BYTES}],
        "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}],
        "threads": threads,
    }


def _load(endpoint: str, direction: str, clients: int, window_s: float) -> dict[str, Any]:
    return {
        "task": "run",
        "endpoint": endpoint,
        "workers": clients,
        "threads": clients,
        "outstanding": _DEPTH,
        "block_size_bytes": 4096,
        "read_percent": 100 if direction == "read" else 0,
        "random_percent": 100,
        "working_set_bytes": _VOLUME_BYTES,
        "warmup_ns": _WARMUP_NS,
        "runtime_ns": int(window_s * 1e9),
        "verify": False,
    }


def main() -> int:
    parser = argparse.ArgumentParser("python -m bench.in_guest", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of each window, of the guest's time")
    seconds = parser.parse_args().seconds
    print("| load | threads | instructions per I/O, both sides and the kernel | no processor had work, at most |")
    print("|---|---|---|---|")
    try:
        with guest_of(_PROCESSORS) as guest:
            for protocol, direction, threads in itertools.product(PROTOCOLS, ("read", "write"), THREADS):
                found = measure(guest, protocol, direction, threads, seconds)
                figures = f"{found.instructions:,.0f} | {found.idle_share_max:.1%}"
                print(f"| {protocol}, 4K {direction} | {threads} | {figures} |", flush=True)
    except (UnavailableError, EngineError) as reason:
        print(f"bench: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
