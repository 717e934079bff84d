"""A notebook is append-only, and reports its own damage."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iotax import notebook as notebook_module
from iotax.design import plan
from iotax.design.plan import added
from iotax.notebook import Notebook, NotebookError, Writer
from iotax.study import Study
from iotax.study.read import load_study
from iotax.trial import Trial
from report.factory import Simulation
from report.factory import study as drawn_study


@pytest.fixture
def study(tiny: Path) -> Study:
    return load_study(str(tiny))[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "n.iotax"


@pytest.fixture
def begun(path: Path, study: Study) -> Iterator[tuple[Writer, int, int, Trial]]:
    with Writer(path) as writer:
        run = writer.begin(study, "source", "", list(plan(study).trials))
        session = writer.begin_session(run, {}, 0)
        yield writer, session, run, writer.trials(run)[0]


def test_rows_cannot_be_changed_or_removed(begun: tuple[Writer, int, int, Trial], path: Path) -> None:
    writer, session, run, trial = begun
    writer.end_attempt(writer.begin_attempt(session, run, trial), "failed", reason="x")
    with closing(sqlite3.connect(path)) as database, database:
        for table in ("studies", "sessions", "trials", "attempts", "endings"):
            column = "study" if table == "studies" else next(iter(database.execute(f"PRAGMA table_info({table})")))[1]
            for change in (f"DELETE FROM {table}", f"UPDATE {table} SET {column} = {column}"):
                with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                    database.execute(change)
    database.close()


def test_an_attempt_has_one_ending(begun: tuple[Writer, int, int, Trial]) -> None:
    writer, session, run, trial = begun
    attempt = writer.begin_attempt(session, run, trial)
    writer.end_attempt(attempt, "failed", reason="first")
    with pytest.raises(NotebookError, match="UNIQUE"):
        writer.end_attempt(attempt, "done")
    assert writer.attempt(attempt).reason == "first"


def test_a_reader_sees_a_running_attempt(begun: tuple[Writer, int, int, Trial], path: Path) -> None:
    writer, session, run, trial = begun
    writer.begin_attempt(session, run, trial)
    with Notebook(path) as reader:
        assert [each.status for each in reader.attempts()] == ["running"]


def test_attempts_without_an_ending_are_abandoned_at_the_next_opening(path: Path, study: Study) -> None:
    with Writer(path) as writer:
        run = writer.begin(study, "source", "", list(plan(study).trials))
        writer.begin_attempt(writer.begin_session(run, {}, 0), run, writer.trials(run)[0])
    with Writer(path) as writer:
        [attempt] = writer.attempts()
    assert attempt.status == "abandoned"
    assert "ended without a message" in attempt.reason


def test_a_second_writer_is_refused_and_a_reader_is_not(begun: tuple[Writer, int, int, Trial], path: Path) -> None:
    del begun
    with pytest.raises(NotebookError, match=r"another run \(process \d+\) is writing"):
        Writer(path)
    with Notebook(path) as reader:
        assert len(reader.runs()) == 1


def test_the_lock_goes_with_its_holder(path: Path) -> None:
    Writer(path).close()
    assert not path.with_name("n.iotax-lock").exists()
    Writer(path).close()


def test_nothing_there_something_else_and_a_later_format_are_told_apart(
    path: Path, tmp_path: Path, study: Study
) -> None:
    with pytest.raises(NotebookError, match="there is no notebook here"):
        Notebook(path)
    path.write_text("not a database, but long enough to be taken for one")
    with pytest.raises(NotebookError, match="not a notebook, or a damaged one"):
        Notebook(path)
    other = tmp_path / "other.db"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE t (x)")
    database.close()
    with pytest.raises(NotebookError, match="not an iotax notebook"):
        Writer(other)
    later = tmp_path / "later.iotax"
    with Writer(later) as writer:
        writer.begin(study, "source", "", [])
    database = sqlite3.connect(later)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(NotebookError, match="format 99"):
        Notebook(later)


def test_a_writer_that_began_no_run_leaves_nothing_behind(path: Path) -> None:
    with Writer(path) as writer:
        assert writer.runs() == []
        assert not path.exists()
    assert list(path.parent.glob("n.iotax*")) == []


def test_a_run_of_fewer_replicates_is_extended_and_keeps_what_it_has(path: Path, study: Study) -> None:
    more = study.model_copy(update={"design": study.design.model_copy(update={"replicates": 3})})
    other = more.model_copy(update={"margin": 9.0})
    with Writer(path) as writer:
        run = writer.begin(study, "two", "", list(plan(study).trials))
        assert writer.smaller(study, "") is None
        assert writer.smaller(other, "") is None
        assert writer.smaller(more, "label") is None
        assert writer.smaller(more, "") == run
        extra = added(more, writer.trials(run))
        writer.extend(run, more, "three", extra)
        assert writer.trials(run) == [*plan(study).trials, *extra]
        assert (writer.study(run), writer.run(run).source) == (more, "three")
        assert writer.earlier(more, "") == run
        assert writer.earlier(study, "") is None
    database = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute("DELETE FROM revisions")
    database.close()


def test_replicates_that_are_added_after_results_are_a_look_and_those_before_are_none(path: Path, study: Study) -> None:
    more, most = (study.model_copy(update={"design": study.design.repeated(count)}) for count in (3, 5))
    with Writer(path) as writer:
        run = writer.begin(study, "two", "", list(plan(study).trials))
        writer.extend(run, more, "three", added(more, writer.trials(run)))
        assert writer.looks(run) == []
        session = writer.begin_session(run, {}, 0)
        for trial, status in zip(writer.trials(run)[:3], ("done", "failed", "done"), strict=True):
            writer.end_attempt(writer.begin_attempt(session, run, trial), status)
        assert writer.looks(run) == []
        writer.extend(run, most, "five", added(most, writer.trials(run)))
        [look] = writer.looks(run)
    assert (look.results, look.replicates, look.raised_to) == (2, 3, 5)
    with Notebook(path) as notebook:
        assert notebook.looks() == [look]
        assert notebook.study() == most


def test_earlier_runs_are_those_of_the_same_name_and_label_that_have_results(path: Path) -> None:
    data = Simulation().data(drawn_study(design={"replicates": 1}))
    [done, *_] = [each for each in data.attempts if each.result]
    with Writer(path) as writer:
        for label in ("", "", "other", ""):
            run = writer.begin(data.study, "", label, list(data.planned))
            if run == 1:
                continue
            attempt = writer.begin_attempt(writer.begin_session(run, {}, 0), run, done.trial)
            writer.end_attempt(attempt, "done", result=done.result)
        assert [writer.earlier_runs(run) for run in (1, 2, 3, 4)] == [0, 0, 0, 1]


def test_an_empty_notebook_says_so(path: Path) -> None:
    with Writer(path) as writer, pytest.raises(NotebookError, match="holds no study yet"):
        writer.study()


def test_a_folder_that_cannot_be_made_is_said() -> None:
    with pytest.raises(NotebookError, match="name another notebook"):
        Writer(Path("/proc/nothing/n.iotax"))


def test_a_trial_is_not_begun_when_its_result_might_not_be_kept(
    begun: tuple[Writer, int, int, Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, session, run, trial = begun
    monkeypatch.setattr(notebook_module, "FREE_BYTES_MIN", 1 << 60)
    with pytest.raises(NotebookError, match=r"the disk is full .* everything measured so far is kept"):
        writer.begin_attempt(session, run, trial)
    assert writer.attempts() == []


FILL_UP = """
import resource, signal, sys
from pathlib import Path
from iotax.notebook import Writer, NotebookError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
writer = Writer(path)
run = writer.run().id
session = writer.begin_session(run, {}, 0)
trials = writer.trials(run)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
kept = 0
try:
    for trial in trials * 100:
        attempt = writer.begin_attempt(session, run, trial)
        writer.end_attempt(attempt, "failed", reason="x" * 20000)
        kept += 1
except NotebookError as error:
    print(kept)
    print(error)
"""


def test_a_write_that_finds_the_disk_full_loses_nothing_before_it(path: Path, study: Study) -> None:
    """A limit on the file size replaces a full disk."""
    with Writer(path) as writer:
        writer.begin(study, "source", "", list(plan(study).trials))
    limit_bytes = 1 << 20
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", FILL_UP, path, str(limit_bytes)], capture_output=True, text=True, check=True
    )
    kept, said = done.stdout.splitlines()
    assert "the disk is full; everything before this attempt is kept" in said
    with Writer(path) as writer:
        whole = [each for each in writer.attempts() if each.status == "failed"]
        assert len(whole) == int(kept) > 0
        assert all(each.reason == "x" * 20000 for each in whole)
        run = writer.run().id
        writer.begin_attempt(writer.begin_session(run, {}, 0), run, writer.trials(run)[0])
