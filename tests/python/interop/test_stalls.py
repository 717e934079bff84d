"""Peers that request as much work as they can from a running server, next to a reader that is served all the time.

crates/node/tests/it/turns.rs limits the work of one turn; these tests show that connections take turns. The attack
lasts until the reader has its answers, so a busy machine makes a test longer, but cannot make it fail.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any, Literal

import pytest

from raw_nvme import Controller

from .attackers import ATTACKS, Attack, attack

Serve = Callable[[dict[str, Any]], dict[str, Any]]
VOLUME_BYTES = 32 << 20
READS = 20


@pytest.mark.parametrize("driver", ["io_uring", "epoll"])
@pytest.mark.parametrize("by", ATTACKS, ids=lambda by: by.name)
def test_reads_are_answered_between_the_pieces_of_long_work(
    by: Attack, driver: Literal["io_uring", "epoll"], serve: Serve
) -> None:
    ready = serve(
        {
            "volumes": [{"name": "v0", "media": "memory", "size_bytes": VOLUME_BYTES}],
            "exports": [
                {"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}
                for protocol in ("nfs3", "iscsi", "nvme-tcp")
            ],
            "driver": driver,
            "threads": 1,
        }
    )
    endpoints = {portal["protocol"]: portal["endpoint"] for portal in ready["portals"]}
    begun, enough = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            attack(by, endpoints[by.protocol], VOLUME_BYTES, begun, enough)
        except BaseException as error:
            failed.append(error)
            begun.set()

    attacker = threading.Thread(target=run, daemon=True)
    with Controller(endpoints["nvme-tcp"]) as reader:
        attacker.start()
        assert begun.wait(60)
        try:
            for number in range(READS):
                assert reader.io.run(0x02, 1, struct.pack("<QI", 8 * number, 7), read_bytes=4096) == (0, 0)
                assert not failed, failed
            assert attacker.is_alive()
        finally:
            enough.set()
            attacker.join(60)
    assert not failed and not attacker.is_alive(), failed
