"""What `import iotax` offers: a notebook's results as pandas frames, with units in the names of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from iotax.analysis import RESPONSES, Estimate, StudyData, Summary, summarise
from iotax.analysis.capacity import Demand, capacity
from iotax.analysis.change import changes
from iotax.collected import study_data
from iotax.design import plan
from iotax.engine import find_engine
from iotax.environment import environment
from iotax.labs.choice import open_lab
from iotax.notebook import Notebook, Writer
from iotax.progress import progress
from iotax.queueing import SizingTarget
from iotax.report import write
from iotax.rows import attempt_rows, cpu_series_rows, series_rows
from iotax.runner import run_study as run_trials
from iotax.study.read import load_study
from iotax.trial import LevelValue

if TYPE_CHECKING:
    import altair

COLUMNS = {
    "iops": "rate_iops",
    "bandwidth": "bandwidth_mib_per_s",
    "latency": "latency_mean_us",
    "latency_p50": "latency_p50_us",
    "latency_p95": "latency_p95_us",
    "latency_p99": "latency_p99_us",
    "latency_p999": "latency_p99_9_us",
    "latency_read": "latency_read_mean_us",
    "latency_read_p50": "latency_read_p50_us",
    "latency_read_p99": "latency_read_p99_us",
    "latency_write": "latency_write_mean_us",
    "latency_write_p50": "latency_write_p50_us",
    "latency_write_p99": "latency_write_p99_us",
    "latency_sync": "latency_sync_mean_us",
    "latency_sync_p50": "latency_sync_p50_us",
    "latency_sync_p99": "latency_sync_p99_us",
    "cpu": "cpu_us_per_io",
    "cpu_initiator": "cpu_initiator_us_per_io",
    "cpu_target": "cpu_target_us_per_io",
    "cpu_hypervisor": "cpu_hypervisor_us_per_io",
    "cpu_machine": "cpu_machine_us_per_io",
    "cpu_guest": "cpu_guest_us_per_io",
    "cpu_generator": "cpu_generator_us_per_io",
    "cpu_disk": "cpu_disk_us_per_io",
    "cpu_qemu": "cpu_qemu_us_per_io",
    "cpu_io_threads": "cpu_io_threads_us_per_io",
    "cpu_vhost": "cpu_vhost_us_per_io",
    "cpu_host_rest": "cpu_host_rest_us_per_io",
    "cpu_initiator_kernel": "cpu_initiator_kernel_us_per_io",
    "cpu_target_kernel": "cpu_target_kernel_us_per_io",
    "cpu_utilisation_initiator": "cpu_utilisation_initiator_percent",
    "cpu_utilisation_target": "cpu_utilisation_target_percent",
    "cpu_utilisation_hypervisor": "cpu_utilisation_hypervisor_percent",
    "cpu_utilisation_machine": "cpu_utilisation_machine_percent",
    "instructions_user": "instructions_user_per_io",
    "instructions_kernel": "instructions_kernel_per_io",
    "cycles_user": "cycles_user_per_io",
    "cycles_kernel": "cycles_kernel_per_io",
    "disk_iops": "disk_rate_iops",
    "transactions": "transactions_per_s",
    "cpu_transaction": "cpu_us_per_transaction",
    "cpu_transaction_initiator": "cpu_initiator_us_per_transaction",
    "cpu_transaction_target": "cpu_target_us_per_transaction",
    "cpu_transaction_hypervisor": "cpu_hypervisor_us_per_transaction",
    "longest_gap": "longest_gap_ms",
    "iops_after": "after_rate_iops",
}
"""A response → the column that holds it."""


class Results:
    """One run of a study in a notebook. Reads it once; open it again to see what was added."""

    def __init__(self, notebook: str | PathLike[str], run: int | None = None) -> None:
        """The latest run where none is named. Raises NotebookError."""
        self.path = Path(notebook)
        with Notebook(self.path) as opened:
            chosen = opened.run(run)
            self.run = chosen.id
            """Its number in the notebook."""
            self.label = chosen.label
            self.data: StudyData = study_data(opened, chosen.id)
            """All that the notebook holds of it."""
            self._attempts = list(attempt_rows(opened, chosen))
            self._series = list(series_rows(opened, chosen))
            self._cpu_series = list(cpu_series_rows(opened, chosen))

    def __repr__(self) -> str:
        trials = f"{len(self.data.measured)} trials{', simulated' if self.simulated else ''}"
        return f"<iotax.Results {self.data.study.name} run {self.run}, {trials}, {self.path}>"

    @property
    def simulated(self) -> bool:
        """Whether no machine was measured; each frame says so in a column, too."""
        return self.data.simulated

    @property
    def question(self) -> str:
        return self.data.study.question

    @cached_property
    def summary(self) -> Summary:
        """The whole analysis, as the report draws it (`iotax.analysis`)."""
        return summarise(self.data)

    def runs(self) -> pd.DataFrame:
        """A row for each attempt at a trial: its factors, whether it is valid, rates in I/Os and bytes per second,
        latencies in ns, CPU time in ns per I/O. A failed attempt has its reason and no figures."""
        return pd.DataFrame(self._attempts)

    def series(self) -> pd.DataFrame:
        """A row for each interval within each attempt: I/Os and bytes in it, its end and length in ns, latencies in
        ns."""
        return pd.DataFrame(self._series)

    def cpu_series(self) -> pd.DataFrame:
        """A row for each interval and role of each attempt whose CPU time was read over time: busy time in ns, with
        the machines' background, without their guests."""
        return pd.DataFrame(self._cpu_series)

    def cells(self) -> pd.DataFrame:
        """A row for each treatment: its factors, `simulated`, `runs`, and for each response that was measured the
        geometric mean over its runs with a 95 % interval, in `NAME`, `NAME_low` and `NAME_high` (`COLUMNS`)."""
        rows = []
        for cell in self.summary.cells:
            row: dict[str, object] = dict(zip(self.summary.grid.factors, cell.cell, strict=True))
            row |= {"simulated": self.simulated, "runs": len(cell.runs), "validity": cell.level.name.lower()}
            for response in RESPONSES:
                if response.key in cell.values:
                    row |= _interval(COLUMNS[response.key], cell.values[response.key])
            rows.append(row)
        return pd.DataFrame(rows)

    def compare(
        self,
        after: Results | None = None,
        *,
        baseline: Mapping[str, LevelValue] | None = None,
        margin_percent: float | None = None,
    ) -> pd.DataFrame:
        """Ratios with 95 % intervals that hold together, and verdicts.

        Without `after`: each treatment over the baseline, the study's or the one named here ({"protocol": "nfs3"}).
        With it: these results as before, `after` as after. Columns: `response`, `treatment`, `condition`, `ratio`,
        `ratio_low`, `ratio_high`, `p`, `verdict`, and `simulated`, or of two runs `before_simulated` and
        `after_simulated`. Differences within the margin, in percent, count as equivalent.
        """
        if after is not None:
            margin = self.data.study.margin if margin_percent is None else margin_percent
            found = changes(self.data, after.data, margin).found
            return pd.DataFrame(
                {
                    "response": COLUMNS[each.response.key],
                    "treatment": each.treatment or "all",
                    "condition": "",
                    **_interval("ratio", each.ratio),
                    "p": each.p_difference,
                    "verdict": each.verdict and each.verdict.value,
                    "before_simulated": self.simulated,
                    "after_simulated": after.simulated,
                }
                for each in found
            )
        return pd.DataFrame(
            {
                "response": COLUMNS[each.response.key],
                "treatment": each.arm,
                "condition": each.condition or "",
                **_interval("ratio", each.ratio),
                "p": each.p_difference,
                "verdict": each.verdict and each.verdict.value,
                "simulated": self.simulated,
            }
            for each in self._against(baseline, margin_percent).comparisons
        )

    def size(self, rate_iops: float, *, utilisation_max: float = 0.8) -> pd.DataFrame:
        """Cores that each treatment needs for a rate: `cores`, and `cores_low` and `cores_high` at both ends of the
        interval of what an I/O costs (`cpu_us_per_io`), busy `utilisation` of the time, `response_us` the mean response
        of the cores. Empty if no CPU time was measured."""
        demand = Demand(rate_iops, SizingTarget(utilisation_max=utilisation_max))
        found = [capacity(cost, demand) for cost in self.summary.sizing(rate_iops).costs]
        return pd.DataFrame(
            {
                "treatment": each.cost.arm,
                **_interval("cpu_us_per_io", each.cost.cost_us),
                "cores": each.size and each.size.servers,
                "cores_low": each.low and each.low.servers,
                "cores_high": each.high and each.high.servers,
                "utilisation": each.size and each.size.queue.utilisation,
                "response_us": each.size and each.size.response_s * 1e6,
                "simulated": self.simulated,
            }
            for each in found
        )

    def charts(self) -> dict[str, altair.TopLevelMixin]:
        """The report's charts as Altair objects, by the names that their files have in `iotax report --charts`. Needs
        `iotax[charts]`; raises ImportError without it."""
        from iotax.charts import charts_of  # noqa: PLC0415 - heavy

        return charts_of(self.summary)

    def report(self, path: str | PathLike[str] | None = None) -> Path:
        """Writes the report, beside the notebook when no file is named. Raises OutputRefused if it would replace a
        notebook or a study."""
        with Notebook(self.path) as opened:
            return write(opened, Path(path) if path is not None else opened.report_path(self.run), run=self.run)

    def _against(self, baseline: Mapping[str, LevelValue] | None, margin_percent: float | None) -> Summary:
        if baseline is None and margin_percent is None:
            return self.summary
        study = self.data.study
        for name, level in (baseline or {}).items():
            if study.level(name, level) is None:
                known = {factor: [each.label for each in levels] for factor, levels in study.levels().items()}
                raise ValueError(f"baseline {name}={level!r}: no such level; the study has {known}")
        changed = {
            "baseline": dict(baseline) if baseline is not None else study.baseline,
            "margin": study.margin if margin_percent is None else margin_percent,
        }
        return summarise(replace(self.data, study=study.model_copy(update=changed)))


def run_study(
    name: str | PathLike[str],
    notebook: str | PathLike[str] | None,
    *,
    label: str,
    destroy: Sequence[str],
    again: bool,
) -> Results:
    """`iotax.run`."""
    study, source = load_study(str(name))
    path = Path(notebook) if notebook is not None else Path("out") / f"{study.name}.iotax"
    planned = plan(study)
    lab = open_lab(study, planned, destroy)
    with Writer(path) as writer:
        done = run_trials(
            study,
            planned,
            lab,
            writer,
            source=source,
            label=label,
            anew=again,
            environment=environment(find_engine()),
            listener=progress(),
        )
    return Results(path, done.run)


def _interval(name: str, estimate: Estimate) -> dict[str, float | None]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
