"""Stores each run when it ends, as a line of JSON, so that nothing is lost and the next call continues there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.trust.measure import Found, Run
from bench.trust.precision import Precision


@dataclass
class Kept:
    """What was measured so far; if `file` is None, nothing is stored."""

    file: Path | None = None
    design: dict[str, int] = field(default_factory=dict)
    """`sessions`, `rounds`, and `burn_ns` once it is known."""
    runs: dict[str, list[Run]] = field(default_factory=dict)
    """Case → its runs."""
    precisions: list[Precision] = field(default_factory=list)

    def next_number(self, case: str) -> int:
        return max((found.number + 1 for run in self.runs.get(case, []) for found in run.found), default=0)

    def add_design(self, **design: int) -> None:
        self.design |= design
        self._append({"design": self.design})

    def add_run(self, case: str, run: Run) -> None:
        self.runs.setdefault(case, []).append(run)
        self._append({"case": case, **asdict(run)})

    def add_precision(self, found: Precision) -> None:
        self.precisions.append(found)
        self._append({"precision": asdict(found)})

    def _append(self, line: dict[str, Any]) -> None:
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as file:
                file.write(json.dumps(line) + "\n")


def read(file: Path | None) -> Kept:
    kept = Kept(file)
    if file is None or not file.exists():
        return kept
    text = file.read_text()
    if not text.endswith("\n"):  # a kill cut it short; the next record must start on a new line
        with file.open("a") as open_file:
            open_file.write("\n")
    for line in text.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if "design" in told:
            kept.design |= told["design"]
        elif "precision" in told:
            kept.precisions.append(Precision(**told["precision"]))
        else:
            found = [Found(**each) for each in told["found"]]
            run = Run(found, told["slices"], told["disturbed"], told["base_us"])
            kept.runs.setdefault(told["case"], []).append(run)
    return kept
