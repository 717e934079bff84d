"""The order in which the treatments of a study run.

`blocks: replicate`: each block holds every treatment once, in an order of its own, so that a drift of the machine meets
all treatments alike and the blocks take it up. `blocks: none`: all trials in one random order, in one block.

`hard_to_change`: a split plot. Trials of one replicate that share the levels of these factors are a whole plot and run
together; whole plots are in random order, and so are the trials of each. Sentinels are runs of the baseline at even
distances over the whole plan, never within a whole plot; they are of replicate 0, belong to the block that they stand
in, and are not part of the comparison.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from iotax.design.conditioning import conditioned
from iotax.design.random import derive_seed, shuffled
from iotax.design.rates import halvings, ladder
from iotax.design.treatments import Treatment, name_of, treatments
from iotax.study import Settings, Study
from iotax.study.model import Load, Search, Slices, factor_names
from iotax.trial import LevelValue, Trial
from iotax.units import counted, show_minutes

SIMULATED_IO_NS = 5_000
"""Time to simulate an I/O of 4 KiB, with the data of its reads checked."""
SIMULATED_LOAD_IOPS = 400_000
"""Approximate limit of one load's processor if neither link nor media limit it."""
CONNECT_NS = 150_000_000
"""Time of a trial besides its warm-up and its window: process, connection, record."""
TURN_NS = 3_000_000
"""Time from one slice's end to the next one's load."""
GUEST_TURN_NS = 50_000_000
"""The same by the clocks of emulated guests: the last I/Os are answered and engines wake within it."""
HOST_TURN_NS = 20_000_000
"""The same by the clocks of hosts: they agree within a few milliseconds, and slow arrays answer within it."""
LOADED_PER_IDLE = 8
"""Slices of load for each one without, where machines are judged whole."""
LEAD_IN_NS = 200_000_000
"""Load at a session's start that is not measured. Without it the first slice of 50 ms was 3 to 7 % slower than its
treatment's others, on a busy machine (60 sessions)."""
GUESTS_NS = 15_000_000_000
"""Two guests, from their start until both answer: once for a study in the vm lab."""
HOSTS_NS = 2_000_000_000
"""A session's start on hosts: engines, a start sent a second ahead, and clocks compared at both ends."""
RECONNECT_NS = 3_000_000_000
"""Time to take a guest's protocol down and bring up the next. Measured for emulated guests: 1.6 s (`kernel-exact`) to
5.3 s (`kernel-outstanding`, on a busy host)."""
PROFILE_NS = 1_500_000_000
"""Time that a profile adds to a trial: over `kernel-exact` 7.5 s in place of 6.2 s was measured, on a busy host."""
TRANSACTION_NS = 7_000_000
"""Transactions per second of a database in emulated guests, all clients together: 97 to 192 were measured on a busy
host (`database`)."""
FILL_BYTES_PER_S = 1 << 30
"""About how fast one core writes the pattern."""
LOADS = ("workers", "outstanding")
"""Factors of which a search for the best load chooses levels."""
PROBE_TRIES = 2
"""Probes of a rate that must miss the objective before a search rejects it, since one disturbance is not a knee."""
_CONNECTED_BY = ("connection", "topology")
"""Sections of a study, of which a change of a factor needs another connection."""
BACKGROUND_NS = 500_000_000
"""Duration of the idle measurement before each block."""


@dataclass(frozen=True)
class Plan:
    """Every trial of a study, in run order."""

    trials: tuple[Trial, ...]
    trial_ns: dict[str, int]
    """Trial id → how long it is expected to take."""
    blocks: int
    further: int = 0
    """Trials that a search may add, at most."""
    setup_ns: int = 0
    """Once, before the first trial."""
    at_once: int = 1
    """Trials that run at a time on this machine."""

    @property
    def trials_max(self) -> int:
        return len(self.trials) + self.further

    @property
    def duration_ns(self) -> int:
        """Expected duration of `trials`."""
        return self.setup_ns + sum(self.trial_ns.values()) // self.at_once + self.blocks * BACKGROUND_NS

    @property
    def duration_max_ns(self) -> int:
        """The same with everything that a search may add."""
        return round(self.duration_ns * self.trials_max / len(self.trials)) if self.further else self.duration_ns

    @property
    def amount(self) -> str:
        """ "8 trials in 2 blocks, about 2 s"; of a search with all that it may add."""
        first = f"{counted(len(self.trials), 'trial')} in {counted(self.blocks, 'block')}"
        takes = f"about {show_minutes(self.duration_max_ns / 1e9)}"
        return f"{first}, at most {self.trials_max} with the search, {takes}" if self.further else f"{first}, {takes}"


def plan(study: Study) -> Plan:
    """The same study always gives the same trials. A search starts with its first trials; its results decide what
    follows."""
    some = treatments(study)
    if study.search is not None and study.search.rate_max is not None:
        search, seed = study.search, study.design.seed
        probes = [
            make_trial(study, 1, levels, order, "probe", order, ladder(search, seed, name_of(levels), 1).middle_iops)
            for order, levels in enumerate(shuffled(some, seed, "probes"), start=1)
        ]
        further = len(some) * (search.confirm * (steps_max(search) + PROBE_TRIES) - 1)
        return Plan(tuple(probes), _expected(study, probes), 1, further, _setup_ns(study), _at_once(study))
    replicates = range(1, study.design.replicates + 1)
    blocks: list[list[tuple[int, Treatment]]]
    if study.design.blocks == "replicate":
        blocks = [
            _ordered(study, [(replicate, levels) for levels in some], "block", replicate) for replicate in replicates
        ]
    else:
        blocks = [_ordered(study, [(replicate, levels) for replicate in replicates for levels in some], "order")]
    runs = [
        (block, replicate, levels) for block, members in enumerate(blocks, start=1) for replicate, levels in members
    ]
    trials = [
        _trial(study, block, replicate, levels, order)
        for order, (block, replicate, levels) in enumerate(_with_sentinels(study, runs), start=1)
    ]
    further = study.search.confirm * len(conditions(study)) if study.search is not None else 0
    return Plan(tuple(trials), _expected(study, trials), len(blocks), further, _setup_ns(study), _at_once(study))


def conditions(study: Study) -> set[Treatment]:
    """The conditions for which a search chooses the best load: the levels of all other factors."""
    names = study.levels()
    return {
        tuple(level for name, level in zip(names, treatment, strict=True) if name not in LOADS)
        for treatment in treatments(study)
    }


def added(study: Study, earlier: Sequence[Trial]) -> list[Trial]:
    """The additional trials compared with `earlier`, those of an equal study with fewer replicates, which run after
    them.

    They are separate blocks even if the study has none, since later runs may have drifted. Orders continue from the
    earlier ones. Sentinels have the positions of the whole plan in the new blocks.
    """
    replicates = max(trial.replicate for trial in earlier)
    last = max(trial.block for trial in earlier)
    order = max(trial.order for trial in earlier)
    found = []
    for trial in plan(study).trials:
        is_new = trial.block > last if study.design.blocks == "replicate" else trial.replicate > replicates
        if is_new:
            order += 1
            name = trial.id if trial.compared else f"{trial.id.rpartition(' ')[0]} {order}"
            found.append(trial.model_copy(update={"id": name, "block": max(trial.block, last + 1), "order": order}))
    return found


def _ordered(
    study: Study, members: list[tuple[int, Treatment]], name: str, index: int = 0
) -> list[tuple[int, Treatment]]:
    """A random order; of a split plot, of its whole plots and within each."""
    seed, names = study.design.seed, list(study.levels())
    hard = [names.index(factor) for factor in study.design.hard_to_change]
    if not hard:
        return shuffled(members, seed, name, index)
    plots: dict[tuple, list[tuple[int, Treatment]]] = {}
    for replicate, levels in members:
        plots.setdefault((replicate, *(levels[factor] for factor in hard)), []).append((replicate, levels))
    ordered = []
    for number, plot in enumerate(shuffled(list(plots.values()), seed, f"{name} plots", index)):
        # Whole plots of one block share no stream: their number is part of the name.
        ordered += shuffled(plot, seed, f"{name} plot {number}", index)
    return ordered


def _with_sentinels(study: Study, runs: list[tuple[int, int, Treatment]]) -> list[tuple[int, int, Treatment]]:
    """Runs of the baseline, of replicate 0, at even distances: the first stands first, the last stands last."""
    count = study.design.sentinels
    found = []
    between = _between_plots(study, runs)
    even = [round(at * len(runs) / max(1, count - 1)) for at in range(count)]
    places = [min(between, key=lambda place, wanted=wanted: abs(place - wanted)) for wanted in even]
    for place in range(len(runs) + 1):
        for _ in range(places.count(place)):
            block = runs[min(place, len(runs) - 1)][0] if place else runs[0][0]
            found.append((block, 0, study.baseline_levels()))
        found += runs[place : place + 1]
    return found


def _between_plots(study: Study, runs: list[tuple[int, int, Treatment]]) -> list[int]:
    """Places before, between and after runs where no whole plot is cut: all, where nothing is hard to change."""
    names = list(study.levels())
    hard = [names.index(factor) for factor in study.design.hard_to_change]
    plots = [(replicate, *(levels[factor] for factor in hard)) for _, replicate, levels in runs]
    inside = range(1, len(runs))
    return [0, *(place for place in inside if not hard or plots[place] != plots[place - 1]), len(runs)]


def trial_seed(study: Study, trial: Trial) -> int:
    """Draws the addresses of a trial. All treatments of a replicate share it: they get the same I/Os."""
    if not trial.compared:
        return derive_seed(study.design.seed, "addresses beside", trial.order)
    return derive_seed(study.design.seed, "addresses", trial.replicate)


def steps_max(search: Search) -> int:
    """Probes of one treatment in one block until its knee is bracketed: each rate halves the range, by ratio, and one
    of its ends may be probed, too."""
    return PROBE_TRIES * (1 + halvings(search))


def make_trial(
    study: Study, block: int, levels: Treatment, order: int, role: str, number: int, rate_iops: int | None = None
) -> Trial:
    """`role` is replicate, or beside the comparison sentinel, probe or confirm; `rate_iops` is a search's own."""
    treatment: dict[str, LevelValue] = {name: level.value for name, level in zip(study.levels(), levels, strict=True)}
    if rate_iops is not None:
        treatment["rate_iops"] = rate_iops
    compared = role == "replicate"
    return Trial(
        id="/".join([*(level.label for level in levels), f"r{number}" if compared else f"{role} {number}"]),
        study=study.name,
        treatment=treatment,
        block=block,
        replicate=number if compared else 0,
        order=order,
    )


def _trial(study: Study, block: int, replicate: int, levels: Treatment, order: int) -> Trial:
    role, number = ("replicate", replicate) if replicate else ("sentinel", order)
    return make_trial(study, block, levels, order, role, number)


def _setup_ns(study: Study) -> int:
    first = conditioned(study)
    # In a design by rounds, guests boot for each session.
    boots = study.lab.vm is not None and study.design.slices is None
    return (GUESTS_NS if boots else 0) + (first.least_ns if first else 0)


def _at_once(study: Study) -> int:
    """Simulations cannot disturb each other."""
    return len(os.sched_getaffinity(0)) if study.lab.sim is not None else 1


def _expected(study: Study, trials: Sequence[Trial]) -> dict[str, int]:
    """Trial id → how long it takes, in this order: guests stay connected from trial to trial until one needs another
    protocol or topology."""
    told = study.lab.vm is not None or study.lab.hosts is not None
    if told and study.design.slices is not None:
        return {trial.id: _turns_ns(study, trials, study.design.slices) for trial in trials}
    found: dict[str, int] = {}
    up: dict[str, LevelValue] | None = None
    for trial in trials:
        found[trial.id] = _expected_ns(study, trial)
        if study.lab.vm is not None:
            wanted = {name: level for name, level in trial.treatment.items() if factor_names()[name] in _CONNECTED_BY}
            found[trial.id] += RECONNECT_NS if wanted != up else 0
            found[trial.id] += PROFILE_NS if study.lab.vm.profile else 0
            up = wanted
    return found


def _simulated_ns(settings: Settings) -> int:
    """I/Os to simulate: as many as the narrowest part of the simulated machines lets through."""
    lab, load, link = settings.sim, settings.load, settings.topology
    assert lab is not None, "a simulated study"
    machines = load.clients or 1
    accesses = load.accesses()
    size_bytes = sum(each.share * each.block_size for each in accesses) / sum(each.share for each in accesses)
    rates = [float(machines * lab.vms * load.threads * SIMULATED_LOAD_IOPS)]
    if link.link_rate:
        ports = min(machines * link.paths_used, lab.controllers_there * lab.target_ports)
        # Reads and writes go in opposite directions.
        one_way = max(load.read, 100 - load.read) / 100
        rates.append(ports * link.link_rate / 8 / size_bytes / one_way)
    if lab.media is not None and lab.media.mean_ns:
        reads = load.read / 100
        waits_ns = reads * lab.media.mean_ns + (1 - reads) * lab.media.write_ns
        rates.append(lab.controllers * lab.media.servers * 1e9 / max(waits_ns, 0.05 * lab.media.mean_ns))
    if load.rate_iops is not None:
        rates.append(load.rate_iops * machines * lab.vms)
    per_io_ns = SIMULATED_IO_NS * max(1.0, (size_bytes / 4096) ** 0.5)
    seconds = (load.warmup + load.runtime) / 1e9
    filled_bytes = lab.controllers * settings.volume.size
    return round(min(rates) * seconds * per_io_ns) + filled_bytes * 1_000_000_000 // FILL_BYTES_PER_S


def _window_ns(load: Load) -> int:
    """Duration of a number of transactions, at the measured rate."""
    if load.transactions is None:
        return load.runtime
    return load.transactions * load.workers * TRANSACTION_NS


def idle_slices(treatments: int, rounds: int) -> int:
    """Slices of a session without any load, where machines are judged whole: one at most in a round, and
    one at least for every eight slices of load (`rounds.with_idle`)."""
    return min(rounds, math.ceil(treatments * rounds / LOADED_PER_IDLE))


def _turns_ns(study: Study, trials: Sequence[Trial], slices: Slices) -> int:
    """A trial's slices on machines that keep a schedule, and its share of the session: its start, and the slices
    without load."""
    hard = study.design.hard_to_change
    plots = len({tuple(trial.treatment[name] for name in hard) for trial in trials})
    treatments = len({tuple(trial.treatment.items()) for trial in trials}) // plots
    protocols = len({study.settings(trial.treatment).endpoint.protocol for trial in trials})
    protocols //= plots if "protocol" in hard else 1
    turn_ns = GUEST_TURN_NS if study.lab.vm is not None else HOST_TURN_NS
    start_ns = GUESTS_NS + protocols * RECONNECT_NS if study.lab.vm is not None else HOSTS_NS
    one_ns = slices.settle_ns + slices.slice_ns + turn_ns
    return slices.rounds * one_ns + (idle_slices(treatments, slices.rounds) * one_ns + start_ns) // treatments


def _expected_ns(study: Study, trial: Trial) -> int:
    settings = study.settings(trial.treatment)
    if study.lab.sim is not None:
        return CONNECT_NS + _simulated_ns(settings)
    if slices := study.design.slices:
        # Its slices, and its share of a session's start.
        return slices.rounds * (slices.settle_ns + slices.slice_ns + TURN_NS) + CONNECT_NS // 2
    expected_ns = settings.load.warmup + _window_ns(settings.load) + CONNECT_NS
    if settings.volume.refill == "trial" and settings.volume.fill == "pattern":
        expected_ns += settings.volume.size * 1_000_000_000 // FILL_BYTES_PER_S
    return expected_ns
