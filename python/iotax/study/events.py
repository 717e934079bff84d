"""Events during a run's measured window: a target that freezes, a path that fails, a command on a host, each undone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from iotax.study.fields import DURATION_SCHEMA, Duration, Percent, Section
from iotax.units import format_duration

QUIET_NS = 1_000_000_000
"""Load before an event, to measure its throughput, and after it, to see the recovery."""


def _range(given: object) -> object:
    """`4s` is `[4s, 4s]`."""
    return given if isinstance(given, list | tuple) else [given, given]


def _one_or_more(given: object) -> object:
    """`1` is `[1]`."""
    return given if isinstance(given, list | tuple) else [given]


def _fixed(given: object) -> object:
    return tuple(given) if isinstance(given, list) else given


def _as_said(paths: tuple[int, ...]) -> int | tuple[int, ...]:
    return paths[0] if len(paths) == 1 else paths


Moment: TypeAlias = Annotated[
    tuple[Duration, Duration],
    BeforeValidator(_fixed),
    BeforeValidator(_range),
    WithJsonSchema(
        {
            "anyOf": [
                *DURATION_SCHEMA["anyOf"],
                {"type": "array", "items": DURATION_SCHEMA, "minItems": 2, "maxItems": 2},
            ]
        }
    ),
]
_NUMBER = {"type": "integer", "minimum": 1, "maximum": 4}
PathNumbers: TypeAlias = Annotated[
    tuple[Annotated[int, Field(ge=1, le=4)], ...],
    BeforeValidator(_fixed),
    BeforeValidator(_one_or_more),
    PlainSerializer(_as_said),
    WithJsonSchema({"anyOf": [_NUMBER, {"type": "array", "items": _NUMBER, "minItems": 1, "uniqueItems": True}]}),
]


class Action(Section):
    """The kind of event, and what it affects."""

    freeze: Literal["target"] | None = None
    """The target stops answering, like one that hangs; its connections stay open."""
    kill: Literal["target"] | None = None
    """The target's service ends, and starts again at the end; meanwhile connections to it are refused. In the \
loopback and sim labs iotax's target ends as if it were killed, as does a program in the vm lab; there a kernel's \
service is stopped. It keeps what its volumes hold, and forgets all else: sessions, reservations, locks."""
    fail: Literal["path"] | None = None
    """A path fails. In the vm lab its cable is pulled at both ends. In the loopback and sim labs its portal falls \
silent: it neither answers nor accepts, its connections stay open, and what arrives meanwhile is handled afterwards."""
    access: Literal["inaccessible", "non-optimized"] | None = None
    """The target reports another access state over a path, as an array does when a controller hands its volumes over: \
over iSCSI (ALUA) and NVMe/TCP (ANA), in the loopback, sim and vm labs. `inaccessible`: it refuses I/O there. \
`non-optimized`: I/O works, but others are preferred; in the vm lab only over NVMe/TCP. Undone, the path is optimized \
again."""
    flap: Literal["path"] | None = None
    """A path fails and returns again and again, as with a loose cable, in the loopback, vm and sim labs. Each time \
it fails for half of `every`."""
    every: Duration | None = None
    """From one failure of a path that flaps to the next."""
    slow: Literal["path"] | None = None
    """In the vm lab: what crosses the path arrives later, by `by` in each direction."""
    by: Duration | None = None
    """How much later, with `slow`."""
    lose: Annotated[Percent, Field(gt=0, le=100)] | None = None
    """In the vm lab: this share of the packets on the path is lost in each direction, at random: `lose: 1%`. With \
100% nothing arrives, and neither end sees its link go down, as when a switch between them fails."""
    path: PathNumbers = ()
    """Which path `fail`, `access`, `flap`, `slow` or `lose` affects, from 1. Or several, as of a switch or a \
controller that fails: [1, 2]."""
    command: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """In the hosts lab: a command for the shell of a host, such as `sudo -n ip link set eth1 down`."""
    undo: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """The command that undoes it. The host runs it even if iotax is killed or cut off meanwhile."""
    host: str | None = None
    """The host, by its name in the lab."""

    @model_validator(mode="after")
    def _is_one(self) -> Action:
        of_paths = [each is not None for each in (self.fail, self.access, self.flap, self.slow, self.lose)]
        if sum((*of_paths, *(each is not None for each in (self.freeze, self.kill, self.command)))) != 1:
            raise ValueError(
                "say what happens, one of {freeze: target}, {kill: target}, {fail: path, path: 1}, "
                "{flap: path, path: 1, every: 2s}, {slow: path, path: 1, by: 20ms}, {lose: 1%, path: 1}, "
                "{access: inaccessible, path: 1} and {command: …, undo: …, host: HOST}"
            )
        if any(of_paths) != bool(self.path):
            raise ValueError("`path: 1` says which path fails, flaps, is slow, loses packets or has another `access:`")
        if len(set(self.path)) < len(self.path):
            raise ValueError("`path:` names a path twice")
        if (self.flap is None) != (self.every is None):
            raise ValueError("`every: 2s` says how often a path fails; `flap: path` needs it, and nothing else has it")
        if (self.slow is None) != (self.by is None):
            raise ValueError("`by: 20ms` says how much later; `slow: path` needs it, and nothing else has it")
        if any((self.command is None) != (each is None) for each in (self.undo, self.host)):
            raise ValueError("a command needs `undo:` and `host:`, and nothing else has them")
        return self

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: Any) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value not in (None, ())}

    def at(self, path: int) -> Action:
        """The same for one of its paths alone."""
        return self.model_copy(update={"path": (path,)})

    @property
    def words(self) -> str:
        """ "freeze target", "fail path 2", "make paths 1, 2 inaccessible", "ip link set eth1 down on h1"."""
        paths = f"path{'s' if len(self.path) > 1 else ''} {', '.join(map(str, self.path))}"
        if self.command is not None:
            return f"{self.command} on {self.host}"
        if self.access is not None:
            return f"make {paths} {self.access}"
        if self.every is not None:
            return f"flap {paths} every {format_duration(self.every)}"
        if self.by is not None:
            return f"slow {paths} by {format_duration(self.by)}"
        if self.lose is not None:
            return f"lose {self.lose:g} % on {paths}"
        if self.fail is not None:
            return f"fail {paths}"
        return f"freeze {self.freeze}" if self.kill is None else f"kill {self.kill}"


class StudyEvent(Section):
    """Something that happens in every run and is undone afterwards."""

    model_config = ConfigDict(serialize_by_alias=True)

    at: Moment
    """When, from the start of the measured window: 4s, or [4s, 8s] for a random moment between them, the same for all \
treatments of a block."""
    do: Action
    """What: {freeze: target}, {kill: target}, {fail: path, path: 1}, {flap: path, path: 1, every: 2s}, {slow: path, \
path: 1, by: 20ms}, {lose: 1%, path: 1}, {access: inaccessible, path: 1}, or on hosts {command: …, undo: …, host: \
HOST}."""
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
