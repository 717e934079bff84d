"""`iotax serve`: serves one volume over every protocol to any client until it is stopped."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from iotax.cli.console import console_on
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.options import JsonFile
from iotax.engine import EngineError, find_engine
from iotax.places.waiting import Engine
from iotax.protocols import titles
from iotax.serving.notify import notify
from iotax.serving.offer import PORTS, Offer, commands, reachable
from iotax.units import counted, format_size, parse_size

MEMORY_BYTES = 1 << 30
"""Size of a memory volume if none is given."""
_READY_S = 24 * 3600.0
"""The engine reads a file completely before it serves it, which can take this long."""
_STATUS_S = 1.0
_HINTS = {
    "foreign_data": "--keep serves it as it is; --destroy {path} gives it away to be overwritten",
    "disk_full": "say a smaller --size, or name a file on a larger file system",
    "port_taken": "--port PROTOCOL=PORT names another port, and port 0 any that is free",
    "not_found": "name a file that exists, or its size with --size",
    "too_small": "leave --size out to serve all that is there",
    "denied": "name a file that this user may write to",
}


class PollingChoice(StrEnum):
    NEVER = "never"
    AUTO = "auto"
    ALWAYS = "always"


def serve(
    path: Annotated[
        Path | None,
        typer.Argument(help="The file or block device to serve; memory when not given.", show_default=False),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Size of the volume, such as 10GiB; default: the whole file or device, or 1GiB of memory.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Serve the data that the file holds, e.g. what clients wrote before a restart."),
    ] = False,
    destroy: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Let clients overwrite data at PATH that iotax did not write."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all writes.")] = False,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of this machine to listen on; 0.0.0.0 for all of them.")
    ] = "127.0.0.1",
    ports: Annotated[
        list[str] | None,
        typer.Option(
            "--port",
            metavar="PROTOCOL=PORT",
            help="Port of nfs3, nfs4.1, iscsi or nvme-tcp instead of 2049, 2050, 3260 or 4420; 0 takes a free one; "
            "may be repeated.",
            show_default=False,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHO",
            help="Admit only this network, address, IQN or NQN; may be repeated.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the volume, in its IQN, NQN and NFS export.")] = "v0",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the server.")] = 1,
    polling: Annotated[
        PollingChoice,
        typer.Option(
            help="Busy polling: never (sleep), auto (poll briefly before sleeping), or always (keeps one processor "
            "busy per thread)."
        ),
    ] = PollingChoice.AUTO,
    document: JsonFile = None,
) -> None:
    """Serve one volume over NFS, iSCSI and NVMe/TCP.

    Runs until Ctrl-C. Prints the endpoints and the commands for Linux clients. Serves data that iotax did not write
    only with --keep.
    """
    judged(document, *([path] if path else []))
    offer = Offer(
        name=name,
        path=path,
        size_bytes=_size_bytes(size, path),
        keep=keep,
        destroy=_may_destroy(path, destroy),
        read_only=read_only,
        listen=_address(listen),
        ports=_ports(ports or ()),
        allow=allow or (),
        threads=threads,
        polling=polling.value,
    )
    if keep and (path is None or offer.destroy):
        leave(Exit.USAGE, "--keep serves what a file holds; name the file, and do not give it away with --destroy")
    console = console_on(sys.stderr if document == STDOUT else sys.stdout)
    _hear_signals()
    display = _display_on(console)
    try:
        if path is not None and path.exists() and not (keep or offer.destroy):
            console.print(f"Checking what data {path} holds.", markup=False)
        with Engine(find_engine(), "serve", offer.document(), on_log=display.say) as engine:
            ready = engine.expect("ready", time.monotonic() + _READY_S)
            said = _document(offer, ready)
            if document != STDOUT:
                _print(console, said)
            if document is not None:
                write_document(document, said, *([path] if path else []))
            notify("READY=1")
            _follow(engine, display)
    except EngineError as error:
        display.close()
        _explain(error, offer)
    except KeyboardInterrupt:
        display.close()
        notify("STOPPING=1")
        console.print("Stopped." if path else "Stopped; the memory volume is gone.")


def _size_bytes(size: str | None, path: Path | None) -> int:
    if size is None:
        return 0 if path else MEMORY_BYTES
    try:
        return parse_size(size)
    except ValueError as error:
        leave(Exit.USAGE, f"--size {size}: {error}")


def _may_destroy(path: Path | None, destroy: str | None) -> bool:
    if destroy is not None and (path is None or Path(destroy) != path):
        leave(Exit.USAGE, f"--destroy {destroy}: name the very file or device that is served, spelled alike")
    return destroy is not None


def _address(listen: str) -> Any:
    try:
        return ip_address(listen)
    except ValueError:
        leave(Exit.USAGE, f"--listen {listen}: give an address of this machine, or 0.0.0.0 for all of them")


def _ports(given: Sequence[str]) -> dict[str, int]:
    ports = dict(PORTS)
    for each in given:
        protocol, _, port = each.partition("=")
        if protocol not in ports or not port.isdecimal() or int(port) > 65535:
            leave(Exit.USAGE, f"--port {each}: write PROTOCOL=PORT, with {', '.join(PORTS)} as the protocols")
        ports[protocol] = int(port)
    return ports


def _hear_signals() -> None:
    """SIGTERM and a hang-up stop it as Ctrl-C does; signals that the caller ignores stay ignored."""

    def stop(number: int, frame: object) -> NoReturn:
        del number, frame
        raise KeyboardInterrupt

    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, stop)


def _document(offer: Offer, ready: dict[str, Any]) -> dict[str, Any]:
    """The document that docs/reference/json.md describes."""
    [volume] = ready["volumes"]
    endpoints = []
    for portal in ready["portals"]:
        endpoint = reachable(portal["endpoint"])
        told = commands(portal["protocol"], endpoint, offer.read_only)
        endpoints.append({"protocol": portal["protocol"], "endpoint": endpoint, "commands": told})
    return {
        "pid": ready["pid"],
        "volume": volume["name"],
        "size_bytes": volume["size_bytes"],
        "path": str(offer.path) if offer.path else None,
        "read_only": offer.read_only,
        "driver": ready["driver"],
        "endpoints": endpoints,
        "warnings": offer.warnings(),
    }


def _print(console: Console, said: dict[str, Any]) -> None:
    what = said["path"] or "in memory"
    mode = ", read-only" if said["read_only"] else ""
    lines = [f"Serving {said['volume']}: {format_size(said['size_bytes'])}, {what}{mode}"]
    for each in said["endpoints"]:
        lines += ["", f"{titles()[each['protocol']]}  {each['endpoint']}", *(f"  {line}" for line in each["commands"])]
    lines += ["", "The same endpoints are levels of `protocol` in a study. Stop with Ctrl-C."]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    for warning in said["warnings"]:
        console.print(f"Warning: {warning}.", style="yellow", markup=False, soft_wrap=True)


def _explain(error: EngineError, offer: Offer) -> NoReturn:
    code = Exit.LAB
    if error.kind in ("foreign_data", "in_use", "swapped"):
        code = Exit.REFUSED
    elif error.kind == "usage":
        code = Exit.USAGE
    elif error.kind in ("died", "io", "internal"):
        code = Exit.FAILED
    hint = _HINTS.get(error.kind, "").format(path=offer.path)
    leave(code, f"{error}; {hint}" if hint else str(error))


class _Lines:
    """Output without a terminal: a line whenever the number of connections has changed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._connections = 0

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)

    def status(self, connections: int, cores: float) -> None:
        if connections != self._connections:
            self._connections = connections
            self.say(_status(connections, cores))

    def close(self) -> None:
        pass


class _Line(_Lines):
    """Output on a terminal: the last line shows the current state."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None

    def status(self, connections: int, cores: float) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Text(_status(connections, cores)), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _display_on(console: Console) -> _Lines:
    return _Line(console) if console.is_terminal else _Lines(console)


def _status(connections: int, cores: float) -> str:
    return f"{counted(connections, 'connection')} · {cores:.2f} cores busy"


def _follow(engine: Engine, display: _Lines) -> None:
    """Polls the server's status until it ends or is stopped."""
    before_ns = before_s = 0.0
    engine.send({"command": "status"})
    while True:
        try:
            status = engine.expect("status", time.monotonic() + _STATUS_S)
        except EngineError as error:
            if error.kind == "silent":
                continue  # it is busy and answers later
            raise
        now_s = time.monotonic()
        cores = (status["cpu_ns"] - before_ns) / 1e9 / (now_s - before_s) if before_s else 0.0
        before_ns, before_s = status["cpu_ns"], now_s
        display.status(status["connections"], cores)
        notify(f"STATUS={_status(status['connections'], cores)}")
        time.sleep(_STATUS_S)
        engine.send({"command": "status"})
