"""Peers that flood what a server limits, beside a client that behaves: that one loses nothing, and goes on."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import resource
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_process import started
from waits import wait_for

from .conftest import ENGINE

pytestmark = pytest.mark.slow

Load = Callable[..., list[dict[str, Any]]]
Serve = Callable[[dict[str, Any]], dict[str, Any]]
Address = tuple[str, int]
Flood = Callable[[str, str, Address, threading.Event], None]

PROTOCOLS = ("nfs3", "iscsi", "nvme-tcp")
# Of linux/in.h; Python knows it by name from 3.12 on.
IP_BIND_ADDRESS_NO_PORT = 24
# A beginning that each protocol takes for one of a very long PDU: record mark, Login Request, ICReq.
LONG = {
    "nfs3": b"\xff\xff\xff\xff" + bytes(40),
    "iscsi": b"\x43\x87\x00\x00\x00\xff\xff\xff" + bytes(40),
    "nvme-tcp": b"\x00\x00\x80\x00\xff\xff\xff\xff" + bytes(120),
}
# A beginning without an end.
SHORT = {
    "nfs3": b"\x00\x00\x00\x01",
    "iscsi": b"\x43\x87\x00\x00\x00\x00\x00\x40",
    "nvme-tcp": b"\x00\x00\x80\x00\x80\x00\x00\x00",
}


def peer_of_its_own(host: int = 2) -> socket.socket:
    """A socket from an address of its own, so that a flood uses up no ports that anybody else needs."""
    peer = socket.socket()
    # Left to `connect`, the choice of a port is quick; `bind` looks through all those of the floods before it.
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
    """Many connections that say nothing, or only begin to."""
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
    """Connections that come and go, as fast as they can where there is no pause."""
    while not ended.wait(pause_s):
        with connected(address):
            pass


def long_units(protocol: str, endpoint: str, address: Address, ended: threading.Event, pause_s: float = 0) -> None:
    """PDUs and fragments that say they are as long as their length can tell, and all the bytes one likes."""
    while not ended.wait(pause_s):
        with connected(address) as peer, contextlib.suppress(OSError):
            if peer:
                peer.sendall(LONG[protocol])
                for _ in range(64):
                    peer.sendall(bytes(65536))


def drops(protocol: str, endpoint: str, address: Address, ended: threading.Event) -> None:
    """A byte of a PDU now and then, or fragments without data (RPC), up to the limit; then anew."""
    while not ended.wait(0.001):
        with connected(address) as peer, contextlib.suppress(OSError):
            sent = 0
            while peer and not ended.wait(0.001):
                peer.sendall(bytes(4 * 256) if protocol == "nfs3" else SHORT[protocol][sent % 8 :][:1])
                sent += 1


def deaf(protocol: str, endpoint: str, address: Address, ended: threading.Event) -> None:
    """Clients in the middle of many large reads and writes that neither read nor write any more."""
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
# Without a pause, these two ask for as much processor time as there is: what they cost is then the scheduler's choice.
PAUSE_S = 0.005
PACED = {
    coming_and_going: functools.partial(coming_and_going, pause_s=PAUSE_S),
    long_units: functools.partial(long_units, pause_s=PAUSE_S),
}
PAIRS = 12
# That a thread of the server keeps (crates/engine/src/serve/mod.rs), and more.
CONNECTIONS_MAX = 4096
CROWD = CONNECTIONS_MAX + 200
# Of which one address has a quarter at most (crates/node/src/server/node.rs): the crowd comes from more.
OF_ADDRESS_MAX = CONNECTIONS_MAX // 4
CROWD_HOSTS = 5
CROWD_PLACES = CROWD_HOSTS * CONNECTIONS_MAX // (CROWD_HOSTS + 3)
"""Each address has at most a quarter of what the others leave, so they come to rest at as much each."""


def reached(port: int) -> bool:
    """Whether somebody has connected there, or had (proc_net_tcp(5))."""
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
            result = load(run | {"runtime_ns": 20_000_000_000})[-1]  # a busy machine came to none
        os.kill(ready["pid"], 0)
    assert result["event"] == "result", result
    assert result["checks"]["errors"] == 0
    assert result["verify"]["wrong_blocks"] == 0
    # How many is for the test of speed: the flood takes processor time as well, and this machine may have little of it.
    assert result["read"]["ios"] + result["write"]["ios"] > 0
    calm = load(run)[-1]
    assert calm["event"] == "result", "the server serves on"


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Enough file descriptors for a crowd, here and in the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CROWD + 200:
        pytest.skip(f"{hard} file descriptors are too few for {CROWD} connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CROWD + 200), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def crowd(address: Address, hosts: int = CROWD_HOSTS) -> Generator[list[socket.socket]]:
    """Connections begun all at once: one whose SYN finds the queue full holds up no other."""
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
    host, _, port = ready["portals"][0]["address"].rpartition(":")
    run = {"task": "run", "endpoint": ready["portals"][0]["endpoint"], "read_percent": 50, "seed": 3, "verify": True}
    # Long enough for a crowd to come and be counted on a machine that is busy with other tests, and little work.
    run |= {"runtime_ns": 10_000_000_000, "pacing": {"kind": "open", "rate_iops": 500, "arrivals": "constant"}}
    with started(ENGINE, "load", run) as process:
        assert process.stdout
        assert json.loads(process.stdout.readline())["event"] == "connected"
        with crowd((host, int(port))) as peers:
            deadline = time.monotonic() + 9
            # Those that there is no room for; the client that behaves has one place or more.
            while (closed := sum(map(is_closed, peers))) < CROWD - CROWD_PLACES - 10 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert abs(closed - (CROWD - CROWD_PLACES)) <= 10
            assert process.poll() is None, "it works in the midst of the crowd"
            *_, result = [json.loads(line) for line in process.stdout]
    assert result["event"] == "result", result
    assert (result["checks"]["errors"], result["verify"]["wrong_blocks"]) == (0, 0)
    assert load(run | {"runtime_ns": 10_000_000})[-1]["event"] == "result", "there is room again"


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
        deadline = time.monotonic() + 20
        while (closed := sum(map(is_closed, peers))) < CROWD - OF_ADDRESS_MAX and time.monotonic() < deadline:
            time.sleep(0.05)
        assert closed == CROWD - OF_ADDRESS_MAX
        # Its place is not taken, and it is not in the crowd's.
        run = {"task": "run", "endpoint": portal["endpoint"], "read_percent": 50, "seed": 3, "runtime_ns": 10_000_000}
        *_, result = load(run)
        assert result["event"] == "result", result


@pytest.mark.long
@pytest.mark.timeout(300)
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
    # Each flooded run between two calm ones, which tell how much two calm runs differ.
    before = ios()
    for _ in range(PAIRS):
        with flooded(flooding, protocol, ready):
            during = ios()
        after = ios()
        kept.append(2 * during / (before + after))
        noise.append(after / before)
        before = after
    kept.sort()
    # The third smallest and third largest of 12 hold the median with 96 % confidence, whatever the distribution.
    text = (
        f"{statistics.median(kept):.3f} of the calm IOPS (96 %: {kept[2]:.3f} to {kept[-3]:.3f});"
        f" calm against calm {min(noise):.3f} to {max(noise):.3f}"
    )
    record_property("speed", text)
    print(text)
    assert kept[2] >= 0.8, text
