"""`iotax serve` as users see it: endpoints to copy, third-party clients, restarts, refusals, a clean stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from documented_keys import documented
from iotax.places.waiting import Engine
from iotax.serving.notify import notify
from iotax.serving.offer import Offer, commands, reachable
from waits import wait_for

SIZE = 8 << 20
FREE_PORTS = tuple(word for protocol in ("nfs3", "nfs4.1", "iscsi", "nvme-tcp") for word in ("--port", f"{protocol}=0"))


class Serving:
    """A running `iotax serve`, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def stop(self, sent: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(sent)
        status = self.process.wait(timeout=180)
        self._reader.join()
        return status

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout
        self.process.stdout.close()


Start = Callable[..., tuple[Serving, dict[str, Any]]]


@pytest.fixture
def start(real_engine: Path, tmp_path: Path) -> Iterator[Start]:
    """Runs `iotax serve` with these arguments; returns it and its JSON document once it serves."""
    del real_engine
    running: list[Serving] = []

    def run(*words: object, env: dict[str, str] | None = None) -> tuple[Serving, dict[str, Any]]:
        document = tmp_path / f"{len(running)}.json"
        process = subprocess.Popen(
            [sys.executable, "-m", "iotax", "serve", *map(str, words), *FREE_PORTS, "--json", str(document)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | (env or {}),
        )
        serving = Serving(process)
        running.append(serving)
        wait_for(lambda: document.exists() or process.poll() is not None, "the server")
        assert document.exists(), serving.lines
        return serving, json.loads(document.read_text())

    yield run
    for each in running:
        each.end()


def refused(*words: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "iotax", "serve", *map(str, words), *FREE_PORTS],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, done.stderr


def engine_load(program: Path, endpoint: str, **asked: Any) -> dict[str, Any]:
    task = {"task": "check", "endpoint": endpoint, **asked}
    last = {"check": "checked", "fill": "filled", "run": "result"}[str(task["task"])]
    with Engine(program, "load", task) as load:
        return load.expect(last, time.monotonic() + 60)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_volume_is_reached_over_every_protocol_and_a_signal_stops_it(
    start: Start, real_engine: Path, sent: signal.Signals
) -> None:
    serving, said = start("--size", "8MiB")
    assert (said["volume"], said["size_bytes"], said["path"], said["read_only"]) == ("v0", SIZE, None, False)
    by_protocol = {each["protocol"]: each["endpoint"] for each in said["endpoints"]}
    assert list(by_protocol) == ["nfs3", "nfs4.1", "iscsi", "nvme-tcp"]
    engine_load(real_engine, by_protocol["iscsi"], task="fill")
    for endpoint in by_protocol.values():
        found = engine_load(real_engine, endpoint)
        assert (found["size_bytes"], found["holds"]) == (SIZE, "pattern")
    pid = said["pid"]
    assert serving.stop(sent) == 0
    assert not Path(f"/proc/{pid}").exists(), "the server's process is gone"
    text = "\n".join(serving.lines)
    for each in said["endpoints"]:
        for line in (each["endpoint"], *each["commands"]):
            assert line in text
    assert "Warning: the volume is in memory: its data are lost when this ends." in text
    assert serving.lines[-1] == "Stopped; the memory volume is gone."


def test_documents_have_the_keys_that_are_promised(start: Start) -> None:
    _, said = start("--size", "8MiB")
    assert set(said) == documented()["serve"]
    assert all(set(each) == {"protocol", "endpoint", "commands"} for each in said["endpoints"])


def test_connections_are_said_as_they_come_and_go(start: Start) -> None:
    serving, said = start("--size", "8MiB")
    host, port = said["endpoints"][0]["endpoint"].split("/")[2].split(":")
    with socket.create_connection((host, int(port))):
        wait_for(lambda: any(line.startswith("1 connection ·") for line in serving.lines), "the connection's line")
    wait_for(lambda: any(line.startswith("0 connections ·") for line in serving.lines), "its end")


def test_what_clients_wrote_is_served_again_only_with_keep(start: Start, real_engine: Path, tmp_path: Path) -> None:
    path = tmp_path / "v.img"
    serving, _ = start(path, "--size", "8MiB")
    assert serving.stop() == 0
    held = b"a client's file system" * 100
    with path.open("r+b") as file:
        file.seek(1 << 20)
        file.write(held)
    before = path.read_bytes()
    status, said = refused(path)
    assert status == 3
    assert f"--keep serves it as it is; --destroy {path} gives it away" in said
    assert path.read_bytes() == before
    serving, told = start(path, "--keep")
    assert (told["size_bytes"], told["path"]) == (SIZE, str(path))
    assert f"{path} is served as it is, and clients may overwrite what it holds" in told["warnings"]
    found = engine_load(real_engine, told["endpoints"][2]["endpoint"])
    assert (found["holds"], found["at_bytes"]) == ("foreign", 1 << 20)
    assert serving.stop() == 0
    assert path.read_bytes() == before, "keeping changes nothing"


def test_keep_makes_nothing_and_grows_nothing(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    absent, short = tmp_path / "absent", tmp_path / "short"
    short.write_bytes(b"x" * 4096)
    assert refused(absent, "--keep", "--size", "8MiB")[0] == 4
    assert not absent.exists()
    status, said = refused(short, "--keep", "--size", "8MiB")
    assert (status, short.stat().st_size) == (4, 4096)
    assert "has 4096 bytes, the volume needs 8388608" in said
    assert refused("--keep")[0] == 2
    assert refused(short, "--keep", "--destroy", short)[0] == 2
    assert refused(short, "--destroy", tmp_path / "other")[0] == 2


def test_a_kept_volume_is_never_filled(real_engine: Path, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"y" * SIZE)
    document = Offer(path=path, keep=True, ports={"iscsi": 0}).document()
    with Engine(real_engine, "serve", document) as server:
        server.expect("ready", time.monotonic() + 30)
        server.send({"command": "fill", "volume": "v0"})
        with pytest.raises(Exception, match="cannot be filled, because it is served with `keep`"):
            server.event(time.monotonic() + 30)
    assert path.read_bytes() == b"y" * SIZE


def test_read_only_and_allow_keep_clients_out(start: Start, real_engine: Path) -> None:
    _, said = start("--size", "8MiB", "--read-only")
    for each in said["endpoints"]:
        assert engine_load(real_engine, each["endpoint"])["read_only"], each
    _, said = start("--size", "8MiB", "--allow", "10.9.8.0/24")
    for each in said["endpoints"]:
        with pytest.raises(Exception, match=r"."):
            engine_load(real_engine, each["endpoint"])


def test_a_network_is_warned_of_and_named_by_the_machine(start: Start) -> None:
    _, said = start("--size", "8MiB", "--listen", "0.0.0.0")
    assert said["warnings"][0].startswith("listening on every network of this machine: whoever reaches it may connect")
    assert all(f"//{socket.gethostname()}:" in each["endpoint"] for each in said["endpoints"])
    _, said = start("--size", "8MiB", "--listen", "127.0.0.2")
    assert not any("listening" in each for each in said["warnings"])


def test_warnings_say_who_may_do_what() -> None:
    offer = Offer(listen=ip_address("10.0.0.5"), allow=("10.0.0.0/24",), read_only=True)
    assert offer.warnings()[0].startswith(
        "listening on the network of 10.0.0.5: only 10.0.0.0/24 may connect, and read the volume"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--listen", "lan"), "give an address of this machine"),
        (("--port", "fc=1"), "write PROTOCOL=PORT"),
        (("--port", "nfs3=70000"), "write PROTOCOL=PORT"),
        (("--size", "much"), "not a size"),
        (("--allow", "10.0.0.0/99"), "groups: allowed"),
    ],
)
def test_wrong_words_end_with_what_to_write(real_engine: Path, words: tuple[str, ...], said: str) -> None:
    del real_engine
    status, told = refused(*words)
    assert (status, said in told) == (2, True), told


def test_a_port_that_is_taken_is_named_with_what_to_do(real_engine: Path) -> None:
    del real_engine
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "iotax", "serve", "--size", "8MiB", *FREE_PORTS, "--port", f"iscsi={port}"],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert done.returncode == 4
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--port PROTOCOL=PORT" in done.stderr


def test_systemd_is_told_when_it_serves_and_when_it_stops(start: Start, tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(address)
        channel.settimeout(30)
        serving, _ = start("--size", "8MiB", env={"NOTIFY_SOCKET": address})
        assert channel.recv(100) == b"READY=1"
        assert channel.recv(100).startswith(b"STATUS=0 connections")
        assert serving.stop(signal.SIGTERM) == 0
        while (last := channel.recv(100)).startswith(b"STATUS="):
            pass
        assert last == b"STOPPING=1"


def test_nobody_to_notify_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    notify("READY=1")


def test_commands_name_the_endpoint_in_each_clients_own_way() -> None:
    said = commands("nfs3", "nfs://[fd00::5]:2049/v0/data")
    assert said[0].endswith(
        "-o vers=3,proto=tcp6,nolock,mountproto=tcp6,port=2049,mountport=2049 [fd00::5]:/v0 /mnt/v0"
    )
    assert ",ro " in commands("nfs3", "nfs://10.0.0.5:2049/v0/data", read_only=True)[0]
    said = commands("iscsi", "iscsi://10.0.0.5:3260/iqn.2026-11.io.iotax:v0/0")
    assert said[2].endswith("/dev/disk/by-path/ip-10.0.0.5:3260-iscsi-iqn.2026-11.io.iotax:v0-lun-0")
    said = commands("nvme-tcp", "nvme-tcp://10.0.0.5:4420/nqn.2026-11.io.iotax:v0?ns=1")
    assert said[1] == "nvme connect -t tcp -a 10.0.0.5 -s 4420 -n nqn.2026-11.io.iotax:v0"
    assert reachable("nfs://10.0.0.5:2049/v0/data") == "nfs://10.0.0.5:2049/v0/data"
