"""A fake engine in its own folder, and a study that takes no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FAKE = Path(__file__).with_name("fake_engine.py")

TINY = """\
name: tiny
question: Does it run?
volume: {size: 1MiB}
factors:
  protocol: [local, iscsi]
  outstanding: [1, 8]
load: {read: 75%, warmup: 0s, runtime: 10ms}
design: {replicates: 2, seed: 7}
baseline: {protocol: iscsi}
"""


class FakeEngine:
    """The folder of the fake engine's records, and of its faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def faults(self, **faults: str) -> None:
        """Sets faults by number of the load run, `run_3="die"`; `every=…` for all runs; `serve=KIND` for the server."""
        named = {name.removeprefix("run_").replace("every", "*"): fault for name, fault in faults.items()}
        (self.folder / "faults.json").write_text(json.dumps(named))

    def endpoints(self, described: dict[str, dict[str, Any]]) -> None:
        (self.folder / "endpoints.json").write_text(json.dumps(described))

    def documents(self, command: str, /, **having: object) -> list[dict[str, Any]]:
        """Documents that the fake received, in order."""
        path = self.folder / "documents.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [
            each
            for each in found
            if each["to"] == command and all(each.get(name) == value for name, value in having.items())
        ]
