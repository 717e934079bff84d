"""Events during a run's measured window: a target that freezes, a path that fails, a command on a host, each undone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, model_serializer, model_validator

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

    freeze: Literal["target"] | None = None
    """The target stops answering, like one that hangs; its connections stay open."""
    fail: Literal["path"] | None = None
    """A path fails. In the vm lab its cable is pulled at both ends. In the loopback lab its portal falls silent: it \
neither answers nor accepts, its connections stay open, and what arrives meanwhile is handled afterwards."""
    access: Literal["inaccessible", "non-optimized"] | None = None
    """In the loopback lab, for iSCSI (ALUA) and NVMe/TCP (ANA): the target reports another access state over a path, \
as an array does when a controller hands its volumes over. `inaccessible`: it refuses I/O there. `non-optimized`: I/O \
works, but optimized paths are preferred. Undone, the path is optimized again."""
    path: Annotated[int, Field(ge=1, le=4)] | None = None
    """Which path `fail` or `access` affects, from 1."""
    command: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """In the hosts lab: a command for the shell of a host, such as `sudo -n ip link set eth1 down`."""
    undo: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """The command that undoes it. The host runs it even if iotax is killed or cut off meanwhile."""
    host: str | None = None
    """The host, by its name in the lab."""

    @model_validator(mode="after")
    def _is_one(self) -> Action:
        if sum(each is not None for each in (self.freeze, self.fail, self.access, self.command)) != 1:
            raise ValueError(
                "say what happens, one of {freeze: target}, {fail: path, path: 1}, {access: inaccessible, path: 1} and "
                "{command: …, undo: …, host: HOST}"
            )
        if (self.fail is None and self.access is None) != (self.path is None):
            raise ValueError("`path: 1` says which path; it belongs to `fail: path` and to `access:`")
        if any((self.command is None) != (each is None) for each in (self.undo, self.host)):
            raise ValueError("a command needs `undo:` and `host:`, and nothing else has them")
        return self

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: Any) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}

    @property
    def words(self) -> str:
        """ "freeze target", "fail path 2", "make path 1 inaccessible", "ip link set eth1 down on h1"."""
        if self.command is not None:
            return f"{self.command} on {self.host}"
        if self.access is not None:
            return f"make path {self.path} {self.access}"
        return f"freeze {self.freeze}" if self.fail is None else f"fail {self.fail} {self.path}"


class StudyEvent(Section):
    """Something that happens in every run and is undone afterwards."""

    model_config = ConfigDict(serialize_by_alias=True)

    at: Moment
    """When, from the start of the measured window: 4s, or [4s, 8s] for a random moment between them, the same for all \
treatments of a block."""
    do: Action
    """What: {freeze: target}, {fail: path, path: 1}, {access: inaccessible, path: 1}, or on hosts {command: …, \
undo: …, host: HOST}."""
    lasts: Duration = Field(alias="for")
    """How long, until it is undone."""

    @property
    def words(self) -> str:
        return self.do.words


@dataclass(frozen=True)
class Happening:
    """An event of one run."""

    do: Action
    at_ns: int
    """Time from the window's start."""
    lasts_ns: int


def happenings(events: Sequence[StudyEvent], seed: int, block: int, replicate: int) -> list[Happening]:
    """The events of a run, by time."""
    found = []
    for number, event in enumerate(events):
        rng = random.Random(f"{seed} {block} {replicate} {number}")  # noqa: S311 - a design's, not a secret's
        found.append(Happening(event.do, rng.randint(*event.at), event.lasts))
    return sorted(found, key=lambda each: each.at_ns)
