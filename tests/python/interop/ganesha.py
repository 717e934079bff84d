"""Runs in its own namespaces (`unshare`): starts a portmapper and nfs-ganesha, runs the loads of a JSON list on it one
after the other, and prints their last events as a JSON list."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONFIGURATION = """
NFS_CORE_PARAM { Protocols = 3, 4; Enable_NLM = false; Enable_RQUOTA = false; MNT_Port = 20048; fsid_device = true; }
NFSV4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = /run; }
EXPORT {
    Export_Id = 1; Path = /run/export; Pseudo = /export; Protocols = 3, 4; Transports = TCP;
    Access_Type = RW; Squash = none; SecType = sys; FSAL { Name = VFS; }
}
"""


def main(engine: str, rpcbind: str, ganesha: str, size_bytes: int, documents: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    export = Path("/run/export")
    export.mkdir()
    with (export / "data").open("wb") as file:
        file.truncate(size_bytes)
    Path("/run/ganesha.conf").write_text(CONFIGURATION)
    with subprocess.Popen([rpcbind, "-f"]) as portmapper:
        wait(["rpcinfo", "-p", "127.0.0.1"], "the port mapper does not answer")
        words = [ganesha, "-F", "-f", "/run/ganesha.conf", "-L", "/run/ganesha.log", "-p", "/run/ganesha.pid"]
        with subprocess.Popen(words) as server:
            wait(["rpcinfo", "-t", "127.0.0.1", "nfs", "3"], Path("/run/ganesha.log"))
            print(json.dumps([result(engine, document) for document in json.loads(documents)]))
            server.kill()
        portmapper.kill()


def wait(question: list[str], otherwise: str | Path) -> None:
    """Repeats the command until it succeeds."""
    for _ in range(100):
        if subprocess.run(question, capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.1)
    sys.exit(otherwise.read_text() if isinstance(otherwise, Path) else otherwise)


def result(engine: str, document: dict[str, Any]) -> dict[str, Any]:
    """Last event of a load. On a busy machine without both reads and writes, a longer load is run."""
    last = load(engine, document)
    if last["event"] == "result" and not (last["read"]["ios"] and last["write"]["ios"]):
        return load(engine, document | {"runtime_ns": 20_000_000_000})
    return last


def load(engine: str, document: dict[str, Any]) -> dict[str, Any]:
    with subprocess.Popen([engine, "load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(document) + "\n")
        process.stdin.flush()
        return [json.loads(line) for line in process.stdout][-1]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
