"""A command's results as JSON for pipelines: on standard output in place of the text, or in a file beside it.
docs/reference/json.md describes each document."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from iotax import outputs
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.outputs import OutputRefused

if TYPE_CHECKING:
    from iotax.analysis import Estimate

STDOUT = Path("-")


def judged(path: Path | None, *inputs: Path, known: bool = False) -> None:
    """Exits with the reason if an output named on the command line would replace a notebook or a study."""
    if path is None or path == STDOUT:
        return
    try:
        outputs.judge(path, *inputs, known=known)
    except OutputRefused as refused:
        leave(Exit.USAGE, str(refused))
    except OSError as error:
        cannot_write(path, error)


def write_output(path: Path, content: str | bytes | IO[bytes], *inputs: Path, known: bool = False) -> None:
    """Replaces a file completely or not at all. Exits with the reason if that fails."""
    try:
        outputs.write(path, content, *inputs, known=known)
    except OutputRefused as refused:
        leave(Exit.USAGE, str(refused))
    except OSError as error:
        cannot_write(path, error)


def write_document(path: Path, document: dict[str, Any], *inputs: Path) -> None:
    """Writes to the file, or to standard output for `-`. Values that are not numbers become null."""
    text = json.dumps(_plain(document), indent=1, ensure_ascii=path == STDOUT, allow_nan=False) + "\n"
    if path == STDOUT:
        echo(text, nl=False)
    else:
        write_output(path, text, *inputs)


def cannot_write(path: Path, error: OSError) -> NoReturn:
    leave(Exit.USAGE, f"{path} cannot be written: {error.strerror or error}; name another file")


def interval(ratio: Estimate) -> dict[str, float | None]:
    """A ratio and its 95 % interval, null if the runs give none."""
    return {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
