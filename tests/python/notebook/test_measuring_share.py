"""The share of its wall time that a run spends measuring, from its notebook alone."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner

from iotax import report
from iotax.cli.app import app
from iotax.collected import study_data
from iotax.notebook import Notebook, Writer
from iotax.trial import Attempt
from iotax.wording import measuring
from report.factory import START_UNIX_NS, Simulation, study, write_notebook

S = 1_000_000_000


def test_report_and_show_tell_it(tmp_path: Path) -> None:
    # 36 windows of 4 s; 2 s before the first attempt, one attempt every 4.7 s, the last one takes 4.6 s.
    path = write_notebook(tmp_path / "n.iotax", Simulation().data(study()))
    with Notebook(path) as notebook:
        assert study_data(notebook).measuring_share == pytest.approx(36 * 4 / (2 + 35 * 4.7 + 4.6))
        page = report.write(notebook, tmp_path / "n.html").read_text(encoding="utf-8")
    assert "<dt>Time</dt><dd>84\u00a0% of the 2\u00a0min\u00a051\u00a0s was spent measuring</dd>" in page
    assert (
        "\n84 % of the 2 min 51 s was spent measuring.\n"
        in CliRunner().invoke(app, ["show", str(path), "--long"]).output
    )


def test_time_between_invocations_and_of_killed_ones_is_left_out(tmp_path: Path) -> None:
    data = Simulation().data(study(design={"replicates": 1}))
    one, two, *_ = data.attempts
    with Writer(tmp_path / "n.iotax") as writer, mock.patch("iotax.notebook.time.time_ns") as clock:
        clock.return_value = START_UNIX_NS
        run = writer.begin(data.study, "", "", list(data.planned))
        for begun_s, attempt, status in ((0, one, "done"), (1000, two, "abandoned"), (2000, two, "interrupted")):
            session = writer.begin_session(run, {}, START_UNIX_NS + begun_s * S)
            clock.return_value = START_UNIX_NS + (begun_s + 1) * S
            started = writer.begin_attempt(session, run, attempt.trial)
            # That an attempt was abandoned is discovered much later.
            clock.return_value += (500 if status == "abandoned" else 5) * S
            writer.end_attempt(started, status, result=attempt.result if status == "done" else None)
        found = study_data(writer)
        assert writer.invocations() == [
            (START_UNIX_NS, START_UNIX_NS + 6 * S),
            (START_UNIX_NS + 2000 * S, START_UNIX_NS + 2006 * S),
        ]
    assert measuring(found) == "33 % of the 12 s was spent measuring"


def test_a_guests_clock_and_no_times_tell_nothing() -> None:
    data = Simulation().data(study())
    assert measuring(data) == ""
    known = replace(data, wall_ns=160 * S)
    assert measuring(known) == "90 % of the 2 min 40 s was spent measuring"
    assert measuring(replace(known, attempts=[_by_instructions(each) for each in known.attempts])) == ""


def _by_instructions(attempt: Attempt) -> Attempt:
    assert attempt.result is not None
    facts = attempt.result.facts.model_copy(update={"clock": "instructions"})
    return attempt.model_copy(update={"result": attempt.result.model_copy(update={"facts": facts})})


@pytest.mark.long
@pytest.mark.usefixtures("real_engine")
def test_quick_measures_for_88_percent_of_its_time(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "iotax", "run", "quick", "--notebook", str(tmp_path / "q.iotax"), "--no-report"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = re.search(r"^(\d+) % of the \d min \d\d s was spent measuring\.$", done.stdout, re.MULTILINE)
    assert said is not None, done.stdout
    assert int(said[1]) >= 88
