"""CHAP between Linux and iotax in both directions: open-iscsi with iotax's target, iotax's initiator with LIO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .clients import IQN, ISCSI, SIZE_BYTES, Serve
from .linux_targets import IQN as LINUX_IQN
from .linux_targets import run, served
from .machine import KernelMachine

INITIATOR = "iqn.2026-11.io.iotax:initiator"
SECRETS = {"load": "open-sesame-please", "array": "i-am-who-i-am-too", "wrong": "open-sesame-or-not"}
AUTH = "node.session.auth."
ONE_WAY = {"authmethod": "CHAP", "username": "load", "password": SECRETS["load"]}
MUTUAL = ONE_WAY | {"username_in": "array", "password_in": SECRETS["array"]}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    for name, secret in SECRETS.items():
        (tmp_path / name).write_text(secret)
    return {name: str(tmp_path / name) for name in SECRETS}


def test_open_iscsi_proves_itself_to_us_and_has_us_prove_ourselves(
    serve: Serve, machine: KernelMachine, files: dict[str, str]
) -> None:
    chap = {"user": "load", "secret_file": files["load"], "mutual": {"user": "array", "secret_file": files["array"]}}
    server = serve("iscsi", SIZE_BYTES, groups=[{"name": "lab", "initiators": [INITIATOR], "chap": chap}])

    def login(command: str, settings: dict[str, str]) -> str:
        return f"{command} {IQN} " + " ".join(f"{AUTH}{key} {value}" for key, value in settings.items())

    wrong = {"password": SECRETS["wrong"]}
    for bad in ({}, ONE_WAY | wrong, ONE_WAY | {"username": "other"}, MUTUAL | {"password_in": SECRETS["wrong"]}):
        machine.run(ISCSI.script(server, f"iscsid_up; {login('refused_login', bad)}"))
    for good in (ONE_WAY, MUTUAL):
        load = "proven $_device --size=1m --rw=randwrite --bs=4k --direct=1"
        machine.run(ISCSI.script(server, f"iscsid_up; {login('login', good)}; fio {load}; {ISCSI.down}"))


def test_we_prove_ourselves_to_lio_and_have_it_prove_itself(machine: KernelMachine, files: dict[str, str]) -> None:
    auth = f"/sys/kernel/config/target/iscsi/{LINUX_IQN}/tpgt_1"
    # Without a newline, which would become part of the value.
    account = f"echo -n load >{auth}/auth/userid; echo -n {SECRETS['load']} >{auth}/auth/password"
    outgoing = f"echo -n array >{auth}/auth/userid_mutual; echo -n {SECRETS['array']} >{auth}/auth/password_mutual"
    one_way: dict[str, Any] = {"user": "load", "secret_file": files["load"]}
    mutual = one_way | {"mutual": {"user": "array", "secret_file": files["array"]}}
    wrong = one_way | {"secret_file": files["wrong"]}
    liar = one_way | {"mutual": {"user": "array", "secret_file": files["wrong"]}}
    with served(machine, "iscsi") as endpoint:

        def check(chap: dict[str, Any] | None) -> str:
            last = run({"task": "check", "endpoint": endpoint, "options": {"chap": chap} if chap else {}})
            return str(last.get("kind", last["event"]))

        machine.run(f"{account}; echo 1 >{auth}/attrib/authentication")
        # LIO closes the connection if a login offers no CHAP, without the response that RFC 7143 §11.13.5 defines.
        assert [check(chap) for chap in (one_way, wrong, None)] == ["checked", "unauthenticated", "lost"]
        machine.run(outgoing)
        assert [check(chap) for chap in (mutual, liar)] == ["checked", "unauthenticated"]
