"""The interface of a place, and of a task that runs there."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from iotax.engine import EngineError
from iotax.places.fits import Needs, needs_of

COMMAND_S = 20.0
"""Time limit of a short command."""
LEASE_NS = 15_000_000_000
"""An engine that hears nothing for so long ends by itself: its controller or the network is gone."""
FOLDER = ".cache/iotax"
"""Folder below the home of the user who runs commands: holds what iotax copied there."""

Event: TypeAlias = dict[str, Any]
"""A line of the engine (docs/reference/engine.md)."""


class HostFault(EngineError):  # noqa: N818 - an outcome, not a bug
    """Something about one host of several, whose name begins the message."""

    def __init__(self, host: str, message: str, kind: str = "lost", log: str = "") -> None:
        super().__init__(kind, message, log=log)
        self.host = host

    def __str__(self) -> str:
        return f"{self.host}: {self.message}"


@dataclass(frozen=True)
class Binary:
    """The engine on this machine, from which other places have theirs."""

    path: Path

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    @functools.cached_property
    def needs(self) -> Needs:
        """Requirements on the system that runs it."""
        return needs_of(self.path)

    @property
    def remote(self) -> str:
        """Path of the copy."""
        return f"{FOLDER}/engine-{self.digest[:16]}"

    @property
    def as_root(self) -> str:
        """The copy for files that only root may open, by its full path, as sudo's rules name it."""
        return f'$([ "$(id -u)" = 0 ] || echo sudo -n) "$HOME/{self.remote}"'


class Place(ABC):
    """A machine on which commands run."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in messages."""

    @property
    def beside(self) -> int | None:
        """The process through which iotax reaches it; each trial reports its CPU. None if there is none while a trial
        runs."""
        return None

    @property
    def leased(self) -> bool:
        """Whether a task there may outlive the way to it, and so needs a lease, which the place renews."""
        return True

    @property
    def drifts(self) -> bool:
        """Whether its clock runs at a pace of its own, as that of an emulated processor does."""
        return False

    @abstractmethod
    async def install(self, binary: Binary) -> str:
        """Sees to it that the engine is there; gives how a command line calls it. Raises EngineError."""

    @abstractmethod
    async def start(self, command: str, document: Event, *, on_log: Callable[[str], None] | None = None) -> Task:
        """Starts a task: a command line for the shell there, and the first line of its input. Raises EngineError.

        `on_log` hears each line of its standard error, where that comes while it runs.
        """

    @abstractmethod
    async def run(self, command: str, *, given: str = "", within_s: float = COMMAND_S) -> str:
        """Standard output of a short command that succeeds; `given` is its standard input. Raises EngineError: of kind
        `io` if the command fails, with its last output; `lost` if the place does not answer."""


class Task(ABC):
    """A command that runs at a place, and speaks as the engine does: JSON lines in and out."""

    @property
    @abstractmethod
    def log(self) -> str:
        """The last lines of its standard error; whole after `end`."""

    @abstractmethod
    async def alive(self, wait_s: float = 0.0) -> bool:
        """Whether it runs; a killed task gets `wait_s` to end."""

    @abstractmethod
    async def ending(self) -> str:
        """How a task without further output ended."""

    def send(self, document: Event) -> None:
        """One line in. A task that is gone is noticed by the next `event`, which knows why."""
        self.send_line(line_of(document))

    @abstractmethod
    def send_line(self, line: bytes) -> None:
        """Like `send`, for lines made by `line_of` that must follow each other closely."""

    @abstractmethod
    async def event(self, within_s: float) -> Event:
        """The next line. Raises EngineError for an error line, an end (`died`), silence (`silent`), and for a place
        that cannot be reached any more (`lost`)."""

    @abstractmethod
    async def end(self) -> None:
        """Ends it, with everything that it started: first by closing its input, then by force. A second call does
        nothing."""

    async def clock(self, within_s: float) -> tuple[int, int | None]:
        """The machine's wall clock in ns, and its kernel's error, while the engine waits for its start. Raises
        EngineError."""
        self.send({"command": "clock"})
        event = await self.expect("clock", within_s)
        return event["unix_ns"], event["error_ns"]

    async def expect(self, name: str, within_s: float, hear: Callable[[Event], None] | None = None) -> Event:
        """The next event of that name; those before it go to `hear`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while True:
            event = await self.event(max(0.0, until_s - loop.time()))
            if event["event"] == name:
                return event
            if hear is not None:
                hear(event)


def line_of(document: Event) -> bytes:
    """The document as a line of a task's input."""
    return json.dumps(document).encode() + b"\n"


def last_words(command: str, said: str, otherwise: object) -> str:
    """The error of a short command that failed."""
    lines = said.strip().splitlines()
    return f"{command.split(maxsplit=1)[0]} failed: {lines[-1] if lines else otherwise}"
