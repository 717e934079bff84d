"""The user's own commands on named hosts, before and after a study, its blocks, levels and trials."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from iotax.places import HostFault
from iotax.places.host import HostPlace
from iotax.redaction import redact
from iotax.study import Study
from iotax.study.hosts import LEVEL, Hook, Hosts, Moment
from iotax.trial import LevelValue
from iotax.units import format_duration

_OUTPUT_CHARACTERS_MAX = 4000
"""Characters of a command's output that are kept, from its end."""
_OUTPUT_BYTES_MAX = 64 << 10
"""Bytes held while it runs: more than are kept, so that a secret at the edge is complete and can be removed."""

_BRINGING: tuple[Moment, ...] = ("before study", "before level")


@dataclass
class Hooks:
    """Commands of one study. Their output is collected until it goes into an attempt's log."""

    study: Study
    lab: Hosts
    places: Mapping[str, HostPlace]
    """By name of host, for all hosts named by hooks."""
    rest: Callable[[], Awaitable[None]]
    """Takes down the paths of hosts' kernels: no LUN is unmapped or restored beneath a path that is up."""
    _said: list[str] = field(default_factory=list)
    _entered: list[dict[str, LevelValue]] = field(default_factory=list)
    """Levels that trials are at, as `levels` of hooks name them."""

    @property
    def bring(self) -> bool:
        """Whether commands may attach disks or map LUNs, which are then looked at."""
        return any(hook.at in _BRINGING for hook in self.lab.hooks)

    async def run(self, at: Moment, treatment: Mapping[str, LevelValue] | None = None) -> None:
        """Runs the commands of this moment one after another; `treatment` is a trial's. Raises HostFault for the first
        that fails."""
        for hook in self.lab.hooks:
            if hook.at == at and self._concerns(hook, treatment or {}):
                await self._one(hook)

    async def enter(self, treatment: Mapping[str, LevelValue]) -> None:
        """Runs the commands between two trials of different levels: first those for leaving levels that this treatment
        does not have. Raises HostFault; a level whose commands failed is not entered."""
        await self.leave(treatment)
        for levels in self._levels():
            if levels in self._entered or not self._has(treatment, levels):
                continue
            self._entered.append(levels)
            try:
                await self._at_level("before level", levels)
            except HostFault:
                # Undoes what the commands before the failed one did.
                with contextlib.suppress(HostFault):
                    await self._at_level("after level", levels)
                self._entered.remove(levels)
                raise

    async def leave(self, treatment: Mapping[str, LevelValue] | None = None) -> None:
        """Leaves all levels but those of a treatment. Raises HostFault; the next call tries again."""
        for levels in list(self._entered):
            if treatment is None or not self._has(treatment, levels):
                await self._at_level("after level", levels)
                self._entered.remove(levels)

    def take(self) -> list[str]:
        """The output since the last call, line by line."""
        said, self._said = self._said, []
        return said

    def _concerns(self, hook: Hook, treatment: Mapping[str, LevelValue]) -> bool:
        return self._has(treatment, hook.levels)

    def _has(self, treatment: Mapping[str, LevelValue], levels: Mapping[str, LevelValue]) -> bool:
        wanted = {name: self.study.level(name, value) for name, value in levels.items()}
        return all(level is not None and treatment.get(name) == level.value for name, level in wanted.items())

    def _levels(self) -> list[dict[str, LevelValue]]:
        """What `levels` of hooks before and after levels name, each once."""
        found: list[dict[str, LevelValue]] = []
        for hook in self.lab.hooks:
            if hook.at in LEVEL and hook.levels not in found:
                found.append(hook.levels)
        return found

    async def _at_level(self, at: Moment, levels: Mapping[str, LevelValue]) -> None:
        for hook in self.lab.hooks:
            if hook.at == at and hook.levels == levels:
                await self._one(hook)

    async def _one(self, hook: Hook) -> None:
        place = self.places[self.lab.hook_host(hook).name]
        absent = [name for name in hook.env if name not in os.environ]
        if absent:
            raise HostFault(place.name, f"{hook.at}: {absent[0]} is not set in iotax's own environment", "usage")
        what = f"{hook.at}: `{hook.run}`"
        await self.rest()
        try:
            status, output = await place.ask(*_told(hook), within_s=hook.timeout / 1e9, keep_bytes=_OUTPUT_BYTES_MAX)
        except TimeoutError:
            self._said.append(f"{place.name}: {what} did not end within {format_duration(hook.timeout)}")
            raise HostFault(place.name, self._said[-1].partition(": ")[2], "silent") from None
        output = redact(output, [os.environ[name] for name in hook.env])
        lines = output[-_OUTPUT_CHARACTERS_MAX:].splitlines()
        self._said += [f"{place.name}: {what}: exit status {status}", *(f"{place.name}:   {line}" for line in lines)]
        if status != 0:
            raise HostFault(
                place.name, f"{what} failed with exit status {status}: {lines[-1] if lines else 'no word'}", "io"
            )


def _told(hook: Hook) -> tuple[str, str]:
    """The command and its standard input. No secret is an argument, which everybody could read."""
    if not hook.env:
        return hook.run, ""
    exports = "".join(f"export {name}={shlex.quote(os.environ[name])}\n" for name in hook.env)
    return "sh -s", f"{exports}{hook.run}\n"
