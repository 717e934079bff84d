"""How similar pgbench's I/O and the load of `oltp:` are, on a loop device and with the same tracepoints.

    python -m bench.likeness [DIRECTORY]

Run it as root. It makes a loop device of a file, a file system on it, and a PostgreSQL database whose memory for
buffers is half its size, and runs pgbench. Then it runs `iotax-engine` on the bare device. It needs PostgreSQL,
e2fsprogs, tracefs, and control groups of version 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iotax.engine import find_engine
from iotax.labs.load import run_task

SCALE = 16
DATABASE_BYTES = SCALE * (16 << 20)
MEMORY_BYTES = DATABASE_BYTES // 2
"""Buffer memory of either program. The other memory of PostgreSQL's control group caches its files once more."""
GROUP_BYTES = MEMORY_BYTES + (48 << 20)
CLIENTS = 4
WARMUP_S, WINDOW_S = 15, 30
CHECKPOINT_S = 10
_TRACING = Path("/sys/kernel/tracing/instances/iotax-likeness")
_CGROUP = Path("/sys/fs/cgroup/memory/iotax-likeness")
_EVENT = re.compile(
    r"\s(?P<at>\d+\.\d+): block_rq_(?P<what>issue|complete): \S+ (?P<kind>\w+) (?:\d+ )?"
    r"\(.*?\) (?P<sector>\d+) \+ (?P<sectors>\d+)"
)


@dataclass
class Seen:
    """The device's requests in the window."""

    transactions: int
    duration_s: float
    sizes: dict[str, Counter[int]] = field(default_factory=lambda: {"R": Counter(), "W": Counter()})
    flushes: int = 0
    sequential: Counter[str] = field(default_factory=Counter)
    """Requests that start where the previous one of their kind ended."""
    depth_s: float = 0.0

    def rows(self) -> Iterator[tuple[str, str]]:
        each = 1 / max(1, self.transactions)
        yield "transactions/s", f"{self.transactions / self.duration_s:,.0f}"
        for kind, name in (("R", "reads"), ("W", "writes")):
            sizes = self.sizes[kind]
            count = max(1, sizes.total())
            yield f"{name} per transaction", f"{sizes.total() * each:.2f}"
            yield f"KiB of {name} per transaction", f"{sum(size * n for size, n in sizes.items()) * each / 1024:.1f}"
            for low, high in ((0, 4096), (4096, 8192), (8192, 65536), (65536, 1 << 30)):
                share = sum(n for size, n in sizes.items() if low < size <= high)
                named = f"over {low >> 10} to {high >> 10} KiB" if high < 1 << 30 else f"over {low >> 10} KiB"
                yield f"{name}, {named}", f"{100 * share / count:.0f} %"
            yield f"sequential {name}", f"{100 * self.sequential[kind] / count:.0f} %"
        yield "flushes per transaction", f"{self.flushes * each:.2f}"
        yield "outstanding requests, mean", f"{self.depth_s / self.duration_s:.2f}"


@contextmanager
def traced(device: str) -> Generator[list[str]]:
    """Trace lines of the device's requests, issued and completed."""
    number = Path(device).stat().st_rdev
    lines: list[str] = []
    _TRACING.mkdir()
    try:
        (_TRACING / "buffer_size_kb").write_text("16384")
        (_TRACING / "trace_clock").write_text("mono")
        for what in ("issue", "complete"):
            event = _TRACING / f"events/block/block_rq_{what}"
            (event / "filter").write_text(f"dev == {os.major(number) << 20 | os.minor(number)}")
            (event / "enable").write_text("1")
        yield lines
        (_TRACING / "tracing_on").write_text("0")
        lines += (_TRACING / "trace").read_text(errors="replace").splitlines()
    finally:
        (_TRACING / "tracing_on").write_text("0")
        _TRACING.rmdir()


def seen(lines: list[str], begin_s: float, end_s: float, transactions: int) -> Seen:
    found = Seen(transactions, end_s - begin_s)
    ends: dict[str, int] = {}
    depth, since = 0, begin_s
    for line in lines:
        match = _EVENT.search(line)
        if match is None or not begin_s <= (at := float(match["at"])) < end_s:
            continue
        found.depth_s += depth * (at - since)
        since = at
        kind, sector, sectors = match["kind"], int(match["sector"]), int(match["sectors"])
        if match["what"] == "complete":
            depth = max(0, depth - 1)
            continue
        depth += 1
        if kind.startswith("F") and not sectors:
            found.flushes += 1
            continue
        side = "R" if "R" in kind else "W"
        found.sizes[side][sectors * 512] += 1
        found.sequential[side] += ends.get(side) == sector
        ends[side] = sector + sectors
    return found


def pgbench(device: str, directory: Path) -> Seen:
    mount = directory / "mount"
    mount.mkdir()
    run("mkfs.ext4", "-q", "-F", device)
    run("mount", device, str(mount))
    try:
        data = mount / "data"
        data.mkdir()
        shutil.chown(data, "postgres")
        run(*as_postgres("initdb", "-k", "--no-sync", "-A", "trust", "-D", str(data)))
        options = {
            "shared_buffers": f"{MEMORY_BYTES >> 10}kB",
            "fsync": "on",
            "checkpoint_timeout": "1d",
            "max_wal_size": "4GB",
            "unix_socket_directories": str(data),
            "listen_addresses": "''",
        }
        asked = " ".join(f"-c {name}={value}" for name, value in options.items())
        _CGROUP.mkdir()
        (_CGROUP / "memory.limit_in_bytes").write_text(str(GROUP_BYTES))
        start = as_postgres("pg_ctl", "-w", "-D", str(data), "-l", str(data / "log"), "-o", asked, "start")
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL, preexec_fn=_join_cgroup)
        try:
            return _benched(device, data)
        finally:
            run(*as_postgres("pg_ctl", "-D", str(data), "-m", "fast", "stop"))
            time.sleep(1)
            _CGROUP.rmdir()
    finally:
        run("umount", str(mount))


def _join_cgroup() -> None:
    (_CGROUP / "cgroup.procs").write_text(str(os.getpid()))


def _benched(device: str, data: Path) -> Seen:
    run(*as_postgres("pgbench", "-h", str(data), "-q", "-i", "-s", str(SCALE), "postgres"))
    run(*as_postgres("psql", "-h", str(data), "-c", "checkpoint", "postgres"))
    load = as_postgres(
        *("pgbench", "-h", str(data), "-n", "-M", "prepared", "-c", str(CLIENTS)),
        *("-T", str(WARMUP_S + WINDOW_S + 5), "-P", "1", "postgres"),
    )
    stop = threading.Event()

    def checkpoints() -> None:
        while not stop.wait(CHECKPOINT_S):
            run(*as_postgres("psql", "-h", str(data), "-c", "checkpoint", "postgres"))

    counted = as_postgres(
        *("psql", "-h", str(data), "-At", "-c"),
        "select xact_commit, wal_bytes, wal_fpi, n_tup_upd, n_tup_hot_upd from pg_stat_database, pg_stat_wal, "
        "pg_stat_user_tables where datname = 'postgres' and relname = 'pgbench_accounts'",
        "postgres",
    )

    def counts() -> list[int]:
        said = subprocess.run(counted, check=True, capture_output=True, text=True).stdout
        return [int(word) for word in said.strip().split("|")]

    with traced(device) as lines, subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        timer = threading.Thread(target=checkpoints)
        timer.start()
        time.sleep(WARMUP_S)
        before, begin_s = counts(), time.monotonic()
        time.sleep(WINDOW_S)
        after, end_s = counts(), time.monotonic()
        stop.set()
        timer.join()
    commits, log_bytes, images, updates, within = (late - early for late, early in zip(after, before, strict=True))
    print(
        f"PostgreSQL's own counts: {log_bytes / commits:,.0f} bytes of log and {images / commits:.2f} images of pages "
        f"a transaction; {100 * within / updates:.0f} % of accounts' updates stay within their page."
    )
    return seen(lines, begin_s, end_s, commits)


def engine(device: str, rate_iops: float | None = None) -> Seen:
    """Runs the engine as fast as possible, or at this many transactions per second."""
    document: dict[str, Any] = {
        "task": "run",
        "endpoint": f"local:{device}",
        "destroy": f"local:{device}",
        "workers": CLIENTS,
        "block_size_bytes": 8192,
        "working_set_bytes": DATABASE_BYTES,
        "oltp": {"memory_bytes": MEMORY_BYTES, "checkpoint_ns": CHECKPOINT_S * 10**9},
        "warmup_ns": WARMUP_S * 10**9,
        "runtime_ns": WINDOW_S * 10**9,
        "verify": True,
        "seed": 1,
    }
    if rate_iops is not None:
        document["pacing"] = {"kind": "open", "rate_iops": rate_iops, "arrivals": "poisson"}
    fill = {name: document[name] for name in ("endpoint", "destroy", "working_set_bytes")} | {"task": "fill"}
    run_task(find_engine(), fill, "filled", lambda _: None)
    with traced(device) as lines:
        result = run_task(find_engine(), document, "result", lambda _: None)
    begin_s = result["window"]["start_unix_ns"] / 1e9 - (time.time() - time.monotonic())
    return seen(lines, begin_s, begin_s + WINDOW_S, result["read"]["ios"])


def as_postgres(program: str, *arguments: str) -> list[str]:
    folder = max(Path("/usr/lib/postgresql").glob("*/bin"))
    return ["runuser", "-u", "postgres", "--", str(folder / program), *arguments]


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def loop_device(directory: Path) -> Generator[str]:
    image = directory / "image"
    with image.open("wb") as file:
        file.truncate(4 * DATABASE_BYTES)
    device = subprocess.run(
        ["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True
    ).stdout.strip()
    try:
        yield device
    finally:
        run("losetup", "-d", device)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        Path(name).chmod(0o755)
        with loop_device(Path(name)) as device:
            theirs = pgbench(device, Path(name))
        with loop_device(Path(name)) as device:
            ours = engine(device)
        with loop_device(Path(name)) as device:
            alike = engine(device, theirs.transactions / theirs.duration_s)
    print(f"| of the window's {WINDOW_S} s | pgbench | `oltp` | `oltp` at pgbench's rate |\n|---|---|---|---|")
    for (what, one), (_, other), (_, third) in zip(theirs.rows(), ours.rows(), alike.rows(), strict=True):
        print(f"| {what} | {one} | {other} | {third} |")


if __name__ == "__main__":
    main()
