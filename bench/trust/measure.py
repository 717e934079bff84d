"""One run of a case over real sockets: the result of the analysis, and the true value."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.trust.cases import DELAYS_US, PROTOCOLS, RESPONSES, Case, Hosts, study_text
from iotax.analysis import Summary, summarise
from iotax.analysis.rounds import SLICED, slice_logs
from iotax.analysis.validity import Severity, overall
from iotax.collected import study_data
from iotax.design import plan
from iotax.labs.choice import open_lab
from iotax.listener import Listener
from iotax.notebook import Notebook, Writer
from iotax.runner import run_study
from iotax.study.read import read_study

_ARMS = 2


@dataclass(frozen=True)
class Found:
    """The result of one run for one response."""

    case: str
    number: int
    protocol: str
    response: str
    ratio: float
    low: float
    high: float
    truth: float
    """The injected ratio: the injected cost added to this run's baseline, over the baseline."""

    @property
    def covers(self) -> bool:
        return self.low <= self.truth <= self.high

    @property
    def differs(self) -> bool:
        return not self.low <= 1 <= self.high


@dataclass(frozen=True)
class Run:
    found: list[Found]
    slices: list[dict[str, list[list[float]]]]
    """Per session: response → for each arm the logarithms of its slices, in the order of rounds."""
    disturbed: float
    """Share of its trials that are doubtful because of how they ran."""
    base_us: dict[str, float]
    """Response → the baseline's value in µs; CPU is that of both sides."""


def measure(
    case: Case, number: int, *, burn_ns: int, sessions: int, rounds: int, hosts: Hosts | None = None
) -> Run | None:
    """None if a trial failed."""
    text = study_text(case, number, burn_ns=burn_ns, sessions=sessions, rounds=rounds, hosts=hosts)
    summary = collected(case.key, text)
    return None if summary is None else _told(case, number, summary, burn_ns)


def collected(name: str, text: str) -> Summary | None:
    """Runs a study; None if a trial failed. Raises KeyboardInterrupt if the user stopped it."""
    with tempfile.TemporaryDirectory(prefix="iotax-trust-") as folder:
        study = read_study(f"{name}.yaml", text, Path(folder))
        planned = plan(study)
        notebook = Path(folder) / "run.iotax"
        lab = open_lab(study, planned, [])
        with Writer(notebook) as writer:
            ending = run_study(
                study,
                planned,
                lab,
                writer,
                source=text,
                label="",
                anew=True,
                environment={},
                listener=Listener(),
            )
        if ending.interrupted:
            raise KeyboardInterrupt
        with Notebook(notebook) as opened:
            data = study_data(opened)
    return summarise(data) if len(data.measured) == len(planned.trials) else None


def _told(case: Case, number: int, summary: Summary, burn_ns: int) -> Run:
    cells = {cell.arm: cell for cell in summary.cells}
    base = cells[summary.grid.baseline_arm]
    base_us = {name: base.values[name].value for name in ("latency", "cpu")}
    truths = dict.fromkeys(RESPONSES, 1.0)
    if case.injected:
        added_us = burn_ns / 1e3 if case.injected == "burn" else DELAYS_US[1] - DELAYS_US[0]
        slower = 1 + added_us / base_us["latency"]
        truths = {"iops": 1 / slower, "latency": slower}
        if case.injected == "burn":
            truths["cpu"] = 1 + added_us / base_us["cpu"]
    found = []
    for answer in summary.overalls:
        ratio = answer.comparison.ratio
        if answer.response.key not in truths or ratio.low is None or ratio.high is None:
            continue
        found.append(
            Found(
                case.key,
                number,
                PROTOCOLS[number % len(PROTOCOLS)],
                answer.response.key,
                ratio.value,
                ratio.low,
                ratio.high,
                truths[answer.response.key],
            )
        )
    doubtful = [overall(checks) >= Severity.DOUBTFUL for checks in summary.run_checks.values()]
    return Run(found, _slices(summary), sum(doubtful) / len(doubtful), base_us)


def _slices(summary: Summary) -> list[dict[str, list[list[float]]]]:
    sessions: dict[int, dict[str, list[list[float]]]] = {}
    grid = summary.grid
    baseline_first = sorted(summary.data.runs, key=lambda run: grid.arm(grid.cell(run.trial)) != grid.baseline_arm)
    for run in baseline_first:
        of = sessions.setdefault(run.trial.block, {})
        for response in RESPONSES:
            logs = slice_logs(run.result, SLICED[response])
            if logs is not None:
                of.setdefault(response, []).append([logs[at] for at in sorted(logs)])
    # A slice without a completed I/O has no logarithm, so its session has no pair.
    return [
        {response: arms for response, arms in sessions[block].items() if len(arms) == _ARMS}
        for block in sorted(sessions)
    ]
