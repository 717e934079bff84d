"""Files that a command writes beside a notebook: findings as JSON, for pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from iotax.analysis import Estimate
from iotax.cli.exits import Exit, leave


def write_document(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        cannot_write(path, error)


def cannot_write(path: Path, error: OSError) -> NoReturn:
    leave(Exit.USAGE, f"{path} cannot be written: {error.strerror or error}; name another file")


def interval(ratio: Estimate) -> dict[str, float | None]:
    """A ratio and its 95 % interval, null where the runs give none."""
    return {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
