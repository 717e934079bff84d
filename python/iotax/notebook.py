"""The notebook: one SQLite file (`*.iotax`) that keeps every study, trial, attempt and result.

Append-only: triggers refuse to change or delete a row, so a status is the presence of a later row, never an edit. An
attempt is written when it starts and its ending when it ends; an attempt without an ending belongs to a process that
still runs or that died. One process writes at a time (`Writer` holds a lock beside the file); any number read, and
know by that lock whether the writer lives. The file is made with the first run of a study, not before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import shutil
import sqlite3
import time
from collections.abc import Container, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from iotax import notebook_format
from iotax.notebook_records import (
    ATTEMPT_TYPES,
    Levels,
    Types,
    attempt_of,
    environment_of,
    sound,
    trial_of,
    typed,
)
from iotax.records import Conditioning
from iotax.redaction import redact
from iotax.study import Study
from iotax.study.imported import ImportedStudy, kept_study
from iotax.trial import Attempt, Background, Connected, Kept, Look, Status, Trial, TrialResult
from iotax.version import __version__

FREE_BYTES_MIN = 16 << 20
"""Below this much free disk no attempt is started: its result (well below 1 MiB) might not be kept."""

_LOCK_PATIENCE_S = 0.5
"""A reader that checks for a writer holds the lock for some microseconds."""
ABANDONED = "the run ended without a message (killed, or the machine went down)"

_ATTEMPTS = """
SELECT a.id, s.name, t.id, t.treatment, t.block, t.replicate, t.run_order, a.number, a.started_unix_ns,
       e.status, e.reason, e.ended_unix_ns, e.connected, e.log, r.result
FROM attempts a JOIN studies s ON s.id = a.study_id JOIN trials t ON t.study_id = a.study_id AND t.id = a.trial_id
LEFT JOIN endings e ON e.attempt_id = a.id LEFT JOIN results r ON r.attempt_id = a.id
"""
_COUNTS = {
    "trials": "SELECT count(*) FROM trials WHERE study_id = ?",
    "attempts": "SELECT count(*) FROM attempts WHERE study_id = ?",
}
_SIZES = {
    "results": """SELECT total(length(CAST(r.result AS BLOB))) FROM results r JOIN attempts a ON a.id = r.attempt_id
                  WHERE a.study_id = ?""",
    "kept": """SELECT total(length(CAST(k.kept AS BLOB))) FROM kept k JOIN attempts a ON a.id = k.attempt_id
               WHERE a.study_id = ?""",
}


class NotebookError(Exception):
    """The notebook cannot be used; says what, where and what to do."""


@dataclass(frozen=True)
class StudyRun:
    """One run of a study, perhaps over several invocations. A notebook may hold several."""

    id: int
    name: str
    label: str
    digest: str
    source: str
    started_unix_ns: int


class Notebook:
    """Reads a notebook; several may read while one writes.

    Every method takes the id of a study run, and the latest one when none is given.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise NotebookError(f"{path}: there is no notebook here; `iotax run` makes one")
        self.path = path
        self._database = _connect(path)
        try:
            self._version = _check_format(self._database, path)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def runs(self) -> list[StudyRun]:
        """Every run of a study in here, the oldest first."""
        rows = self._rows(
            "SELECT id, name, label, digest, source, started_unix_ns FROM studies ORDER BY id",
            of=(int, str, str, str, str, int),
        )
        revised = {run: {"digest": digest, "source": source} for run, digest, _, source, _ in self._revisions()}
        return [replace(run, **revised.get(run.id, {})) for run in (StudyRun(*row) for row in rows)]

    def run(self, run: int | None = None) -> StudyRun:
        found = [each for each in self.runs() if run is None or each.id == run]
        if not found:
            if run is None:
                raise NotebookError(f"{self.path}: the notebook holds no study yet")
            there = ", ".join(str(each.id) for each in self.runs()) or "none"
            raise NotebookError(f"{self.path}: the notebook holds no run {run}; its runs: {there}")
        return found[-1]

    def study(self, run: int | None = None) -> Study:
        """What was asked; with more replicates where they were added later."""
        return self._versions(self.run(run).id)[-1][1]

    def looks(self, run: int | None = None) -> list[Look]:
        """Each time replicates were added after results were there, the first one first. None of imported results:
        what was seen of them before is not known."""
        chosen = self.run(run).id
        versions = self._versions(chosen)
        found = []
        for (_, before), (revised_unix_ns, after) in pairwise(versions):
            if isinstance(after, ImportedStudy):
                continue
            [(results,)] = self._rows(
                """SELECT count(DISTINCT a.trial_id) FROM attempts a JOIN endings e ON e.attempt_id = a.id
                   WHERE a.study_id = ? AND e.status = 'done' AND e.ended_unix_ns <= ?""",
                chosen,
                revised_unix_ns,
                of=(int,),
            )
            if results:
                raised = {"replicates": before.design.replicates, "raised_to": after.design.replicates}
                found.append(Look(at_unix_ns=revised_unix_ns, results=results, **raised))
        return found

    def earlier_runs(self, run: int | None = None) -> int:
        """How many runs of the same name and label have results and began before this one."""
        chosen = self.run(run)
        [(count,)] = self._rows(
            """SELECT count(*) FROM studies s WHERE s.id < ? AND s.name = ? AND s.label = ? AND EXISTS
               (SELECT 1 FROM results r JOIN attempts a ON a.id = r.attempt_id WHERE a.study_id = s.id)""",
            *(chosen.id, chosen.name, chosen.label),
            of=(int,),
        )
        return count

    def _versions(self, run: int) -> list[tuple[int, Study]]:
        """When each version of the run's study was written down, and the study; the latest one last."""
        first = self._rows("SELECT started_unix_ns, study FROM studies WHERE id = ?", run, of=(int, str))
        later = [(at_ns, study) for of, _, study, _, at_ns in self._revisions() if of == run]
        with _understood(self.path):
            return [(at_ns, kept_study(text)) for at_ns, text in [*first, *later]]

    def trials(self, run: int | None = None) -> list[Trial]:
        """Every trial that was planned, in run order, done or not."""
        chosen = self.run(run)
        self._refuse_too_many("trials", chosen.id)
        rows = self._rows(
            "SELECT id, treatment, block, replicate, run_order FROM trials WHERE study_id = ? ORDER BY run_order",
            chosen.id,
            of=(str, str, int, int, int),
        )
        known = Levels(self.study(chosen.id))
        with _understood(self.path):
            return [known.checked(trial_of(chosen.name, *row)) for row in rows]

    def attempts(self, run: int | None = None) -> list[Attempt]:
        """Every attempt, in the order in which they were started; all of them in memory."""
        chosen = self.run(run).id
        self._refuse_too_large(chosen)
        return list(self.each_attempt(chosen))

    def each_attempt(self, run: int | None = None) -> Generator[Attempt]:
        """The same one by one, however many there are."""
        chosen = self.run(run).id
        self._refuse_too_many("attempts", chosen)
        known = Levels(self.study(chosen))
        with _understood(self.path):
            yield from map(known.checked_attempt, self._attempts("a.study_id = ? ORDER BY a.id", chosen))

    def attempt(self, attempt: int) -> Attempt:
        """One of them."""
        return next(self._attempts("a.id = ?", attempt))

    def attempts_but(self, run: int, known: Container[int]) -> dict[int, Attempt]:
        """Id → attempt, of those that are not known yet. For who looks again and again."""
        self._refuse_too_many("attempts", run)
        rows = self._rows("SELECT id FROM attempts WHERE study_id = ? ORDER BY id", run, of=(int,))
        return {number: self.attempt(number) for (number,) in rows if number not in known}

    def data_version(self) -> int:
        """Another number after another process wrote to the notebook (https://www.sqlite.org/pragma.html)."""
        [(version,)] = self._rows("PRAGMA data_version", of=(int,))
        return version

    def _attempts(self, where: str, value: int) -> Generator[Attempt]:
        # Asked before and after: a writer may come or go while the rows are read.
        written = self.is_written()

        def told(row: Any) -> Attempt:
            attempt, *rest = row
            found = attempt_of(*typed(tuple(rest), ATTEMPT_TYPES))
            if found.result is None:
                found = found.model_copy(update={"kept": self._kept(attempt)})
            if found.status == "running" and not written and not self.is_written():
                return found.model_copy(update={"status": "abandoned", "reason": ABANDONED})
            return found

        with _understood(self.path), _spoken(self.path):
            # Row by row, and no name here: an attempt goes when its taker lets go of it.
            yield from map(told, self._database.execute(f"{_ATTEMPTS} WHERE {where}", (value,)))

    def _kept(self, attempt: int) -> tuple[Kept, ...]:
        if not self._has("kept"):
            return ()
        rows = self._rows("SELECT kept FROM kept WHERE attempt_id = ?", attempt, of=(str,))
        return tuple(sound(Kept.model_validate(each)) for (text,) in rows for each in json.loads(text))

    def left(self, run: int) -> list[Trial]:
        """The trials that have no result yet, in run order."""
        rows = self._rows(
            """SELECT a.trial_id FROM attempts a JOIN endings e ON e.attempt_id = a.id
               WHERE a.study_id = ? AND e.status = 'done'""",
            run,
            of=(str,),
        )
        done = {trial for (trial,) in rows}
        return [trial for trial in self.trials(run) if trial.id not in done]

    def partial(self, run: int) -> dict[str, tuple[str, ...]]:
        """Trial → the hosts without which it ran, where its last result has not all of them."""
        done = (each for each in self.each_attempt(run) if each.status == "done" and each.result)
        without = {each.trial.id: each.result.left_out for each in done if each.result}
        return {trial: left_out for trial, left_out in without.items() if left_out}

    def report_path(self, run: int | None = None) -> Path:
        """Where the report of a run stands unless another file is named; each run has its own, so that none replaces
        another's."""
        number = self.run(run).id
        name = self.path.stem if number == self.runs()[0].id else f"{self.path.stem}-run{number}"
        return self.path.with_name(f"{name}.html")

    def is_written(self) -> bool:
        """Whether a process that lives writes to this notebook."""
        return _is_locked(self.path)

    def backgrounds(self, run: int | None = None) -> list[Background]:
        query = "SELECT background FROM backgrounds WHERE study_id = ? ORDER BY id"
        rows = self._rows(query, self.run(run).id, of=(str,))
        with _understood(self.path):
            return [sound(Background.model_validate_json(text)) for (text,) in rows]

    def preconditionings(self, run: int | None = None) -> list[Conditioning]:
        """Every step that ended, in order."""
        chosen = self.run(run).id
        if not self._has("preconditionings"):
            return []
        query = "SELECT step FROM preconditionings WHERE study_id = ? ORDER BY id"
        rows = self._rows(query, chosen, of=(str,))
        with _understood(self.path):
            return [sound(Conditioning.model_validate_json(text)) for (text,) in rows]

    def closings(self, run: int | None = None) -> list[str]:
        """What commands of the study said after its last attempt, of each invocation in which any did."""
        chosen = self.run(run).id
        if not self._has("closings"):
            return []
        query = "SELECT log FROM closings WHERE study_id = ? ORDER BY session_id"
        return [log for (log,) in self._rows(query, chosen, of=(str,))]

    def environments(self, run: int | None = None) -> list[dict[str, Any]]:
        """Machine, versions and command line of each invocation that worked on the run."""
        query = "SELECT environment FROM sessions WHERE study_id = ? ORDER BY id"
        rows = self._rows(query, self.run(run).id, of=(str,))
        with _understood(self.path):
            return [environment_of(json.loads(text)) for (text,) in rows]

    def invocations(self, run: int | None = None) -> list[tuple[int, int]]:
        """When each invocation that worked on the run began, and when its last attempt ended; nanoseconds since 1970.

        What a process that was killed did after that is not known.
        """
        return self._rows(
            """SELECT s.started_unix_ns, max(e.ended_unix_ns)
               FROM sessions s JOIN attempts a ON a.session_id = s.id JOIN endings e ON e.attempt_id = a.id
               WHERE s.study_id = ? AND e.status != 'abandoned' GROUP BY s.id ORDER BY s.id""",
            self.run(run).id,
            of=(int, int),
        )

    def environment(self, run: int | None = None) -> dict[str, Any]:
        """The latest invocation's environment; empty when there was none."""
        return (self.environments(run) or [{}])[-1]

    def _revisions(self) -> list[tuple[int, str, str, str, int]]:
        """(run, digest, study, source, when), the oldest first."""
        if not self._has("revisions"):
            return []
        query = "SELECT study_id, digest, study, source, revised_unix_ns FROM revisions ORDER BY id"
        return self._rows(query, of=(int, str, str, str, int))

    def _has(self, table: str) -> bool:
        """Whether a file of an earlier version, which no writer of this version has opened yet, has the table."""
        if self._version != notebook_format.VERSION:
            found = self._rows("SELECT 1 FROM sqlite_master WHERE name = ?", table, of=(int,))
            return bool(found)
        return True

    def _refuse_too_many(self, what: str, run: int) -> None:
        [(count,)] = self._rows(_COUNTS[what], run, of=(int,))
        if count > (most := notebook_format.ATTEMPTS_MAX):
            raise NotebookError(
                f"{self.path}: the run has {count:,} {what}, and iotax reads {most:,} at most; "
                "read it with SQL (docs/reference/notebook.md)"
            )

    def _refuse_too_large(self, run: int) -> None:
        """Of results that would not fit into memory together, kept slices among them."""
        tables = [table for table in _SIZES if self._has(table)]
        size = sum(size for table in tables for (size,) in self._rows(_SIZES[table], run, of=(float,)))
        if size > (most := notebook_format.RESULTS_BYTES_MAX):
            raise NotebookError(
                f"{self.path}: the run holds {size / 2**20:,.0f} MiB of results, and {most / 2**20:,.0f} MiB at most "
                "are read at once (they take ten times as much memory); "
                f"`iotax export {self.path}` writes them one by one"
            )

    def _rows(self, query: str, *values: object, of: Types) -> list[tuple]:
        """`of` are the types of the columns: SQLite keeps any value in any column."""
        with _understood(self.path), _spoken(self.path):
            return [typed(row, of) for row in self._database.execute(query, values)]


class Writer(Notebook):
    """Reads and appends. Refuses to open while another process writes.

    A new file is made only once there is a run to keep: what was refused leaves nothing behind.
    """

    def __init__(self, path: Path) -> None:
        with _spoken(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _Lock(path)
        try:
            with _spoken(path):
                self._unmade = not path.exists() or not path.stat().st_size
            if self._unmade:
                self.path = path
                self._database, self._version = notebook_format.in_memory(), notebook_format.VERSION
            else:
                super().__init__(path)
                with _spoken(path):
                    notebook_format.make(self._database)
                self._version = notebook_format.VERSION
                self._abandon()
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        super().close()
        self._lock.release()

    def is_written(self) -> bool:
        return True

    def _refuse_too_large(self, run: int) -> None:
        """A study that this machine has measured goes on."""

    def begin(self, study: Study, source: str, label: str, trials: list[Trial]) -> int:
        """Writes down a new run; its id."""
        with self._append() as database:
            run = _id(
                database.execute(
                    """INSERT INTO studies (name, label, digest, study, source, started_unix_ns)
                       VALUES (?, ?, ?, ?, ?, ?)""",
                    (study.name, label, study.digest(), study.model_dump_json(), source, time.time_ns()),
                )
            )
            _insert_trials(database, run, trials)
        return run

    def earlier(self, study: Study, label: str) -> int | None:
        """The latest run of an equal study under the same label. Raises NotebookError if it had other costs."""
        digest = study.digest()
        same = [each.id for each in self.runs() if (each.digest, each.label) == (digest, label)]
        if not same and study.lab.sim is not None:
            self._refuse_other_costs(study, label, " or ".join(study.cost_tables()))
        return same[-1] if same else None

    def _refuse_other_costs(self, study: Study, label: str, costs: str) -> None:
        """Trials of one run share their costs. What says nothing of its costs, from before they were part of a digest,
        is another study."""
        for each in reversed(self.runs()):
            if (each.name, each.label) != (study.name, label):
                continue
            with contextlib.suppress(NotebookError):  # what another version wrote is another study
                stored = self.study(each.id)
                as_before = study.design.repeated(stored.design.replicates)
                asked = study.model_copy(update={"design": as_before})
                same = stored.digest_but_costs() == asked.digest_but_costs()
                if not same or each.digest in (asked.digest(), asked.digest_but_costs()):
                    continue
                break
        else:
            return
        raise NotebookError(
            f"{self.path}: run {each.id} of {study.name} was simulated with another table of costs than {costs} holds "
            "now. Say --again for another run beside it, or bring the table back to continue it"
        )

    def smaller(self, study: Study, label: str) -> int | None:
        """The latest run under the same label of a study that differs only by having had fewer replicates."""
        for each in reversed(self.runs()):
            if (each.name, each.label) != (study.name, label):
                continue
            with contextlib.suppress(NotebookError):  # what another version wrote is another study
                design = self.study(each.id).design
                more = study.design.replicates > design.replicates
                as_before = study.design.repeated(design.replicates)
                if more and study.model_copy(update={"design": as_before}).digest() == each.digest:
                    return each.id
        return None

    def extend(self, run: int, study: Study, source: str, trials: list[Trial]) -> None:
        """Makes the run one of this study, which asks for more replicates than its own."""
        with self._append() as database:
            database.execute(
                "INSERT INTO revisions (study_id, digest, study, source, revised_unix_ns) VALUES (?, ?, ?, ?, ?)",
                (run, study.digest(), study.model_dump_json(), source, time.time_ns()),
            )
            _insert_trials(database, run, trials)

    def add_trials(self, run: int, trials: list[Trial]) -> None:
        """Plans more, as a search asks for it."""
        with self._append() as database:
            _insert_trials(database, run, trials)

    def begin_session(self, run: int, environment: dict[str, Any], started_unix_ns: int) -> int:
        """Writes down an invocation, and when it began to prepare."""
        with self._append() as database:
            return _id(
                database.execute(
                    "INSERT INTO sessions (study_id, started_unix_ns, environment) VALUES (?, ?, ?)",
                    (run, started_unix_ns, json.dumps(environment)),
                )
            )

    def begin_attempt(self, session: int, run: int, trial: Trial) -> int:
        """Writes down that an attempt starts; its id. Refuses when the disk is too full to keep the result."""
        free_bytes = shutil.disk_usage(self.path.parent).free
        if free_bytes < FREE_BYTES_MIN:
            raise NotebookError(
                f"{self.path}: the disk is full ({free_bytes >> 20} MiB free, {FREE_BYTES_MIN >> 20} MiB needed before "
                "a trial starts); everything measured so far is kept. Free some space and run the same command again"
            )
        with self._append() as database:
            return _id(
                database.execute(
                    """INSERT INTO attempts (session_id, study_id, trial_id, number, started_unix_ns)
                       SELECT ?, ?, ?, 1 + count(*), ? FROM attempts WHERE study_id = ? AND trial_id = ?""",
                    (session, run, trial.id, time.time_ns(), run, trial.id),
                )
            )

    def end_attempt(
        self,
        attempt: int,
        status: Status,
        *,
        reason: str = "",
        result: TrialResult | None = None,
        connected: Connected | None = None,
        log: str = "",
        kept: Sequence[Kept] = (),
    ) -> None:
        with self._append() as database:
            _insert_ending(
                database,
                attempt,
                status,
                reason=reason,
                ended_unix_ns=time.time_ns(),
                result=result,
                connected=connected,
                log=log,
            )
            if kept:
                text = json.dumps([each.model_dump(mode="json") for each in kept])
                database.execute("INSERT INTO kept (attempt_id, kept) VALUES (?, ?)", (attempt, text))

    def add_results(self, session: int, run: int, trials: list[Trial], results: list[TrialResult]) -> None:
        """Writes down trials that were measured elsewhere, each done in one attempt, all of them or none."""
        with self._append() as database:
            _insert_trials(database, run, trials)
            for trial, result in zip(trials, results, strict=True):
                began_ns = result.window.start_unix_ns
                attempt = _id(
                    database.execute(
                        "INSERT INTO attempts (session_id, study_id, trial_id, number, started_unix_ns) "
                        "VALUES (?, ?, ?, 1, ?)",
                        (session, run, trial.id, began_ns),
                    )
                )
                ended_ns = began_ns + result.window.duration_ns
                _insert_ending(database, attempt, "done", ended_unix_ns=ended_ns, result=result)

    def add_background(self, session: int, run: int, background: Background) -> None:
        with self._append() as database:
            database.execute(
                "INSERT INTO backgrounds (session_id, study_id, block, background) VALUES (?, ?, ?, ?)",
                (session, run, background.block, background.model_dump_json()),
            )

    def add_preconditioning(self, session: int, run: int, step: Conditioning) -> None:
        with self._append() as database:
            database.execute(
                "INSERT INTO preconditionings (session_id, study_id, step) VALUES (?, ?, ?)",
                (session, run, step.model_dump_json()),
            )

    def add_closing(self, session: int, run: int, log: str) -> None:
        with self._append() as database:
            database.execute(
                "INSERT INTO closings (session_id, study_id, log) VALUES (?, ?, ?)", (session, run, redact(log))
            )

    def _abandon(self) -> None:
        """Ends the attempts of processes that died without a message. Nobody else can be writing: we hold the lock."""
        rows = self._rows("SELECT id FROM attempts WHERE id NOT IN (SELECT attempt_id FROM endings)", of=(int,))
        for (attempt,) in rows:
            self.end_attempt(attempt, "abandoned", reason=ABANDONED)

    @contextlib.contextmanager
    def _append(self) -> Generator[sqlite3.Connection]:
        if self._unmade:
            _create(self.path)
            self._database.close()
            self._database = _connect(self.path)
            self._unmade = False
        with _spoken(self.path), self._database:
            yield self._database


def _insert_trials(database: sqlite3.Connection, run: int, trials: list[Trial]) -> None:
    database.executemany(
        "INSERT INTO trials (study_id, id, run_order, block, replicate, treatment) VALUES (?, ?, ?, ?, ?, ?)",
        [(run, t.id, t.order, t.block, t.replicate, json.dumps(t.treatment)) for t in trials],
    )


def _insert_ending(
    database: sqlite3.Connection,
    attempt: int,
    status: Status,
    *,
    ended_unix_ns: int,
    reason: str = "",
    result: TrialResult | None = None,
    connected: Connected | None = None,
    log: str = "",
) -> None:
    database.execute(
        "INSERT INTO endings (attempt_id, status, reason, ended_unix_ns, connected, log) VALUES (?, ?, ?, ?, ?, ?)",
        (
            *(attempt, status, redact(reason), ended_unix_ns),
            *(connected.model_dump_json() if connected else None, redact(log)),
        ),
    )
    if result is not None:
        database.execute(
            """INSERT INTO results (attempt_id, rate_iops, latency_mean_ns, latency_p50_ns, latency_p99_ns,
                                    cpu_initiator_ns, cpu_target_ns, ios, result)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                attempt,
                result.rate_iops,
                result.latency_mean_ns,
                result.latency_ns(50),
                result.latency_ns(99),
                result.cpu_ns("initiator"),
                result.cpu_ns("target"),
                result.ios,
                result.model_dump_json(),
            ),
        )


class _Lock:
    """Held by the one process that writes; the system lets go of it however the process ends."""

    def __init__(self, notebook: Path) -> None:
        self._path = _lock_path(notebook)
        until_s = time.monotonic() + _LOCK_PATIENCE_S
        while True:
            with _spoken(notebook):
                self._file = self._path.open("a+")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.seek(0)
                holder = self._file.read().strip()
                self._file.close()
                if time.monotonic() < until_s:
                    time.sleep(0.01)
                    continue
                who = f" (process {holder})" if holder else ""
                raise NotebookError(
                    f"{notebook}: another run{who} is writing to this notebook; wait for it or name another"
                ) from None
            # The holder before us may have removed the file between our open and our lock: then it locks nothing.
            if self._path.exists() and os.fstat(self._file.fileno()).st_ino == self._path.stat().st_ino:
                break
            self._file.close()
        self._file.truncate(0)
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the name of its holder
            self._file.write(str(os.getpid()))
            self._file.flush()

    def release(self) -> None:
        if not self._file.closed:
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._file.close()


def _lock_path(notebook: Path) -> Path:
    return notebook.with_name(notebook.name + "-lock")


def _is_locked(notebook: Path) -> bool:
    """Whether a process holds the lock. Asked of the system, which knows better than any process number written down:
    numbers are given again, and mean something else in another container."""
    try:
        with _lock_path(notebook).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, most often
        return False
    return False


def _connect(path: Path) -> sqlite3.Connection:
    with _spoken(path):
        return notebook_format.connect(path)


def _create(path: Path) -> None:
    """Makes a new file with its tables beside `path` and moves it there, so that no reader meets half of one.

    Only the holder of the lock comes here.
    """
    with _spoken(path):
        if path.exists() and path.stat().st_size:
            return
    unfinished = path.with_name(path.name + "-new")
    with _spoken(path):
        unfinished.unlink(missing_ok=True)
    database = _connect(unfinished)
    try:
        with _spoken(path):
            database.execute("PRAGMA journal_mode = WAL")
            notebook_format.make(database)
    finally:
        database.close()
    with _spoken(path):
        unfinished.replace(path)


def _check_format(database: sqlite3.Connection, path: Path) -> int:
    """The format's version."""
    try:
        with _spoken(path):
            return notebook_format.check(database)
    except notebook_format.NotThisFormat as reason:
        raise NotebookError(f"{path}: {reason}") from None


@contextlib.contextmanager
def _spoken(path: Path) -> Generator[None]:
    """SQLite's and the system's errors in words that say what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
            raise NotebookError(
                f"{path}: the disk is full; everything before this attempt is kept. "
                "Free some space and run the same command again"
            ) from error
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise NotebookError(f"{path}: not a notebook, or a damaged one ({error}); name another") from error
        raise NotebookError(f"{path}: the notebook cannot be used: {error}") from error
    except OSError as error:
        raise NotebookError(f"{path}: {error.strerror or error}; name another notebook") from error


@contextlib.contextmanager
def _understood(path: Path) -> Generator[None]:
    """What is kept as JSON, where another version wrote it or something damaged it."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        what = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise NotebookError(
            f"{path}: the notebook holds what iotax {__version__} does not understand ({what}); read it with the "
            "version that wrote it"
        ) from error


def _is_full(path: Path) -> bool:
    """A write beyond a quota or a file size limit reaches SQLite as a plain I/O error."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return limit_bytes != resource.RLIM_INFINITY or shutil.disk_usage(path.parent).free < FREE_BYTES_MIN


def _id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid
