"""Many stub hosts, and a study that uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from iotax.study import Study

_PROGRAM = Path(__file__).with_name("stub_hosts.py")


def stub_hosts(folder: Path, count: int, late: int, set_ns: int) -> tuple[subprocess.Popen[str], list[int]]:
    """Starts the stub program and returns it with the port of each host. It runs until its input ends. `folder` then
    has the host keys."""
    command = [sys.executable, str(_PROGRAM), str(folder), str(count), str(late), str(set_ns)]
    stubs = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert stubs.stdout is not None
    return stubs, [int(stubs.stdout.readline()) for _ in range(count)]


def study_of(ports: list[int], runtime: str = "1s", connection: dict[str, Any] | None = None, **hosts: Any) -> Study:
    initiators = [
        {"name": f"h{number}", "address": "127.0.0.1", "port": port, "user": "bench"}
        for number, port in enumerate(ports, start=1)
    ]
    return Study.model_validate(
        {
            "name": "many",
            "question": "?",
            "lab": {"hosts": {"initiators": initiators, **hosts}},
            "volume": {"size": "1GiB", "fill": "zeros"},
            "factors": {"protocol": {"array": "nvme-tcp://10.0.0.5/nqn.2014-08.org.example:v?ns=1"}},
            "connection": connection or {},
            "load": {"warmup": "0s", "runtime": runtime, "verify": False},
            "baseline": {"protocol": "array"},
        }
    )
