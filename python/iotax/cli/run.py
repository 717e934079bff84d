"""`iotax run`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from iotax.analysis import StudyData
from iotax.cli.display import display_on
from iotax.cli.exits import Exit, leave
from iotax.cli.notebooks import OUT
from iotax.cli.study import load, open_lab, planned
from iotax.cli.summary import print_summary
from iotax.engine import EngineError, find_engine
from iotax.environment import environment
from iotax.labs.base import LabUnusable
from iotax.notebook import Notebook, NotebookError, Writer
from iotax.runner import Summary, run_study
from iotax.study import Study
from iotax.waiting import WAIT_FOR_TARGET_S
from iotax.wording import link, search


def run(
    name: str,
    notebook: Path | None,
    label: str,
    destroy: list[str],
    driver: str | None,
    *,
    anew: bool,
    report: bool,
    wait_for_target_s: float = WAIT_FOR_TARGET_S,
) -> None:
    study, source = load(name, driver)
    path = notebook or OUT / f"{study.name}.iotax"
    summary = measure(study, source, path, label=label, destroy=destroy, anew=anew, wait_for_target_s=wait_for_target_s)
    _conclude(path, summary, report=report)


def measure(
    study: Study,
    source: str,
    path: Path,
    *,
    label: str = "",
    destroy: Sequence[str] = (),
    anew: bool = False,
    wait_for_target_s: float = WAIT_FOR_TARGET_S,
) -> Summary:
    """Runs what is left of a study into the notebook. Ends with the reason where it cannot begin."""
    plan = planned(study)
    display = display_on(sys.stdout)
    try:
        lab = open_lab(study, plan, list(destroy))
        with Writer(path) as writer:
            return run_study(
                study,
                plan,
                lab,
                writer,
                source=source,
                label=label,
                anew=anew,
                environment=environment(find_engine()),
                listener=display,
                wait_for_target_s=wait_for_target_s,
            )
    except LabUnusable as unusable:
        display.close()
        leave(Exit.REFUSED if unusable.refused else Exit.LAB, f"the study was not begun\n{unusable}")
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


def _conclude(path: Path, summary: Summary, *, report: bool) -> None:
    """The table, what went wrong, and the report's path as the last line."""
    with Notebook(path) as notebook:
        left = len(notebook.trials(summary.run)) - sum(
            1 for each in notebook.attempts(summary.run) if each.status == "done"
        )
        if summary.interrupted:
            leave(
                Exit.INTERRUPTED,
                f"interrupted with {left} trials left; run the same command again to go on. Results: {path}",
            )
        print_summary(notebook, summary.run)
        study, attempts = notebook.study(summary.run), notebook.attempts(summary.run)
        for line in (*search.sentences(study, attempts), *link.sentences(StudyData(study, attempts))):
            typer.echo(line)
        typer.echo(f"Notebook: {path}")
        if summary.failed:
            typer.echo(f"Given up: {', '.join(summary.failed)}; `iotax show {path}` tells why.")
        if report:
            from iotax.cli.show import write_report

            typer.echo(f"Report: {write_report(notebook, summary.run, None)}")
    if summary.away:
        leave(
            Exit.FAILED,
            f"the target does not answer ({summary.away}): the study ended with {left} trials left. Run the same "
            "command again to go on, with --wait-for-target to wait longer",
        )
    if summary.failed:
        raise typer.Exit(Exit.FAILED)
