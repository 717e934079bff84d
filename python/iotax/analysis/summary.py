"""A summary of one run of a study, from which tables, charts and sentences are made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from iotax.analysis import histogram
from iotax.analysis.capacity import REPORT_RATE_IOPS
from iotax.analysis.carryover import CarryOver, carry_over
from iotax.analysis.compare import (
    Comparison,
    Estimate,
    LayoutCache,
    Model,
    Overall,
    Paired,
    Tax,
    compare,
    compare_overall,
    paired,
    taxes,
)
from iotax.analysis.cost import CpuCosts, ServiceCost, Sizing, cpu_costs, service_costs
from iotax.analysis.data import Cell, Grid, StudyData
from iotax.analysis.effects import Share, explained_variation
from iotax.analysis.noise import Noise, noise_check, noise_floor
from iotax.analysis.published import Source, beside_published
from iotax.analysis.quantiles import Quantile, Shift, quantiles, shift
from iotax.analysis.responses import CPU, RESPONSES, Response, Run, counted
from iotax.analysis.sessions import SessionScatter, session_scatter
from iotax.analysis.validity import Check, Doubt, Severity, doubt, overall, worst_of
from iotax.analysis.withheld import Unread, chosen, unread


@dataclass(frozen=True)
class CellSummary:
    """A treatment over all its runs."""

    cell: Cell
    arm: str
    condition: str
    runs: list[Run]
    values: dict[str, Estimate]
    """Response key → geometric mean of the runs."""
    ratios: dict[str, Comparison]
    """Response key → ratio to the baseline; the baseline's own are missing."""
    checks: list[Check]
    """The weightiest finding of each check over the runs."""
    doubt: Doubt
    confidence: float
    """Confidence of the intervals of quantiles (`StudyData.confidence`)."""

    @cached_property
    def latency(self) -> histogram.LatencyBins:
        """The runs' counts added up."""
        return histogram.merge(run.latency for run in self.runs)

    @cached_property
    def quantiles(self) -> list[Quantile]:
        """Quantiles of the merged latency that the counts can resolve, with intervals from the runs."""
        return quantiles(self.runs, confidence=self.confidence)

    @property
    def level(self) -> Severity:
        return overall(self.checks)


@dataclass(frozen=True)
class Summary:
    """Everything that the data say. `responses` are the study's own, the primary first."""

    data: StudyData
    grid: Grid
    responses: list[Response]
    cells: list[CellSummary]
    comparisons: list[Comparison]
    overalls: list[Overall]
    taxes: list[Tax]
    shares: dict[str, list[Share]]
    """Response key → what explains its variation, without local, which would outweigh all else."""
    models: dict[str, Model]
    run_checks: dict[str, list[Check]]
    """Trial id → findings, of every run that was measured, compared or left out."""

    @cached_property
    def database(self) -> bool:
        """Whether the load was a database's, which counts transactions."""
        return any(run.result.database is not None for run in self.data.measured)

    @property
    def counts(self) -> str:
        """What the load counts: "I/O" or "transaction"."""
        return "transaction" if self.database else "I/O"

    @property
    def rate_unit(self) -> str:
        return "transactions/s" if self.database else "IOPS"

    def counted(self, response: Response) -> Response:
        """The equivalent response in the units that this load counts."""
        return counted(response, database=self.database)

    @cached_property
    def unexcluded(self) -> "Summary | None":
        """The summary including the runs that the study's rules leave out; None if there are none."""
        if not self.data.excluded:
            return None
        return summarise(replace(self.data, study=self.data.study.model_copy(update={"exclude": []})))

    def doubt(self, arm: str, of: Response | None = None) -> Doubt:
        """The doubt about the runs behind an arm's comparison with the baseline; with a response, only what concerns
        it."""
        sides = (arm, self.grid.baseline_arm)
        return self.doubt_of([cell for cell in self.cells if cell.arm in sides], of)

    def tax_doubt(self, tax: Tax) -> Doubt:
        """The doubt about the runs behind a tax: the treatment's, and those of the same volume reached locally."""
        own = [cell for cell in self.cells if (cell.arm, cell.condition) == (tax.arm, tax.condition)]
        local = {self.grid.local_of(cell.cell) for cell in own}
        return self.doubt_of([*own, *(cell for cell in self.cells if cell.cell in local)])

    def doubt_of(self, cells: Sequence[CellSummary], of: Response | None = None) -> Doubt:
        """The doubt about all runs of these cells; with a response, only what concerns it."""
        return doubt([self.run_checks[run.trial.id] for cell in cells for run in cell.runs], of)

    @cached_property
    def noise(self) -> list[Noise]:
        """For each response of the study, the scatter of runs of one treatment and what it hides."""
        return [noise for r in self.responses if (noise := noise_floor(self.models[r.key])) is not None]

    @cached_property
    def paired(self) -> list[Paired]:
        """For each response of the study, how arms differ over conditions that were measured once each."""
        return [found for r in self.responses for found in paired(self.models[r.key])]

    @cached_property
    def session_scatter(self) -> SessionScatter | None:
        """Sources of scatter of the primary response's ratios, if the study was measured in rounds."""
        return session_scatter(self.data.runs, self.grid, self.responses[0]) if self.responses else None

    @cached_property
    def carry_over(self) -> CarryOver | None:
        """The effect of the preceding slice on the primary response, if the study was measured in rounds."""
        return carry_over(self.data.runs, self.grid, self.responses[0]) if self.responses else None

    @cached_property
    def shifts(self) -> list[Shift]:
        """Latency quantile by quantile against the baseline under the same condition; local is not compared."""
        runs = {cell.cell: cell.runs for cell in self.cells}
        return [
            shift(each.arm, each.condition, each.runs, runs[base], self.data.confidence)
            for each in self.cells
            if (base := self.grid.baseline_of(each.cell)) in runs
            and base != each.cell
            and not self.grid.is_local(each.cell)
        ]

    @cached_property
    def costs(self) -> CpuCosts | None:
        """The CPU model, where the study holds rates."""
        return cpu_costs(self.data, self.grid)

    def sizing(self, rate_iops: float) -> Sizing:
        """CPU time per I/O of each arm about this rate, with the doubt about the runs that it comes from."""
        found = service_costs(self.costs, self.models, self.grid, rate_iops, self.data.study.responses)

        def doubted(cost: ServiceCost) -> ServiceCost:
            own = [c for c in self.cells if c.arm == cost.arm and cost.condition in (None, c.condition)]
            return replace(cost, doubt=self.doubt_of(own, CPU))

        return replace(found, costs=[doubted(cost) for cost in found.costs])

    @cached_property
    def report_sizing(self) -> Sizing:
        """For the rate that every report sizes."""
        return self.sizing(REPORT_RATE_IOPS)

    @cached_property
    def unread(self) -> list[Unread]:
        """CPU time that the study asks for and no run has."""
        return unread(self.data.study.responses, self.data.runs)

    @cached_property
    def sources(self) -> list[Source]:
        """Published figures for this question, beside the measured ones."""
        return beside_published(self.data.study, self.models) if self.data.runs else []

    @property
    def both_ways(self) -> list[tuple[Overall, Overall]]:
        """Each overall answer, and the answer including the runs that were left out."""
        others = {(o.response.key, o.arm): o for o in self.unexcluded.overalls} if self.unexcluded else {}
        return [(o, others[o.response.key, o.arm]) for o in self.overalls if (o.response.key, o.arm) in others]


def summarise(data: StudyData) -> Summary:
    """The whole analysis. Works on any part of a study that has run: cells without runs are left out."""
    grid = Grid(data.study)
    layouts = LayoutCache()
    models = {response.key: Model(response, grid, data, layouts) for response in RESPONSES}
    responses = chosen(data.study.responses, data.runs)
    comparisons = [c for r in RESPONSES if models[r.key].observed for c in compare(models[r.key], data.study.margin)]
    overalls = [
        found
        for r in responses
        for found in compare_overall(models[r.key], [c for c in comparisons if c.response is r], data.study.margin)
    ]
    return Summary(
        data,
        grid,
        responses,
        _cells(data, grid, models, comparisons, responses[0] if responses else None),
        comparisons,
        overalls,
        taxes(models) if grid.local is not None and data.runs else [],
        {r.key: _shares(models[r.key]) for r in responses},
        models,
        data.checks,
    )


def _shares(model: Model) -> list[Share]:
    kept = [i for i, cell in enumerate(model.cells) if not model.grid.is_local(cell)]
    treatments = [dict(zip(model.grid.factors, model.cells[i], strict=True)) for i in kept]
    return explained_variation(treatments, model.model.y[kept])


def _cells(
    data: StudyData,
    grid: Grid,
    models: dict[str, Model],
    comparisons: Sequence[Comparison],
    primary: Response | None,
) -> list[CellSummary]:
    by_cell: dict[Cell, list[Run]] = {}
    for run in data.runs:
        by_cell.setdefault(grid.cell(run.trial), []).append(run)
    ratios: dict[tuple[str, str | None], dict[str, Comparison]] = {}
    for comparison in comparisons:
        ratios.setdefault((comparison.arm, comparison.condition), {})[comparison.response.key] = comparison
    result = []
    for cell in grid.cells():
        if cell not in by_cell:
            continue
        values = {key: estimate for key, model in models.items() if (estimate := model.absolute(cell)) is not None}
        arm, condition = grid.arm(cell), grid.condition(cell)
        checks = worst_of([data.checks[run.trial.id] for run in by_cell[cell]])
        checks.append(noise_check(values.get(primary.key) if primary else None, data.study.margin))
        result.append(
            CellSummary(
                cell,
                arm,
                condition,
                by_cell[cell],
                values,
                ratios.get((arm, condition), {}),
                checks,
                doubt([data.checks[run.trial.id] for run in by_cell[cell]]),
                data.confidence,
            )
        )
    return result
