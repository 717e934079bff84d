"""Who may log in, and with what proof: iotax's iSCSI target with libiscsi and iotax's initiator, and tgt's CHAP."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine_process import ready, started
from needed import program

from .conftest import ENGINE, all_that_is_said, guarded

Load = Callable[..., list[dict[str, Any]]]
Serve = Callable[[dict[str, Any]], dict[str, Any]]

SECRET, TARGET_SECRET = "open sesame, please", "i am who i am, too"
# Initiator name of libiscsi's tools.
LIBISCSI = "iqn.2010-11.ronnie:iscsi-inq"


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, Any]:
    """Credentials of both directions, as in a document."""
    for name, text in (("initiator", SECRET), ("target", TARGET_SECRET)):
        (tmp_path / name).write_text(text + "\n")
    mutual = {"user": "array", "secret_file": str(tmp_path / "target")}
    return {"user": "load", "secret_file": str(tmp_path / "initiator"), "mutual": mutual}


def document(**group: Any) -> dict[str, Any]:
    return guarded("iscsi", **group)


def libiscsi(tool: str, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [program(tool, "libiscsi-bin"), url]
    return subprocess.run(words, capture_output=True, text=True, timeout=180, check=False, env=os.environ | environment)


def test_libiscsi_finds_and_reads_our_target(serve: Serve) -> None:
    endpoint = serve(document())["portals"][0]["endpoint"]
    portal, iqn = endpoint.split("/")[2:4]
    listed = libiscsi("iscsi-ls", f"iscsi://{portal}").stdout
    assert f"Target:{iqn} Portal:{portal},1" in listed
    inquiry = libiscsi("iscsi-inq", endpoint).stdout
    assert "Vendor:IOTAX" in inquiry
    capacity = libiscsi("iscsi-readcapacity16", endpoint).stdout
    assert "RETURNED LOGICAL BLOCK ADDRESS:16383" in capacity
    assert "LOGICAL BLOCK LENGTH IN BYTES:512" in capacity


def test_libiscsi_sees_each_portal_as_a_target_port_group_and_follows_its_access() -> None:
    asked = document()
    asked["exports"] = [asked["exports"][0] | {"portal_groups": "each"} for _ in range(2)]
    with started(ENGINE, "serve", asked) as process:
        assert process.stdin and process.stdout
        first, second = (each["endpoint"] for each in ready(process)["portals"])
        portal, iqn = second.split("/")[2:4]
        listed = libiscsi("iscsi-ls", f"iscsi://{first.split('/')[2]}").stdout
        assert f"Target:{iqn} Portal:{portal},2" in listed
        assert "TPGS:1" in libiscsi("iscsi-inq", second).stdout
        for state, is_ready in (("inaccessible", False), ("non-optimized", True)):
            process.stdin.write(json.dumps({"command": "access", "portal": portal, "state": state}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["state"] == state
            found = [libiscsi("iscsi-readcapacity16", each) for each in (first, second)]
            assert [each.returncode == 0 for each in found] == [True, is_ready]
            assert is_ready or "SENSE KEY:NOT READY(2) ASCQ:(null)(0x040c)" in found[1].stderr
        process.stdin.close()


def test_a_portal_at_every_address_is_found_where_it_was_asked(serve: Serve) -> None:
    wide = document()
    wide["exports"][0]["listen"] = "0.0.0.0:0"
    port = serve(wide)["portals"][0]["address"].rpartition(":")[2]
    listed = libiscsi("iscsi-ls", f"iscsi://127.0.0.1:{port}").stdout
    assert f"Portal:127.0.0.1:{port},1" in listed


def test_an_initiator_outside_the_group_sees_nothing_and_may_not_log_in(serve: Serve, load: Load) -> None:
    closed = document()
    closed["groups"][0]["initiators"] = ["iqn.2026-11.io.iotax.test:friend"]
    endpoint = serve(closed)["portals"][0]["endpoint"]
    assert "Target:" not in libiscsi("iscsi-ls", "iscsi://" + endpoint.split("/")[2]).stdout
    assert libiscsi("iscsi-inq", endpoint).returncode != 0
    last = load({"task": "check", "endpoint": endpoint})[-1]
    assert (last["event"], last["kind"]) == ("error", "denied")
    friend = {"initiator": "iqn.2026-11.io.iotax.test:friend"}
    assert load({"task": "check", "endpoint": endpoint, "options": friend})[-1]["event"] == "checked"


def test_libiscsi_proves_itself_to_our_target_and_our_target_to_it(serve: Serve, secrets: dict[str, Any]) -> None:
    endpoint = serve(document(chap=secrets))["portals"][0]["endpoint"]
    user = {"LIBISCSI_CHAP_USERNAME": "load", "LIBISCSI_CHAP_PASSWORD": SECRET}
    target = {"LIBISCSI_CHAP_TARGET_USERNAME": "array", "LIBISCSI_CHAP_TARGET_PASSWORD": TARGET_SECRET}
    assert libiscsi("iscsi-inq", endpoint).returncode != 0, "without a secret"
    assert libiscsi("iscsi-inq", endpoint, **user).returncode == 0
    assert libiscsi("iscsi-inq", endpoint, **user, **target).returncode == 0
    for wrong in ({"LIBISCSI_CHAP_PASSWORD": "open sesame, pleasE"}, {"LIBISCSI_CHAP_USERNAME": "loaD"}):
        assert libiscsi("iscsi-inq", endpoint, **user | wrong).returncode != 0, wrong
    lying = target | {"LIBISCSI_CHAP_TARGET_PASSWORD": "i am who you are"}
    assert libiscsi("iscsi-inq", endpoint, **user, **lying).returncode != 0, (
        "the target proves itself with another secret"
    )


def test_our_initiator_proves_itself_and_has_the_target_prove_itself(
    serve: Serve, load: Load, secrets: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = serve(document(chap=secrets))["portals"][0]["endpoint"]

    def check(chap: dict[str, Any] | None) -> dict[str, Any]:
        return load({"task": "check", "endpoint": endpoint, "options": {"chap": chap} if chap else {}})[-1]

    one_way = {"user": "load", "secret_file": secrets["secret_file"]}
    monkeypatch.setenv("IOTAX_TEST_SECRET", SECRET)
    for good in (one_way, secrets, {"user": "load", "secret_env": "IOTAX_TEST_SECRET"}):
        assert check(good)["event"] == "checked", good
    (tmp_path / "wrong").write_text("open sesame, now\n")
    wrong = str(tmp_path / "wrong")
    liar = secrets | {"mutual": {"user": "array", "secret_file": wrong}}
    for bad in (None, one_way | {"secret_file": wrong}, one_way | {"user": "other"}, liar):
        assert check(bad)["kind"] == "unauthenticated", bad


def test_a_load_says_who_it_talks_to_and_what_was_agreed(serve: Serve, load: Load, secrets: dict[str, Any]) -> None:
    endpoint = serve(document(chap=secrets))["portals"][0]["endpoint"]
    options = {"chap": secrets, "header_digest": True, "first_burst_bytes": 4096}
    run = {"task": "run", "endpoint": endpoint, "options": options, "runtime_ns": 10_000_000, "seed": 3, "verify": True}
    connected, *_, result = load(run)
    assert result["event"] == "result", result
    assert connected["identity"]["vendor"] == "IOTAX"
    assert len(connected["identity"]["serial"]) == 16
    agreed = connected["negotiated"]
    assert (agreed["HeaderDigest"], agreed["DataDigest"], agreed["AuthMethod"]) == ("CRC32C", "None", "CHAP")
    assert agreed["FirstBurstLength"] == "4096"


def test_secrets_show_nowhere(secrets: dict[str, Any], tmp_path: Path) -> None:
    """Neither events nor logs of either side contain a secret, whether a login succeeds or fails."""
    (tmp_path / "wrong").write_text(TARGET_SECRET + "!")

    def loads(endpoint: str) -> list[dict[str, Any]]:
        run = {"task": "run", "endpoint": endpoint, "runtime_ns": 10_000_000}
        wrong = {"user": "load", "secret_file": str(tmp_path / "wrong")}
        return [run | {"options": {"chap": chap}} for chap in (secrets, wrong)]

    said = all_that_is_said(document(chap=secrets), loads)
    for secret in (SECRET, TARGET_SECRET):
        assert secret not in said
        assert secret.encode().hex() not in said


@pytest.mark.parametrize(
    "chap", [{"user": "load"}, {"user": "load", "secret": SECRET}, {"user": "load", "secret_file": "/nowhere"}]
)
def test_a_secret_that_cannot_be_had_is_said_so_before_anything_listens(chap: dict[str, Any]) -> None:
    words = json.dumps(document(chap=chap)) + "\n"
    done = subprocess.run([ENGINE, "serve"], input=words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert '"event":"error"' in done.stdout
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("squash", "uid", "owner"), [("none", 0, 0), ("root", 0, 65534), ("root", 1000, 1000), ("all", 1000, 65534)]
)
def test_squash_says_whose_file_a_caller_makes(squash: str, uid: int, owner: int, serve: Serve) -> None:
    export = {"protocol": "nfs3", "listen": "127.0.0.1:0", "volume": "v0", "squash": squash}
    port = serve(document() | {"exports": [export]})["portals"][0]["address"].rpartition(":")[2]
    ports = f"nfsport={port}&mountport={port}&uid={uid}&gid={uid}"
    tools = [program("nfs-cp", "libnfs-utils"), program("nfs-ls", "libnfs-utils")]
    made = subprocess.run([tools[0], "/etc/hostname", f"nfs://127.0.0.1/v0/new?{ports}"], timeout=180, check=False)
    assert made.returncode == 0
    listed = subprocess.run(
        [tools[1], f"nfs://127.0.0.1/v0?{ports}"], capture_output=True, text=True, timeout=180, check=True
    )
    (new,) = [line.split() for line in listed.stdout.splitlines() if line.endswith(" new")]
    assert new[2:4] == [str(owner), str(owner)], new
