"""Is a run valid? Checks look at how it ran, never at its result."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from iotax.analysis import steady
from iotax.analysis.common_window import CommonWindow, common_window
from iotax.analysis.responses import Response, Run
from iotax.trial import Open, PathUse
from iotax.units import counted, show_rate, show_share

LITTLE_MAX = 0.05
RUN_QUEUE_WAIT_MAX = 0.05
"""Share of the window that a process was ready but had no processor; above it runs visibly scatter."""
FOREIGN_CORES_MAX = 0.1
"""Processors' worth of work that was not ours."""
START_SKEW_MAX = 0.01
"""Share of the window."""
CLIENT_SKEW_NOTED = 0.001
"""Start skew of several hosts above which a finding is noted; above `START_SKEW_MAX` there is no common window."""
GENERATOR_BUSY = 0.95
NEAR_OWN_TARGET = 0.8
"""Share of the rate that the initiator reaches on iotax's own target from which on it may be the bottleneck."""
ACHIEVED_MIN = 0.99
"""Share of the rate that an open loop offered."""
CHANCE_SDS = 3.0
"""Standard deviations of the number of random arrivals by which it may be smaller than expected."""
LATENESS_SHARE_MAX = 0.05
"""Share of the mean response time above which the generator's own delay is part of the result."""
MEDIA_LATENESS_MAX = 0.05
"""Share of the mean service time of modelled media above which the server's timers are part of the result."""
UNEVEN_MAX = 0.1
"""Tolerance around an equal share, for paths under a policy that promises one."""
STEADY_SAMPLE_S_MIN = 0.5
NOT_RECORDED = "not recorded"
_DISTURBED = "not judged: the study makes something happen"


class Severity(IntEnum):
    """The severity of a finding."""

    GOOD = 0
    UNKNOWN = 1
    NOTE = 2
    """It limits what the numbers mean but does not spoil them."""
    DOUBTFUL = 3
    INVALID = 4


@dataclass(frozen=True)
class Check:
    key: str
    level: Severity
    text: str


TITLES = {
    "errors": "I/O errors",
    "data": "Data read back",
    "little": "Little's law",
    "steady": "Steady state",
    "wait": "Waiting for a processor",
    "foreign": "Other work on the machine",
    "skew": "Start skew",
    "common": "Common window",
    "generator": "Load generator",
    "unwritten": "Never-written blocks",
    "achieved": "Rate held",
    "lateness": "Generator's own delay",
    "balance": "Balance over paths",
    "media": "Modelled media",
    "noise": "Noise floor",
}
"""The checks in the order in which they are shown. All but the noise floor, which takes several runs, are about single
runs."""


DISTURBANCES = frozenset({"steady", "wait", "foreign", "skew"})
"""Findings that a quieter machine would avoid."""


def check_run(run: Run) -> list[Check]:
    """One finding for each of `TITLES` that a single run can have, in that order."""
    checks: dict[str, Callable[[Run], tuple[Severity, str]]] = {
        "errors": _errors,
        "data": _data,
        "little": _little,
        "steady": _steady,
        "wait": _wait,
        "foreign": _foreign,
        "skew": _skew,
        "common": _common,
        "generator": _generator,
        "unwritten": _unwritten,
        "achieved": _achieved,
        "lateness": _lateness,
        "balance": _balance,
        "media": _media,
    }
    return [Check(key, *check(run)) for key, check in checks.items()]


def against_rules(checks: Iterable[Check], rules: Sequence[str]) -> list[Check]:
    """The findings that leave a run out, by a study's `exclude`."""
    return [check for check in checks if check.key in rules and check.level >= Severity.NOTE]


def worst_of(runs: Sequence[Sequence[Check]]) -> list[Check]:
    """For each check the weightiest finding of several runs, saying how many runs share its level."""
    result = []
    for same in zip(*runs, strict=True):
        worst = max(same, key=lambda check: check.level)
        hit = sum(check.level == worst.level for check in same)
        all_alike = hit == len(same) or worst.level == Severity.GOOD
        text = worst.text if all_alike else f"{worst.text} ({hit} of {len(same)} runs)"
        result.append(Check(worst.key, worst.level, text))
    return result


@dataclass(frozen=True)
class Doubt:
    """How many of several runs are doubtful or worse, and by which checks, the most frequent first."""

    runs: int
    of: int
    keys: tuple[str, ...]

    @property
    def most(self) -> bool:
        return 2 * self.runs > self.of


_LATENCY_ALONE = {"lateness"}
"""Findings that make only latency doubtful: an I/O submitted late is counted and paid like any other."""


def doubt(runs: Sequence[Sequence[Check]], of: Response | None = None) -> Doubt:
    """`runs` are the findings of each; `of` leaves out findings that do not concern that response."""
    without = _LATENCY_ALONE if of is not None and not of.is_latency else frozenset()
    bad = [[c.key for c in checks if c.level >= Severity.DOUBTFUL and c.key not in without] for checks in runs]
    keys = [key for found in bad for key in found]
    return Doubt(sum(map(bool, bad)), len(runs), tuple(sorted(set(keys), key=lambda key: (-keys.count(key), key))))


def overall(checks: Iterable[Check]) -> Severity:
    return max((check.level for check in checks), default=Severity.UNKNOWN)


def little_error(run: Run) -> float | None:
    """|N - X·R| / N. In a closed loop N is the setting: how far the run is from the intended load. In an open loop N is
    the mean found, and R runs from submission. None if N or R is not known."""
    if run.result.ios and math.isnan(run.result.latency_mean_ns):
        return None
    if run.result.open is not None:
        found = run.result.outstanding.mean
        busy = run.result.rate_iops * run.result.service_mean_ns / 1e9 if run.result.ios else 0.0
        return abs(found - busy) / found if found else 0.0
    if run.total_outstanding is None:
        return None
    # A worker waits for its flushes too, which are not I/Os.
    flushing = run.result.sync.latency_sum_ns / run.result.window.duration_ns if run.result.sync is not None else 0.0
    busy = run.result.rate_iops * run.result.latency_mean_ns / 1e9 + flushing
    return abs(run.total_outstanding - busy) / run.total_outstanding


def foreign_cores(run: Run) -> float | None:
    """Busy processors that did not work for iotax; None if unknown.

    Interrupts count as iotax's: where the kernel accounts for them separately, they carry its network traffic. If the
    path runs in the kernel, all kernel time may be iotax's: then only other programs' own time is foreign. For a guest,
    which runs nothing else, it is the time that its host took.
    """
    cpu, window_ns = run.result.cpu, run.result.window.duration_ns
    if guest := cpu.part("initiator", "guest") or cpu.part("both", "guest"):
        taken_ns = sum(core.steal_ns for core in guest.cores)
        return taken_ns / window_ns if taken_ns else None
    initiator, target = cpu.initiator, cpu.target
    machine = cpu.part("initiator", "machine") or cpu.part("other", "machine", "guest")
    if machine is None or initiator is None:
        return None
    ours = [each for each in (initiator, target, run.result.hypervisor_within) if each is not None]
    if run.result.facts.stack == "kernel":
        programs_ns = sum(core.user_ns + core.nice_ns for core in machine.cores)
        return max(0.0, (programs_ns - sum(each.user_ns or 0 for each in ours)) / window_ns)
    if target is None and not run.local:
        return None
    ours_ns = sum(each.busy_ns for each in ours)
    interrupts_ns = sum(core.irq_ns + core.softirq_ns for core in machine.cores)
    return max(0.0, (machine.busy_ns - ours_ns - interrupts_ns) / window_ns)


def taken_cores(run: Run) -> float:
    """Processors that this machine, itself a virtual one, wanted and its hypervisor gave to others ("steal")."""
    machine = run.result.cpu.part("other", "machine")
    return sum(core.steal_ns for core in machine.cores) / run.result.window.duration_ns if machine else 0.0


def _loop_unknown(run: Run) -> bool:
    return run.result.origin is not None and run.result.origin.loop == "unknown"


def _errors(run: Run) -> tuple[Severity, str]:
    count = (run.result.checks.errors or 0) + run.result.read.errors + run.result.write.errors
    if not count and run.result.checks.errors is None:
        return Severity.UNKNOWN, NOT_RECORDED
    return (Severity.INVALID, f"{count:,} I/Os failed") if count else (Severity.GOOD, "none")


def _data(run: Run) -> tuple[Severity, str]:
    verify = run.result.verify
    if verify is None:
        return Severity.UNKNOWN, "reads were not checked"
    if verify.wrong_blocks:
        return Severity.INVALID, f"{counted(verify.wrong_blocks, 'block')} held wrong data"
    if not verify.checked_blocks:
        return Severity.UNKNOWN, "no block was read"
    back = f", {verify.read_back_blocks:,} of them read back after the run" if verify.read_back_blocks else ""
    return Severity.GOOD, f"{verify.checked_blocks:,} blocks checked{back}"


def _little(run: Run) -> tuple[Severity, str]:
    if not run.result.ios:
        return (Severity.GOOD, "nothing was asked") if run.result.idle else (Severity.INVALID, "no I/O completed")
    error = little_error(run)
    if error is None:
        return Severity.UNKNOWN, "outstanding I/Os or mean latency not known"
    text = f"|N − X·R|/N = {100 * error:.1f} %"
    return (Severity.DOUBTFUL if error > LITTLE_MAX else Severity.GOOD), text


def _achieved(run: Run) -> tuple[Severity, str]:
    held = run.result.open
    if held is None and _loop_unknown(run):
        return Severity.UNKNOWN, "not known whether a rate was set"
    if held is None:
        return Severity.GOOD, "closed loop: no rate was set"
    text = f"{show_share(held.achieved)} of {held.offered:,} I/Os offered"
    if held.dropped or held.backlog_end:
        text += f"; {held.dropped:,} dropped, {held.backlog_end:,} waiting at the end"
    if held.offered_sd:
        text += f" on average (standard deviation {held.offered_sd:.0f})"
    if run.result.events:
        return Severity.GOOD, f"{text}; {_DISTURBED}"
    return (Severity.GOOD if kept_up(held) else Severity.DOUBTFUL), text


def kept_up(held: Open) -> bool:
    """Whether an open loop completed the I/Os that it was offered, within chance where arrivals are random."""
    missing = held.offered * (1 - held.achieved)
    return held.achieved >= ACHIEVED_MIN or missing <= CHANCE_SDS * held.offered_sd


def _lateness(run: Run) -> tuple[Severity, str]:
    held = run.result.open
    if held is None and _loop_unknown(run):
        return Severity.UNKNOWN, "not known whether a rate was set"
    if held is None:
        return Severity.GOOD, "closed loop: nothing is due"
    if held.lateness is None:
        return Severity.UNKNOWN, "not measured"
    if not run.result.ios:
        return Severity.GOOD, "nothing was asked"
    share = held.lateness.mean_ns() / run.result.latency_mean_ns
    text = f"late by {held.lateness.mean_ns() / 1e3:.1f} µs on average, {show_share(share)} of the response time"
    return (Severity.DOUBTFUL if share > LATENESS_SHARE_MAX else Severity.GOOD), text


def steadiness(run: Run) -> steady.SteadyState:
    """The steadiness of the I/Os completed in each interval; a run without load is not judged."""
    series = run.result.series
    if run.result.idle or not series or run.duration_s / len(series) < STEADY_SAMPLE_S_MIN:
        return steady.SteadyState(steady.Label.UNKNOWN)
    return steady.steady_state([each.reads + each.writes for each in series])


def _steady(run: Run) -> tuple[Severity, str]:
    if run.result.idle:
        return Severity.GOOD, "nothing was asked"
    if run.result.events:
        return Severity.GOOD, _DISTURBED
    found = steadiness(run)
    if found.label is steady.Label.UNKNOWN or found.window is None:
        return Severity.UNKNOWN, str(steady.Label.UNKNOWN)
    window = found.window
    text = f"range {100 * window.range_ratio:.0f} %, drift {100 * window.excursion_ratio:.0f} % of the mean"
    if found.label is steady.Label.UNSTEADY:
        return Severity.DOUBTFUL, f"{found.label}: {text}"
    if found.warmup_too_short:
        text = f"steady, but the warm-up was too short: it changes the mean by {show_share(found.warmup_bias)}"
        more_s = (found.warmup_more or 0) * run.duration_s / len(run.result.series)
        return Severity.NOTE, f"{text}; {more_s:.1f} s more would do" if more_s else text
    return Severity.GOOD, text


def _wait(run: Run) -> tuple[Severity, str]:
    share = run.result.checks.run_queue_wait
    if share is None:
        return Severity.UNKNOWN, "not measured"
    return (Severity.DOUBTFUL if share > RUN_QUEUE_WAIT_MAX else Severity.GOOD), f"{100 * share:.1f} % of the window"


def _foreign(run: Run) -> tuple[Severity, str]:
    cores, taken = foreign_cores(run), taken_cores(run)
    if cores is None and not taken:
        return Severity.UNKNOWN, "not measured"
    text = "other work not measured" if cores is None else f"{cores:.2f} processors busy"
    if taken:
        text += f", {taken:.2f} taken by the hypervisor"
    return (Severity.DOUBTFUL if (cores or 0) + taken > FOREIGN_CORES_MAX else Severity.GOOD), text


def _skew(run: Run) -> tuple[Severity, str]:
    skew_ns = run.result.checks.start_skew_ns
    if skew_ns is None:
        return Severity.UNKNOWN, NOT_RECORDED
    share = skew_ns / run.result.window.duration_ns
    if len(run.result.clients) > 1:
        return _clients_skew(run, share)
    return (Severity.DOUBTFUL if share > START_SKEW_MAX else Severity.GOOD), f"{skew_ns / 1e6:.2f} ms"


def _clients_skew(run: Run, own: float) -> tuple[Severity, str]:
    """The start skew of several hosts, each by its own clock minus its offset; `own` is the largest within
    one of them."""
    last = max(run.result.clients, key=lambda client: client.started_after_ns)
    error_ns = last.clock_error_ns + max(client.clock_error_ns for client in run.result.clients)
    text = f"{last.host} began {last.started_after_ns / 1e6:.2f} ± {error_ns / 1e6:.2f} ms after the first host"
    paces = [client.pace for client in run.result.clients if client.pace is not None]
    window_ns = run.result.window.duration_ns / min(paces, default=1.0)
    share = max(own, last.started_after_ns / window_ns)
    if share > CLIENT_SKEW_NOTED:
        text += f", {100 * share:.1f} % of the window"
    if paces:
        text += f"; each guest's clock had a pace of its own, {min(paces):.2f} to {max(paces):.2f} of the host's"
    # Only the part that the clocks' own error cannot explain.
    if share - error_ns / window_ns > START_SKEW_MAX:
        return Severity.INVALID, text
    return (Severity.NOTE if share > CLIENT_SKEW_NOTED else Severity.GOOD), text


def _common(run: Run) -> tuple[Severity, str]:
    if run.result.origin is not None:
        return Severity.UNKNOWN, NOT_RECORDED
    if len(run.result.clients) < 2:
        return Severity.GOOD, "one client"
    if run.result.idle:
        return Severity.GOOD, "nothing was asked"
    found = common_window(run.result)
    if found is None:
        return Severity.UNKNOWN, "too few intervals are known of each client"
    text = f"all clients worked together for {found.duration_ns / 1e9:.3g} s of {found.whole_ns / 1e9:.3g} s"
    if not found.duration_ns:
        return Severity.INVALID, f"{text}: {_straggling(found)}"
    if not found.differing:
        return Severity.GOOD, text
    changes = [f"{each.host or 'the total'} by {100 * (each.ratio - 1):+.1f} %" for each in found.differing[:2]]
    text += f": {_straggling(found)}; over that time rates differ, {' and '.join(changes)}"
    farthest = max(abs(each.ratio - 1) for each in found.differing)
    return (Severity.DOUBTFUL if farthest > START_SKEW_MAX else Severity.NOTE), text


def _straggling(found: CommonWindow) -> str:
    """ "h2 completed nothing in the last 12 s"; of the one that shortens the window most."""
    worst = found.stragglers[0]
    if worst.late_ns >= worst.early_ns:
        return f"{worst.host} completed nothing in the first {worst.late_ns / 1e9:.3g} s"
    return f"{worst.host} completed nothing in the last {worst.early_ns / 1e9:.3g} s"


def near_own_target(run: Run) -> bool | None:
    """Whether the rate comes near what the initiator reaches on iotax's own target, a lower bound of what it can do:
    well below it the initiator is not the bottleneck, near it or above it may be. None if that was not measured."""
    reached_iops = run.result.facts.own_target_rate_iops
    if not reached_iops or reached_iops < 0 or run.result.idle:
        return None
    return run.result.rate_iops >= NEAR_OWN_TARGET * reached_iops


def _generator(run: Run) -> tuple[Severity, str]:
    level, text = _generator_busy(run)
    near = near_own_target(run)
    if near is None or level == Severity.NOTE:
        return level, text
    load = "the same load" if run.result.open is None else "the same load without a limit to its rate"
    reaches = (
        f"it reaches {show_rate(run.result.facts.own_target_rate_iops or 0)} IOPS on iotax's own target on the same "
        f"machine under {load}, and {show_rate(run.result.rate_iops)} here"
    )
    if near:
        return Severity.NOTE, f"the initiator may be the bottleneck: {reaches}"
    return Severity.GOOD, f"{text}; {reaches}" if level == Severity.GOOD else reaches


def _generator_busy(run: Run) -> tuple[Severity, str]:
    initiator = run.result.cpu.initiator or run.result.cpu.part("both")
    if initiator is None:
        return Severity.UNKNOWN, "not measured"
    busy = initiator.busy_share
    if busy is None:
        return Severity.UNKNOWN, "number of processors unknown"
    if run.result.facts.polling in ("auto", "always"):
        return Severity.UNKNOWN, f"it polls ({run.result.facts.polling}): its processors are busy without work, too"
    of = "its processor was" if initiator.processors == 1 else f"its {initiator.processors} processors were"
    if busy >= GENERATOR_BUSY:
        return Severity.NOTE, f"{of} {100 * min(busy, 1.0):.0f} % busy: the initiator bounds the throughput"
    return Severity.GOOD, f"{of} {100 * busy:.0f} % busy"


def _unwritten(run: Run) -> tuple[Severity, str]:
    verify = run.result.verify
    if verify is None:
        return Severity.UNKNOWN, "reads were not checked"
    if verify.never_written_blocks:
        return Severity.DOUBTFUL, f"{verify.never_written_blocks:,} blocks were read that had never been written"
    return Severity.GOOD, "none read"


def _balance(run: Run) -> tuple[Severity, str]:
    paths = run.result.paths
    if paths is None and run.result.origin is not None:
        return Severity.UNKNOWN, NOT_RECORDED
    if paths is None:
        return Severity.GOOD, "one path"
    total = sum(path.ios for path in paths.used)
    if not total:
        return Severity.UNKNOWN, "no I/O on any path"
    shares = [path.ios / total for path in paths.used]
    text = f"{paths.policy}: " + ", ".join(
        f"{path.name} {show_share(share, 0)}{_losses(path)}" for path, share in zip(paths.used, shares, strict=True)
    )
    if run.result.events:
        return Severity.GOOD, f"{text}; {_DISTURBED}"
    if any(path.losses for path in paths.used):
        return Severity.DOUBTFUL, f"a path was lost that no event failed; {text}"
    if any(path.refused for path in paths.used):
        return Severity.DOUBTFUL, f"the target refused I/O on a path that no event made inaccessible; {text}"
    uneven = max(abs(share * len(shares) - 1) for share in shares)
    return (Severity.DOUBTFUL if paths.even and uneven > UNEVEN_MAX else Severity.GOOD), text


def _losses(path: PathUse) -> str:
    how_often = "once" if path.losses == 1 else f"{path.losses} times"
    losses = f"lost {how_often}, down {path.down_ns / 1e9:.1f} s" if path.losses else ""
    refusals = f"{path.refused} I/O{'s' if path.refused > 1 else ''} refused" if path.refused else ""
    found = ", ".join(each for each in (losses, refusals) if each)
    return f" ({found})" if found else ""


def _media(run: Run) -> tuple[Severity, str]:
    media = run.result.media
    if media is None:
        return Severity.GOOD, "no model"
    if not media.told:
        return Severity.GOOD, "no operation had to wait, warm-up included"
    share = media.late_mean_ns / media.service_mean_ns
    late = f"{media.late_mean_ns / 1e3:.1f} µs late on average, {media.late_max_ns / 1e3:.0f} µs at most"
    of_service = f"{show_share(share)} of the mean service time"
    text = f"operations ended {late}: {of_service}, from connecting to the end, warm-up included"
    return (Severity.NOTE if share > MEDIA_LATENESS_MAX else Severity.GOOD), text
