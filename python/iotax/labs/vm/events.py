"""Events between the guests: a storage that stands still, a cable that is pulled.

The machines are iotax's own and end with it, however it ends, so nothing is left to undo.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from iotax.labs.base import Outcome
from iotax.labs.events import Act, Performer, performed
from iotax.labs.hosts.clock import Ours
from iotax.labs.vm.guests import Guest, Guests
from iotax.labs.vm.qmp import QmpError, QmpLost
from iotax.labs.vm.turns import offsets
from iotax.places.waiting import wait_for
from iotax.study.events import Action, Happening

_COMMAND_S = 20.0


def with_events(
    happenings: Sequence[Happening], guests: Guests, load: Guest, run: Callable[[Callable[[int], None]], Outcome]
) -> Outcome:
    """The outcome of a load in a guest, with the events that happened during it. `run` is given what to call when the
    window starts. Raises TrialFailed, VmFault."""
    if not happenings:
        return run(lambda _: None)
    [offset] = wait_for(offsets([load], Ours()))
    return performed(Performer(happenings, acts_of(happenings, guests), offset.ahead_ns), run)


def acts_of(happenings: Sequence[Happening], guests: Guests) -> dict[str, Act]:
    """By the events' words. Raises VmFault if a machine's monitor does not answer."""
    return {each.do.words: _act(each.do, guests) for each in happenings}


def _act(action: Action, guests: Guests) -> Act:
    if action.path is None:
        return _Told([guests["storage"]], ("stop", {}), ("cont", {}))
    name = f"net{action.path - 1}"
    return _Told(
        [guests["storage"], guests["initiator"]],
        ("set_link", {"name": name, "up": False}),
        ("set_link", {"name": name, "up": True}),
    )


class _Told:
    """Commands to the monitors of machines, and what undoes them."""

    def __init__(
        self, guests: Sequence[Guest], begin: tuple[str, dict[str, object]], end: tuple[str, dict[str, object]]
    ) -> None:
        self._monitors = [guest.monitor for guest in guests]
        self._begin, self._end = begin, end
        self._under_way = False

    def begin(self) -> None:
        self._under_way = True
        self._tell(self._begin)

    def end(self) -> None:
        self._tell(self._end)
        self._under_way = False

    def close(self) -> None:
        if self._under_way:
            self._under_way = False
            with contextlib.suppress(OSError):  # the run has failed, and its machines end
                self._tell(self._end)

    def _tell(self, command: tuple[str, dict[str, object]]) -> None:
        name, arguments = command
        try:
            for each in self._monitors:
                each.execute(name, arguments, timeout_s=_COMMAND_S)
        except (QmpError, QmpLost) as error:
            raise OSError(f"QEMU did not {name}: {error}") from error
