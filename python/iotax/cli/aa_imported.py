"""`iotax aa NOTEBOOK` for imported results: the noise floor of the existing runs, since iotax cannot run new ones. It
prints the same table as `iotax aa`: how many replicates it takes to detect a difference of a given size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from iotax.cli.console import console
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.loading import open_notebook
from iotax.notebook import NotebookError

if TYPE_CHECKING:
    from iotax.analysis import Noise, StudyData


def aa_of_imported(path: Path, document: Path | None, *, asked: str) -> None:
    """Exits with the reason if the runs show no scatter. `asked` is an option that needs new runs."""
    from iotax.analysis import summarise
    from iotax.collected import study_data
    from iotax.study.imported import ImportedStudy
    from iotax.wording.verdicts import caution

    with open_notebook(path) as notebook:
        try:
            data = study_data(notebook, notebook.run(None).id)
        except NotebookError as error:
            leave(Exit.NOTEBOOK, str(error))
    study = data.study
    if not isinstance(study, ImportedStudy):
        leave(Exit.USAGE, f"{path} is a notebook, not a study; the noise floor of {study.name}: iotax aa {study.name}")
    if asked:
        leave(Exit.USAGE, f"{path} holds imported runs, and none is run for aa: leave {asked} out")
    judged(document, path)
    summary = summarise(data)
    found = list(summary.noise)
    if not found:
        leave(
            Exit.FAILED,
            f"{path}: no two runs of one treatment with a figure that differs, so their scatter is not known: measure "
            "again, and import two or more replicates of each treatment",
        )
    doubt = summary.doubt_of(summary.cells)
    if document != STDOUT:
        _print(data, found, caution(doubt))
    if document is not None:
        write_document(document, _document(found, doubt.of, doubt.runs), path)


def _print(data: StudyData, found: list[Noise], doubted: str) -> None:
    out = console()
    table = noise_table()
    for noise in found:
        table.add_row(noise.response.title, f"{100 * noise.cv:.1f} %", *needed_columns(noise.cv))
    out.print(table)
    out.print(
        f"Noise floor: scatter of {len(data.measured)} imported runs about their treatment. Right: replicates of each "
        "treatment needed to detect a difference of this size with 90 % power.",
        style="dim",
        soft_wrap=True,
    )
    out.print(
        "A was not compared with B: the files hold no treatment under two names. The files do not say "
        "whether runs were independent.",
        soft_wrap=True,
    )
    if doubted:
        out.print(Text(f"Of these, {doubted}: on a quiet machine the noise floor may be lower.", style="yellow"))


def _document(found: list[Noise], runs: int, doubtful: int) -> dict[str, Any]:
    return {
        "replicates": min(noise.replicates for noise in found),
        "runs": runs,
        "doubtful_runs": doubtful,
        "responses": [
            {
                "response": noise.response.key,
                "noise_floor": noise.cv,
                "detectable_ratio": noise.detectable_ratio,
                "ratio": None,
                "low": None,
                "high": None,
                "verdict": None,
            }
            for noise in found
        ],
    }


DIFFERENCES_PERCENT = (1.0, 2.0, 5.0, 10.0, 20.0)
REPLICATES_MAX = 10_000


def noise_table(*more: str) -> Table:
    """One row for each response: its noise floor, `more`, and the replicates needed by size of difference."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("response")
    for name in ("noise floor", *more):
        table.add_column(name, justify="right", no_wrap=True)
    for percent in DIFFERENCES_PERCENT:
        table.add_column(f"{percent:g} %", justify="right")
    return table


def needed_columns(cv: float) -> list[str]:
    return [_needed(cv, percent) for percent in DIFFERENCES_PERCENT]


def _needed(cv: float, percent: float) -> str:
    from iotax.design.power import replicates_to_detect

    try:
        count = replicates_to_detect(cv, 1 + percent / 100)
    except ValueError:
        return f"> {REPLICATES_MAX:,}"
    return f"{count:,}" if count <= REPLICATES_MAX else f"> {REPLICATES_MAX:,}"
