"""A cost table's predictions beside measurements of the same treatments: shows how far to trust the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iotax.analysis.data import StudyData
from iotax.analysis.estimate import Estimate, mean_of
from iotax.calibration.treatments import SIDES, Treatment, measured_treatments, simulated
from iotax.labs.sim.costs import initiators, table_costs
from iotax.study.sim import CostTable
from iotax.trial import TrialResult


@dataclass(frozen=True)
class Predicted:
    """A figure of one treatment. Measured: the mean of its blocks, with a 95 % interval by Student's t over them."""

    measured: Estimate
    simulated: float

    @property
    def off(self) -> float:
        """Difference as a share of the measured value."""
        return self.simulated / self.measured.value - 1

    @property
    def is_within_scatter(self) -> bool:
        """Whether the measurement's own interval holds it."""
        low, high = self.measured.low, self.measured.high
        return low is not None and high is not None and low <= self.simulated <= high


@dataclass(frozen=True)
class Row:
    """One treatment."""

    treatment: str
    cpu_ns: Predicted
    """CPU time per I/O of both sides together."""
    rate_iops: Predicted | None
    """None if more than threads may have taken time: a virtual machine's clock, media, a held rate."""


@dataclass(frozen=True)
class Prediction:
    """Rows for all comparable treatments, and why others are left out."""

    rows: list[Row]
    left_out: list[str]


def predict(data: StudyData, source: str, table: CostTable, program: Path, say: Callable[[str], None]) -> Prediction:
    """`source` names the notebook and its run. Raises NothingMeasured, TrialFailed, EngineError."""
    left_out: list[str] = []
    found = measured_treatments(data, source, table, left_out)
    say(f"simulating {len(found)} treatments")
    return Prediction(rows(found, table, program), left_out)


def rows(treatments: Sequence[Treatment], table: CostTable, program: Path) -> list[Row]:
    """The table's prediction for each. Raises TrialFailed, EngineError."""

    def costs_of(treatment: Treatment) -> dict[str, Mapping[str, int]]:
        costs = table_costs(table, treatment.protocol)
        return {"initiator": initiators(costs), "target": costs["target"]}

    results = simulated(treatments, costs_of, program)
    return [_row(each, result) for each, result in zip(treatments, results, strict=True)]


def _row(treatment: Treatment, result: TrialResult) -> Row:
    blocks = set.intersection(*(set(treatment.measured_ns[side]) for side in SIDES))
    spent_ns = [sum(treatment.measured_ns[side][block] for side in SIDES) for block in sorted(blocks)]
    cpu_ns = Predicted(Estimate.plain(mean_of(spent_ns)), sum(result.cpu_per_io_ns(side) or 0.0 for side in SIDES))
    if treatment.gaps_ns is None:
        return Row(treatment.name, cpu_ns, None)
    rates = [1e9 / gap_ns for gap_ns in treatment.gaps_ns.values()]
    return Row(treatment.name, cpu_ns, Predicted(Estimate.plain(mean_of(rates)), result.rate_iops))
