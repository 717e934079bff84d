"""Peers that flood what a server limits, next to a well-behaved client, which loses nothing and keeps working."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import signal
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import raw_nfs
from engine_process import started
from raw_iscsi import Session
from raw_nvme import Controller
from waits import wait_for

from .conftest import ENGINE

pytestmark = pytest.mark.slow

Load = Callable[..., list[dict[str, Any]]]
Serve = Callable[[dict[str, Any]], dict[str, Any]]
Address = tuple[str, int]
Flood = Callable[[str, str, Address, threading.Event], None]

PROTOCOLS = ("nfs3", "iscsi", "nvme-tcp")
# From linux/in.h; Python has the name from 3.12 on.
IP_BIND_ADDRESS_NO_PORT = 24
# The start of a very long PDU in each protocol: record mark, Login Request, ICReq.
LONG = {
    "nfs3": b"\xff\xff\xff\xff" + bytes(40),
    "iscsi": b"\x43\x87\x00\x00\x00\xff\xff\xff" + bytes(40),
    "nvme-tcp": b"\x00\x00\x80\x00\xff\xff\xff\xff" + bytes(120),
}
# An incomplete start of a PDU.
SHORT = {
    "nfs3": b"\x00\x00\x00\x01",
    "iscsi": b"\x43\x87\x00\x00\x00\x00\x00\x40",
    "nvme-tcp": b"\x00\x00\x80\x00\x80\x00\x00\x00",
}


def peer_of_its_own(host: int = 2) -> socket.socket:
    """A socket with its own source address, so a flood uses no ports that others need."""
    peer = socket.socket()
    # `connect` chooses a port quickly; `bind` would search all ports of the earlier floods.
    peer.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    peer.bind((f"127.0.0.{host}", 0))
    return peer


@contextlib.contextmanager
def connected(address: Address) -> Generator[socket.socket | None]:
    with peer_of_its_own() as peer:
        peer.settimeout(2)
        try:
            peer.connect(address)
        except OSError:
            yield None
            return
        yield peer


def silent(protocol: str, endpoint: str, address: Address, ended: threading.Event) -> None:
    """Many connections that send nothing, or only the start of a PDU."""
    with contextlib.ExitStack() as stack:
        for number in range(300):
            peer = stack.enter_context(connected(address))
            if peer and number % 2:
                with contextlib.suppress(OSError):
                    peer.send(SHORT[protocol])
        ended.wait()


def coming_and_going(
    protocol: str, endpoint: str, address: Address, ended: threading.Event, pause_s: float = 0
) -> None:
    """Connections that are opened and closed, without a pause as fast as possible."""
    while not ended.wait(pause_s):
        with connected(address):
            pass


def long_units(protocol: str, endpoint: str, address: Address, ended: threading.Event, pause_s: float = 0) -> None:
    """PDUs and fragments with the maximum of their length field, followed by many bytes."""
    while not ended.wait(pause_s):
        with connected(address) as peer, contextlib.suppress(OSError):
            if peer:
                peer.sendall(LONG[protocol])
                for _ in range(64):
                    peer.sendall(bytes(65536))


def drops(protocol: str, endpoint: str, address: Address, ended: threading.Event) -> None:
    """One byte of a PDU at a time, or RPC fragments without data, up to the limit; then again on a new connection."""
    while not ended.wait(0.001):
        with connected(address) as peer, contextlib.suppress(OSError):
            sent = 0
            while peer and not ended.wait(0.001):
                peer.sendall(bytes(4 * 256) if protocol == "nfs3" else SHORT[protocol][sent % 8 :][:1])
                sent += 1


def deaf(protocol: str, endpoint: str, address: Address, ended: threading.Event) -> None:
    """Clients that are stopped in the middle of many large reads and writes, so they neither read nor write."""
    run = {
        "task": "run",
        "endpoint": endpoint,
        "options": {}
        if protocol == "nfs3"
        else {"initiator": f"{'nqn' if protocol == 'nvme-tcp' else 'iqn'}.2026-11.x:deaf"},
        "outstanding": 64,
        "block_size_bytes": 1 << 20,
        "working_set_offset_bytes": 16 << 20,
        "runtime_ns": 60_000_000_000,
    }
    stopped = []
    for read_percent in (0, 100):
        process = started(ENGINE, "load", run | {"read_percent": read_percent})
        stopped.append(process)
        assert process.stdout
        process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(signal.SIGSTOP)
    ended.wait()
    for process in stopped:
        process.kill()
        process.communicate()


FLOODS: tuple[Flood, ...] = (silent, coming_and_going, long_units, drops, deaf)
# Without a pause these two use all the CPU there is, and the scheduler would decide what they cost.
PAUSE_S = 0.005
PACED = {
    coming_and_going: functools.partial(coming_and_going, pause_s=PAUSE_S),
    long_units: functools.partial(long_units, pause_s=PAUSE_S),
}
PAIRS = 12
# The most connections that a thread of the server keeps (crates/engine/src/serve/mod.rs); the crowd has more.
CONNECTIONS_MAX = 4096
CROWD = CONNECTIONS_MAX + 200
# One address may have at most a quarter of them (crates/node/src/server/node.rs), so the crowd uses several.
OF_ADDRESS_MAX = CONNECTIONS_MAX // 4
CROWD_HOSTS = 5
CROWD_PLACES = CROWD_HOSTS * CONNECTIONS_MAX // (CROWD_HOSTS + 3)
"""Each address has at most a quarter of what the others leave free, so in the end all have the same number."""


def reached(port: int) -> bool:
    """Whether a connection to this port exists or existed (proc_net_tcp(5))."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(remote.endswith(f":{port:04X}") and state != "02" for _, _, remote, state, *_ in sockets)


@contextlib.contextmanager
def flooded(flood: Flood, protocol: str, ready: dict[str, Any]) -> Generator[None]:
    portal = ready["portals"][0]
    host, _, port = portal["address"].rpartition(":")
    ended = threading.Event()
    flooding = threading.Thread(target=flood, args=(protocol, portal["endpoint"], (host, int(port)), ended))
    flooding.start()
    try:
        wait_for(lambda: reached(int(port)), "the flood")
        yield
    finally:
        ended.set()
        flooding.join()


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_flood_takes_nothing_from_a_client_that_behaves(
    protocol: str, flood: Flood, serve: Serve, load: Load
) -> None:
    ready = serve(
        {
            "volumes": [{"name": "v0", "media": "memory", "size_bytes": 32 << 20, "fill": "pattern", "seed": 3}],
            "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}],
        }
    )
    endpoint = ready["portals"][0]["endpoint"]
    run = {
        "task": "run",
        "endpoint": endpoint,
        "outstanding": 4,
        "working_set_bytes": 16 << 20,
        "read_percent": 50,
        "runtime_ns": 400_000_000,
        "seed": 3,
        "verify": True,
    }
    with flooded(flood, protocol, ready):
        result = load(run)[-1]
        if result["event"] == "result" and not result["read"]["ios"] + result["write"]["ios"]:
            result = load(run | {"runtime_ns": 20_000_000_000})[-1]  # a busy machine completed none
        os.kill(ready["pid"], 0)
    assert result["event"] == "result", result
    assert result["checks"]["errors"] == 0
    assert result["verify"]["wrong_blocks"] == 0
    # The number of I/Os is left to the speed test: a flood uses CPU time too, and this machine may have little of it.
    assert result["read"]["ios"] + result["write"]["ios"] > 0
    calm = load(run)[-1]
    assert calm["event"] == "result", "the server serves on"


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Enough file descriptors for a crowd, in the test and in the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CROWD + 200:
        pytest.skip(f"{hard} file descriptors are too few for {CROWD} connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CROWD + 200), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def crowd(address: Address, hosts: int = CROWD_HOSTS) -> Generator[list[socket.socket]]:
    """Connections opened all at once. A SYN that finds the queue full delays no other."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(peer_of_its_own(2 + number % hosts)) for number in range(CROWD)]
        for peer in peers:
            peer.setblocking(False)
            assert peer.connect_ex(address) == errno.EINPROGRESS
        yield peers


def is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_crowd_beyond_the_limit_of_connections_takes_nothing_from_who_is_there(
    protocol: str, serve: Serve, load: Load
) -> None:
    ready = serve(
        {
            "volumes": [{"name": "v0", "media": "memory", "size_bytes": 32 << 20}],
            "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}],
        }
    )
    endpoint = ready["portals"][0]["endpoint"]
    host, _, port = ready["portals"][0]["address"].rpartition(":")
    with who_is_there(protocol, endpoint) as is_served, crowd((host, int(port))) as peers:

        def counted() -> bool:
            assert is_served(), "it works in the midst of the crowd"
            return sum(map(is_closed, peers)) >= CROWD - CROWD_PLACES - 10

        # Connections beyond the limit are closed; the well-behaved client has at least one place.
        wait_for(counted, "the crowd to be limited")
        assert sum(map(is_closed, peers)) <= CROWD - CROWD_PLACES + 10
        assert is_served()
    run = {"task": "run", "endpoint": endpoint, "read_percent": 50, "seed": 3, "runtime_ns": 10_000_000}
    assert load(run)[-1]["event"] == "result", "there is room again"


@contextlib.contextmanager
def who_is_there(protocol: str, endpoint: str) -> Generator[Callable[[], bool]]:
    """A client; each call is a request, and says whether it succeeded."""
    if protocol == "nfs3":
        with raw_nfs.Client(endpoint) as client:
            yield lambda: client.call(1, raw_nfs.opaque(client.file))[:4] == bytes(4)
    elif protocol == "iscsi":
        with Session(endpoint) as session:
            yield lambda: session.run(bytes(6)) == 0
    else:
        with Controller(endpoint) as controller:
            first = struct.pack("<QI", 0, 7)
            yield lambda: controller.io.run(0x02, 1, first, read_bytes=4096) == (0, 0)


@pytest.mark.usefixtures("descriptors")
def test_a_crowd_from_one_address_keeps_nobody_else_out(serve: Serve, load: Load) -> None:
    ready = serve(
        {
            "volumes": [{"name": "v0", "media": "memory", "size_bytes": 32 << 20}],
            "exports": [{"protocol": "nfs3", "listen": "127.0.0.1:0", "volume": "v0"}],
        }
    )
    portal = ready["portals"][0]
    host, _, port = portal["address"].rpartition(":")
    with crowd((host, int(port)), hosts=1) as peers:
        wait_for(lambda: sum(map(is_closed, peers)) >= CROWD - OF_ADDRESS_MAX, "the crowd to be limited")
        assert sum(map(is_closed, peers)) == CROWD - OF_ADDRESS_MAX
        # This address has no connection yet, and the crowd's address cannot use its place.
        run = {"task": "run", "endpoint": portal["endpoint"], "read_percent": 50, "seed": 3, "runtime_ns": 10_000_000}
        *_, result = load(run)
        assert result["event"] == "result", result


@pytest.mark.long
@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_that_behaves_keeps_its_speed_in_a_flood(
    protocol: str, flood: Flood, serve: Serve, load: Load, record_property: Callable[[str, object], None]
) -> None:
    ready = serve(
        {
            "volumes": [{"name": "v0", "media": "memory", "size_bytes": 32 << 20, "fill": "pattern", "seed": 3}],
            "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}],
        }
    )
    run = {
        "task": "run",
        "endpoint": ready["portals"][0]["endpoint"],
        "outstanding": 4,
        "working_set_bytes": 16 << 20,
        "read_percent": 100,
        "warmup_ns": 100_000_000,
        "runtime_ns": 300_000_000,
        "seed": 3,
    }

    def ios() -> int:
        result = load(run)[-1]
        assert result["event"] == "result", result
        return int(result["read"]["ios"])

    flooding = PACED.get(flood, flood)
    kept, noise = [], []
    # Each flooded run is between two calm ones, which show how much calm runs differ.
    before = ios()
    for _ in range(PAIRS):
        with flooded(flooding, protocol, ready):
            during = ios()
        after = ios()
        kept.append(2 * during / (before + after))
        noise.append(after / before)
        before = after
    kept.sort()
    # The third smallest and third largest of 12 bound the median with 96 % confidence, for any distribution.
    text = (
        f"{statistics.median(kept):.3f} of the calm IOPS (96 %: {kept[2]:.3f} to {kept[-3]:.3f});"
        f" calm against calm {min(noise):.3f} to {max(noise):.3f}"
    )
    record_property("speed", text)
    print(text)
    assert kept[2] >= 0.8, text
