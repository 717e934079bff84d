"""Targets that require a secret from iotax's own initiators on hosts. The secret goes over SSH and stays hidden."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import LabUnusable
from iotax.study.read import read_study

from .namespaces import Network

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.lab import HostsLab
from iotax.places.host import taking
from iotax.places.waiting import Engine

from .labs import opened_labs

HOSTS = 2
JOE, ARRAY, WRONG = "a secret of joe's, \\n # x", "a secret of the array", "a secret of nobody"
STUDY = """\
name: logins
question: Who comes in?
lab: {{hosts: {{initiators: [{initiators}]}}}}
volume: {{size: 8MiB}}
factors:
  protocol:
    iscsi: {{protocol: "{iscsi}", chap: {{user: joe, secret_env: JOE, mutual: {{user: array, secret_file: array}}}}}}
    nvme: {{protocol: "{nvme}", dhchap: {{secret_file: key}}}}
load: {{outstanding: 4, read: 75%, warmup: 100ms, runtime: 1s}}
design: {{replicates: 1}}
baseline: {{protocol: iscsi}}
"""


@pytest.fixture
def text(network: Network, real_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A study of two local exports, each of which requires its secret."""
    monkeypatch.setenv("JOE", JOE)
    for name, secret in {"joe": JOE, "array": ARRAY, "key": key()}.items():
        (tmp_path / name).write_text(f"{secret}\n")
    file = {name: str(tmp_path / name) for name in ("joe", "array", "key")}
    mutual = {"user": "array", "secret_file": file["array"]}
    groups = {
        "iscsi": {"chap": {"user": "joe", "secret_file": file["joe"], "mutual": mutual}},
        "nvme-tcp": {"dhchap": {"secret_file": file["key"]}},
    }
    document = {
        "volumes": [{"name": name, "media": "memory", "size_bytes": 8 << 20} for name in groups],
        "groups": [{"name": name, "initiators": ["10.0.0.0/8"], **asks} for name, asks in groups.items()],
        "exports": [
            {"protocol": name, "listen": f"{network.here}:0", "volume": name, "groups": [name]} for name in groups
        ],
    }
    with Engine(real_engine, "serve", document) as server:
        portals = server.expect("ready", time.monotonic() + 30)["portals"]
        endpoints = {portal["protocol"]: portal["endpoint"] for portal in portals}
        named = ", ".join(f"{{name: {name}, address: {network.address(name)}}}" for name in network.names)
        yield STUDY.format(initiators=named, iscsi=endpoints["iscsi"], nvme=endpoints["nvme-tcp"])


Open = Callable[[str], HostsLab]


@pytest.fixture
def opened(network: Network, real_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    with opened_labs(network, real_engine, monkeypatch) as open_lab:
        yield lambda text: open_lab(read_study("logins", text, tmp_path))


def key() -> str:
    secret = bytes(range(32))
    return f"DHHC-1:00:{base64.b64encode(secret + zlib.crc32(secret).to_bytes(4, 'little')).decode()}:"


def quiet(_: object) -> None:
    pass


def test_hosts_log_in_with_secrets_that_stand_in_no_argument_and_no_file(
    network: Network, text: str, opened: Open, tmp_path: Path
) -> None:
    lab = opened(text)
    lab.prepare(quiet)
    arguments: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            for each in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    arguments.add(each.read_text(errors="replace"))
                except OSError:
                    continue

    looking = threading.Thread(target=look)
    looking.start()
    try:
        outcomes = [lab.run(trial, quiet) for trial in make_plan(lab.study).trials]
    finally:
        over.set()
        looking.join()
    assert {each.result.facts.protocol for each in outcomes} == {"iscsi", "nvme-tcp"}
    for each in outcomes:
        assert [client.host for client in each.result.clients] == ["h1", "h2"]
        assert min(client.ios for client in each.result.clients) > 0
    assert any("engine-" in each and "session" in each for each in arguments)
    kept = [each for name in network.names for each in network.home(name).rglob("*") if each.is_file()]
    said = [f"{each.log}{each.result.model_dump_json()}" for each in outcomes]
    for secret in (JOE, ARRAY, key()):
        assert not any(secret in each for each in [*arguments, *said])
        assert not any(secret.encode() in each.read_bytes() for each in kept)


def test_a_secret_that_the_target_does_not_take_is_told_before_anything_runs(
    text: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOE", WRONG)
    with pytest.raises(LabUnusable, match=r"iscsi on h1.*chap") as refused:
        opened(text).prepare(quiet)
    assert WRONG not in str(refused.value)


@pytest.mark.parametrize("given", [None, "two\nlines of it"])
def test_a_secret_that_cannot_be_had_is_told_by_its_place(
    text: str, opened: Open, given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is None:
        monkeypatch.delenv("JOE")
    else:
        monkeypatch.setenv("JOE", given)
    said = (
        "the environment of iotax has no JOE" if given is None else "chap: it holds what is not a character of a line"
    )
    with pytest.raises(LabUnusable, match=said):
        opened(text).prepare(quiet)


def test_any_character_of_a_line_may_stand_in_a_secret_and_the_rest_is_the_commands() -> None:
    secrets = {"IOTAX_CHAP": r"  a\b 'c' $(d) `e` \" ", "IOTAX_CHAP_MUTUAL": "ü#;&|"}
    program = "python3 -c 'import json, os, sys; print(json.dumps([dict(os.environ), sys.stdin.read()]))'"
    given = "".join(f"{each}\n" for each in secrets.values()) + '{"task": "run"}\n'
    words = ["sh", "-c", f"exec {taking(secrets, program)}"]
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=True)
    environment, rest = json.loads(done.stdout)
    assert {name: environment[name] for name in secrets} == secrets
    assert rest == '{"task": "run"}\n'


def test_who_takes_no_secret_is_started_as_ever() -> None:
    assert taking([], "engine session") == "engine session"
