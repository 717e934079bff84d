"""iotax's iSCSI initiator against tgt, a third-party target."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iotax.engine import EngineError
from iotax.labs.guard import hint
from needed import program

IQN = "iqn.2026-11.io.iotax.test:tgt"
SIZE_BYTES = 64 << 20
Load = Callable[..., list[dict[str, Any]]]


Admin = Callable[..., None]


@pytest.fixture
def tgt(started: tuple[str, Admin]) -> str:
    """An endpoint of the test's own tgtd, on a file of zeros."""
    return started[0]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[str, Admin]]:
    """The endpoint, and a function that runs tgtadm."""
    tgtd, tgtadm = program("tgtd", "tgt"), program("tgtadm", "tgt")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    backing = tmp_path / "lun.img"
    with backing.open("wb") as file:
        file.truncate(SIZE_BYTES)
    control = "1"  # its own socket distinguishes it from other daemons
    environment = os.environ | {"TGT_IPC_SOCKET": str(tmp_path / "s")}
    daemon = subprocess.Popen(
        [tgtd, "-f", "-C", control, "--iscsi", f"portal=127.0.0.1:{port}"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def admin(*words: str) -> None:
        subprocess.run(
            [tgtadm, "-C", control, "--lld", "iscsi", *words], env=environment, check=True, capture_output=True
        )

    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        admin("--op", "new", "--mode", "target", "--tid", "1", "-T", IQN)
        admin("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", str(backing))
        admin("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")
        for digest in ("HeaderDigest", "DataDigest"):
            admin("--op", "update", "--mode", "target", "--tid", "1", "-n", digest, "-v", "CRC32C,None")
        yield f"iscsi://127.0.0.1:{port}/{IQN}/1", admin
    finally:
        daemon.send_signal(signal.SIGKILL)  # tgtd ignores SIGTERM
        daemon.wait()


@pytest.mark.slow
def test_tgt_gives_back_what_was_written_whatever_was_negotiated(tgt: str, load: Load) -> None:
    filled = load({"task": "fill", "endpoint": tgt, "seed": 5})
    assert filled[-1]["event"] == "filled", filled[-1]
    assert filled[-1]["bytes"] == SIZE_BYTES
    for options in (
        {},
        {"header_digest": True, "data_digest": True},
        {"immediate_data": False, "initial_r2t": True},
        {"immediate_data": False, "initial_r2t": False, "data_digest": True},
        {"first_burst_bytes": 4096, "max_burst_bytes": 8192},
        {"max_recv_data_segment_bytes": 8192, "header_digest": True},
    ):
        for workers, block_size_bytes in ((1, 512), (4, 4096), (1, 65536), (2, 1 << 20)):
            # On a busy machine tgtd may not complete both reads and writes; then the run is repeated for longer.
            for runtime_ms in (100 if block_size_bytes < 1 << 20 else 500, 2000, 10_000):
                events = load(
                    {
                        "task": "run",
                        "endpoint": tgt,
                        "options": options,
                        "workers": workers,
                        "outstanding": 8,
                        "block_size_bytes": block_size_bytes,
                        "read_percent": 50,
                        "runtime_ns": runtime_ms * 1_000_000,
                        "seed": 5,
                        "verify": True,
                    }
                )
                result = events[-1]
                assert result["event"] == "result", (options, workers, block_size_bytes, result)
                assert result["verify"]["wrong_blocks"] == 0
                assert result["checks"]["errors"] == 0
                if result["read"]["ios"] > 0 and result["write"]["ios"] > 0:
                    break
            assert result["read"]["ios"] > 0
            assert result["write"]["ios"] > 0
            assert result["verify"]["checked_blocks"] > 0
            assert result["verify"]["wrong_blocks"] == 0
            assert result["checks"]["errors"] == 0


def test_check_finds_foreign_data_on_tgt_and_fill_leaves_them(tgt: str, load: Load, tmp_path: Path) -> None:
    backing = tmp_path / "lun.img"
    with backing.open("r+b") as file:
        file.seek(1024 + 56)
        file.write(b"\x53\xef")  # the magic number of ext2, ext3 and ext4
    checked = load({"task": "check", "endpoint": tgt})[-1]
    assert (checked["event"], checked["holds"]) == ("checked", "foreign")
    assert "ext" in checked["what"]
    refused = load({"task": "fill", "endpoint": tgt})[-1]
    assert (refused["event"], refused["kind"]) == ("error", "foreign_data")
    with backing.open("rb") as file:
        file.seek(1024 + 56)
        assert file.read(2) == b"\x53\xef"


@pytest.mark.parametrize(
    ("change", "kind"),
    [(("/" + IQN, "/" + IQN + "x"), "not_found"), (("/1", "/9"), "not_found")],
)
def test_wrong_name_or_lun_is_said_to_be_not_found(tgt: str, load: Load, change: tuple[str, str], kind: str) -> None:
    head, _, tail = tgt.rpartition(change[0])
    last = load({"task": "check", "endpoint": head + change[1] + tail})[-1]
    assert (last["event"], last["kind"]) == ("error", kind)


def test_tgt_and_we_prove_to_each_other_who_we_are(started: tuple[str, Admin], load: Load, tmp_path: Path) -> None:
    endpoint, admin = started
    for user, secret, *outgoing in (("load", "open sesame, ok"), ("array", "i am who i am, ok", "--outgoing")):
        (tmp_path / user).write_text(secret)
        admin("--op", "new", "--mode", "account", "--user", user, "--password", secret)
        admin("--op", "bind", "--mode", "account", "--tid", "1", "--user", user, *outgoing)
    one_way = {"user": "load", "secret_file": str(tmp_path / "load")}
    mutual = one_way | {"mutual": {"user": "array", "secret_file": str(tmp_path / "array")}}
    (tmp_path / "wrong").write_text("open sesame, no")
    wrong = one_way | {"secret_file": str(tmp_path / "wrong")}
    liar = one_way | {"mutual": {"user": "array", "secret_file": str(tmp_path / "wrong")}}
    for chap, event in ((one_way, "checked"), (mutual, "checked"), (wrong, "error"), (liar, "error"), (None, "error")):
        last = load({"task": "check", "endpoint": endpoint, "options": {"chap": chap} if chap else {}})[-1]
        assert last["event"] == event, (chap, last)
        assert event == "checked" or last["kind"] == "unauthenticated", last


def what_to_do(error: dict[str, Any]) -> str:
    return hint(error["where"], EngineError(error["kind"], error["message"], error["where"]))


def test_what_tgt_has_at_lun_0_is_explained(tgt: str, load: Load) -> None:
    last = load({"task": "check", "endpoint": tgt.removesuffix("/1") + "/0"})[-1]
    assert last["event"] == "error"
    assert "tgt's disks begin at 1" in what_to_do(last)


def test_a_wish_for_chap_is_explained_as_one(started: tuple[str, Admin], load: Load) -> None:
    tgt, admin = started
    admin("--op", "new", "--mode", "account", "--user", "joe", "--password", "open sesame, please")
    admin("--op", "bind", "--mode", "account", "--tid", "1", "--user", "joe")
    last = load({"task": "check", "endpoint": tgt})[-1]
    assert last["event"] == "error"
    assert "the target asks for CHAP: correct or give `chap: {user: …" in what_to_do(last)
