"""The servers of the loopback lab: one for each volume in use, and way to wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from iotax.engine import EngineError
from iotax.labs.base import TrialFailed
from iotax.labs.held import Holdings
from iotax.labs.server import Server
from iotax.study.connection import Polling
from iotax.study.model import Settings, Volume

Start = Callable[..., Server]


class Servers:
    """Running servers. The treatments of a session keep theirs side by side (`together`); else a new volume replaces
    the one before."""

    def __init__(self, start: Start, held: Holdings, given_away: Callable[[str], bool], *, together: bool) -> None:
        """`start`: makes a server of a volume, on the given processors and with the given permission; `given_away`:
        whether data in a file volume may be destroyed."""
        self._start, self._held, self._given_away, self._together = start, held, given_away, together
        self._running: list[Server] = []

    def serve(self, settings: Settings, cpus: list[int]) -> Server:
        """The server that runs for these settings; a dead one is replaced. Raises TrialFailed if none comes up."""
        if (found := self.of(settings)) is not None and found.alive():
            return found
        for each in [each for each in self._running if each is found or not self._together]:
            self._end(each)
        uri = volume_uri(settings.volume)
        try:
            server = self._start(settings, cpus=cpus, expect=self._held.identity(uri), destroy=self._given_away(uri))
        except EngineError as error:
            raise TrialFailed(f"the server did not come up: {error}", error.log, kind=error.kind) from error
        except ValidationError as error:
            raise TrialFailed(f"the server's `ready` line does not fit its own interface: {error}") from error
        self._running.append(server)
        if server.identity is not None:
            self._held.keep(uri, server.endpoint("local"))
        return server

    def of(self, settings: Settings) -> Server | None:
        """The server for these settings, running or dead."""
        asked = one_server(settings)
        return next((each for each in self._running if (each.volume, each.polling, each.paths) == asked), None)

    def dead(self, wait_s: float = 0.0) -> Server | None:
        """One that ended by itself; `wait_s` is granted to each that may be about to."""
        return next((each for each in self._running if not each.alive(wait_s)), None)

    def pids(self) -> list[int]:
        return [each.pid for each in self._running if each.alive()]

    def close(self) -> None:
        while self._running:
            self._end(self._running[0])

    def _end(self, server: Server) -> None:
        self._running.remove(server)
        server.close()


def one_server(settings: Settings) -> tuple[Volume, Polling, int]:
    """The settings that treatments with the same server share."""
    return settings.volume, settings.connection.polling, settings.topology.paths


def volume_uri(volume: Volume) -> str:
    """The endpoint of a file volume; empty for other media."""
    return f"local:{Path(volume.path).absolute()}" if volume.media == "file" and volume.path else ""
