"""`iotax export --format asv`: results as airspeed velocity keeps them, a file for each commit and the benchmarks.

asv takes lower as better, always, and knows a commit by its hash, which is the run's label. So rates are written as
time per I/O (https://asv.readthedocs.io/en/stable/dev.html, "File format").
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iotax.cli.document import judged, write_output
from iotax.cli.exits import Exit, leave
from iotax.notebook import Notebook, StudyRun
from iotax.version import __version__

if TYPE_CHECKING:
    from iotax.analysis import Response, Run

_ENVIRONMENT = "iotax"
"""asv's name for the set of packages used in a measurement; iotax has only one."""
_MACHINE = "iotax"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
            "stats_q_75", "stats_number", "stats_repeat", "samples"]  # fmt: skip
_MEASURES = {
    "iops": ("time_per_io", lambda iops: 1 / iops),
    "latency": ("latency_mean", lambda us: us / 1e6),
    "latency_p99": ("latency_p99", lambda us: us / 1e6),
    "cpu": ("cpu_per_io", lambda us: us / 1e6),
    "cpu_initiator": ("cpu_per_io_initiator", lambda us: us / 1e6),
    "cpu_target": ("cpu_per_io_target", lambda us: us / 1e6),
    "cpu_hypervisor": ("cpu_per_io_hypervisor", lambda us: us / 1e6),
}
"""Response → its name for asv, and seconds of its value."""


def export_asv(notebook: Notebook, runs: Sequence[StudyRun], folder: Path) -> list[Path]:
    """Writes the files below asv's `results_dir`; keeps entries of others in the list of benchmarks."""
    machine = _machine(notebook, runs[0])
    listed = folder / "benchmarks.json"
    known = _listed(listed)
    contents: dict[Path, dict[str, Any]] = {folder / machine["machine"] / "machine.json": {**machine, "version": 1}}
    for run in runs:
        if not _COMMIT.fullmatch(run.label):
            leave(
                Exit.USAGE,
                f"run {run.id} is labelled {run.label!r}: asv knows results by their commit; measure with "
                "`iotax run STUDY --label $(git rev-parse HEAD)`, or name such a run with --run",
            )
        results = _results(notebook, run)
        known |= {name: _benchmark(name) for name in results}
        contents[folder / machine["machine"] / f"{run.label[:8]}-{_ENVIRONMENT}.json"] = {
            "commit_hash": run.label,
            "env_name": _ENVIRONMENT,
            "date": run.started_unix_ns // 1_000_000,
            "params": machine | {"python": ""},
            "python": "",
            "requirements": {"iotax": __version__},
            "env_vars": {},
            "result_columns": _COLUMNS,
            "results": results,
            "durations": {},
            "version": 2,
        }
    contents[listed] = {**known, "version": 2}
    for path in contents:
        judged(path, notebook.path, known=True)
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_output(path, json.dumps(content, indent=1) + "\n", notebook.path, known=True)
    return list(contents)


def _machine(notebook: Notebook, run: StudyRun) -> dict[str, str]:
    """The machine's name, made from what the notebook records of it; notebooks hold no machine names."""
    around = (notebook.environments(run.id) or [{}])[-1].get("machine", {})
    known = {"arch": "architecture", "cpu": "cpu_model", "os": "kernel", "num_cpu": "cpus", "ram": "memory_bytes"}
    return {"machine": _MACHINE, **{name: str(around.get(field, "")) for name, field in known.items()}}


def _listed(path: Path) -> dict[str, Any]:
    """The benchmarks already in the list."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: each for name, each in found.items() if name != "version"}
    except (OSError, ValueError, AttributeError):
        leave(Exit.USAGE, f"{path} is not a list of benchmarks of asv; name its results_dir with --output")


def _benchmark(name: str) -> dict[str, Any]:
    return {
        "code": "",
        "name": name,
        "pretty_name": name,
        "param_names": [],
        "params": [],
        "timeout": 60.0,
        "type": "time",
        "unit": "seconds",
        "version": "1",
    }


def _results(notebook: Notebook, run: StudyRun) -> dict[str, list[Any]]:
    # This import is slow.
    from iotax.analysis import RESPONSES, summarise
    from iotax.collected import study_data

    responses = {each.key: each for each in RESPONSES}
    found = {}
    data = study_data(notebook, run.id)
    # The format has no other place for it.
    before = ("simulated", run.name) if data.simulated else (run.name,)
    for cell in summarise(data).cells:
        name = ".".join(re.sub(r"[^A-Za-z0-9_-]+", "_", str(part)) for part in (*before, *cell.cell))
        for key, (measure, seconds) in _MEASURES.items():
            samples = _samples(cell.runs, responses[key])
            if key in cell.values and samples:
                found[f"{name}.{measure}"] = _row(seconds(cell.values[key].value), [seconds(each) for each in samples],
                                                  cell.runs)  # fmt: skip
    return found


def _samples(runs: Sequence[Run], response: Response) -> list[float]:
    return [value for run in runs if (value := response.of(run)) is not None and value > 0]


def _row(value: float, samples: Sequence[float], runs: Sequence[Run]) -> list[Any]:
    """Values in the order of `_COLUMNS`; asv keeps a list for each set of parameters, here of one element."""
    low, high = _interval_99(value, samples)
    ordered = sorted(samples)
    quartiles = [ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.75)]
    begun_ns = min(run.result.window.start_unix_ns for run in runs)
    lasted_s = sum(run.duration_s for run in runs)
    return [
        [value], [], "1", begun_ns // 1_000_000, round(lasted_s, 3), [low], [high], [quartiles[0]], [quartiles[1]],
        [1], [len(samples)], [list(samples)],
    ]  # fmt: skip


def _interval_99(value: float, samples: Sequence[float]) -> tuple[float | None, float | None]:
    """The interval of a geometric mean over runs taken as independent, by Student's t; None, asv's value for unbounded,
    for a single run."""
    from iotax.analysis.student import reach

    count = len(samples)
    if count < 2:
        return None, None
    logs = [math.log(each) for each in samples]
    mean = sum(logs) / count
    error = math.sqrt(sum((each - mean) ** 2 for each in logs) / (count - 1) / count)
    width = math.exp(reach(count - 1, 0.99) * error)
    return value / width, value * width
