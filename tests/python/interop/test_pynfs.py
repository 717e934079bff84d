"""pynfs's tests of NFSv4.1 servers against iotax's target, compared with conformance/pynfs-4.1.expected.

IOTAX_PYNFS names a checkout of pynfs, built with `./setup.py build`; it needs ply, and xdrlib3 from Python 3.13 on. The
expectations name the revision.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT

EXPECTED = ROOT / "conformance" / "pynfs-4.1.expected"
PYNFS = os.environ.get("IOTAX_PYNFS")
SERVERS = ("iotax", "knfsd")
"""Columns of the expectations; knfsd is for comparison."""
FLAGS = ("all", "destroy_session", "exchange_id", "courteous", "special", "ganesha")
"""All tests except those for pNFS and for a server restart that keeps its state."""
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(PYNFS is None, reason="IOTAX_PYNFS is not set: a built checkout of pynfs"),
]
Serve = Callable[[dict[str, Any]], dict[str, Any]]


def expectations() -> dict[str, dict[str, str]]:
    """Test → the expected verdict for each server."""
    expected = {}
    for line in EXPECTED.read_text().splitlines():
        if words := line.partition("#")[0].split():
            test, *verdicts = words
            expected[test] = dict(zip(SERVERS, verdicts, strict=True))
    return expected


def verdicts(address: str, tree: str, folder: Path) -> dict[str, str]:
    """Test → `pass` or `fail`. pynfs's output goes to `folder`."""
    assert PYNFS is not None
    found, script = folder / "pynfs.json", Path(PYNFS, "nfs4.1", "testserver.py")
    python = os.environ.get("IOTAX_PYNFS_PYTHON", sys.executable)
    words = [python, str(script), f"{address}{tree}", "--maketree", "--rundeps", f"--json={found}", *FLAGS]
    with (folder / "pynfs.log").open("w") as said:
        subprocess.run(words, cwd=script.parent, stdout=said, stderr=said, check=True)
    tests = json.loads(found.read_text())["testcase"]
    return {test["code"]: "fail" if "failure" in test else "pass" for test in tests if "skipped" not in test}


def test_pynfs_finds_what_is_expected(serve: Serve, tmp_path: Path) -> None:
    volume = {"name": "v0", "media": "memory", "size_bytes": 64 << 20}
    served = serve({"volumes": [volume], "exports": [{"protocol": "nfs4.1", "listen": "127.0.0.1:0", "volume": "v0"}]})
    found = verdicts(served["portals"][0]["address"], "/v0/test", tmp_path)
    expected = {test: of["iotax"] for test, of in expectations().items()}
    differences = {test: (found.get(test), expected.get(test)) for test in found.keys() | expected.keys()}
    assert not {test: both for test, both in differences.items() if both[0] != both[1]}, tmp_path / "pynfs.log"
