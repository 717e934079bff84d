"""A target that is killed and starts again: who connects meanwhile, what it keeps, and what it forgets."""

from __future__ import annotations

import base64
import json
import socket
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from engine.test_paths import MIB, PROTOCOLS, load, result_of, served
from engine_process import completed, events, ready, started


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_killed_target_refuses_connections_and_keeps_its_ports_and_bytes(real_engine: Path, protocol: str) -> None:
    with served(real_engine) as server:
        result_of(events(real_engine, load(server.endpoint(protocol), 200_000_000)))
        places = [address_of(each) for each in server.addresses(protocol)]
        with socket.create_connection(places[0]) as connection:
            assert server.command({"command": "kill"}) == {"event": "killed"}
            assert not still_open(connection)
        assert server.command({"command": "status"})["connections"] == 0
        for place in places:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(place)
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(place)
        assert server.command({"command": "revive"}) == {"event": "revived"}
        # Each block has the pattern, or what the first load wrote: it verifies as filled.
        result_of(events(real_engine, load(server.endpoint(protocol), 200_000_000)))


def still_open(connection: socket.socket) -> bool:
    connection.settimeout(30)
    try:
        return connection.recv(1) != b""
    except ConnectionResetError:
        return False


def test_killing_and_reviving_twice_changes_nothing_more(real_engine: Path) -> None:
    with served(real_engine) as server:
        for command, event in (("kill", "killed"), ("kill", "killed"), ("revive", "revived"), ("revive", "revived")):
            assert server.command({"command": command}) == {"event": event}
        result = result_of([completed(real_engine, load(server.endpoint("iscsi"), 100_000_000))])
        assert result["read"]["ios"] + result["write"]["ios"] > 0


def test_a_killed_target_has_no_paths_to_disturb(real_engine: Path) -> None:
    with served(real_engine) as server:
        [address, _] = server.addresses("iscsi")
        server.command({"command": "kill"})
        said = server.command({"command": "silence", "portal": address, "silent": True})
        assert (said["event"], said["message"]) == ("error", "the target is killed")
        assert server.command({"command": "fill", "volume": "v0"})["event"] == "filled", "its volume is still there"


def test_a_target_that_authenticates_cannot_be_killed_and_goes_on(real_engine: Path, tmp_path: Path) -> None:
    key = bytes(range(32))
    secret = base64.b64encode(key + zlib.crc32(key).to_bytes(4, "little")).decode()
    (tmp_path / "secret").write_text(f"DHHC-1:01:{secret}:\n")
    document = {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": MIB, "fill": "zeros"}],
        "exports": [{"protocol": "nvme-tcp", "listen": "127.0.0.1:0", "volume": "v0", "groups": ["lab"]}],
        "groups": [{"name": "lab", "initiators": ["127.0.0.0/8"], "dhchap": {"secret_file": str(tmp_path / "secret")}}],
    }
    with started(real_engine, "serve", document) as process:
        ready(process)
        assert process.stdin and process.stdout
        print('{"command":"kill"}\n{"command":"status"}', file=process.stdin, flush=True)
        refused, status = (json.loads(process.stdout.readline()) for _ in range(2))
        assert "authenticates" in refused["message"]
        assert status["event"] == "status"
        process.stdin.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.slow
def test_load_goes_on_when_the_target_is_back(real_engine: Path, protocol: str) -> None:
    with served(real_engine) as server:
        options = {"keep_alive_ns": 1_000_000_000, "path_policy": "round-robin"}
        asked = load(server.endpoint(protocol), 8_000_000_000, **options) | {"read_back": True}
        with started(real_engine, "load", asked) as process:
            assert process.stdout
            told: list[dict[str, Any]] = []
            for line in process.stdout:
                told.append(json.loads(line))
                if told[-1]["event"] == "started":
                    time.sleep(0.5)
                    server.command({"command": "kill"})
                    time.sleep(1)
                    server.command({"command": "revive"})
        result = result_of(told)
    # How long it lasts for the initiator is not known: a busy one reads late what the target sent before.
    assert all(each["losses"] >= 1 and each["down_ns"] > 0 < each["ios"] for each in result["paths"]["used"])
    assert result["verify"]["read_back_blocks"] > 0
