"""iotax's NFS clients against nfs-ganesha, a third-party server, in namespaces without other servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from needed import program

from .conftest import ENGINE

pytestmark = pytest.mark.slow

SIZE_BYTES = 32 << 20
ENDPOINTS = {"nfs3": "nfs://127.0.0.1/run/export/data", "nfs4.1": "nfs41://127.0.0.1/export/data"}
ISOLATED = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.mark.parametrize("protocol", ENDPOINTS)
def test_ganesha_gives_back_what_was_written_in_every_size_and_by_several_connections(protocol: str) -> None:
    unshare = program("unshare", "util-linux")
    rpcbind, ganesha = program("rpcbind", "rpcbind"), program("ganesha.nfsd", "nfs-ganesha")
    if subprocess.run([unshare, *ISOLATED, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to make namespaces")
    endpoint = ENDPOINTS[protocol]
    run = {"task": "run", "endpoint": endpoint, "outstanding": 8, "read_percent": 50, "seed": 5, "verify": True}
    loads = [{"task": "fill", "endpoint": endpoint, "seed": 5}]
    for workers in (1, 4):
        for block_size_bytes in (512, 4096, 65536, 1 << 20):
            size = {"workers": workers, "block_size_bytes": block_size_bytes, "runtime_ns": 200_000_000}
            loads.append(run | size)
    # The block size is not a power of two, and the offset not a multiple of a page.
    loads.append(run | {"block_size_bytes": 1536, "working_set_offset_bytes": 512, "runtime_ns": 200_000_000})
    script = str(Path(__file__).parent / "ganesha.py")
    words = [
        unshare,
        *ISOLATED,
        sys.executable,
        script,
        str(ENGINE),
        rpcbind,
        ganesha,
        str(SIZE_BYTES),
        json.dumps(loads),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    filled, *results = json.loads(done.stdout)
    assert filled["event"] == "filled", filled
    for load, result in zip(loads[1:], results, strict=True):
        assert result["event"] == "result", (load, result)
        assert result["read"]["ios"] > 0, load
        assert result["write"]["ios"] > 0, load
        assert result["verify"]["checked_blocks"] > 0, load
        assert result["verify"]["wrong_blocks"] == 0, load
