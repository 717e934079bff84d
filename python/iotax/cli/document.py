"""Findings as JSON in a file, for pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iotax.analysis import Estimate
from iotax.cli.exits import Exit, leave


def write_document(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        leave(Exit.USAGE, f"{path}: {error.strerror}")


def interval(ratio: Estimate) -> dict[str, float | None]:
    """A ratio and its 95 % interval, null where the runs give none."""
    return {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
