"""`iotax run`. Slow imports follow the first line on the screen."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iotax.cli import options
from iotax.cli.console import console_on, say
from iotax.cli.display import Display, QuietDisplay, display_on
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import load, within_time
from iotax.cli.options import (
    Destroy,
    JsonFile,
    Long,
    NotebookOption,
    OtherLab,
    OwnTargets,
    StudyName,
    TimeBudget,
    one_notebook,
)
from iotax.listener import Ending, Listener, Listeners
from iotax.outputs import OUT
from iotax.study import Study
from iotax.units import counted
from iotax.waiting import WAIT_FOR_TARGET_S

if TYPE_CHECKING:
    from iotax.notebook import Notebook

_PATHS = 4
"""Lines around the first screen: the question, the plan, the notebook and the report."""


class Driver(StrEnum):
    AUTO = "auto"
    IO_URING = "io_uring"
    EPOLL = "epoll"


def run(
    name: StudyName = "quick",
    notebook: Annotated[
        Path | None,
        typer.Argument(help="Where results are kept; out/NAME.iotax when not given.", show_default=False),
    ] = None,
    notebook_option: NotebookOption = None,
    label: Annotated[str, typer.Option(help="Name of this run, such as `before` or `after`.")] = "",
    time_s: TimeBudget = None,
    destroy: Destroy = None,
    driver: Annotated[
        Driver | None, typer.Option(help="How the engine does I/O; overrides the study.", show_default=False)
    ] = None,
    lab: OtherLab = None,
    targets: OwnTargets = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Start a new run, even if an earlier one is finished or could be resumed."),
    ] = False,
    report: Annotated[bool, typer.Option(help="Write the report at the end.")] = True,
    wait_for_target_s: Annotated[
        float,
        typer.Option(
            "--wait-for-target",
            parser=options.seconds,
            metavar="DURATION",
            help="How long to wait for a target that stops answering before the study ends early.",
            show_default="1min",
        ),
    ] = WAIT_FOR_TARGET_S,
    without_lost_hosts: Annotated[
        bool,
        typer.Option(
            "--without-lost-hosts",
            help="Continue when hosts stay unreachable; their trials are listed separately and not compared.",
        ),
    ] = False,
    disturb: Annotated[
        bool, typer.Option("--disturb", help="Allow the commands of the study's `events:` to run on its hosts.")
    ] = False,
    live: Annotated[
        str | None,
        typer.Option(
            "--live",
            metavar="[[ADDRESS:]PORT]",
            help="Show the run in a browser and as metrics; default: a free port, reachable only from this machine.",
            show_default=False,
        ),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send the metrics of --live to an OpenTelemetry collector every 10 s, such as http://localhost:4318; "
            "needs the extra `otlp`.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors, on standard error.")
    ] = False,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Run a study and write its report.

    To continue an interrupted run, or one with failed trials, run the same study again with the same notebook. If
    `replicates:` is higher than before, the missing ones are added, and the ratios get no verdict. A finished run
    stays as it is, unless you pass --again.
    """
    study, source = load(name, driver.value if driver else None, simulated=lab is not None, targets=targets or ())
    if time_s is not None:
        study, source = within_time(study, source, time_s)
    path = notebook_of(study, one_notebook(notebook, notebook_option), document, Path(name))
    if without_lost_hosts and (study.lab.hosts is None or study.search is not None):
        which = "a search's" if study.lab.hosts is not None else f"the {study.lab.name} lab's"
        leave(Exit.USAGE, f"--without-lost-hosts: {which} trials cannot go on with fewer hosts")
    if disturb and not any(each.do.command for each in study.events):
        leave(Exit.USAGE, "--disturb: no event of this study runs a command")
    wishes = Wishes(
        label=label,
        destroy=destroy or (),
        again=again,
        wait_for_target_s=wait_for_target_s,
        without_lost_hosts=without_lost_hosts,
        disturb=disturb,
    )
    shown = Shown(document, report=report, live=live, otlp=otlp, quiet=quiet, long=long)
    run_and_show(study, source, path, wishes, shown)


def notebook_of(study: Study, named: Path | None, document: Path | None, file: Path) -> Path:
    """Where the results of a study in `file` are kept. Exits if they or the document would replace something."""
    path = named or OUT / f"{study.name}.iotax"
    if path.suffix == ".html":
        leave(Exit.USAGE, f"{path}: a notebook of this name would be in the way of its report; name another")
    judged(document, path, file)
    return path


@dataclass(frozen=True)
class Wishes:
    """How to measure a study."""

    label: str = ""
    destroy: Sequence[str] = ()
    """Endpoints whose data may be overwritten."""
    again: bool = False
    wait_for_target_s: float = WAIT_FOR_TARGET_S
    without_lost_hosts: bool = False
    disturb: bool = False
    spoken: Callable[[str], str] = str
    """Rewrites the reason why a study cannot start for the command in use."""


@dataclass(frozen=True)
class Shown:
    """What to show of a run, and where."""

    document: Path | None = None
    report: bool = True
    live: str | None = None
    otlp: str | None = None
    quiet: bool = False
    long: bool = False


def run_and_show(study: Study, source: str, path: Path, wishes: Wishes, shown: Shown) -> None:
    if shown.quiet:
        display: Display = QuietDisplay(console_on(sys.stderr))
    else:
        display = display_on(sys.stderr if shown.document == STDOUT else sys.stdout)
    display.asked(study)
    with _listening(study, path, display, shown) as listener:
        ending = measure(study, source, path, display, listener, wishes)
    _conclude(study, path, ending, shown)


@contextlib.contextmanager
def _listening(study: Study, path: Path, display: Display, shown: Shown) -> Generator[Listener]:
    """The runner's listeners until it ends: the display, and a live view and a collector if requested."""
    if shown.live is None and shown.otlp is None:
        yield display
        return
    try:
        from iotax.cli.live import open_sender, open_server
        from iotax.live import Board, LiveListener

        board = Board(study)
        server = None if shown.live is None else open_server(board, shown.live, "--live")
        sender = None if shown.otlp is None else open_sender(board, shown.otlp, display.warning)
    except BaseException:
        display.close()
        raise
    with contextlib.ExitStack() as running:
        if sender is not None:
            running.callback(sender.close)
            sender.start()
        if server is not None:
            running.callback(server.close)
            server.start()
            display.said(f"Live: {server.url}")
        yield Listeners(display, LiveListener(board, path))


def measure(
    study: Study,
    source: str,
    path: Path,
    display: Display,
    listener: Listener | None = None,
    wishes: Wishes | None = None,
) -> Ending:
    """Runs the rest of a study into the notebook. Exits with the reason if it cannot start. `listener` is notified of
    everything; the display is the default."""
    from iotax.cli.study import open_lab, planned
    from iotax.engine import EngineError, find_engine
    from iotax.environment import environment
    from iotax.labs.base import LabUnusable
    from iotax.notebook import NotebookError, Writer
    from iotax.runner import run_study

    wishes = wishes or Wishes()
    try:
        with contextlib.closing(display):
            plan = planned(study)
            lab = open_lab(study, plan, list(wishes.destroy))
            lab.without_lost_hosts, lab.may_disturb = wishes.without_lost_hosts, wishes.disturb
            with Writer(path) as writer:
                return run_study(
                    study,
                    plan,
                    lab,
                    writer,
                    source=source,
                    label=wishes.label,
                    anew=wishes.again,
                    environment=environment(find_engine()),
                    listener=listener or display,
                    wait_for_target_s=wishes.wait_for_target_s,
                )
    except LabUnusable as unusable:
        leave(Exit.REFUSED if unusable.refused else Exit.LAB, wishes.spoken(f"study not started\n{unusable}"))
    except EngineError as error:
        leave(Exit.LAB, str(error))
    except NotebookError as error:
        leave(Exit.NOTEBOOK, str(error))
    except KeyboardInterrupt:
        leave(Exit.INTERRUPTED, "interrupted before the first trial")


def _conclude(study: Study, path: Path, ending: Ending, shown: Shown) -> None:
    """Prints the table, what went wrong, and the report's path as the last line."""
    from iotax.cli.show import write_report
    from iotax.notebook import Notebook

    with Notebook(path) as notebook:
        page = notebook.report_path(ending.run)
        written = shown.report and not (ending.finished and _is_younger(page, notebook, ending.run))
        if ending.interrupted:
            left = len(notebook.left(ending.run))
            leave(
                Exit.INTERRUPTED,
                f"interrupted with {counted(left, 'trial')} left; run the same command again to continue. "
                f"Results: {path}",
            )
        spoken = shown.document != STDOUT and not shown.quiet
        if spoken:
            _print(study, notebook, ending, long=shown.long)
        if written:
            write_report(notebook, ending.run, page)
        if shown.document is not None:
            write_document(shown.document, _document(notebook, ending, page if shown.report else None), path)
        if shown.report and spoken:
            echo(f"Report: {page}")
        if ending.finished and not shown.quiet:
            say(_nothing_run(notebook, ending.run), err=shown.document == STDOUT)
        left = len(notebook.left(ending.run))
    if ending.not_undone:
        leave(
            Exit.FAILED,
            f"an event was not undone, so the study ended with {counted(left, 'trial')} left: {ending.not_undone}. "
            "Then run the same command again to continue",
        )
    if ending.away:
        leave(
            Exit.FAILED,
            f"the target does not answer ({ending.away}): the study ended with {counted(left, 'trial')} left. "
            "Run the same command again to continue, with --wait-for-target to wait longer",
        )
    if ending.failed:
        raise typer.Exit(Exit.FAILED)


def _is_younger(page: Path, notebook: Notebook, run: int) -> bool:
    """Whether the report was written after the run's last trial."""
    last_ns = max((each.ended_unix_ns or 0 for each in notebook.attempts(run)), default=0)
    return page.is_file() and page.stat().st_mtime_ns >= last_ns


def _nothing_run(notebook: Notebook, run: int) -> str:
    """The last line says that nothing ran, so that earlier figures are not taken for new ones; scripts read
    `trials_done_now`."""
    trials, partial = len(notebook.trials(run)), notebook.partial(run)
    waiting = f" {len(partial)} of them ran with fewer clients and wait for their hosts." if partial else ""
    return (
        f"Nothing was run: all {trials} trials of this study were done already, and these are their results.{waiting} "
        "For another run beside this one, say --again or set another `seed:`. More `replicates:` are added to this "
        "one, whose ratios then get no verdict, since its results are known."
    )


def _print(study: Study, notebook: Notebook, summary: Ending, *, long: bool) -> None:
    from iotax.cli.kernels import print_kernels
    from iotax.cli.screen import print_screen
    from iotax.cli.summary import print_summary
    from iotax.collected import study_data

    data = study_data(notebook, summary.run)
    if long:
        print_summary(data)
        print_kernels(study)
    else:
        print_screen(data, reserved=_PATHS + bool(summary.failed))
    echo(f"Notebook: {notebook.path}")
    if summary.failed:
        echo(f"Given up: {', '.join(summary.failed)}; `iotax show {notebook.path}` tells why.")


def _document(notebook: Notebook, summary: Ending, page: Path | None) -> dict[str, Any]:
    from iotax.cli.summary import run_document

    return {
        **run_document(notebook, summary.run),
        "report": str(page) if page else None,
        "trials_done_now": summary.done,
        "given_up": list(summary.failed),
        "stopped_by_rule": summary.stopped,
    }
