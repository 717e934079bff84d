"""Jobs of Slurm, one for each host: the node of its name, asked for whole, runs a Dask worker with that name.

Plain sbatch, and not dask-jobqueue: its cluster is a number of workers that are all alike, on nodes that Slurm chooses;
here each is one certain node, waits in the queue for itself, and is told by that node's name when it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iotax.engine import EngineError
from iotax.places.base import COMMAND_S, FOLDER, HostFault, last_words
from iotax.study.hosts import Slurm

DEATH_S = 60
"""A worker that finds no scheduler for so long ends, and its job with it: whoever submitted it was killed."""
_LOOK_S = 0.5
"""Interval at which a host checks whether its worker has come."""
_ASK_S = 2.0
"""Interval at which Slurm is queried, once for all jobs."""
_END_S = 3.0
"""Time that a worker may take to end by itself."""
_LOG_LINES = 5
_WAITING = frozenset({"PENDING", "CONFIGURING", "SUSPENDED", "REQUEUED", "RESIZING"})
_ALIVE = _WAITING | {"RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING"}
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "SLURM_CONF")
"""Variables of iotax's environment for jobs. Slurm stores what it is given, and the rest may hold secrets."""


@dataclass(frozen=True)
class Contact:
    """What a worker needs to find its scheduler."""

    address: str
    """tls://IP:PORT."""
    environment: Mapping[str, str]
    """Dask's settings."""


@dataclass(frozen=True)
class _State:
    """State from squeue; empty for a job that Slurm no longer knows."""

    state: str = ""
    reason: str = ""

    @property
    def alive(self) -> bool:
        return self.state in _ALIVE

    def __str__(self) -> str:
        reason = "" if self.reason in ("", "None") else f": {self.reason}"
        return f"{self.state.lower() or 'gone'}{reason}"


class Jobs:
    """Jobs of one study."""

    def __init__(self, asked: Slurm, tell: Callable[[str], None]) -> None:
        """`tell` receives the reasons for waiting."""
        self._asked, self._tell = asked, tell
        self._ids: dict[str, str] = {}
        """Host → its job."""
        self._submitting: set[asyncio.Task[str]] = set()
        self._states: dict[str, _State] = {}
        self._asked_s = -math.inf
        self._waiting: dict[str, str] = {}
        """Host → what it waits for."""
        self._said = ""
        self._one_at_a_time = asyncio.Lock()

    async def bring(self, host: str, contact: Contact, there: Callable[[], bool]) -> None:
        """Waits until the worker of a host is there; submits a new job if it has none, or its job is over. Raises
        HostFault."""
        new = False
        until_s = asyncio.get_running_loop().time() + self._asked.wait / 1e9
        try:
            while not there():
                job = self._ids.get(host)
                if job is not None and not (state := await self._state(job)).alive:
                    if new:
                        raise HostFault(host, self._ended(host, job, state), "lost")
                    job = None
                if job is None:
                    await self._submit(host, contact)
                    new = True
                    continue
                if asyncio.get_running_loop().time() > until_s:
                    said = f"its Slurm job {job} is {state} after {self._asked.wait / 60e9:g} min (`wait`)"
                    raise HostFault(host, said, "unreachable")
                self._waiting[host] = f"job {job}, {state if state.state in _WAITING else 'its worker starts'}"
                self._say()
                await asyncio.sleep(_LOOK_S)
        except HostFault:
            raise
        except EngineError as error:
            raise HostFault(host, error.message, error.kind) from error
        finally:
            self._waiting.pop(host, None)

    async def close(self) -> None:
        """Cancels all that there are; those whose workers end by themselves, since their scheduler has, may do so."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _END_S
        with contextlib.suppress(EngineError):
            await asyncio.gather(*self._submitting, return_exceptions=True)
            jobs = list(self._ids.values())
            while jobs:
                found = await _states(jobs)
                jobs = [each for each in jobs if each in found and found[each].alive]
                if not jobs or loop.time() > until_s or all(found[each].state in _WAITING for each in jobs):
                    break
                await asyncio.sleep(_LOOK_S)
            if jobs:
                await _run(["scancel", "--quiet", *jobs])
        self._ids.clear()

    async def _submit(self, host: str, contact: Contact) -> None:
        """An interrupt meanwhile leaves no unknown job behind."""
        words = [
            "sbatch", "--parsable", f"--job-name=iotax-{host}", f"--nodelist={host}", "--nodes=1", "--ntasks=1",
            "--exclusive", "--no-requeue", f"--time={math.ceil(self._asked.time / 60e9)}",
            "--output=/dev/null", *self._asked.options,
        ]  # fmt: skip

        async def submit() -> str:
            self._ids[host] = job = (await _run(words, script(host, self._asked, contact))).strip().partition(";")[0]
            self._states[job] = _State("PENDING")
            return job

        task = asyncio.create_task(submit())
        self._submitting.add(task)
        task.add_done_callback(self._submitting.discard)
        await asyncio.shield(task)

    async def _state(self, job: str) -> _State:
        loop = asyncio.get_running_loop()
        async with self._one_at_a_time:
            if loop.time() - self._asked_s > _ASK_S:
                jobs = list(self._ids.values())
                found = await _states(jobs)
                # A job that was submitted meanwhile was not part of the query.
                self._states |= {each: found.get(each, _State()) for each in jobs}
                self._asked_s = loop.time()
        return self._states.get(job, _State())

    def _ended(self, host: str, job: str, state: _State) -> str:
        name = f"{FOLDER}/slurm-{job}.log"
        said = f"its Slurm job {job} ended before its worker was there ({state})"
        try:
            lines = (Path.home() / name).read_text(errors="replace").strip().splitlines()
        except OSError:
            return f"{said}; where it wrote a log, that is ~/{name} on {host}"
        return f"{said}. The end of ~/{name}:\n" + "\n".join(lines[-_LOG_LINES:])

    def _say(self) -> None:
        host, what = min(self._waiting.items())
        others = f" and {len(self._waiting) - 1} more" if len(self._waiting) > 1 else ""
        said = f"waiting for Slurm: {host} ({what}){others}"
        if said != self._said:
            self._said = said
            self._tell(said)


def script(host: str, asked: Slurm, contact: Contact) -> str:
    """The script of a job. Certificates are in it, and so in Slurm's own state, which root and its user can read; no
    argument holds them."""
    python = asked.python or sys.executable
    words = [
        python, "-m", "distributed.cli.dask_worker", contact.address, "--name", host, "--nthreads", "1", "--no-nanny",
        "--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--memory-limit", "0", "--death-timeout", str(DEATH_S),
    ]  # fmt: skip
    return "\n".join(
        [
            "#!/bin/bash -l",
            *asked.setup,
            "umask 077",
            f'mkdir -p "$HOME/{FOLDER}"',
            f'log="$HOME/{FOLDER}/slurm-$SLURM_JOB_ID.log"',
            'exec >"$log" 2>&1',
            *(f"export {name}={shlex.quote(value)}" for name, value in contact.environment.items()),
            "local=$(mktemp -d) || exit",
            f'{shlex.join(words)} --local-directory "$local"',
            "status=$?",
            'rm -rf "$local"',
            '[ "$status" -ne 0 ] || rm -f "$log"',
            'exit "$status"',
            "",
        ]
    )


async def _states(jobs: Sequence[str]) -> dict[str, _State]:
    asked = ["squeue", "--noheader", "--states=all", "--format=%i|%T|%r", f"--jobs={','.join(jobs)}"]
    try:
        said = await _run(asked)
    except EngineError as error:
        # Slurm's message if it knows none of the jobs any more.
        if "Invalid job id" in error.message:
            return {}
        raise
    rows = (line.split("|") for line in said.splitlines())
    return {job: _State(state, reason) for job, state, reason in rows}


async def _run(words: Sequence[str], given: str = "") -> str:
    """A command of Slurm. Raises EngineError."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(("SBATCH_", "LC_"))}
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=kept,
            # Ctrl-C is for iotax, which cancels the jobs then.
            start_new_session=True,
        )
    except OSError as error:
        said = (
            f"{words[0]} is missing on this machine ({error.strerror}): `cluster: {{slurm: …}}` needs Slurm's commands"
        )
        raise EngineError("missing", said) from error
    try:
        async with asyncio.timeout(COMMAND_S):
            output, errors = await process.communicate(given.encode())
    except TimeoutError:
        raise EngineError("unreachable", f"{words[0]}: Slurm does not answer in time") from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        said = last_words(words[0], errors.decode(errors="replace"), f"status {process.returncode}")
        raise EngineError("refused", said)
    return output.decode(errors="replace")
