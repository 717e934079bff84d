"""Full factorial designs in randomised complete blocks.

`blocks: replicate`: each block holds every treatment once, in an order of its own, so that a drift of the machine meets
all treatments alike and the blocks take it up. `blocks: none`: all trials in one random order, in one block.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from iotax.design.random import derive_seed, shuffled
from iotax.study import Level, Study
from iotax.trial import LevelValue, Trial

CONNECT_NS = 150_000_000
"""What a trial takes beyond its warm-up and its window: a process, a connection, a record."""
FILL_BYTES_PER_S = 1 << 30
"""About how fast one core writes the pattern."""
BACKGROUND_NS = 500_000_000
"""How long the idle machine is measured before each block."""


@dataclass(frozen=True)
class Plan:
    """Every trial of a study, in run order."""

    trials: tuple[Trial, ...]
    trial_ns: dict[str, int]
    """Trial id → how long it is expected to take."""
    blocks: int

    @property
    def duration_ns(self) -> int:
        """How long the whole is expected to take."""
        return sum(self.trial_ns.values()) + self.blocks * BACKGROUND_NS

    @property
    def measured_ns(self) -> int:
        """How much of it is measured window or warm-up."""
        return sum(self.trial_ns.values()) - len(self.trials) * CONNECT_NS


def plan(study: Study) -> Plan:
    """The same study always gives the same plan."""
    treatments = list(itertools.product(*study.levels().values()))
    replicates = range(1, study.design.replicates + 1)
    blocks: list[list[tuple[int, tuple[Level, ...]]]]
    if study.design.blocks == "replicate":
        blocks = [
            [(replicate, levels) for levels in shuffled(treatments, study.design.seed, "block", replicate)]
            for replicate in replicates
        ]
    else:
        everything = [(replicate, levels) for replicate in replicates for levels in treatments]
        blocks = [shuffled(everything, study.design.seed, "order")]
    trials: list[Trial] = []
    for block, members in enumerate(blocks, start=1):
        for replicate, levels in members:
            trials.append(_trial(study, block, replicate, levels, order=len(trials) + 1))
    return Plan(tuple(trials), {trial.id: _expected_ns(study, trial) for trial in trials}, len(blocks))


def trial_seed(study: Study, trial: Trial) -> int:
    """Draws the addresses of a trial. All treatments of a replicate share it: they are asked the same I/Os."""
    return derive_seed(study.design.seed, "addresses", trial.replicate)


def _trial(study: Study, block: int, replicate: int, levels: tuple[Level, ...], order: int) -> Trial:
    treatment: dict[str, LevelValue] = {name: level.value for name, level in zip(study.levels(), levels, strict=True)}
    return Trial(
        id="/".join([*(level.label for level in levels), f"r{replicate}"]),
        study=study.name,
        treatment=treatment,
        block=block,
        replicate=replicate,
        order=order,
    )


def _expected_ns(study: Study, trial: Trial) -> int:
    settings = study.settings(trial.treatment)
    expected_ns = settings.load.warmup + settings.load.runtime + CONNECT_NS
    if settings.volume.refill == "trial" and settings.volume.fill == "pattern":
        expected_ns += settings.volume.size * 1_000_000_000 // FILL_BYTES_PER_S
    return expected_ns
