"""Asynchronous work for callers that wait for it, and the engine as they see it."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import queue
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from iotax.places.base import Binary, Event, Place, Task
from iotax.places.here import HERE, Child

_Value = TypeVar("_Value")
_LOOK_S = 0.05
_INTERRUPT_S = 1.0
"""An interrupt that comes just before a wait does not end it, so no wait is longer."""


def wait_for(work: Coroutine[Any, Any, _Value]) -> _Value:
    """Runs it on the thread of all places. An interrupt first ends the work and what it started."""
    # Not an Event: if interrupted just after it took its lock, it keeps that for ever.
    loop, ended = _loop(), queue.SimpleQueue[None]()
    begun: list[asyncio.Task[_Value]] = []

    def begin() -> None:
        if not begun:
            begun.append(loop.create_task(work))
            begun[0].add_done_callback(lambda _: ended.put(None))

    def cancel() -> None:
        begin()  # an earlier interrupt
        begun[0].cancel()

    def until_done(look_s: float) -> None:
        while not begun or not begun[0].done():
            with contextlib.suppress(queue.Empty):
                ended.get(timeout=look_s)

    try:
        loop.call_soon_threadsafe(begin)
        until_done(_INTERRUPT_S)
    except BaseException:
        loop.call_soon_threadsafe(cancel)
        # The interrupt may have come with the word that it has ended.
        until_done(_LOOK_S)
        raise
    return begun[0].result()


class Engine:
    """One task of the engine, at a place."""

    def __init__(
        self,
        program: Path,
        command: str,
        document: Event,
        *,
        place: Place = HERE,
        on_log: Callable[[str], None] | None = None,
    ) -> None:
        self._task = wait_for(_started(place, Binary(program), command, document, on_log))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def log(self) -> str:
        """The last lines of its standard error; whole once it is closed."""
        return self._task.log

    @property
    def pid(self) -> int:
        """A task on this machine."""
        assert isinstance(self._task, Child), "a child of ours"
        return self._task.pid

    def alive(self, wait_s: float = 0.0) -> bool:
        """Whether it runs; a killed task gets `wait_s` until the system has ended it."""
        return wait_for(self._task.alive(wait_s))

    def send(self, document: Event) -> None:
        """One line in. An engine that is gone is noticed by the next `event`, which knows why."""
        _loop().call_soon_threadsafe(self._task.send, document)

    def event(self, deadline_s: float) -> Event:
        """The next line, by `deadline_s` on the monotonic clock. Raises EngineError."""
        return wait_for(self._task.event(max(0.0, deadline_s - time.monotonic())))

    def expect(self, name: str, deadline_s: float) -> Event:
        """The next event of that name; others are passed over, as a reader of this interface must."""
        return wait_for(self._task.expect(name, max(0.0, deadline_s - time.monotonic())))

    def ending(self) -> str:
        """How a task without further output ended."""
        return wait_for(self._task.ending())

    def close(self) -> None:
        """Ends it, with everything that it started: first by request, then by force."""
        wait_for(self._task.end())


async def _started(
    place: Place, binary: Binary, command: str, document: Event, on_log: Callable[[str], None] | None
) -> Task:
    program = await place.install(binary)
    return await place.start(f"{program} {command}", document, on_log=on_log)


_loops: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    # No lock, and no Thread, whose start waits on one: an interrupt can leave it taken. Two callers that come first at
    # the same instant begin two threads, and both use the one that was listed first.
    if not _loops:
        loop = asyncio.new_event_loop()
        _thread.start_new_thread(loop.run_forever, ())
        _loops.append(loop)
    return _loops[0]
