"""What stands in a notebook's rows as records: types, figures and levels are checked, since a stranger may have written
them. Everything here raises ValueError if a row holds what no notebook has."""

from __future__ import annotations

import json
from types import UnionType
from typing import Any, TypeAlias, TypeVar

from iotax.records import Record
from iotax.soundness import out_of_range, unsound
from iotax.study import Study
from iotax.trial import Attempt, Connected, Status, Trial, TrialResult

Types: TypeAlias = tuple[type | UnionType, ...]
ATTEMPT_TYPES: Types = (
    *(str, str, str, int, int, int, int, int),
    *(str | None, str | None, int | None, str | None, str | None, str | None),
)


def trial_of(study: str, trial_id: str, treatment: str, block: int, replicate: int, order: int) -> Trial:
    return Trial(
        id=trial_id, study=study, treatment=json.loads(treatment), block=block, replicate=replicate, order=order
    )


def attempt_of(
    study: str,
    trial_id: str,
    treatment: str,
    block: int,
    replicate: int,
    order: int,
    number: int,
    started_unix_ns: int,
    status: Status | None,
    reason: str | None,
    ended_unix_ns: int | None,
    connected: str | None,
    log: str | None,
    result: str | None,
) -> Attempt:
    return Attempt(
        trial=trial_of(study, trial_id, treatment, block, replicate, order),
        number=number,
        started_unix_ns=started_unix_ns,
        status=status or "running",
        reason=reason or "",
        ended_unix_ns=ended_unix_ns,
        connected=Connected.model_validate_json(connected) if connected else None,
        log=log or "",
        result=sound(TrialResult.model_validate_json(result)) if result else None,
    )


_Record = TypeVar("_Record", bound=Record)


def sound(record: _Record) -> _Record:
    """Raises ValueError if a figure can be none of any measurement."""
    wrong = unsound(record) if isinstance(record, TrialResult) else out_of_range(record)
    if wrong:
        raise ValueError(f"{type(record).__name__}: {wrong}")
    return record


def typed(row: tuple, types: Types) -> tuple:
    """Raises ValueError if a value is of another type than its column's."""
    for value, kind in zip(row, types, strict=True):
        if not isinstance(value, kind):
            raise ValueError(f"found a {type(value).__name__} where another type of value is expected")
    return row


_SHAPES: dict[str, type] = {
    **dict.fromkeys(("machine", "packages", "costs"), dict),
    **dict.fromkeys(("command_line", "import_notes", "not_imported"), list),
}
"""What is read out of an environment; anything else is shown as it is."""


def environment_of(value: Any) -> dict[str, Any]:
    """Raises ValueError if it is none."""
    if not isinstance(value, dict):
        raise ValueError("the environment of a session is not a mapping")
    for name, kind in _SHAPES.items():
        own = value.get(name, kind())
        if not isinstance(own, kind) or (kind is list and not all(isinstance(each, str) for each in own)):
            raise ValueError(f"the environment of a session has {name} of another type")
    if wrong := out_of_range(value):
        raise ValueError(f"the environment of a session: {wrong}")
    return value


class Levels:
    """What a study's treatments may be."""

    def __init__(self, study: Study) -> None:
        self._values = {name: {level.value for level in levels} for name, levels in study.levels().items()}

    def checked(self, trial: Trial) -> Trial:
        """Raises ValueError if a trial that is compared is none of the study's."""
        if trial.compared:
            for name, values in self._values.items():
                if trial.treatment.get(name) not in values:
                    raise ValueError(f"trial {trial.id[:60]}: {name} has no such level in the study")
        return trial

    def checked_attempt(self, attempt: Attempt) -> Attempt:
        """Raises ValueError likewise."""
        self.checked(attempt.trial)
        return attempt
