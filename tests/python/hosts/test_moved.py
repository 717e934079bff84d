"""Bytes that the hosts' interfaces and disks moved during the window."""

from __future__ import annotations

from typing import Any

from iotax.labs.hosts.moved import moved


def interface(name: str, received: int, sent: int, dropped: int = 0) -> dict[str, Any]:
    return {
        "name": name, "received_bytes": received, "received_packets": 1, "received_dropped": dropped,
        "sent_bytes": sent, "sent_packets": 1, "sent_dropped": 0,
    }  # fmt: skip


def disk(name: str, read: int) -> dict[str, Any]:
    return {"name": name, "reads": 3, "read_bytes": read, "writes": 0, "written_bytes": 0, "busy_ns": 250}


def test_what_moved_anything_is_said_the_most_first_with_what_was_dropped() -> None:
    interfaces = [interface("lo", 9, 9), interface("eth0", 1, 0), interface("eth1", 2_000_000, 500_000, 7)]
    observed = {"window": {"duration_ns": 1000}, "interfaces": interfaces, "disks": [disk("sda", 0), disk("sdb", 4096)]}
    assert moved("h1", observed) == [
        "h1: eth1: 2.0 MB received, 0.5 MB sent, 7 packets dropped",
        "h1: eth0: 0.0 MB received, 0.0 MB sent",
        "h1: sdb: 3 reads (0.0 MB), 0 writes (0.0 MB), busy 25 % of the time",
    ]


def test_of_hundreds_the_first_eight_are_named() -> None:
    observed = {"window": {"duration_ns": 1}, "disks": [disk(f"sd{number}", number) for number in range(300)]}
    assert [line.split(":")[1] for line in moved("h1", observed)] == [f" sd{number}" for number in range(299, 291, -1)]


def test_an_engine_that_says_nothing_of_them_is_none_the_less_understood() -> None:
    assert moved("h1", {"window": {"duration_ns": 1}}) == []
