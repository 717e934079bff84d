"""Events between the guests: a storage that stands still or dies, a cable that is pulled, a network that is slow or
lossy, a path that the target takes away.

The machines are iotax's own and end with it, however it ends, so nothing is left to undo.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from iotax.engine import EngineError
from iotax.labs.base import Outcome, TrialFailed
from iotax.labs.events import Act, Flapping, Performer, Together, performed, together
from iotax.labs.hosts.clock import Ours
from iotax.labs.vm.guests import STEP_S, Guest, Guests
from iotax.labs.vm.qmp import QmpError, QmpLost
from iotax.labs.vm.turns import offsets
from iotax.places.waiting import wait_for
from iotax.records.interruptions import Happened
from iotax.study.events import Action, Happening
from iotax.trial import Window

_COMMAND_S = 20.0
_SCRIPT_S = 90
"""Time that a script of a busy guest has to begin or to end an event."""
_TC = "/usr/sbin/tc"
_PACKETS_MAX = 100_000
"""In the queue of a network that is slow, so that it loses none."""
_AT = "AT "
"""Before the time at which a script began or undid something: seconds and microseconds of the guest's clock."""
_KILLED = "/run/killed"
"""Exists in the storage from the target's death until it serves again."""
_SAY_TIME = rf"echo {_AT}$(busybox adjtimex | sed -n 's/.*time.tv_u\?sec: *//p')"


def with_events(
    happenings: Sequence[Happening],
    guests: Guests,
    load: Guest,
    run: Callable[[Callable[[int], None]], Outcome],
    step: str,
) -> Outcome:
    """The outcome of a load in a guest, with the events that happened during it. `run` is given what to call when the
    window starts. `step`: before the name of a step of the storage's (guest/lib.sh). Raises TrialFailed, VmFault."""
    if not happenings:
        return run(lambda _: None)
    clocks = [load, guests["storage"]]
    ahead_ns = {
        guest.name: each.ahead_ns for guest, each in zip(clocks, wait_for(offsets(clocks, Ours())), strict=True)
    }
    acts = acts_of(happenings, guests, step)
    outcome = performed(Performer(happenings, acts, ahead_ns[load.name]), run)
    for words, act in acts.items():
        faults = [each.fault() for each in _parts(act) if isinstance(each, Scripted)]
        if fault := next(filter(None, faults), ""):
            raise TrialFailed(f"the event `{words}` could not be done: {fault}", outcome.log)
    result = outcome.result
    events = timed(result.events, result.window, acts, load, ahead_ns)
    return replace(outcome, result=result.model_copy(update={"events": events}))


def timed(
    events: Sequence[Happened], window: Window, acts: Mapping[str, Act], load: Guest, ahead_ns: Mapping[str, int]
) -> tuple[Happened, ...]:
    """With the times at which a guest did what it was told, since a busy guest does it late: the load's own guest if it
    was told. `ahead_ns`: of the guests' clocks, by name."""
    told = {words: iter(_times_ns(act, load, ahead_ns)) for words, act in acts.items()}
    return tuple(_at(each, next(told[each.what], None), window) for each in events)


def _times_ns(act: Act, load: Guest, ahead_ns: Mapping[str, int]) -> Sequence[tuple[int, int]]:
    """By the clock of the load's guest."""
    [first, *_] = _parts(act)
    if not isinstance(first, Scripted):
        return ()
    guest = load if load in first.guests else first.guests[0]
    less_ns = ahead_ns[guest.name] - ahead_ns[load.name]
    return [(began_ns - less_ns, undone_ns - less_ns) for began_ns, undone_ns in first.times_ns(guest)]


def _at(event: Happened, times_ns: tuple[int, int] | None, window: Window) -> Happened:
    if times_ns is None:
        return event
    began_ns, undone_ns = (each - window.start_unix_ns for each in times_ns)
    return event.model_copy(update={"began_ns": began_ns, "undone_ns": undone_ns})


def acts_of(happenings: Sequence[Happening], guests: Guests, step: str) -> dict[str, Act]:
    """By the events' words. Raises VmFault if a machine's monitor does not answer."""
    actions = {each.do.words: each.do for each in happenings}
    return {
        words: _act(action, guests, step, f"/run/event{number}")
        for number, (words, action) in enumerate(actions.items())
    }


def _parts(act: Act) -> Sequence[Act]:
    return act.acts if isinstance(act, Together) else [act]


def _act(action: Action, guests: Guests, step: str, said: str) -> Act:
    """`said`: the begin of the names of files for what scripts in guests say."""
    if action.kill is not None:
        begin = f"{step} target_dies && echo killed >{_KILLED}"
        end = f"until_true {_SCRIPT_S} test -e {_KILLED} && {step} target_up && rm {_KILLED}"
        return Scripted([guests["storage"]], (begin, end), f"cat {_KILLED} 2>/dev/null || true", "killed", said)
    if not action.path:
        return _Told([guests["storage"]], ("stop", {}), ("cont", {}))
    act = together([_at_path(action, path, guests, step, f"{said}-{path}") for path in action.path])
    return act if action.every is None else Flapping(act, action.every)


def _at_path(action: Action, path: int, guests: Guests, step: str, said: str) -> Act:
    both, number = [guests["storage"], guests["initiator"]], path - 1
    if action.by is not None:
        return _network(both, f"eth{number}", f"delay {action.by // 1000}us", said)
    if action.lose is not None:
        return _network(both, f"eth{number}", f"loss {action.lose:g}%", said)
    if action.access is not None:
        begin, end = (f"{step} access_set {path} {each}" for each in (action.access, "optimized"))
        return Scripted([guests["storage"]], (begin, end), f"{step} access_show {path}", action.access, said)
    return _Told(
        both, ("set_link", {"name": f"net{number}", "up": False}), ("set_link", {"name": f"net{number}", "up": True})
    )


def _network(guests: Sequence[Guest], device: str, netem: str, said: str) -> Act:
    """What leaves a device of the guests is late, or is lost (tc-netem(8))."""
    begin = f"{_TC} qdisc replace dev {device} root netem limit {_PACKETS_MAX} {netem}"
    end = f"{_TC} qdisc del dev {device} root"
    return Scripted(guests, (begin, end), f"{_TC} qdisc show dev {device}", "netem", said)


class Scripted:
    """What scripts in guests begin and end.

    While the load runs, others read what the guests say. So the scripts write to a file, which `fault` reads later.
    """

    def __init__(self, guests: Sequence[Guest], scripts: tuple[str, str], show: str, mark: str, said: str) -> None:
        """`show`: shows the state, with `mark` once as long as it lasts, else without. `said`: the file."""
        self.guests, self._show, self._mark, self._said = guests, show, mark, said
        self._begin, self._end = scripts
        self._begun = 0
        self._under_way = False
        self._times_ns: dict[str, list[int]] = {}

    def begin(self) -> None:
        self._begun += 1
        self._under_way = True
        # A run that failed may have left the file.
        self._run(f"{_SAY_TIME}; {self._begin} && {self._show}", ">" if self._begun == 1 else ">>")

    def end(self) -> None:
        self._run(f"{self._end} && {_SAY_TIME}", ">>")
        self._under_way = False

    def close(self) -> None:
        if self._under_way:
            with contextlib.suppress(OSError):  # the run has failed, and its machines end
                self.end()

    def fault(self) -> str:
        """Why it did not happen each time, or was not undone; empty if it did. Raises VmFault if a guest is lost."""
        for guest in self.guests:
            is_over = f"[ $(grep -c ^{_AT.strip()} {self._said}) -ge {2 * self._begun} ]"
            waited = f"until_true {_SCRIPT_S} sh -c '{is_over}'"
            told = f"{waited}; cat {self._said}; rm -f {self._said}; {self._show}"
            lines = guest.run(told, timeout_s=_SCRIPT_S + STEP_S)
            said = "\n".join(line for line in lines if not line.startswith(_AT))
            self._times_ns[guest.name] = [_unix_ns(line) for line in lines if line.startswith(_AT)]
            if said.count(self._mark) != self._begun:
                return f"the {guest.name} guest said: {said.strip() or 'nothing'}"
        return ""

    def times_ns(self, guest: Guest) -> list[tuple[int, int]]:
        """When the guest began and had undone it, by its own clock; known after `fault`."""
        times_ns = self._times_ns.get(guest.name, [])
        return list(zip(times_ns[::2], times_ns[1::2], strict=False))

    def _run(self, script: str, into: str) -> None:
        done = f"{{ {script}; }} {into}{self._said} 2>&1"
        try:
            for guest in self.guests:
                wait_for(guest.port.script(done))
        except EngineError as error:
            raise OSError(str(error)) from error


def _unix_ns(line: str) -> int:
    seconds, microseconds = line.removeprefix(_AT).split()
    return int(seconds) * 1_000_000_000 + int(microseconds) * 1_000


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
