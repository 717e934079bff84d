"""Shows a board over HTTP: the page, its events, and metrics. Reads nothing but the request's first lines.

Connections are few, take turns on daemon threads, and hold nothing up: a client that does not read is dropped, and the
process ends without waiting for any. The page is one document that loads nothing from elsewhere; changes come as
events.
"""

from __future__ import annotations

import collections
import contextlib
import html
import ipaddress
import json
import logging
import re
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from iotax.live.board import Board, Seen
from iotax.live.metrics import CONTENT_TYPE, Family, exposition
from iotax.outputs import csp_hash
from iotax.report import font, palette
from iotax.wording import SIMULATED

LOOPBACK = "127.0.0.1"
CONNECTIONS_MAX = 32
"""A few people and a monitoring system; further clients are asked to come later."""
CONNECTIONS_OF_ONE_MAX = CONNECTIONS_MAX // 2
"""Connections of one address (in IPv6, one /64), so that it cannot block others."""
EVENT_S = 1.0
"""Least time between two events to a connection."""
SILENCE_S = 15.0
"""A comment is sent after so long without news: who is gone is noticed."""
PATIENCE_S = 10.0
"""Time in which a client must send its request, or read an answer."""
GOODBYE_S = 0.5
"""Time for sending the last event at the end."""


class LiveServer:
    """Serves from `start` to `close`. Raises OSError if it cannot listen."""

    def __init__(self, board: Board, address: str = LOOPBACK, port: int = 0) -> None:
        self.board = board
        self._http = _Server(board, address, port)
        self._thread = threading.Thread(target=self._http.serve_forever, name="live", daemon=True)

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        name = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{name}:{port}/"

    @property
    def page(self) -> str:
        return self._http.page.html.decode()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Sends whoever listens the last news, and is gone; never waits for a client."""
        until_s = time.monotonic() + GOODBYE_S
        self.board.close()
        while self._http.listening and time.monotonic() < until_s:
            time.sleep(0.01)
        if self._thread.is_alive():
            self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, board: Board, address: str, port: int) -> None:
        self.board = board
        self.page = Page(board.study())
        self.cpu_s = 0.0
        """CPU time of connections, ended and current; added up under the lock."""
        self.listening = 0
        self.lock = threading.Lock()
        self._defects: set[type[BaseException]] = set()
        """Kinds of errors that were already reported."""
        self._taken: collections.Counter[str] = collections.Counter()
        """Connections by where they come from, under the lock."""
        family, _, _, _, found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        self._names = _names(str(found[0]))
        super().__init__((str(found[0]), port), _Handler)

    def is_meant(self, host: str) -> bool:
        """Whether the request names us: a page elsewhere that made its name lead here ("DNS rebinding") does not."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        return not self._names or name in self._names

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._takes_place(_origin(client_address[0])):
            with contextlib.suppress(OSError):
                request.settimeout(0)
                request.send(b"HTTP/1.0 503 Too many connections\r\nRetry-After: 5\r\nConnection: close\r\n\r\n")
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            origin = _origin(client_address[0])
            with self.lock:
                self._taken[origin] -= 1
                if not self._taken[origin]:
                    del self._taken[origin]

    def _takes_place(self, origin: str) -> bool:
        with self.lock:
            if self._taken[origin] >= CONNECTIONS_OF_ONE_MAX or self._taken.total() >= CONNECTIONS_MAX:
                return False
            self._taken[origin] += 1
            return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is not news on our standard error; a defect of ours is, once for each kind."""
        del request, client_address
        error = sys.exc_info()[1]
        if error is None or isinstance(error, OSError):
            return
        with self.lock:
            new = type(error) not in self._defects
            self._defects.add(type(error))
        if new:
            logging.getLogger("iotax.live").error("the live page failed, which is a defect of iotax", exc_info=error)

    def spend(self, seconds: float) -> None:
        with self.lock:
            self.cpu_s += seconds

    def metrics(self) -> str:
        cost = Family(
            "iotax_live_cpu_seconds_total", "counter", "CPU time of this view's connections.", [({}, self.cpu_s)]
        )
        process = Family(
            "process_cpu_seconds_total", "counter", "CPU time of the process.", [({}, time.process_time())]
        )
        return exposition([*self.board.metrics(), cost, process])


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S
    server_version, sys_version = "iotax", ""

    @property
    def _live(self) -> _Server:
        assert isinstance(self.server, _Server)
        return self.server

    def handle(self) -> None:
        self._told_s = time.thread_time()
        # `timeout` alone would let a request last for ever, a byte at a time.
        self._patience = threading.Timer(PATIENCE_S, self._give_up)
        self._patience.daemon = True
        self._patience.start()
        with contextlib.suppress(OSError):
            super().handle()
        self._patience.cancel()
        self._tell_cost()

    def _give_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self._patience.cancel()
        if not self._live.is_meant(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "this address is not the one that was named")
            return
        try:
            self._get()
        except OSError:
            raise
        except Exception:
            # The head may have been sent: then the client sees the answer end early.
            with contextlib.suppress(OSError):
                self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "a defect of iotax; its standard error says more")
            raise

    def _get(self) -> None:
        match self.path.partition("?")[0]:
            case "/":
                page = self._live.page
                self._answer("text/html; charset=utf-8", page.html, {"Content-Security-Policy": page.policy})
            case "/metrics":
                self._answer(CONTENT_TYPE, self._live.metrics().encode())
            case "/events":
                self._events()
            case _:
                self.send_error(HTTPStatus.NOT_FOUND, "there are / and /metrics here")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
        """The terminal is the run's."""

    def _answer(self, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
        self._head(kind, {"Content-Length": str(len(body)), **(more or {})})
        self.wfile.write(body)

    def _head(self, kind: str, more: dict[str, str]) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            **more,
        }.items():
            self.send_header(name, value)
        self.end_headers()

    def _events(self) -> None:
        """https://html.spec.whatwg.org/multipage/server-sent-events.html; the first holds all that is known."""
        self._head("text/event-stream", {})
        with self._live.lock:
            self._live.listening += 1
        try:
            seen, goes_on = Seen(), True
            while goes_on:
                before = seen.version
                news, seen = self._live.board.news(seen)
                if seen.version != before:
                    self.wfile.write(f"data: {json.dumps({**news, 'first': before < 0})}\n\n".encode())
                else:
                    self.wfile.write(b": still here\n\n")
                self._tell_cost()
                began_s = time.monotonic()
                goes_on = self._live.board.wait(seen, SILENCE_S)
                if goes_on:
                    goes_on = self._live.board.rest(EVENT_S - (time.monotonic() - began_s))
            news, seen = self._live.board.news(seen)
            self.wfile.write(f"data: {json.dumps({**news, 'first': False, 'last': True})}\n\n".encode())
        finally:
            with self._live.lock:
                self._live.listening -= 1

    def _tell_cost(self) -> None:
        now_s = time.thread_time()
        self._live.spend(now_s - self._told_s)
        self._told_s = now_s


def _names(address: str) -> frozenset[str]:
    """Names by which a browser on this machine calls a loopback address; empty if any name may be right."""
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return frozenset()
    return frozenset({"localhost", address, f"[{address}]"})


def _origin(address: str) -> str:
    """The origin of a connection: in IPv6 its network, since a machine may take any address of it."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)


_UNIT = re.compile(r"(?<=\d) (?=(?:KiB|MiB|GiB)\b)")
_HERE = Path(__file__).parent
_STYLE = _HERE.parent / "report" / "templates" / "style.css"


class Page:
    """`study`: the unchanging facts of the displayed run."""

    def __init__(self, study: dict[str, Any]) -> None:
        script = _own("page.js").replace("STUDY", _in_script(study), 1)
        style = font.css() + palette.css() + _STYLE.read_text(encoding="utf-8") + _own("page.css")
        text = _own("page.html")
        for name, part in {
            "TITLE": ("Simulated: " if study["simulated"] else "") + html.escape(study["name"]),
            "OVER": html.escape(study["name"]) + (" · simulated" if study["simulated"] else ""),
            "SIMULATED": f'<div class="trust"><p class="warning">{html.escape(SIMULATED)}</p></div>'
            if study["simulated"]
            else "",
            "QUESTION": _UNIT.sub("\u00a0", html.escape(study["question"])),
            "STYLE": style,
            "SCRIPT": script,
        }.items():
            text = text.replace(f"<!--{name}-->", part)
        self.html = text.encode()
        self.policy = (
            f"default-src 'none'; style-src {csp_hash(style)}; script-src {csp_hash(script)}; img-src data:; "
            "font-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )


def _own(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _in_script(value: object) -> str:
    """JSON that no text in it can end the script with."""
    return json.dumps(value).replace("<", "\\u003c")
