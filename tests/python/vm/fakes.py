"""Fakes of the vm lab's partners: programs, and the peer of a UNIX socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def answer_lines(path: Path, greeting: bytes, answer: Callable[[bytes], bytes]) -> None:
    """Accepts one peer, sends it a greeting, and answers each of its lines."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with listener, listener.accept()[0] as port, port.makefile("rwb") as lines:
            lines.write(greeting)
            lines.flush()
            for line in lines:
                lines.write(answer(line))
                lines.flush()

    threading.Thread(target=serve, daemon=True).start()
