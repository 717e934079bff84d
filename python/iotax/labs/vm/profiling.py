"""The instruction profiles of a study: which guests are counted, and the profiles of a window that has just ended."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

from iotax.labs.base import Progress, Step
from iotax.labs.vm.counted import CountedGuest
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import Guests, Role
from iotax.labs.vm.plugin import Plugin, counting_plugin
from iotax.labs.vm.qemu import PROGRAM
from iotax.records import Profile
from iotax.records.cpu import Role as CpuPart
from iotax.study.fields import Target

_ROLES: tuple[Role, ...] = ("initiator", "storage")


class Profiling:
    """Counts the instructions of guests by function. A study that asks for it also runs where QEMU cannot count: then
    `missing` says why."""

    def __init__(self) -> None:
        self.plugin: Plugin | None = None
        self.missing = ""
        self._guests: dict[Role, CountedGuest] = {}

    def prepare(self, version: str, progress: Progress, *, cache_lines: bool) -> None:
        """Builds the plugin. `version` is QEMU's. `cache_lines`: it counts those too."""
        try:
            self.plugin = counting_plugin(PROGRAM, version, lambda text: progress(Step(text)), cache_lines=cache_lines)
        except VmFault as fault:
            self.missing = fault.message
            progress(Step(f"no profile: {fault.message}"))

    def booted(self, guests: Guests) -> None:
        """New guests are up."""
        self._guests = {
            role: CountedGuest(guest, guest.counts, guest.image.sources)
            for role in _ROLES
            if (guest := guests[role]).counts is not None
        }

    def close(self) -> None:
        """Call before the guests end."""
        for each in self._guests.values():
            each.close()
        self._guests.clear()

    @contextlib.contextmanager
    def counting(self, role: Role | None) -> Generator[None]:
        """Counts this guest; none if no study asks for it, or if it is None."""
        guest = self._guests.get(role) if role is not None and not self.missing else None
        if guest is None:
            yield
            return
        guest.begin()
        try:
            yield
        finally:
            guest.end()

    def learn(self, target: Target, *roles: Role) -> None:
        """Reads the functions of these guests, if they are counted."""
        try:
            for role in roles:
                if role in self._guests:
                    self._guests[role].learn(target)
        except ValueError as fault:
            self.missing = str(fault)
            return
        if self._guests:
            self.missing = ""

    def profiles(self, parts: Sequence[tuple[Role, CpuPart, float]], target: Target) -> tuple[Profile, ...]:
        """The window that has just ended: guest, part of the path, and the I/Os that its instructions are for."""
        if not self._guests or self.missing:
            return ()
        try:
            counted = [self._guests[role].counted(target) for role, _, _ in parts]
        except ValueError as fault:
            self.missing = str(fault)
            return ()
        return tuple(
            Profile(host=f"{role} guest", role=part, ios=ios, **vars(found))
            for (role, part, ios), found in zip(parts, counted, strict=True)
        )
