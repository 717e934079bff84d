"""A command's results, or a study, as JSON for pipelines: on standard output in place of the text, or in a file beside
it. docs/reference/json.md describes each document."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from iotax import outputs
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.design import Plan
from iotax.labs.base import CheckItem
from iotax.outputs import OutputRefused
from iotax.study import Study

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


def plan_document(study: Study, plan: Plan, notes: list[str]) -> dict[str, Any]:
    return {
        **_head(study, plan),
        "blocks": plan.blocks,
        "seed": study.design.seed,
        "settings": study.model_dump(mode="json", include={"lab", "volume", "load", "connection"}),
        "trials": [
            {
                "trial": each.id,
                "order": each.order,
                "block": each.block,
                "replicate": each.replicate,
                "role": each.role,
                "levels": each.treatment,
                "duration_s": plan.trial_ns[each.id] / 1e9,
            }
            for each in plan.trials
        ],
        "notes": notes,
    }


def check_document(study: Study, plan: Plan, findings: list[CheckItem]) -> dict[str, Any]:
    kinds = [each.kind for each in findings]
    return {
        **_head(study, plan),
        "outcome": next((kind for kind in ("refused", "error") if kind in kinds), "ok"),
        "findings": [{"kind": each.kind, "subject": each.subject, "message": each.message} for each in findings],
    }


def studies_document(planned: dict[str, tuple[Study, Plan]]) -> dict[str, Any]:
    return {"studies": [{"name": name, **_head(study, plan)} for name, (study, plan) in planned.items()]}


def _head(study: Study, plan: Plan) -> dict[str, Any]:
    return {
        "study": study.name,
        "question": study.question,
        "trials_planned": len(plan.trials),
        "trials_max": plan.trials_max,
        "duration_s": plan.duration_ns / 1e9,
        "duration_max_s": plan.duration_max_ns / 1e9,
    }
