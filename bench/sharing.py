"""What threads of the target do to one another on the path of an I/O: the cache lines that they share.

Two cores are too few to time four threads, but enough to trace them. valgrind runs the engine's server one thread at a
time, and reports each memory access and its thread. A line is shared if one thread writes it and another one accesses
it in the window. On a real machine it then moves from cache to cache, and more threads cost more per I/O. It moves at
most as often as it is accessed, and at most once to each of its threads for each write.

The data of a volume in memory are left out, because clients that write to the same places share them on any server. The
kernel's part is left out too. `python -m bench.sharing` prints a table.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.process import FailedError, program
from iotax.engine import find_engine
from iotax.places.waiting import Engine

PROTOCOLS = ("nvme-tcp", "iscsi", "nfs3")
THREADS = (1, 2, 4, 8)
MEDIA = ("memory", "file")
_CLIENTS = 8
"""The same for all numbers of threads, so that only these differ."""
_DEPTH = 8
_VOLUME_BYTES = 16 << 20
_LINE_BITS = 6
_SHARED_MEMORY = "/dev/shm"  # noqa: S108
"""For files, because there the server's threads do their I/O themselves; elsewhere, with epoll, other threads would."""
_DEADLINE_S = 120.0
_LONGER_S = 3.0
"""How much longer the loads' windows are than that of the trace. The first load connects long before the last one, and
the end of a connection within the trace would count as part of the I/O."""
_PIPE_BYTES = 1 << 16
_SCHEDULED = re.compile(r"SCHED\[(\d+)\]:\s+acquired lock")


@dataclass
class Trace:
    """Memory accesses by cache line and thread, from the lines of valgrind's tool lackey."""

    thread: int = 0
    """The thread of the next accesses."""
    left_out: range = range(0)
    """Addresses to skip."""
    instructions: dict[int, int] = field(default_factory=dict)
    touched: dict[int, dict[int, int]] = field(default_factory=dict)
    """Accesses by line, then by thread."""
    written: dict[int, int] = field(default_factory=dict)
    """Writes by line."""

    def follow(self, lines: Iterable[str]) -> None:
        """`I  0400,3` is an instruction; ` L`, ` S`, ` M`: a load, a store, both. valgrind prints thread switches."""
        for line in lines:
            kind = line[:2]
            if kind == "I ":
                self.instructions[self.thread] = self.instructions.get(self.thread, 0) + 1
            elif kind in (" L", " S", " M"):
                address, _, size = line[3:].partition(",")
                first = int(address, 16)
                if first in self.left_out:
                    continue
                for cached in range(first >> _LINE_BITS, (first + int(size) - 1 >> _LINE_BITS) + 1):
                    by_thread = self.touched.setdefault(cached, {})
                    by_thread[self.thread] = by_thread.get(self.thread, 0) + 1
                    if kind != " L":
                        self.written[cached] = self.written.get(cached, 0) + 1
            elif turn := _SCHEDULED.search(line):
                self.thread = int(turn[1])

    def moves(self) -> dict[int, int]:
        """For each line that one thread wrote and another accessed: the largest possible number of moves."""
        found = {}
        for line, times in self.written.items():
            by_thread = self.touched[line]
            if len(by_thread) > 1:
                found[line] = min(sum(by_thread.values()), times * len(by_thread))
        return found


@dataclass(frozen=True)
class Sharing:
    """Figures per I/O of the server, in a window of one run."""

    ios: float
    instructions: float
    moves: float
    """Largest possible number of moves of lines that one thread writes and another accesses."""
    lines: int
    """Total number of such lines."""
    threads: int
    """Threads that took part."""


def measure(protocol: str, direction: str, threads: int, window_s: float, media: str = "memory") -> Sharing:
    """Measures with epoll, because valgrind does not support io_uring. `media`: memory or file. Raises UnavailableError
    without valgrind, EngineError if the run fails."""
    valgrind, engine = program("valgrind", "valgrind"), find_engine()
    with tempfile.TemporaryDirectory(dir=_SHARED_MEMORY) as folder:
        pipe, wrapped = Path(folder, "trace"), Path(folder, "engine")
        os.mkfifo(pipe)
        options = f"--tool=lackey --trace-mem=yes --trace-sched=yes --fair-sched=yes --log-file='{pipe}'"
        wrapped.write_text(f"#!/bin/sh\nexec '{valgrind}' {options} '{engine}' \"$@\"\n")
        wrapped.chmod(0o755)
        with (
            _Follower(pipe) as follower,
            Engine(wrapped, "serve", _server(protocol, threads, _volume(media, Path(folder)))) as server,
        ):
            endpoint = server.expect("ready", time.monotonic() + _DEADLINE_S)["portals"][0]["endpoint"]
            if media == "memory":
                follower.leave_out(volume_in(Path(f"/proc/{server.pid}/maps").read_text()))
            longer_s = _LONGER_S
            while (traced := _traced(follower, engine, endpoint, direction, window_s, longer_s)) is None:
                longer_s *= 2
    trace, ios = traced
    moves = trace.moves()
    return Sharing(
        ios=ios,
        instructions=sum(trace.instructions.values()) / ios,
        moves=sum(moves.values()) / ios,
        lines=len(moves),
        threads=len(trace.instructions),
    )


def _traced(
    follower: _Follower, engine: Path, endpoint: str, direction: str, window_s: float, longer_s: float
) -> tuple[Trace, float] | None:
    """A trace of the server while all clients load it, and their I/Os in its window. None if the machine was so busy
    that the first client may have ended within it."""
    with contextlib.ExitStack() as running:
        document = _load(endpoint, direction, window_s, longer_s)
        loads = [running.enter_context(Engine(engine, "load", document)) for _ in range(_CLIENTS)]
        begun_s = time.monotonic()
        for load in loads:
            load.expect("connected", time.monotonic() + _DEADLINE_S)
        time.sleep(window_s)
        trace, traced_s = follower.trace_for(window_s)
        if time.monotonic() - begun_s > 2 * window_s + longer_s:
            return None
        results = [load.expect("result", time.monotonic() + _DEADLINE_S) for load in loads]
    return trace, traced_s * sum(each[direction]["ios"] / each["window"]["duration_ns"] * 1e9 for each in results)


def volume_in(maps: str) -> range:
    """Where a server's memory volume is mapped, by /proc/PID/maps. Raises FailedError unless there is just one."""
    found = [line.split()[0].split("-") for line in maps.splitlines() if "/memfd:" in line]
    volumes = [range(int(first, 16), int(end, 16)) for first, end in found]
    volumes = [each for each in volumes if len(each) == _VOLUME_BYTES]
    if len(volumes) != 1:
        raise FailedError(f"the server maps {len(volumes)} memory files of the volume's size")
    return volumes[0]


class _Follower:
    """Reads valgrind's output as it arrives. valgrind waits for it, so a window of the trace is one of the run."""

    def __init__(self, pipe: Path) -> None:
        self._pipe = pipe
        self._trace: Trace | None = None
        self._left_out = range(0)
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> _Follower:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        # If valgrind never opened the pipe, the reader still waits for that.
        with contextlib.suppress(OSError):
            os.close(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK))
        self._reader.join()

    def leave_out(self, addresses: range) -> None:
        """Skips these addresses in later traces."""
        self._left_out = addresses

    def trace_for(self, seconds: float) -> tuple[Trace, float]:
        """The trace of a window that starts now, and its length."""
        with self._lock:
            self._trace = trace = Trace(self._thread, self._left_out)
            begun = time.monotonic()
        time.sleep(seconds)
        with self._lock:
            self._trace = None
            return trace, time.monotonic() - begun

    def _read(self) -> None:
        self._thread = 0
        rest = ""
        with self._pipe.open("rb", buffering=0) as pipe:
            while piece := pipe.read(_PIPE_BYTES):
                *lines, rest = (rest + piece.decode("ascii", "replace")).split("\n")
                with self._lock:
                    trace = self._trace
                    if trace is None:
                        trace, lines = Trace(self._thread), [line for line in lines if line.startswith("-")]
                    trace.follow(lines)
                    self._thread = trace.thread


def _volume(media: str, folder: Path) -> dict[str, Any]:
    if media == "memory":
        return {"name": "v0", "media": media, "size_bytes": _VOLUME_BYTES}
    path = folder / "volume"
    with path.open("wb") as file:
        file.truncate(_VOLUME_BYTES)
    size = {"size_bytes": _VOLUME_BYTES}
    return {"name": "v0", "media": media, "path": str(path), "direct": False, "destroy": str(path)} | size


def _server(protocol: str, threads: int, volume: dict[str, Any]) -> dict[str, Any]:
    """A server's document: a volume over one protocol."""
    return {
        "volumes": [volume],
        "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}],
        "driver": "epoll",
        "threads": threads,
    }


def _load(endpoint: str, direction: str, window_s: float, longer_s: float) -> dict[str, Any]:
    """The document of each client's load. All clients use the same places."""
    return {
        "task": "run",
        "endpoint": endpoint,
        "workers": 1,
        "outstanding": _DEPTH,
        "block_size_bytes": 4096,
        "read_percent": 100 if direction == "read" else 0,
        "random_percent": 100,
        "working_set_bytes": _VOLUME_BYTES,
        "warmup_ns": int(window_s * 1e9),
        "runtime_ns": int((window_s + longer_s) * 1e9),
        "verify": False,
    }


def main() -> int:
    parser = argparse.ArgumentParser("python -m bench.sharing", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each window")
    seconds = parser.parse_args().seconds
    print("| load | threads | instructions per I/O | shared cache lines moved per I/O, at most | such lines in all |")
    print("|---|---|---|---|---|")
    for media, protocol, direction, threads in itertools.product(MEDIA, PROTOCOLS, ("read", "write"), THREADS):
        found = measure(protocol, direction, threads, seconds, media)
        figures = f"{found.instructions:,.0f} | {found.moves:.2f} | {found.lines}"
        print(f"| {protocol}, 4K {direction}, {media} | {found.threads} of {threads} | {figures} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
