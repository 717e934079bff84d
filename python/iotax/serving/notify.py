"""Tells systemd how a service stands: sd_notify(3), the datagram on $NOTIFY_SOCKET."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """`READY=1`, `STATUS=…`, `STOPPING=1`. Does nothing where systemd does not listen."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        # A leading @ stands for the abstract namespace.
        channel.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
