"""The user's own commands on named hosts, before and after a study, its blocks and its trials."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iotax.places import HostFault
from iotax.places.host import HostPlace
from iotax.study import Study
from iotax.study.hosts import Hook, Hosts, Moment
from iotax.trial import LevelValue
from iotax.units import format_duration

_OUTPUT_CHARACTERS_MAX = 4000
"""Of one command's output, kept from its end."""
_OUTPUT_BYTES_MAX = 64 << 10
"""Held while it runs: more than what is kept, so that a secret at its edge is whole and can be taken out."""


@dataclass
class Hooks:
    """Of one study. What commands said is collected until somebody takes it into an attempt's log."""

    study: Study
    lab: Hosts
    places: Mapping[str, HostPlace]
    """By name of host, of all that hooks name."""
    _said: list[str] = field(default_factory=list)

    async def run(self, at: Moment, treatment: Mapping[str, LevelValue] | None = None) -> None:
        """Those of this moment, one after another; `treatment` is a trial's. Raises HostFault for the first that
        fails."""
        for hook in self.lab.hooks:
            if hook.at == at and self._concerns(hook, treatment or {}):
                await self._one(hook)

    def take(self) -> list[str]:
        """What was said since, line by line."""
        said, self._said = self._said, []
        return said

    def _concerns(self, hook: Hook, treatment: Mapping[str, LevelValue]) -> bool:
        wanted = {name: self.study.level(name, value) for name, value in hook.levels.items()}
        return all(level is not None and treatment.get(name) == level.value for name, level in wanted.items())

    async def _one(self, hook: Hook) -> None:
        place = self.places[self.lab.hook_host(hook).name]
        absent = [name for name in hook.env if name not in os.environ]
        if absent:
            raise HostFault(place.name, f"{hook.at}: {absent[0]} is not set in iotax's own environment", "usage")
        what = f"{hook.at}: `{hook.run}`"
        try:
            status, output = await place.ask(*_told(hook), within_s=hook.timeout / 1e9, keep_bytes=_OUTPUT_BYTES_MAX)
        except TimeoutError:
            self._said.append(f"{place.name}: {what} did not end within {format_duration(hook.timeout)}")
            raise HostFault(place.name, self._said[-1].partition(": ")[2], "silent") from None
        lines = _without(output, [os.environ[name] for name in hook.env])[-_OUTPUT_CHARACTERS_MAX:].splitlines()
        self._said += [f"{place.name}: {what}: exit status {status}", *(f"{place.name}:   {line}" for line in lines)]
        if status != 0:
            raise HostFault(
                place.name, f"{what} failed with exit status {status}: {lines[-1] if lines else 'no word'}", "io"
            )


def _told(hook: Hook) -> tuple[str, str]:
    """The command, and what its standard input holds: no secret is an argument, which everybody could read."""
    if not hook.env:
        return hook.run, ""
    exports = "".join(f"export {name}={shlex.quote(os.environ[name])}\n" for name in hook.env)
    return "sh -s", f"{exports}{hook.run}\n"


def _without(output: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        output = output.replace(secret, "***") if secret else output
    return output
