"""DH-HMAC-CHAP between iotax's NVMe/TCP load and server: who is admitted, what is reported, hidden secrets."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import all_that_is_said, guarded

Load = Callable[..., list[dict[str, Any]]]
Serve = Callable[[dict[str, Any]], dict[str, Any]]

HOST_KEY, CONTROLLER_KEY = b"only the host knows this, really", b"and only the controller knows it, in forty-eight"


def secret(key: bytes, transform: int) -> str:
    """The secret in the format of `nvme gen-dhchap-key`."""
    return f"DHHC-1:{transform:02x}:{base64.b64encode(key + zlib.crc32(key).to_bytes(4, 'little')).decode()}:"


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "host").write_text(secret(HOST_KEY, 1) + "\n")
    (tmp_path / "controller").write_text(secret(CONTROLLER_KEY, 2) + "\n")
    return {"secret_file": str(tmp_path / "host"), "controller": {"secret_file": str(tmp_path / "controller")}}


def document(**group: Any) -> dict[str, Any]:
    return guarded("nvme-tcp", **group)


def run(endpoint: str, dhchap: dict[str, Any]) -> dict[str, Any]:
    options = {"dhchap": dhchap}
    base = {"task": "run", "endpoint": endpoint, "options": options, "runtime_ns": 10_000_000, "seed": 3}
    return base | {"verify": True, "workers": 3, "threads": 2}


@pytest.mark.parametrize("hash_name", ["sha256", "sha384", "sha512"])
@pytest.mark.parametrize("group", ["null", "ffdhe2048", "ffdhe8192"])
def test_all_queues_of_a_load_authenticate(
    serve: Serve, load: Load, secrets: dict[str, Any], hash_name: str, group: str
) -> None:
    asked = secrets | {"hash": hash_name, "dh_group": group}
    connected, *_, result = load(run(serve(document(dhchap=asked))["portals"][0]["endpoint"], secrets))
    assert result["event"] == "result", result
    agreed = connected["negotiated"]["authentication"]
    assert agreed.startswith("DH-HMAC-CHAP both ways") and hash_name in agreed.lower() and group in agreed.lower()


def test_who_cannot_prove_who_it_is_stays_out(
    serve: Serve, load: Load, secrets: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = serve(document(dhchap=secrets))["portals"][0]["endpoint"]

    def check(dhchap: dict[str, Any] | None) -> dict[str, Any]:
        return load({"task": "check", "endpoint": endpoint, "options": {"dhchap": dhchap} if dhchap else {}})[-1]

    monkeypatch.setenv("IOTAX_TEST_SECRET", secret(HOST_KEY, 1))
    one_way = {"secret_file": secrets["secret_file"]}
    for good in (one_way, secrets, {"secret_env": "IOTAX_TEST_SECRET"}, one_way | {"dh_group": "ffdhe3072"}):
        assert check(good)["event"] == "checked", good
    (tmp_path / "wrong").write_text(secret(HOST_KEY, 0))
    wrong = {"secret_file": str(tmp_path / "wrong")}
    for bad in (None, wrong, one_way | {"controller": wrong}):
        assert check(bad)["kind"] == "unauthenticated", bad


def test_secrets_show_nowhere(secrets: dict[str, Any], tmp_path: Path) -> None:
    """Neither events nor logs of either side contain a secret, whether a queue comes up or not."""
    (tmp_path / "wrong").write_text(secret(b"x" * 32, 1))
    (tmp_path / "broken").write_text(secret(HOST_KEY, 1).replace("=:", "A:"))
    wrong, broken = ({"secret_file": str(tmp_path / name)} for name in ("wrong", "broken"))
    said = all_that_is_said(
        document(dhchap=secrets), lambda endpoint: [run(endpoint, dhchap) for dhchap in (secrets, wrong, broken)]
    )
    for key in (HOST_KEY, CONTROLLER_KEY):
        for form in (key, key.hex().encode(), base64.b64encode(key)[:20]):
            assert form not in said.encode()


def test_iscsi_knows_no_dhchap(load: Load, secrets: dict[str, Any]) -> None:
    last = load({"task": "check", "endpoint": "iscsi://127.0.0.1:1/iqn.x/0", "options": {"dhchap": secrets}})[-1]
    assert last["kind"] == "usage" and "dhchap" in json.dumps(last)
