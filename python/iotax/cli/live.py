"""`iotax live` and `iotax run --live`: show a run in a browser."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import open_notebook
from iotax.cli.options import NotebookPath, RunNumber
from iotax.notebook import NotebookError
from iotax.version import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable

    from iotax.live import Board, LiveServer
    from iotax.live.otlp import OtlpSender


def live(
    path: NotebookPath = None,
    run: RunNumber = None,
    place: Annotated[
        str,
        typer.Option(
            "--port",
            metavar="[ADDRESS:]PORT",
            help="Where to serve the page; a free port of this machine when not given.",
        ),
    ] = "0",
) -> None:
    """Show a run of another process in a browser and as metrics.

    Reads the notebook that the run writes, until Ctrl-C. Shows trials when they end; rates of the current trial need
    `iotax run --live`.
    """
    from iotax.live import Board, Follower

    with open_notebook(path) as notebook:
        try:
            chosen = notebook.run(run).id
            board = Board(notebook.study(chosen))
        except NotebookError as error:
            leave(Exit.NOTEBOOK, str(error))
        path = notebook.path
    server = open_server(board, place, "--port")
    follower = Follower(board, path, chosen)
    follower.start()
    server.start()
    echo(f"Live: {server.url} (Ctrl-C ends it)")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        # An interrupt that comes just before a wait does not end it.
        while True:
            time.sleep(1.0)
    follower.stop()
    server.close()


def open_sender(board: Board, url: str, warn: Callable[[str], None]) -> OtlpSender:
    """Creates a sender, not started. Exits with the reason if it cannot."""
    try:
        from iotax.live.otlp import OtlpSender
    except ImportError:
        leave(Exit.USAGE, f"--otlp needs OpenTelemetry: {how_to_install('otlp')}")
    try:
        return OtlpSender(board, url, warn)
    except ValueError as error:
        leave(Exit.USAGE, f"--otlp {error}")


def open_server(board: Board, place: str, option: str) -> LiveServer:
    """Creates a server, not started. Exits with the reason if it cannot listen."""
    from iotax.live import LOOPBACK, LiveServer

    address, _, port = place.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        leave(Exit.USAGE, f"{option} {place}: not a port; name one from 1 to 65535, or ADDRESS:PORT")
    try:
        return LiveServer(board, address.strip("[]") or LOOPBACK, int(port))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        leave(Exit.USAGE, f"{option} {place}: cannot listen there: {reason}; name another port, or 0 for a free one")
