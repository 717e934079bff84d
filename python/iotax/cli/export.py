"""`iotax export`: results for other programs. Units stand in the names of the columns."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from iotax.cli.console import say
from iotax.cli.document import judged, write_output
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.notebooks import open_notebook
from iotax.notebook import Notebook, NotebookError, StudyRun
from iotax.rows import Row, attempt_rows, cpu_series_rows, is_judged, judged_runs, series_rows

FORMATS = ("csv", "parquet", "json")
BENCHER = "bencher"
"""Bencher Metric Format, which is JSON too."""
ASV = "asv"
"""airspeed velocity's folder of results."""


Table: TypeAlias = Literal["attempts", "series", "cpu series"]
"""What a row is of."""
_ROWS: dict[Table, Callable[[Notebook, StudyRun], list[Row]]] = {
    "attempts": attempt_rows,
    "series": series_rows,
    "cpu series": cpu_series_rows,
}


def export(path: Path | None, form: str | None, output: Path | None, run: str | None, table: Table) -> None:
    form, series = _format(form, output), table != "attempts"
    if form == "parquet" and output is None and sys.stdout.isatty():
        leave(Exit.USAGE, "Parquet is a binary format; name a file with --output")
    if form == ASV and (series or output is None or output.is_file()):
        leave(Exit.USAGE, "asv: name its results_dir with --output, such as .asv/results; there are no series in it")
    if form == BENCHER and (series or run == "all"):
        leave(Exit.USAGE, "bencher: a benchmark is a treatment of one run; leave out the series, and name one run")
    if form == "json" and series:
        option = f"--{table.replace(' ', '-')}"
        leave(Exit.USAGE, f"{option}: JSON has the series of each attempt anyway; leave it out")
    with open_notebook(path) as notebook:
        judged(output, notebook.path)
        if form == ASV and output is not None:
            _to_asv(notebook, output, run)
            return
        try:
            content = _written(notebook, form, _runs(notebook, run), table, all_runs=run == "all")
        except NotebookError as error:
            leave(Exit.NOTEBOOK, str(error))
    if output is None and sys.stdout.isatty():
        echo(content.decode(), nl=False)
    elif output is None:
        sys.stdout.buffer.write(content)
    else:
        write_output(output, content, notebook.path)


def _to_asv(notebook: Notebook, folder: Path, run: str | None) -> None:
    from iotax.cli.export_asv import export_asv

    try:
        for path in export_asv(notebook, _runs(notebook, run), folder):
            say(str(path))
    except NotebookError as error:
        leave(Exit.NOTEBOOK, str(error))


def _format(form: str | None, output: Path | None) -> str:
    """By the file's name, which must not lie."""
    named = output.suffix.removeprefix(".").lower() if output is not None else ""
    if named in FORMATS:
        if form == BENCHER and named == "json":
            return form
        if form not in (None, named):
            leave(Exit.USAGE, f"--format {form} into {output}: the name says {named}; leave --format out")
        return named
    if output is not None and form is None:
        leave(Exit.USAGE, f"{output}: name a .csv, .parquet or .json file, or say --format")
    return form or "csv"


def _runs(notebook: Notebook, run: str | None) -> list[StudyRun]:
    if run == "all":
        return notebook.runs()
    if run is not None and not run.isdecimal():
        leave(Exit.USAGE, f"--run {run}: give a number, or all")
    return [notebook.run(int(run) if run else None)]


def _written(notebook: Notebook, form: str, runs: list[StudyRun], table: Table, *, all_runs: bool) -> bytes:
    if form == BENCHER:
        return (json.dumps(_bencher(notebook, runs[0]), indent=1) + "\n").encode()
    if form == "json":
        whole = [_everything(notebook, run) for run in runs]
        return (json.dumps({"runs": whole} if all_runs else whole[0], indent=1) + "\n").encode()
    rows = [row for run in runs for row in _ROWS[table](notebook, run)]
    return _parquet(rows) if form == "parquet" else _csv(rows).encode()


def _everything(notebook: Notebook, run: StudyRun) -> dict[str, Any]:
    judgements = judged_runs(notebook, run)
    return {
        "run": {"id": run.id, "label": run.label, "started_unix_ns": run.started_unix_ns},
        "study": notebook.study(run.id).model_dump(mode="json"),
        "environments": notebook.environments(run.id),
        "backgrounds": [each.model_dump(mode="json") for each in notebook.backgrounds(run.id)],
        "attempts": [
            each.model_dump(mode="json")
            | ({"simulated": each.result.facts.simulated} if each.result else {})
            | ({"validity": judgements[each.trial.id]} if is_judged(each) else {})
            for each in notebook.attempts(run.id)
        ],
    }


_MEASURES = {
    "iops": ("throughput", 1.0),
    "latency": ("latency", 1e3),
    "latency_p99": ("latency-p99", 1e3),
    "cpu": ("cpu-per-io", 1e3),
    "cpu_initiator": ("cpu-per-io-initiator", 1e3),
    "cpu_target": ("cpu-per-io-target", 1e3),
    "cpu_hypervisor": ("cpu-per-io-hypervisor", 1e3),
}
"""Response → Bencher's measure, and its unit in ours: `throughput` is in operations per second, `latency` in ns
(https://bencher.dev/docs/reference/bencher-metric-format)."""


def _bencher(notebook: Notebook, run: StudyRun) -> dict[str, dict[str, dict[str, float]]]:
    """Treatment → measure → mean with the ends of its 95 % interval."""
    # Heavy.
    from iotax.analysis import summarise
    from iotax.collected import study_data

    found: dict[str, dict[str, dict[str, float]]] = {}
    data = study_data(notebook, run.id)
    # The format has no other place to say it.
    name = f"simulated/{run.name}" if data.simulated else run.name
    for cell in summarise(data).cells:
        own = found.setdefault("/".join((name, *cell.cell)), {})
        for key, (measure, unit) in _MEASURES.items():
            if (estimate := cell.values.get(key)) is not None:
                ends = {"value": estimate.value, "lower_value": estimate.low, "upper_value": estimate.high}
                own[measure] = {name: value * unit for name, value in ends.items() if value is not None}
    return found


def _csv(rows: list[Row]) -> str:
    """Runs of different studies have different factors: each column that any has."""
    columns = list(dict.fromkeys(name for row in rows for name in row)) or ["run"]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _parquet(rows: list[Row]) -> bytes:
    # Heavy, and needed by few.
    import pandas as pd

    try:
        return pd.DataFrame(rows).to_parquet(None, index=False)
    except ImportError:
        leave(Exit.USAGE, "Parquet needs pyarrow: install `iotax[parquet]`")
