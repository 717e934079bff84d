"""The servers of the loopback lab: a process for each volume in use that exports it through every protocol."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from iotax.engine import EngineError
from iotax.labs.base import TrialFailed
from iotax.labs.held import Holdings
from iotax.labs.media import data_document, done_by, media_document
from iotax.places.waiting import Engine
from iotax.protocols import access_options, with_paths
from iotax.records import Record
from iotax.study.connection import Polling
from iotax.study.endpoint import EMBEDDED
from iotax.study.model import Settings, Volume
from iotax.trial import ModelledMedia

VOLUME = "v0"
_READY_S = 30.0
_ANSWER_S = 10.0
_FILL_BYTES_PER_S = 50 << 20
"""Slower than this on filling a volume, the server counts as hung."""
_FILL_SEED = 42


class _Portal(Record):
    protocol: str
    address: str
    endpoint: str


class _Volume(Record):
    name: str
    size_bytes: int
    path: str | None = None
    identity: dict[str, int] | None = None


class _Ready(Record):
    pid: int
    driver: str = ""
    volumes: list[_Volume]
    portals: list[_Portal]


class Server:
    """A running server for `serve_document`. Raises EngineError if it does not start."""

    def __init__(self, program: Path, volume: Volume, document: dict[str, Any], paths: int = 1) -> None:
        self.volume, self.paths = volume, paths
        self.polling: Polling = document["polling"]
        self._fill_s = _READY_S + volume.size / _FILL_BYTES_PER_S
        self._engine = Engine(program, "serve", document)
        try:
            ready = self._engine.expect("ready", time.monotonic() + self._fill_s)
            self._ready = _Ready.model_validate(ready)
        except BaseException:
            self._engine.close()
            raise

    @property
    def pid(self) -> int:
        return self._ready.pid

    @property
    def log(self) -> str:
        return self._engine.log

    def alive(self, wait_s: float = 0.0) -> bool:
        return self._engine.alive(wait_s)

    @property
    def identity(self) -> dict[str, int] | None:
        """Identity of the file or device behind a file volume."""
        return self._ready.volumes[0].identity

    def endpoint(self, protocol: str) -> str:
        """The volume's endpoint over `protocol`."""
        if protocol == "local":
            return f"local:{self._ready.volumes[0].path}"
        portals = self._portals(protocol)
        addresses = [each.address for each in portals]
        return portals[0].endpoint.replace(addresses[0], ",".join(addresses), 1)

    def _portals(self, protocol: str) -> list[_Portal]:
        """At least one: the paths to the volume over `protocol`."""
        if found := [each for each in self._ready.portals if each.protocol == protocol]:
            return found
        raise EngineError("internal", f"the server has no portal for {protocol}", log=self.log)

    def silence(self, protocol: str, path: int, silent: bool) -> None:
        """Makes a path, from 1, fall silent or answer again. Raises EngineError."""
        address = self._portals(protocol)[path - 1].address
        self._engine.send({"command": "silence", "portal": address, "silent": silent})
        self._engine.expect("silenced", time.monotonic() + _ANSWER_S)

    def kill(self, dead: bool) -> None:
        """Kills what serves, as if the process ended, or starts it again; the volume stays. Raises EngineError."""
        self._engine.send({"command": "kill" if dead else "revive"})
        self._engine.expect("killed" if dead else "revived", time.monotonic() + _ANSWER_S)

    def set_access(self, protocol: str, path: int, state: str, begins: bool) -> None:
        """Gives a path, from 1, this access state, or makes it optimized again. Raises EngineError."""
        address = self._portals(protocol)[path - 1].address
        self._engine.send({"command": "access", "portal": address, "state": state if begins else "optimized"})
        self._engine.expect("access", time.monotonic() + _ANSWER_S)

    def fill(self) -> None:
        """Puts the pattern back. Raises EngineError."""
        self._engine.send({"command": "fill", "volume": VOLUME})
        self._engine.expect("filled", time.monotonic() + self._fill_s)

    def modelled(self) -> ModelledMedia | None:
        """Activity of its media since it started, if they are modelled. Raises EngineError."""
        if self.volume.model is None:
            return None
        self._engine.send({"command": "status"})
        return done_by(self._engine.expect("status", time.monotonic() + _ANSWER_S))

    def ending(self) -> str:
        """Why it is no longer alive."""
        return self._engine.ending()

    def close(self) -> None:
        if self._engine.alive():
            self._engine.send({"command": "stop"})
        self._engine.close()


def volume_document(volume: Volume) -> dict[str, Any]:
    """The fields of a volume in a `serve` document, without its name and its backend."""
    described: dict[str, Any] = {
        "media": "memory" if volume.model else volume.media,
        "size_bytes": volume.size,
        "fill": volume.fill,
        "seed": _FILL_SEED,
        "delay_ns": volume.delay,
        "burn_ns": volume.burn,
    } | data_document(volume)
    if volume.model is not None:
        described["model"] = media_document(volume.model)
    return described


def serve_document(
    volume: Volume,
    *,
    driver: str,
    threads: int,
    cpus: list[int],
    polling: Polling = "never",
    file_io: bool = False,
    expect: dict[str, int] | None = None,
    destroy: bool = False,
    listen: str = "127.0.0.1:0",
    paths: int = 1,
    reports_access: bool = False,
) -> dict[str, Any]:
    """The engine's `serve` document: every embedded protocol for one volume, on loopback, at free ports. With
    `file_io`, other programs may read and write a memory volume's file. `expect` is the identity of what an earlier
    server had at a file volume's path; `destroy` allows overwriting its data. `paths`: portals of each
    protocol that has paths. `reports_access`: their access states can be set."""
    described = {"name": VOLUME, **volume_document(volume), "file_io": file_io}
    if volume.media == "file":
        described["path"] = volume.path
        described |= {"expect": expect} if expect else {}
        described |= {"destroy": volume.path} if destroy else {}
    return {
        "volumes": [described],
        "exports": [
            {"protocol": protocol, "listen": listen, "volume": VOLUME}
            | (access_options(protocol) if reports_access else {})
            for protocol in EMBEDDED
            if protocol != "local"
            for _ in range(paths if protocol in with_paths() else 1)
        ],
        "driver": driver,
        "threads": threads,
        "cpus": cpus,
        "polling": polling,
    }


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
