"""`iotax aa`: compares a treatment with itself to measure this lab's noise floor. Slow imports follow the first line on
the screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.text import Text

from iotax.cli.aa_imported import needed_columns, noise_table
from iotax.cli.console import console
from iotax.cli.display import display_on
from iotax.cli.document import STDOUT, interval, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.loading import load
from iotax.cli.options import JsonFile, NotebookOption, StudyName, one_notebook
from iotax.cli.run import Wishes, measure
from iotax.notebook import Notebook
from iotax.outputs import OUT
from iotax.study import Study
from iotax.study.model import Design, factor_names
from iotax.study.read import read_study
from iotax.study.source import StudyError

if TYPE_CHECKING:
    from iotax.analysis import Comparison, Noise
    from iotax.analysis.validity import Doubt

NAMES = ("A", "B")
REPLICATES = 10
"""Runs of A and of B if no number is given."""


def aa(
    name: StudyName = "quick",
    notebook: Annotated[
        Path | None,
        typer.Argument(help="Where results are kept; out/aa.iotax when not given.", show_default=False),
    ] = None,
    notebook_option: NotebookOption = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="Protocol or endpoint of the study; default: its baseline.", show_default=False),
    ] = None,
    asked: Annotated[
        int | None, typer.Option("--replicates", min=2, help="Runs of each of the two sides.", show_default="10")
    ] = None,
    document: JsonFile = None,
) -> None:
    """Compare a treatment with itself: the noise floor of this lab.

    Prints how many replicates it takes to detect a difference of a given size. For a notebook with imported results,
    it prints the noise floor of those runs.
    """
    notebook = one_notebook(notebook, notebook_option)
    if name.endswith(".iotax") and Path(name).is_file():
        from iotax.cli.aa_imported import aa_of_imported

        options = {"--protocol": protocol, "--replicates": asked, "another notebook": notebook}
        aa_of_imported(Path(name), document, asked=next((each for each, value in options.items() if value), ""))
        return
    study, _ = load(name)
    if study.lab.sim is not None:
        leave(
            Exit.USAGE,
            f"{name} is simulated, and `iotax aa` tells how far apart equal runs of a machine lie: those of a "
            "simulation differ only by random seed. Name a study of another lab",
        )
    replicates = asked or REPLICATES
    twin, source = _twin(study, protocol, replicates)
    path = notebook or OUT / "aa.iotax"
    judged(document, path, Path(name))
    display = display_on(sys.stderr if document == STDOUT else sys.stdout)
    display.asked(twin)
    ran = measure(twin, source, path, display, wishes=Wishes(again=True))
    if ran.interrupted:
        leave(Exit.INTERRUPTED, f"interrupted; an A/A run starts from the beginning each time. Results so far: {path}")
    from iotax.analysis import summarise
    from iotax.collected import study_data
    from iotax.wording.verdicts import caution

    with Notebook(path) as opened:
        data = study_data(opened, ran.run)
    summary = summarise(data)
    ratios = {overall.response.key: overall.comparison for overall in summary.overalls}
    doubt = summary.doubt(NAMES[1])
    found = [(noise, ratios[noise.response.key]) for noise in summary.noise]
    if not found:
        out = f"; {len(data.excluded)} are excluded by the study's rules" if data.excluded else ""
        leave(Exit.FAILED, f"too few trials were measured to judge{out}; `iotax show {path}` says why")
    if document != STDOUT:
        _print(found, study.margin, data.study.design, caution(doubt))
    if document is not None:
        write_document(document, _document(found, replicates, doubt), path)


def _twin(study: Study, protocol: str | None, replicates: int) -> tuple[Study, str]:
    """The study with one treatment under two names. Other factors have the baseline's level or their first."""
    document = study.model_dump(mode="json", exclude_defaults=True)
    levels = {name: (study.baseline_level(name) or found[0]).label for name, found in study.levels().items()}
    only = protocol or levels.pop("protocol", None) or study.connection.protocol or "local"
    endpoint = study.endpoints().get(only)
    target = endpoint.uri or endpoint.protocol if endpoint else only
    if only in study.setups():
        target = document["factors"]["protocol"][only]
    for factor, factors in document["factors"].items():
        if factor != "protocol":
            level = factors[levels[factor]] if isinstance(factors, dict) else levels[factor]
            document.setdefault(factor_names()[factor], {})[factor] = _plain(level)
    document.get("connection", {}).pop("protocol", None)
    # aa runs one load: it searches for nothing and compares with no published figures.
    for left_out in ("published", "links", "search"):
        document.pop(left_out, None)
    document |= {
        "name": "aa",
        "question": f"How much do runs of {only} vary when nothing differs?",
        "factors": {"protocol": dict.fromkeys(NAMES, target)},
        "design": {"replicates": replicates, "seed": study.design.seed, **_slices(document.get("design", {}))},
        "baseline": {"protocol": NAMES[0]},
    }
    source = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    try:
        return read_study("aa", source, Path.cwd()), source
    except StudyError as error:
        leave(Exit.USAGE, "\n".join(error.lines()))


def _slices(design: dict[str, Any]) -> dict[str, Any]:
    """The settings of sessions if the study is measured in rounds."""
    return {name: design[name] for name in ("rounds", "slice", "settle") if name in design}


def _plain(level: object) -> object:
    """Converts labels of numbers and switches to the values that the file would hold."""
    if isinstance(level, str):
        return {"on": True, "off": False}.get(level, int(level) if level.isdecimal() else level)
    return level


def _document(found: list[tuple[Noise, Comparison]], replicates: int, doubt: Doubt) -> dict[str, Any]:
    return {
        "replicates": replicates,
        "runs": doubt.of,
        "doubtful_runs": doubt.runs,
        "responses": [
            {
                "response": noise.response.key,
                "noise_floor": noise.cv,
                "detectable_ratio": noise.detectable_ratio,
                **interval(comparison.ratio),
                "verdict": comparison.verdict,
            }
            for noise, comparison in found
        ],
    }


def _print(found: list[tuple[Noise, Comparison]], margin: float, design: Design, doubted: str) -> None:
    from iotax.analysis import Verdict
    from iotax.wording import span

    out = console()
    table = noise_table("B over A")
    for noise, comparison in found:
        ratio = comparison.ratio
        said = f"{100 * ratio.value:.1f}"
        if ratio.low is not None and ratio.high is not None:
            said += f" \\[{100 * ratio.low:.1f}, {100 * ratio.high:.1f}]"
        table.add_row(noise.response.title, f"{100 * noise.cv:.1f} %", said, *needed_columns(noise.cv))
    out.print(table)
    out.print(
        f"Noise floor: scatter of runs about their block, from {design.replicates} {design.unit}s each of A and B, "
        f"which are the same. Right: {design.unit}s needed to detect a difference of this size with 90 % power.",
        style="dim",
        soft_wrap=True,
    )
    if doubted:
        text = f"Of this comparison, {doubted}: on a quiet machine the noise floor may be lower."
        out.print(Text(text, style="yellow"), soft_wrap=True)
    alarms = [each for each in found if each[1].verdict in (Verdict.BETTER, Verdict.WORSE)]
    for noise, comparison in alarms:
        text = (
            f"{noise.response.title}: A and B differ significantly ({span(comparison.ratio)}), although they are the "
            "same. This happens once in twenty times by chance; if it happens again, runs here are not independent."
        )
        out.print(Text(text, style="yellow"), soft_wrap=True)
    if not alarms:
        text = f"No significant difference between A and B, as expected; the margin of the study is {margin:g} %."
        out.print(text, soft_wrap=True)
