"""Damaged or malicious documents: the engine carries them out, or reports what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

import mutations

CPU = min(os.sched_getaffinity(0))
TRIES, TRIES_LONG = 10, 400
"""Tries per document."""
MEMORY_MAX_KIB = 8 << 20
PATIENCE_S = 120
MOMENT_S = 0.3
_LOAD: dict[str, Any] = {
    "task": "run", "endpoint": "local:volume", "options": {"direct": False}, "workers": 2, "outstanding": 4,
    "threads": 1, "block_size_bytes": 4096, "read_percent": 75, "random_percent": 100, "working_set_bytes": 65536,
    "working_set_offset_bytes": 0, "pacing": {"kind": "closed"}, "warmup_ns": 1_000_000, "runtime_ns": 5_000_000,
    "sample_ns": 1_000_000, "seed": 7, "verify": True, "driver": "auto", "cpus": [CPU], "watch_pids": {},
}  # fmt: skip
_OPEN = {"kind": "open", "rate_iops": 2000, "arrivals": "poisson", "backlog_max": 64}
_STREAMS = [
    {"name": "random", "share": 50, "block_size_bytes": 8192, "read_percent": 70, "random_percent": 100},
    {"name": "log", "share": 50, "read_percent": 0, "random_percent": 0},
]
_COSTS = {
    "wake_ns": 23000, "wake_short_ns": 5000, "wake_delay_ns": 3000, "turn_ns": 2000, "send_ns": 2000, "io_ns": 200,
    "kib_ns": 100, "kib_sent_ns": 100, "segment_ns": 0,
}  # fmt: skip
DOCUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("load", _LOAD),
    ("load", _LOAD | {"pacing": _OPEN, "streams": _STREAMS, "data": {"compress": 2, "block_size_bytes": 4096}}),
    ("load", _LOAD | {"oltp": {"memory_bytes": 1 << 19, "checkpoint_ns": 1_000_000}, "working_set_bytes": 8 << 20}),
    ("load", {"task": "fill", "endpoint": "local:volume", "options": {"direct": False}, "working_set_bytes": 65536}),
    ("load", {"task": "check", "endpoint": "local:volume", "look_bytes": 65536, "volume_bytes": 65536}),
    ("load", {"task": "idle", "runtime_ns": 1_000_000}),
    ("load", _LOAD | {"endpoint": "iscsi://127.0.0.1:1/iqn.2026-11.io.iotax:v0/0", "options": {"initial_r2t": True}}),
    ("session", {
        "loads": [{"id": "mixed", "load": _LOAD}, {"id": "writes", "load": _LOAD | {"read_percent": 0}}],
        "rounds": [[0, 1], [1, 0]], "settle_ns": 1_000_000, "slice_ns": 2_000_000, "lead_in_ns": 1_000_000,
    }),
    ("session", {
        "loads": [{"id": "h1", "load": _LOAD}], "rounds": [[0]], "settle_ns": 1_000_000, "slice_ns": 2_000_000,
        "sample_ns": 1_000_000, "start": "told", "observe": {"watch_pids": {}}, "lease_ns": 15_000_000_000,
    }),
    ("simulate", {
        "protocol": "nvme-tcp", "load": {"task": "run", "endpoint": "sim:nvme-tcp", "runtime_ns": 2_000_000},
        "volume": {"name": "v0", "media": "memory", "size_bytes": 1 << 20, "fill": "pattern"},
        "media": {"servers": 8, "service_ns": 200_000, "distribution": "exponential"},
        "link": {"rate_bits_per_s": 10_000_000_000, "delay_ns": 10_000, "mtu_bytes": 1500},
        "initiators": {"cores": 2, "costs": _COSTS}, "target": {"cores": 2, "costs": _COSTS},
        "machines": 2, "loads": 2, "threads": 1, "seed": 42,
    }),
    ("serve", {
        "volumes": [
            {"name": "v0", "media": "memory", "size_bytes": 1 << 20, "fill": "pattern", "seed": 42},
            {"name": "v1", "media": "file", "path": "other", "size_bytes": 1 << 20, "direct": False, "delay_ns": 5},
            {"name": "v2", "media": "memory", "size_bytes": 1 << 20,
             "model": {"servers": 8, "service_ns": 200_000, "distribution": "exponential"}},
        ],
        "exports": [
            {"protocol": "nfs3", "listen": "127.0.0.1:0", "volume": "v0", "squash": "root", "groups": ["lab"]},
            {"protocol": "iscsi", "listen": "127.0.0.1:0", "volume": "v1", "read_only": True},
            {"protocol": "nvme-tcp", "listen": "127.0.0.1:0", "volume": "v2"},
        ],
        "groups": [{"name": "lab", "initiators": ["iqn.2026-11.io.iotax:load", "127.0.0.0/8"]}],
        "driver": "auto", "threads": 1, "cpus": [CPU], "polling": "never", "lease_ns": 10_000_000_000,
    }),
]  # fmt: skip
"""Documents that users' studies send to the engine, by command. Paths are below the test's own folder."""


def run(engine: Path, command: str, line: bytes, folder: Path) -> tuple[int, list[dict[str, Any]], bytes]:
    """Exit code, events and log of an engine whose input ends shortly after the document."""
    (folder / "volume").write_bytes(bytes(16 << 20))
    with subprocess.Popen(
        ["sh", "-c", f'ulimit -v {MEMORY_MAX_KIB}; exec "$0" "$1"', engine, command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
    ) as process:
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=MOMENT_S)
        said, log = process.communicate(timeout=PATIENCE_S)
    return process.returncode, [json.loads(each) for each in said.splitlines()], log


def survive(engine: Path, folder: Path, tries: int) -> tuple[int, int]:
    """How many damaged documents were carried out, and how many refused."""
    done = refused = 0
    for number, (command, document) in enumerate(DOCUMENTS):
        rng = Random(number)
        for _ in range(tries):
            line = mutations.json_text(rng, json.dumps(document)).replace("\n", " ").encode(errors="replace")
            code, events, log = run(engine, command, line, folder)
            told = f"{command}: {code}\n{line[:3000]!r}\n{events[-1:]}\n{log[-2000:]!r}"
            assert code in (0, 1, 2), told
            assert b"panicked" not in log, told
            if code == 0:
                done += 1
                continue
            refused += 1
            assert events and events[-1]["event"] == "error", told
            assert events[-1]["kind"] != "internal", told
            assert events[-1]["message"], told
            assert (events[-1]["kind"] == "usage") == (code == 2), told
    return done, refused


def test_every_document_is_done_before_it_is_damaged(real_engine: Path, tmp_path: Path) -> None:
    for command, document in DOCUMENTS:
        _, events, _ = run(real_engine, command, json.dumps(document).encode(), tmp_path)
        # Their input ends soon, and nothing listens at one of the addresses.
        ends = {event.get("kind", event["event"]) for event in events}
        assert ends & {"ready", "filled", "checked", "idle", "result", "lost", "refused"}, events


def test_an_error_is_the_last_line_whenever_the_input_ends(real_engine: Path, tmp_path: Path) -> None:
    (tmp_path / "volume").write_bytes(bytes(16 << 20))
    [document] = (json.dumps(each).encode() for _, each in DOCUMENTS if each.get("start") == "told")
    for number in range(24):
        with subprocess.Popen(
            [real_engine, "session"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
        ) as process:
            assert process.stdin
            process.stdin.write(document + b"\n")
            process.stdin.flush()
            # The input ends before, while and after it connects.
            time.sleep(number / 1000)
            said, _ = process.communicate(timeout=PATIENCE_S)
        assert json.loads(said.splitlines()[-1])["kind"] == "lost", said
        assert process.returncode == 1


def test_a_damaged_document_is_done_or_refused(real_engine: Path, tmp_path: Path) -> None:
    done, refused = survive(real_engine, tmp_path, TRIES)
    assert done > 0
    assert refused > len(DOCUMENTS) * TRIES / 3


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_damaged_documents_are_done_or_refused(real_engine: Path, tmp_path: Path) -> None:
    done, refused = survive(real_engine, tmp_path, TRIES_LONG)
    assert done > 100
    assert refused > 1000
