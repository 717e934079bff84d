"""Notebooks from unknown sources are read as data, whatever their content, or refused with a reason."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import weakref
from pathlib import Path
from random import Random

import pytest
from pydantic import ValidationError

import mutations
from command_line import ran
from iotax import notebook_format
from iotax.analysis import summarise
from iotax.collected import study_data
from iotax.notebook import Notebook, NotebookError, Writer
from iotax.rows import attempt_rows
from iotax.study.imported import Imported
from report.factory import Simulation, study, write_notebook

TRIES, TRIES_LONG = 40, 4000
COLUMNS = {
    "studies": ("name", "label", "digest", "study", "source", "started_unix_ns"),
    "sessions": ("environment", "started_unix_ns"),
    "trials": ("run_order", "block", "replicate", "treatment"),
    "attempts": ("number", "started_unix_ns"),
    "endings": ("status", "reason", "ended_unix_ns", "connected", "log"),
    "results": ("result", "rate_iops", "ios"),
    "backgrounds": ("block", "background"),
}
STRANGE = (None, -1, 0, 1.5, "x", b"\xff\x00", 2**62, "", "{}", "[]", "null", "\x1b[2J")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = study(factors={"protocol": ["nfs3", "iscsi"]}, design={"replicates": 2})
    return write_notebook(tmp_path_factory.mktemp("good") / "n.iotax", Simulation().data(small))


@pytest.fixture
def path(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(good, tmp_path / "n.iotax"))


def changed(path: Path, *statements: str, values: tuple = ()) -> None:
    """Changes the file like another program: removes the triggers, and restores them."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        guards = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            database.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            database.execute(statement, values)
        for _, guard in guards:
            database.execute(guard)


def read(path: Path) -> None:
    """Reads everything that commands read from a notebook."""
    with Notebook(path) as notebook:
        for run in notebook.runs():
            data = study_data(notebook, run.id)
            list(attempt_rows(notebook, run))
            notebook.left(run.id)
            notebook.closings(run.id)
            if data.measured:
                summarise(data)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT * FROM n"


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE closings RENAME TO old", f"CREATE VIEW closings AS {ENDLESS}"),
        (f"CREATE VIEW more AS {ENDLESS}",),
        ("CREATE TRIGGER evil AFTER INSERT ON attempts BEGIN SELECT 1; END",),
        ("CREATE INDEX slow ON trials (abs(run_order))",),
        ("CREATE TABLE more (x)",),
        ("CREATE VIRTUAL TABLE more USING fts5(x)",),
        ("DROP TABLE closings", "CREATE TABLE closings (session_id INTEGER PRIMARY KEY, study_id INTEGER, log TEXT, "
         "more TEXT GENERATED ALWAYS AS (hex(zeroblob(1000000))) VIRTUAL)"),
        ("DROP TABLE closings", "CREATE TABLE closings (session_id INTEGER PRIMARY KEY)"),
        ("DROP TABLE closings",),
    ],
)  # fmt: skip
def test_what_no_notebook_has_is_refused_before_anything_is_read(path: Path, statements: tuple[str, ...]) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            try:
                database.execute(statement)
            except sqlite3.OperationalError as error:
                pytest.skip(f"this SQLite: {error}")
    for words in (("show", path), ("export", path), ("report", path), ("show", path, "--json")):
        done = ran(*words)
        assert done.exit_code == 5, done.output
        assert "which no notebook has" in done.output or "is missing" in done.output
    with pytest.raises(NotebookError):
        Writer(path)


def test_a_changed_trigger_is_refused(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DROP TRIGGER trials_no_update")
        database.execute("CREATE TRIGGER trials_no_update BEFORE INSERT ON trials BEGIN DELETE FROM results; END")
    with pytest.raises(NotebookError, match="holds trigger 'trials_no_update', which no notebook has"):
        Writer(path)


@pytest.mark.parametrize(
    ("statement", "value", "said"),
    [
        ("UPDATE studies SET name = ?", b"\xff", "found a bytes where another type"),
        ("UPDATE trials SET run_order = ?", "x", "found a str where another type"),
        ("UPDATE endings SET log = ?", b"x", "found a bytes where another type"),
        (
            "UPDATE trials SET treatment = ?",
            '{"protocol": "carrier pigeon"}',
            "protocol has no such level in the study",
        ),
        ("UPDATE trials SET treatment = ?", "[1, 2]", "does not understand"),
        ("UPDATE trials SET treatment = ?", "[" * 100_000, "does not understand"),
        ("UPDATE sessions SET environment = ?", "[]", "the environment of a session is not a mapping"),
        ("UPDATE sessions SET environment = ?", '{"machine": []}', "has machine of another type"),
        ("UPDATE sessions SET environment = ?", '{"command_line": [1]}', "has command_line of another type"),
        ("UPDATE studies SET study = ?", "{}", "does not understand"),
        ("UPDATE endings SET status = ?", "splendid", "does not understand"),
        ("UPDATE backgrounds SET background = ?", '{"block": 1e999}', "does not understand"),
    ],
)
def test_values_of_another_type_or_meaning_are_named(path: Path, statement: str, value: object, said: str) -> None:
    changed(path, statement, values=(value,))
    # Only a report reads the environment, and no row of an export has a background.
    commands = (
        ("report",) if "environment" in statement else ("show",) if "background" in statement else ("show", "export")
    )
    for words in ((command, path) for command in commands):
        done = ran(*words)
        assert done.exit_code == 5 and said in done.output, done.output[:2000]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("window", "duration_ns"), 0),
        (("window", "duration_ns"), -5),
        (("window", "duration_ns"), 10**400),
        (("read", "ios"), -1),
        (("read", "latency_sum_ns"), 10**40),
        (("read", "histogram", "counts"), [[1, -1]]),
        (("read", "histogram", "counts"), [[10**400, 1]]),
        (("outstanding", "mean"), 10**400),
        (("cpu", 0, "busy_ns"), 2**63),
    ],
)
def test_figures_of_no_measurement_are_named(path: Path, place: tuple, value: object) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        [(text,)] = database.execute("SELECT result FROM results LIMIT 1").fetchall()
    result = json.loads(text)
    holder = result
    for part in place[:-1]:
        holder = holder[part]
    holder[place[-1]] = value
    changed(path, "UPDATE results SET result = ?", values=(json.dumps(result),))
    for words in (("show", path), ("export", path), ("size", path, "--iops", "1k")):
        done = ran(*words)
        assert done.exit_code == 5 and "does not understand" in done.output, done.output


def test_more_attempts_than_any_study_has_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_format, "ATTEMPTS_MAX", 3)
    done = ran("show", path)
    assert done.exit_code == 5 and "and iotax reads 3 at most" in done.output


def test_a_value_larger_than_any_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(path, "UPDATE endings SET log = ?", values=("x" * 100_000,))
    monkeypatch.setattr(notebook_format, "VALUE_BYTES_MAX", 50_000)
    done = ran("show", path)
    assert done.exit_code == 5 and "too big" in done.output


def test_a_notebook_of_version_1_is_read_and_brought_up_to_date_by_a_writer(path: Path) -> None:
    """Version 1 lacked tables that were added later."""
    later = ("revisions", "preconditionings", "closings", "kept")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        for table in later:
            database.execute(f"DROP TABLE {table}")
        database.execute("PRAGMA user_version = 1")
    with Notebook(path) as notebook:
        before = notebook.attempts()
        assert (notebook.closings(), notebook.preconditionings()) == ([], [])
    with Writer(path) as writer:
        writer.add_closing(writer.begin_session(1, {}, 0), 1, "done")
        assert writer.closings() == ["done"]
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (notebook_format.VERSION,)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            database.execute("DELETE FROM closings")
    with Notebook(path) as notebook:
        assert notebook.attempts() == before


def survive(good: Path, folder: Path, tries: int) -> None:
    rng = Random("notebooks")
    path = folder / "n.iotax"
    for _ in range(tries):
        for each in folder.glob("n.iotax*"):
            each.unlink()
        shutil.copy(good, path)
        table = rng.choice(list(COLUMNS))
        column = rng.choice(COLUMNS[table])
        with contextlib.closing(sqlite3.connect(path)) as database:
            [(value,)] = database.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchall()
        damage: object = rng.choice(STRANGE)
        if isinstance(value, str) and value[:1] in "{[" and rng.random() < 0.85:
            damage = mutations.json_text(rng, value)
        try:
            changed(
                path,
                f"UPDATE {table} SET {column} = ? WHERE {column} IS (SELECT {column} FROM {table} LIMIT 1)",
                values=(damage,),
            )
        except sqlite3.IntegrityError:
            continue  # a NOT NULL column refuses NULL
        try:
            read(path)
        except NotebookError:
            continue
        except BaseException as error:
            raise AssertionError(f"{type(error).__name__} of {table}.{column} = {str(damage)[:4000]}") from error


def test_damaged_notebooks_are_read_or_refused(good: Path, tmp_path: Path) -> None:
    survive(good, tmp_path, TRIES)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_damaged_notebooks_are_read_or_refused(good: Path, tmp_path: Path) -> None:
    survive(good, tmp_path, TRIES_LONG)


def test_results_that_do_not_fit_into_memory_are_refused_and_exported_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {form: ran("export", path, "--format", form).stdout for form in ("csv", "json")}
    monkeypatch.setattr(notebook_format, "RESULTS_BYTES_MAX", 1000)
    for words in (("show", path), ("report", path), ("size", path, "--iops", "1k")):
        done = ran(*words)
        assert done.exit_code == 5 and "iotax export" in done.output and "MiB of results" in done.output, done.output
    for form, before in whole.items():
        assert ran("export", path, "--format", form).stdout == before
    # The machine that measures can continue.
    with Writer(path) as writer:
        assert len(writer.attempts()) == 4


def test_one_attempt_at_a_time_is_in_memory(path: Path) -> None:
    with Notebook(path) as notebook:
        each = notebook.each_attempt()
        kept = [weakref.ref(next(each)) for _ in range(3)]
        assert [one() is None for one in kept] == [True] * 3
        assert len(list(each)) == 1


def test_more_combinations_of_levels_than_a_study_may_have_are_refused() -> None:
    factors = {name: list(range(48)) for name in ("a", "b", "c")}
    with pytest.raises(ValidationError, match=r"110,592 combinations of levels \(a 48 × b 48 × c 48\); 100,000 are"):
        Imported(programs=["fio 3"], files=1, digest="x", factors=factors)
