"""iotax's wire format, checked with a third-party decoder."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from needed import program

from .capture import Recording, Relay
from .conftest import ENGINE

# Each protocol's port and name in tshark.
PORTS = {"nfs3": (2049, "rpc"), "iscsi": (3260, "iscsi"), "nvme-tcp": (4420, "nvme-tcp")}
# For each protocol, the fields that identify its commands; and for each kind of I/O a field's column and values.
COMMANDS: dict[str, tuple[tuple[str, ...], dict[str, tuple[int, set[str]]]]] = {
    "nfs3": (("nfs.procedure_v3",), {"read": (0, {"6"}), "write": (0, {"7"})}),
    "iscsi": (
        ("iscsi.scsicommand.R", "iscsi.scsicommand.W"),
        {"read": (0, {"1", "True"}), "write": (1, {"1", "True"})},
    ),
    "nvme-tcp": (("nvme.cmd.opc",), {"read": (0, {"0x02"}), "write": (0, {"0x01"})}),
}
DIGESTS = {
    "iscsi": ("iscsi.headerdigest32", "iscsi.datadigest32"),
    "nvme-tcp": ("nvme-tcp.hdgst.status", "nvme-tcp.ddgst.status"),
}
EXPERT_ERROR = "8388608"
Load = Callable[..., list[dict[str, Any]]]
Serve = Callable[[dict[str, Any]], dict[str, Any]]


def record(protocol: str, options: dict[str, Any], serve: Serve, load: Load) -> tuple[Recording, dict[str, Any]]:
    """A short verified run through a recording relay: its recording and its result."""
    ready = serve(
        {
            "volumes": [{"name": "v0", "media": "memory", "size_bytes": 8 << 20, "fill": "pattern", "seed": 3}],
            "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}],
        }
    )
    endpoint = ready["portals"][0]["endpoint"]
    port = int(ready["portals"][0]["address"].rpartition(":")[2])
    with Relay("127.0.0.1", port) as relay:
        events = load(
            {
                "task": "run",
                "endpoint": endpoint.replace(f":{port}/", f":{relay.port}/"),
                "options": options,
                "outstanding": 2,
                "block_size_bytes": 65536,
                "read_percent": 50,
                "runtime_ns": 100_000_000,
                "seed": 3,
                "verify": True,
            }
        )
        assert events[-1]["event"] == "result", events[-1]
        return relay.recording, events[-1]


def tshark(capture: Path, port: int, name: str, *fields: str) -> list[list[str]]:
    """The given fields of each frame."""
    words = [program("tshark", "tshark"), "-n", "-r", str(capture), "-d", f"tcp.port=={port},{name}", "-T", "fields"]
    words += ["-o", "nvme-tcp.check_hdgst:TRUE", "-o", "nvme-tcp.check_ddgst:TRUE"]
    # If a frame has several PDUs, each field is a list.
    words += [word for field in fields for word in ("-e", field)]
    run = subprocess.run(words, check=True, capture_output=True, text=True)
    return [line.split("\t") for line in run.stdout.splitlines()]


def values(rows: list[list[str]], column: int) -> Counter[str]:
    return Counter(value for row in rows for value in row[column].split(",") if value)


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("nfs3", {}),
        ("iscsi", {}),
        ("iscsi", {"header_digest": True, "data_digest": True}),
        ("iscsi", {"immediate_data": False, "initial_r2t": True}),
        ("nvme-tcp", {}),
        ("nvme-tcp", {"header_digest": True, "data_digest": True}),
    ],
)
def test_tshark_finds_nothing_malformed_and_counts_the_same_ios(
    protocol: str, options: dict[str, Any], serve: Serve, load: Load, tmp_path: Path
) -> None:
    port, name = PORTS[protocol]
    recording, result = record(protocol, options, serve, load)
    capture = tmp_path / "run.pcap"
    recording.write_pcap(capture, port)
    field, commands = COMMANDS[protocol]
    rows = tshark(capture, port, name, "_ws.malformed", "_ws.expert.severity", *field)
    assert rows
    assert not values(rows, 0), "malformed"
    assert EXPERT_ERROR not in values(rows, 1)
    if options.get("header_digest"):
        digests = [values(tshark(capture, port, name, field), 0) for field in DIGESTS[protocol]]
        assert all(digests)
        if protocol == "nvme-tcp":
            assert {status for digest in digests for status in digest} == {"1"}, "a digest is not good"
    for kind, (column, codes) in commands.items():
        counted = values(rows, 2 + column)
        seen = sum(count for code, count in counted.items() if code in codes)
        if protocol == "nfs3":
            seen //= 2  # the call and its reply
        # There is no warm-up. The recording also has the I/Os outstanding at the window's end, and the setup commands.
        assert result[kind]["ios"] <= seen <= result[kind]["ios"] + 16, (kind, counted)


@pytest.mark.parametrize("protocol", PORTS)
def test_decode_prints_a_line_for_each_pdu_of_a_capture(
    protocol: str, serve: Serve, load: Load, tmp_path: Path
) -> None:
    recording, result = record(protocol, {}, serve, load)
    capture = tmp_path / "run.pcap"
    recording.write_pcap(capture, PORTS[protocol][0])
    run = subprocess.run(
        [ENGINE, "decode", "--protocol", protocol, "--pcap", str(capture)], check=True, capture_output=True, text=True
    )
    reads = [line for line in run.stdout.splitlines() if re.search(r"\bread\b", line, re.IGNORECASE)]
    assert len(reads) >= result["read"]["ios"]
