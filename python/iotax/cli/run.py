"""`iotax run`. Slow imports follow the first line on the screen."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from iotax.cli.console import console_on, say
from iotax.cli.display import Display, QuietDisplay, display_on
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import load, within_time
from iotax.listener import Ending, Listener, Listeners
from iotax.outputs import OUT
from iotax.study import Study
from iotax.units import counted
from iotax.waiting import WAIT_FOR_TARGET_S

if TYPE_CHECKING:
    from iotax.notebook import Notebook

_PATHS = 4
"""Lines around the first screen: the question, the plan, the notebook and the report."""


def run(
    name: str,
    notebook: Path | None,
    label: str,
    destroy: list[str],
    driver: str | None,
    document: Path | None,
    *,
    again: bool,
    report: bool,
    wait_for_target_s: float = WAIT_FOR_TARGET_S,
    without_lost_hosts: bool = False,
    disturb: bool = False,
    live: str | None = None,
    otlp: str | None = None,
    quiet: bool = False,
    simulated: bool = False,
    targets: Sequence[str] = (),
    long: bool = False,
    time_s: float | None = None,
    spoken: Callable[[str], str] = str,
) -> None:
    """`spoken` rewrites the reason why a study cannot start for the command in use."""
    study, source = load(name, driver, simulated=simulated, targets=targets)
    if time_s is not None:
        study, source = within_time(study, source, time_s)
    path = notebook or OUT / f"{study.name}.iotax"
    if path.suffix == ".html":
        leave(Exit.USAGE, f"{path}: a notebook of this name would be in the way of its report; name another")
    judged(document, path, Path(name))
    if without_lost_hosts and (study.lab.hosts is None or study.search is not None):
        which = "a search's" if study.lab.hosts is not None else f"the {study.lab.name} lab's"
        leave(Exit.USAGE, f"--without-lost-hosts: {which} trials cannot go on with fewer hosts")
    if disturb and not any(each.do.command for each in study.events):
        leave(Exit.USAGE, "--disturb: no event of this study runs a command")
    if quiet:
        display: Display = QuietDisplay(console_on(sys.stderr))
    else:
        display = display_on(sys.stderr if document == STDOUT else sys.stdout)
    display.asked(study)
    with _shown(study, path, display, live, otlp) as listener:
        summary = measure(
            study,
            source,
            path,
            display,
            listener,
            label=label,
            destroy=destroy,
            again=again,
            wait_for_target_s=wait_for_target_s,
            without_lost_hosts=without_lost_hosts,
            disturb=disturb,
            spoken=spoken,
        )
    _conclude(study, path, summary, document, report=report, quiet=quiet, long=long)


@contextlib.contextmanager
def _shown(study: Study, path: Path, display: Display, place: str | None, collector: str | None) -> Generator[Listener]:
    """The runner's listeners until it ends: the display, and a live view and a collector if requested."""
    if place is None and collector is None:
        yield display
        return
    try:
        from iotax.cli.live import open_sender, open_server
        from iotax.live import Board, LiveListener

        board = Board(study)
        server = None if place is None else open_server(board, place, "--live")
        sender = None if collector is None else open_sender(board, collector, display.warning)
    except BaseException:
        display.close()
        raise
    with contextlib.ExitStack() as shown:
        if sender is not None:
            shown.callback(sender.close)
            sender.start()
        if server is not None:
            shown.callback(server.close)
            server.start()
            display.said(f"Live: {server.url}")
        yield Listeners(display, LiveListener(board, path))


def measure(
    study: Study,
    source: str,
    path: Path,
    display: Display,
    listener: Listener | None = None,
    *,
    label: str = "",
    destroy: Sequence[str] = (),
    again: bool = False,
    wait_for_target_s: float = WAIT_FOR_TARGET_S,
    without_lost_hosts: bool = False,
    disturb: bool = False,
    spoken: Callable[[str], str] = str,
) -> Ending:
    """Runs the rest of a study into the notebook. Exits with the reason if it cannot start. `listener` is notified of
    everything; the display is the default."""
    from iotax.cli.study import open_lab, planned
    from iotax.engine import EngineError, find_engine
    from iotax.environment import environment
    from iotax.labs.base import LabUnusable
    from iotax.notebook import NotebookError, Writer
    from iotax.runner import run_study

    try:
        plan = planned(study)
        lab = open_lab(study, plan, list(destroy))
        lab.without_lost_hosts, lab.may_disturb = without_lost_hosts, disturb
        with Writer(path) as writer:
            return run_study(
                study,
                plan,
                lab,
                writer,
                source=source,
                label=label,
                anew=again,
                environment=environment(find_engine()),
                listener=listener or display,
                wait_for_target_s=wait_for_target_s,
            )
    except LabUnusable as unusable:
        display.close()
        leave(Exit.REFUSED if unusable.refused else Exit.LAB, spoken(f"study not started\n{unusable}"))
    except EngineError as error:
        display.close()
        leave(Exit.LAB, str(error))
    except NotebookError as error:
        display.close()
        leave(Exit.NOTEBOOK, str(error))
    except KeyboardInterrupt:
        display.close()
        leave(Exit.INTERRUPTED, "interrupted before the first trial")
    finally:
        display.close()


def _conclude(
    study: Study,
    path: Path,
    summary: Ending,
    document: Path | None,
    *,
    report: bool,
    quiet: bool,
    long: bool,
) -> None:
    """Prints the table, what went wrong, and the report's path as the last line."""
    from iotax.cli.show import default_report, write_report
    from iotax.notebook import Notebook

    with Notebook(path) as notebook:
        page = default_report(notebook, summary.run)
        written = report and not (summary.finished and _is_younger(page, notebook, summary.run))
        if summary.interrupted:
            left = len(notebook.left(summary.run))
            leave(
                Exit.INTERRUPTED,
                f"interrupted with {counted(left, 'trial')} left; run the same command again to continue. "
                f"Results: {path}",
            )
        spoken = document != STDOUT and not quiet
        if spoken:
            _print(study, notebook, summary, long=long)
        if written:
            write_report(notebook, summary.run, page)
        if document is not None:
            write_document(document, _document(notebook, summary, page if report else None), path)
        if report and spoken:
            echo(f"Report: {page}")
        if summary.finished and not quiet:
            say(_nothing_run(notebook, summary.run), err=document == STDOUT)
        left = len(notebook.left(summary.run))
    if summary.away:
        leave(
            Exit.FAILED,
            f"the target does not answer ({summary.away}): the study ended with {counted(left, 'trial')} left. "
            "Run the same command again to continue, with --wait-for-target to wait longer",
        )
    if summary.failed:
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
