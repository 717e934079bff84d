"""`iotax export`: results for other programs. Column names hold their units."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any, Literal, TypeAlias

import typer

from iotax.cli.console import say
from iotax.cli.document import judged, write_output
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import open_notebook
from iotax.cli.options import NotebookOption, NotebookPath, one_notebook
from iotax.notebook import Notebook, NotebookError, StudyRun
from iotax.outputs import PARQUET_MARK
from iotax.rows import Row, attempt_rows, cpu_series_rows, is_judged, judged_runs, series_rows
from iotax.version import how_to_install

FORMATS = ("csv", "parquet", "json")
BENCHER = "bencher"
"""Bencher Metric Format is JSON, too."""
ASV = "asv"
"""airspeed velocity's folder of results."""


Table: TypeAlias = Literal["attempts", "series", "cpu series"]
"""The columns that identify a row."""
_ROWS: dict[Table, Callable[[Notebook, StudyRun], Iterator[Row]]] = {
    "attempts": attempt_rows,
    "series": series_rows,
    "cpu series": cpu_series_rows,
}


class Format(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"
    BENCHER = "bencher"
    ASV = "asv"


def export(
    path: NotebookPath = None,
    notebook_option: NotebookOption = None,
    asked: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            help="Default: from the extension of --output, else csv. csv and parquet: one row per attempt; "
            "json: everything; bencher: Bencher Metric Format, one benchmark per treatment; "
            "asv: airspeed velocity's results.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A .csv, .parquet or .json file, or asv's folder; standard output when not given.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="Which run, or `all` of them; the latest when not given.", show_default=False),
    ] = None,
    of_series: Annotated[bool, typer.Option("--series", help="Write one row per interval of each attempt.")] = False,
    of_cpu: Annotated[
        bool, typer.Option("--cpu-series", help="Write one row per interval of CPU time and role.")
    ] = False,
) -> None:
    """Write a notebook's results for other programs."""
    if of_series and of_cpu:
        leave(Exit.USAGE, "--series and --cpu-series write different rows; choose one of them")
    table: Table = "series" if of_series else "cpu series" if of_cpu else "attempts"
    form, series = _format(asked.value if asked else None, output), table != "attempts"
    if form == "parquet" and output is None and sys.stdout.isatty():
        leave(Exit.USAGE, "Parquet is a binary format; name a file with --output")
    if form == ASV and (series or output is None or output.is_file()):
        leave(Exit.USAGE, "asv: name its results_dir with --output, such as .asv/results; there are no series in it")
    if form == BENCHER and (series or run == "all"):
        leave(Exit.USAGE, "bencher: a benchmark is a treatment of one run; leave out the series, and name one run")
    if form == "json" and series:
        option = f"--{table.replace(' ', '-')}"
        leave(Exit.USAGE, f"{option}: JSON has the series of each attempt anyway; leave it out")
    with open_notebook(one_notebook(path, notebook_option)) as notebook:
        judged(output, notebook.path)
        if form == ASV and output is not None:
            _to_asv(notebook, output, run)
            return
        with tempfile.TemporaryFile() as content:
            try:
                _write(notebook, form, _runs(notebook, run), table, content, all_runs=run == "all")
            except NotebookError as error:
                leave(Exit.NOTEBOOK, str(error))
            content.seek(0)
            if output is not None:
                write_output(output, content, notebook.path)
            elif sys.stdout.isatty():
                for line in io.TextIOWrapper(content, encoding="utf-8", newline="\n"):
                    echo(line, nl=False)
            else:
                shutil.copyfileobj(content, sys.stdout.buffer)


def _to_asv(notebook: Notebook, folder: Path, run: str | None) -> None:
    from iotax.cli.export_asv import export_asv

    try:
        for path in export_asv(notebook, _runs(notebook, run), folder):
            say(str(path))
    except NotebookError as error:
        leave(Exit.NOTEBOOK, str(error))


def _format(form: str | None, output: Path | None) -> str:
    """The format given by the file name's extension, which must match."""
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


def _write(
    notebook: Notebook, form: str, runs: list[StudyRun], table: Table, content: IO[bytes], *, all_runs: bool
) -> None:
    """Row by row: a run may have more attempts than memory holds."""
    if form == BENCHER:
        content.write((json.dumps(_bencher(notebook, runs[0]), indent=1) + "\n").encode())
        return
    if form == "json":
        for piece in _json(notebook, runs, all_runs=all_runs):
            content.write(piece.encode())
        return
    rows = (row for run in runs for row in _ROWS[table](notebook, run))
    if form == "parquet":
        content.write(_parquet(rows))
    else:
        _csv(rows, content)


def _json(notebook: Notebook, runs: Sequence[StudyRun], *, all_runs: bool) -> Iterator[str]:
    """Writes as `json.dumps` does with an indent of 1."""
    if not all_runs:
        yield from _everything(notebook, runs[0])
        yield "\n"
        return
    yield '{\n "runs": ['
    for number, run in enumerate(runs):
        yield ",\n  " if number else "\n  "
        for piece in _everything(notebook, run):
            yield piece.replace("\n", "\n  ")
    yield "\n ]\n}\n"


def _everything(notebook: Notebook, run: StudyRun) -> Iterator[str]:
    judgements = judged_runs(notebook, run)
    around = {
        "run": {"id": run.id, "label": run.label, "started_unix_ns": run.started_unix_ns},
        "study": notebook.study(run.id).model_dump(mode="json"),
        "environments": notebook.environments(run.id),
        "backgrounds": [each.model_dump(mode="json") for each in notebook.backgrounds(run.id)],
        "attempts": [],
    }
    yield json.dumps(around, indent=1).removesuffix("]\n}")
    some = False
    for each in notebook.each_attempt(run.id):
        document = each.model_dump(mode="json")
        document |= {"simulated": each.result.facts.simulated} if each.result else {}
        document |= {"validity": judgements[each.trial.id]} if is_judged(each) else {}
        # JSON strings hold line ends as two characters, so every line end here belongs to the indentation.
        text = json.dumps(document, indent=1).replace("\n", "\n  ")
        yield f"{',' if some else ''}\n  {text}"
        some = True
    yield "\n ]\n}" if some else "]\n}"


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
    # This import is slow.
    from iotax.analysis import summarise
    from iotax.collected import study_data

    found: dict[str, dict[str, dict[str, float]]] = {}
    data = study_data(notebook, run.id)
    # The format has no other place for it.
    name = f"simulated/{run.name}" if data.simulated else run.name
    for cell in summarise(data).cells:
        own = found.setdefault("/".join((name, *cell.cell)), {})
        for key, (measure, unit) in _MEASURES.items():
            if (estimate := cell.values.get(key)) is not None:
                ends = {"value": estimate.value, "lower_value": estimate.low, "upper_value": estimate.high}
                own[measure] = {name: value * unit for name, value in ends.items() if value is not None}
    return found


def _csv(rows: Iterable[Row], content: IO[bytes]) -> None:
    """Runs of different studies have different factors: the file has a column for each factor of any run."""
    columns: dict[str, None] = {}
    grown = False
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as body:
        lines = csv.writer(body, lineterminator="\n")
        for row in rows:
            if more := [name for name in row if name not in columns]:
                grown = grown or bool(columns)
                columns |= dict.fromkeys(more)
            lines.writerow([row.get(name) for name in columns])
        body.seek(0)
        text = io.TextIOWrapper(content, encoding="utf-8", newline="")
        whole = csv.writer(text, lineterminator="\n")
        whole.writerow(columns or ["run"])
        if grown:
            whole.writerows(line + [""] * (len(columns) - len(line)) for line in csv.reader(body))
        else:
            shutil.copyfileobj(body, text)
        text.flush()
        text.detach()


def _parquet(rows: Iterable[Row]) -> bytes:
    # This import is slow, and few users need it.
    import pandas as pd

    # Columns of values take much less memory than as many mappings.
    columns: dict[str, list[Any]] = {}
    for count, row in enumerate(rows):
        columns |= {name: [None] * count for name in row if name not in columns}
        for name in columns:
            columns[name].append(row.get(name))
    frame = pd.DataFrame(columns)
    frame.attrs.update(json.loads(PARQUET_MARK))
    try:
        return frame.to_parquet(None, index=False)
    except ImportError:
        leave(Exit.USAGE, f"Parquet needs pyarrow: {how_to_install('parquet')}")
