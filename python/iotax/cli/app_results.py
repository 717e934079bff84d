"""Commands that read results: import, show, report, compare, size, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from iotax.cli import complete, options
from iotax.cli.exits import Exit, leave
from iotax.cli.options import (
    Format,
    JsonCommand,
    JsonFile,
    Long,
    NewNotebook,
    NotebookOption,
    NotebookPath,
    PlainCommand,
    RunNumber,
    one_notebook,
)

results = typer.Typer()


@results.command("import", cls=JsonCommand)
def import_(
    form: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="Which program wrote the files; `iotax import list` names them.",
            autocompletion=complete.import_formats,
        ),
    ],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Files, or folders of them.", show_default=False),
    ] = None,
    notebook: NewNotebook = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            "--factor",
            metavar="NAME=VALUE",
            help="A factor level that applies to all files, such as protocol=iscsi; may be repeated.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=TITLE",
            help="For `table`: which column holds NAME, such as 'iops=IO/s', 'latency_ms=Avg ms' or 'protocol=Setup'. "
            "A number instead of a title applies to all rows (duration_s=60); may be repeated.",
            show_default=False,
        ),
    ] = None,
    name_pattern: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Factors by the files' names, such as '{protocol}-{bs}-r{replicate}.json'; * matches anything.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="SETTING",
            help="Use this setting in the files as a factor, such as outstanding; may be repeated.",
            show_default=False,
        ),
    ] = None,
    cpu: Annotated[
        list[str] | None,
        typer.Option(
            "--cpu",
            metavar="ROLE=FILE",
            help="CPU recorded beside the runs by sar, mpstat or esxtop, joined by time; ROLE is initiator, target, "
            "hypervisor (the host of virtual initiators) or guest (such an initiator); may be repeated.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="[FILE=]TIME",
            help="When the first run of a file began that does not say it, such as 2026-05-01T10:00:00Z; `written`: "
            "runs ended when their files were written. CPU is joined to such runs only with this; may be repeated.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LEVEL", help="The level that counts as 100; default: the first one.", show_default=False
        ),
    ] = None,
    floor: Annotated[
        str, typer.Option(metavar="LEVEL", help="The level of protocol that is the volume without a protocol.")
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the study; default: from the paths.")] = "",
    question: Annotated[str, typer.Option(help="The question that the study answers, for the report.")] = "",
    margin: Annotated[
        float,
        typer.Option(
            parser=options.percent, metavar="PERCENT", help="Differences that count as equivalent.", show_default="5%"
        ),
    ] = 5.0,
    published: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Published figures to set beside the results: a file with `published:` as in a study, or a built-in "
            "study's name.",
        ),
    ] = "",
    response: Annotated[
        list[str] | None,
        typer.Option(
            "--response",
            metavar="NAME",
            help="What to compare, the primary response first, such as cpu_hypervisor or cpu_utilisation_machine; may "
            "be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="Name of this import, such as `before` or `after`.")] = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running and add files as they appear, until Ctrl-C.")
    ] = False,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Read other programs' results into a notebook.

    `iotax report`, `compare`, `size` and `export` then read the notebook. Settings that differ between the files
    become factors, unless --by chooses them. iotax names what it cannot read, with file, line and field, and imports
    the rest.
    """
    from iotax.cli import imports as command

    command.import_(
        command.Request(
            form,
            tuple(paths or ()),
            notebook,
            tuple(factor or ()),
            tuple(column or ()),
            name_pattern,
            tuple(by or ()),
            tuple(cpu or ()),
            tuple(at or ()),
            tuple(baseline or ()),
            floor,
            name,
            question,
            margin,
            published,
            tuple(response or ()),
            label,
        ),
        document,
        watch=watch,
        long=long,
    )


@results.command(cls=JsonCommand)
def show(
    notebook: NotebookPath = None,
    notebook_option: NotebookOption = None,
    run: RunNumber = None,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Show a notebook: runs, results, failed attempts."""
    from iotax.cli import show as command

    command.show(one_notebook(notebook, notebook_option), run, document, long=long)


@results.command(cls=PlainCommand)
def report(
    notebook: NotebookPath = None,
    notebook_option: NotebookOption = None,
    run: RunNumber = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The HTML file; beside the notebook when not given.", show_default=False),
    ] = None,
    charts: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write each chart as SVG and PNG into this folder.", show_default=False),
    ] = None,
    pdf: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also print the report to this PDF, using an installed Chromium.", show_default=False
        ),
    ] = None,
) -> None:
    """Write the report of a notebook: one HTML file."""
    from iotax.cli import show as command

    command.report(one_notebook(notebook, notebook_option), run, output, charts, pdf)


@results.command(cls=PlainCommand)
def export(
    notebook: NotebookPath = None,
    notebook_option: NotebookOption = None,
    form: Annotated[
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
    series: Annotated[bool, typer.Option("--series", help="Write one row per interval of each attempt.")] = False,
    cpu_series: Annotated[
        bool, typer.Option("--cpu-series", help="Write one row per interval of CPU time and role.")
    ] = False,
) -> None:
    """Write a notebook's results for other programs."""
    from iotax.cli import export as command

    if series and cpu_series:
        leave(Exit.USAGE, "--series and --cpu-series write different rows; choose one of them")
    table: command.Table = "series" if series else "cpu series" if cpu_series else "attempts"
    command.export(one_notebook(notebook, notebook_option), form.value if form else None, output, run, table)


@results.command(cls=JsonCommand)
def size(
    notebook: NotebookPath = None,
    notebook_option: NotebookOption = None,
    iops: Annotated[
        int,
        typer.Option(
            parser=options.rate,
            metavar="RATE",
            help="I/Os per second that the cores must sustain.",
            show_default="70k",
        ),
    ] = 70_000,
    cpu_us: Annotated[
        list[str] | None,
        typer.Option(
            "--cpu-us",
            metavar="[NAME=]US[:LOW-HIGH]",
            help="CPU time per I/O in µs, such as 81 or nfs=81:78-84, without a notebook; may be repeated.",
            show_default=False,
        ),
    ] = None,
    cap: Annotated[
        float,
        typer.Option(
            parser=options.percent,
            metavar="PERCENT",
            help="Highest allowed utilisation of the cores.",
            show_default="80%",
        ),
    ] = 80,
    response: Annotated[
        str | None,
        typer.Option(
            metavar="LIMIT",
            help="Limit on the mean response time: 1.25x the service time, or 120us including the storage.",
            show_default=False,
        ),
    ] = None,
    storage: Annotated[
        str, typer.Option(metavar="DURATION", help="Time that the storage itself takes per I/O.")
    ] = "0us",
    cores: Annotated[int, typer.Option(min=1, help="Cores in the table of response times.")] = 8,
    run: RunNumber = None,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Cores needed for a rate, and response times by utilisation.

    Takes the CPU cost per I/O from a notebook, with its interval, or from the command line.
    """
    from iotax.cli import size as command

    command.size(
        iops,
        one_notebook(notebook, notebook_option),
        run,
        cpu_us or [],
        cap,
        response,
        storage,
        cores,
        document,
        long=long,
    )


@results.command(cls=JsonCommand)
def compare(
    before: Annotated[
        str,
        typer.Argument(metavar="A", help="A notebook, a run of it (its label, or run=1), or a level of a factor."),
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="The same, after the change.")],
    notebook: NotebookPath = None,
    notebook_option: NotebookOption = None,
    margin: Annotated[
        float | None,
        typer.Option(
            parser=options.percent,
            metavar="PERCENT",
            help="Differences that count as equivalent, such as 5%; default: the margin of A.",
            show_default=False,
        ),
    ] = None,
    fail_on_regression: Annotated[
        bool,
        typer.Option(
            "--fail-on-regression", help="Exit with code 6 if B is significantly worse, by more than the margin."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Also write the comparison as Markdown for a pull request (.md), or as a page (.html).",
            show_default=False,
        ),
    ] = None,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Compare two runs of a study, or two levels of a factor.

    Two runs show a change of firmware, kernel or release, before and after. Levels of one run, such as `nfs3 iscsi`
    or `block_size=4KiB block_size=8KiB`, are compared within its blocks.
    """
    from iotax.cli import compare as command

    command.compare(
        before,
        after,
        one_notebook(notebook, notebook_option),
        margin,
        output,
        document,
        fail=fail_on_regression,
        long=long,
    )
