"""`iotax sim costs`: makes a cost table from measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from iotax.calibration import Check, Made, make_table
from iotax.cli.console import console, say
from iotax.cli.document import STDOUT, judged, write_document, write_output
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import open_notebook
from iotax.cli.options import JsonFile, NotebookOption, NotebookPath, RunNumber, one_notebook
from iotax.cli.sim_predict import costs_of, document_of, measured, sentences, simulating, table_of, tell
from iotax.engine import find_engine
from iotax.labs.sim.costs import told
from iotax.study.sim import Cost, Costs, CostTable


def costs(
    path: NotebookPath = None,
    notebook_option: NotebookOption = None,
    run: RunNumber = None,
    base: Annotated[
        str, typer.Option(metavar="TABLE", help="Source of the figures that the measurements cannot determine.")
    ] = "loopback",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FACTOR=LEVEL,...",
            help="Use only treatments with one of these levels, and show how well it predicts the others; may be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The table to write.")] = Path(
        "costs.yaml"
    ),
    document: JsonFile = None,
) -> None:
    """Make a cost table from measurements.

    Name the table under `lab: {sim: {costs: FILE}}`. Each figure has its interval and its source: notebook, run, date
    and machine. An existing file is not overwritten.
    """
    chosen = _levels(only or [])
    with open_notebook(one_notebook(path, notebook_option)) as notebook:
        if output.exists():
            leave(Exit.USAGE, f"{output} already exists; name another file with --output")
        judged(output, notebook.path)
        judged(document, notebook.path, output, Path(base))
        table = costs_of(base, "--base")
        data, source = measured(notebook, run)
        with simulating():
            made = make_table(data, source, table, f"table {base}", find_engine(), tell, chosen)
        write_output(output, text_of(made.table), notebook.path)
        if document != STDOUT:
            _print(made, output)
        if document is not None:
            write_document(document, _document(made, output), notebook.path, output, Path(base))


def _levels(words: list[str]) -> dict[str, list[str]]:
    """The levels by factor of `--only FACTOR=LEVEL,LEVEL`."""
    found: dict[str, list[str]] = {}
    for word in words:
        factor, _, levels = word.partition("=")
        named = [level.strip() for level in levels.split(",")]
        if not factor or not all(named):
            leave(Exit.USAGE, f"--only {word}: write FACTOR=LEVEL,LEVEL, such as outstanding=1,8,64")
        found.setdefault(factor.strip(), []).extend(named)
    return found


def text_of(table: CostTable) -> str:
    """The table as a file, one line for each figure."""
    lines = [f"about: {json.dumps(table.about, ensure_ascii=False)}"]
    if table.turn_cv:
        source = json.dumps(table.turn_cv.source, ensure_ascii=False)
        lines.append(f"turn_cv: {{percent: {table.turn_cv.percent}, source: {source}}}")
    lines.append("protocols:")
    for protocol, sides in table.protocols.items():
        lines.append(f"  {protocol}:")
        for side, own in told(sides).items():
            lines.append(f"    {side}:")
            lines += [f"      {name}: {{{_figure(cost)}}}" for name, cost in own.figures().items()]
    return "\n".join(lines) + "\n"


def _figure(cost: Cost) -> str:
    parts = [f"ns: {cost.ns}"]
    if cost.interval is not None:
        parts.append("low_ns: {}, high_ns: {}".format(*cost.interval))
    return ", ".join([*parts, f"source: {json.dumps(cost.source, ensure_ascii=False)}"])


def _print(made: Made, output: Path) -> None:
    out = console()
    out.print(_figures(made.table))
    if made.table.turn_cv:
        say(f"Turns vary: the standard deviation of one is {made.table.turn_cv.percent} % of what it costs.")
    out.print(_checks(made.checks))
    close = sum(abs(each.off) <= 0.1 for each in made.checks)
    say(
        f"{close} of {len(made.checks)} CPU times per I/O that the table was made from come out within 10 %."
        + ("" if made.others else " How well it predicts others is for other measurements to say.")
    )
    if made.others:
        out.print(table_of(made.others, "the table"))
        say(f"Of {len(made.others)} treatments that the table was not made from:")
        for line in sentences(made.others):
            say(line)
    for line in made.left_out:
        say(f"Left out: {line}.")
    echo(f"Table of costs: {output}. Name it as `lab: {{sim: {{costs: {output}}}}}`.")


def _figures(table: CostTable) -> Table:
    shown = Table(title="Nanoseconds of CPU, with 95 % intervals where they were measured", title_justify="left")
    given = [own.figures() for sides in table.protocols.values() for own in told(sides).values()]
    names = [name for name in Costs.model_fields if any(name in figures for figures in given)]
    for name in ("protocol", "side", *names):
        shown.add_column(name, justify="left" if name in ("protocol", "side") else "right")
    for protocol, sides in table.protocols.items():
        for side, own in told(sides).items():
            shown.add_row(protocol, side, *(_shown(own.figures().get(name)) for name in names))
    return shown


def _shown(cost: Cost | None) -> str:
    if cost is None:
        return ""
    return f"{cost.ns:,}" if cost.interval is None else "{:,}\n{:,}–{:,}".format(cost.ns, *cost.interval)


def _checks(checks: list[Check]) -> Table:
    shown = Table(title="CPU per I/O of what the table was made from", title_justify="left")
    for name in ("treatment", "side"):
        shown.add_column(name)
    for name in ("measured µs", "by the table µs", "off"):
        shown.add_column(name, justify="right")
    for each in checks:
        measured, simulated = (f"{ns / 1000:.2f}" for ns in (each.measured_ns, each.simulated_ns))
        shown.add_row(escape(each.treatment), each.side, measured, simulated, f"{100 * each.off:+.0f} %")
    return shown


def _document(made: Made, output: Path) -> dict[str, Any]:
    return {
        "costs": str(output),
        "table": made.table.model_dump(mode="json"),
        "checks": [
            {
                "treatment": each.treatment,
                "side": each.side,
                "measured_ns": each.measured_ns,
                "simulated_ns": each.simulated_ns,
            }
            for each in made.checks
        ],
        "others": document_of(made.others),
        "left_out": made.left_out,
    }
