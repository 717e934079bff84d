"""Events during a run's measured window: a target that freezes and later continues."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field

from iotax.study.fields import Duration, Section

QUIET_NS = 1_000_000_000
"""Load before an event, to measure its throughput, and after it, to see the recovery."""


def _range(given: object) -> object:
    """`4s` is `[4s, 4s]`."""
    return given if isinstance(given, list | tuple) else [given, given]


def _moments(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given


Moment: TypeAlias = Annotated[tuple[Duration, Duration], BeforeValidator(_moments), BeforeValidator(_range)]


class Action(Section):
    """The kind of event, and what it affects."""

    freeze: Literal["target"]
    """The server that iotax started stops answering, like one that hangs; its connections stay open."""


class StudyEvent(Section):
    """Something that happens in every run and is undone afterwards."""

    model_config = ConfigDict(serialize_by_alias=True)

    at: Moment
    """When, from the start of the measured window: 4s, or [4s, 8s] for a random moment between them, the same for all \
treatments of a block."""
    do: Action
    """What: {freeze: target}."""
    lasts: Duration = Field(alias="for")
    """How long, until it is undone."""

    @property
    def words(self) -> str:
        return f"freeze {self.do.freeze}"


@dataclass(frozen=True)
class Happening:
    """An event of one run."""

    words: str
    at_ns: int
    """Time from the window's start."""
    lasts_ns: int


def happenings(events: Sequence[StudyEvent], seed: int, block: int, replicate: int) -> list[Happening]:
    """The events of a run, by time."""
    found = []
    for number, event in enumerate(events):
        rng = random.Random(f"{seed} {block} {replicate} {number}")  # noqa: S311 - a design's, not a secret's
        found.append(Happening(event.words, rng.randint(*event.at), event.lasts))
    return sorted(found, key=lambda each: each.at_ns)
