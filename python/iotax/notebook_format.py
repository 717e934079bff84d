"""What a notebook's file is made of: its tables, how they are made, and whether a given file is one.

A notebook from a stranger is data. It is opened so that nothing in it is carried out: a file with a view, a trigger or
an index that this format does not have is refused before any of its tables is read.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

VERSION = 3
_READ = (1, 2, 3)
"""Versions that this one reads; a writer brings an older file up to date. Version 1 lacked some tables until they were
needed, version 2 lacks `kept`."""
APPLICATION_ID = 0x696F7461  # "iota"
VALUE_BYTES_MAX = 64 << 20
"""Of one value. A result has well below 1 MiB."""
ATTEMPTS_MAX = 200_000
"""Of one run. A study has 100,000 trials at most, and each is tried twice at most in an invocation."""
RESULTS_BYTES_MAX = 256 << 20
"""Of one run's results, where all are needed at once: as objects they take about ten times as much memory."""
_LISTED = """
CREATE TABLE studies (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, label TEXT NOT NULL, digest TEXT NOT NULL,
    study TEXT NOT NULL, source TEXT NOT NULL, started_unix_ns INTEGER NOT NULL);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY, study_id INTEGER NOT NULL REFERENCES studies, started_unix_ns INTEGER NOT NULL,
    environment TEXT NOT NULL);
CREATE TABLE trials (
    study_id INTEGER NOT NULL REFERENCES studies, id TEXT NOT NULL, run_order INTEGER NOT NULL, block INTEGER NOT NULL,
    replicate INTEGER NOT NULL, treatment TEXT NOT NULL, PRIMARY KEY (study_id, id)) WITHOUT ROWID;
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY, session_id INTEGER NOT NULL REFERENCES sessions, study_id INTEGER NOT NULL,
    trial_id TEXT NOT NULL, number INTEGER NOT NULL, started_unix_ns INTEGER NOT NULL,
    UNIQUE (study_id, trial_id, number),
    FOREIGN KEY (study_id, trial_id) REFERENCES trials (study_id, id));
CREATE TABLE endings (
    attempt_id INTEGER PRIMARY KEY REFERENCES attempts, status TEXT NOT NULL, reason TEXT NOT NULL,
    ended_unix_ns INTEGER NOT NULL, connected TEXT, log TEXT NOT NULL);
CREATE TABLE results (
    attempt_id INTEGER PRIMARY KEY REFERENCES attempts, rate_iops REAL NOT NULL, latency_mean_ns REAL,
    latency_p50_ns REAL, latency_p99_ns REAL, cpu_initiator_ns INTEGER, cpu_target_ns INTEGER,
    ios INTEGER NOT NULL, result TEXT NOT NULL);
CREATE TABLE backgrounds (
    id INTEGER PRIMARY KEY, session_id INTEGER NOT NULL REFERENCES sessions,
    study_id INTEGER NOT NULL REFERENCES studies, block INTEGER NOT NULL, background TEXT NOT NULL);
CREATE TABLE revisions (
    id INTEGER PRIMARY KEY, study_id INTEGER NOT NULL REFERENCES studies, digest TEXT NOT NULL, study TEXT NOT NULL,
    source TEXT NOT NULL, revised_unix_ns INTEGER NOT NULL);
CREATE TABLE preconditionings (
    id INTEGER PRIMARY KEY, session_id INTEGER NOT NULL REFERENCES sessions,
    study_id INTEGER NOT NULL REFERENCES studies, step TEXT NOT NULL);
CREATE TABLE closings (
    session_id INTEGER PRIMARY KEY REFERENCES sessions, study_id INTEGER NOT NULL REFERENCES studies,
    log TEXT NOT NULL);
CREATE TABLE kept (attempt_id INTEGER PRIMARY KEY REFERENCES attempts, kept TEXT NOT NULL);
"""
"""`revisions`: of runs that were extended. `preconditionings`: of volumes that were brought into a steady state first.
`closings`: what the lab said as it was left, after the last attempt of an invocation. `kept`: slices of sessions that
failed."""
_STATEMENTS = [f"{each.strip()}" for each in _LISTED.split(";") if each.strip()]
TABLES = {statement.split()[2]: statement for statement in _STATEMENTS}
"""Name → statement that makes it, in an order in which they can be made."""


class NotThisFormat(ValueError):  # noqa: N818 - an answer, not a bug
    """The file is not a notebook that this version reads; says why and what to do."""


def connect(path: Path) -> sqlite3.Connection:
    """Carries out nothing that the file itself defines: views, triggers and defaults may not call functions, values are
    limited, and damaged pages are noticed. Raises sqlite3.DatabaseError."""
    database = sqlite3.connect(path, timeout=10)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
    for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "foreign_keys = ON"):
        database.execute(f"PRAGMA {setting}")
    return database


def in_memory() -> sqlite3.Connection:
    """What a reader of an empty notebook finds."""
    database = sqlite3.connect(":memory:")
    for statement in TABLES.values():
        database.execute(statement)
    return database


def make(database: sqlite3.Connection) -> None:
    """The tables of a new file, or those that an older one lacks; all or none. Raises sqlite3.DatabaseError."""
    with contextlib.closing(database.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        try:
            there = {name for (name,) in cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for name, statement in TABLES.items():
                if name not in there:
                    cursor.execute(statement)
                    for guard in _guards(name).values():
                        cursor.execute(guard)
            cursor.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            cursor.execute(f"PRAGMA user_version = {VERSION}")
            cursor.execute("COMMIT")
        except BaseException:
            cursor.execute("ROLLBACK")
            raise


def check(database: sqlite3.Connection) -> int:
    """The version of the file. Raises NotThisFormat if it is none of these, or holds more than tables and the
    triggers that keep them append-only; sqlite3.DatabaseError where it is not a SQLite file."""
    [(application,)] = database.execute("PRAGMA application_id").fetchall()
    [(version,)] = database.execute("PRAGMA user_version").fetchall()
    if application != APPLICATION_ID:
        raise NotThisFormat("this SQLite file is not an iotax notebook; name another")
    if version not in _READ:
        raise NotThisFormat(
            f"the notebook has format {version}, this iotax reads {_READ[0]} to {_READ[-1]}; "
            "use the version that wrote it"
        )
    triggers = {name: guard for table in TABLES for name, guard in _guards(table).items()}
    there = database.execute("SELECT type, name, sql FROM sqlite_master LIMIT 1000").fetchall()
    for kind, name, statement in there:
        known = (
            (kind == "table" and name in TABLES and _same_columns(database, name, statement))
            or (kind == "trigger" and _words(statement) == _words(triggers.get(name)))
            or (kind == "index" and statement is None)
        )
        if not known:
            raise NotThisFormat(
                f"it holds {kind} {str(name)[:60]!r}, which no notebook has: it was changed by another program; "
                "ask for the file as iotax wrote it"
            )
    missing = [name for name in TABLES if name not in {each for _, each, _ in there}]
    if missing and version == VERSION:
        raise NotThisFormat(f"the table {missing[0]} is missing: the file is damaged or was changed")
    return version


def _same_columns(database: sqlite3.Connection, name: str, statement: object) -> bool:
    """Whether a table has this format's columns and no others, none of them calculated."""
    if not isinstance(statement, str) or not statement.upper().startswith("CREATE TABLE"):
        return False  # a virtual one
    with contextlib.closing(in_memory()) as own:
        return _columns(own, name) == _columns(database, name)


def _columns(database: sqlite3.Connection, name: str) -> Sequence[tuple]:
    """(name, type, not null, default, primary key, hidden) of each."""
    return [row[1:] for row in database.execute(f"PRAGMA table_xinfo({name})").fetchall()]


def _guards(table: str) -> dict[str, str]:
    """Name → trigger, of those that refuse to change or delete a row."""
    return {
        f"{table}_no_{verb.lower()}": f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'a notebook is append-only'); END"
        for verb in ("UPDATE", "DELETE")
    }


def _words(statement: object) -> list[str]:
    return statement.rstrip(";").split() if isinstance(statement, str) else ["?"]
