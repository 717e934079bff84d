"""What we put on the wire, checked by a decoder that is not ours."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .capture import Recording, Relay
from .conftest import ENGINE, program

# The port at which tshark expects each protocol, and how it names it.
PORTS = {"nfs3": (2049, "rpc"), "iscsi": (3260, "iscsi"), "nvme-tcp": (4420, "nvme-tcp")}
Load = Callable[..., list[dict[str, Any]]]
Serve = Callable[[dict[str, Any]], dict[str, Any]]


def record(protocol: str, options: dict[str, Any], serve: Serve, load: Load) -> tuple[Recording, dict[str, Any]]:
    """A short verified run through a recording relay: what was carried, and the result."""
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
    # Where one frame holds several PDUs, each field holds a list.
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
    opcode = {"nfs3": "nfs.procedure_v3", "iscsi": "iscsi.scsicommand.opcode", "nvme-tcp": "nvme.cmd.opc"}[protocol]
    if protocol == "iscsi":
        opcode = "scsi_sbc.opcode"
    rows = tshark(capture, port, name, "_ws.malformed", "_ws.expert.severity", opcode)
    assert rows
    assert not values(rows, 0), "malformed"
    if options.get("header_digest"):
        bad = {"iscsi": "iscsi.headerdigest.status", "nvme-tcp": "nvme-tcp.hdgst.status"}[protocol]
        assert set(values(tshark(capture, port, name, bad), 0)) <= {"1", "Good", "0x01", "True"}
    opcodes = values(rows, 2)
    read, write = {
        "nfs3": ({"6"}, {"7"}),
        "iscsi": ({"0x28", "0x88"}, {"0x2a", "0x8a"}),
        "nvme-tcp": ({"0x02"}, {"0x01"}),
    }[protocol]
    # Outside the window (none here: no warm-up) come only the I/Os that were outstanding at its end.
    for kind, codes in (("read", read), ("write", write)):
        seen = sum(count for code, count in opcodes.items() if code in codes)
        if protocol == "nfs3":
            seen //= 2  # the call and its reply
        assert result[kind]["ios"] <= seen <= result[kind]["ios"] + 4, (kind, opcodes)


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
