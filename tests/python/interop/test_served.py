"""Third-party clients on `iotax serve`, at the endpoints that it prints."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from needed import program
from serving.test_serve import Start
from serving.test_serve import start as start  # noqa: PLC0414 - a fixture


def test_libiscsi_and_libnfs_find_what_is_printed(start: Start, tmp_path: Path) -> None:
    list_targets, copy, cat = (
        program(name, package)
        for name, package in (("iscsi-ls", "libiscsi-bin"), ("nfs-cp", "libnfs-utils"), ("nfs-cat", "libnfs-utils"))
    )
    _, said = start("--size", "8MiB")
    endpoints = {each["protocol"]: each["endpoint"] for each in said["endpoints"]}
    nfs, iscsi = endpoints["nfs3"], endpoints["iscsi"]
    portal, name = iscsi.split("/")[2:4]
    found = subprocess.run([list_targets, "-s", f"iscsi://{portal}"], capture_output=True, text=True, check=True)
    assert f"Target:{name} Portal:{portal}" in found.stdout
    assert "Lun:0" in found.stdout

    host, port = urlsplit(nfs).netloc.split(":")
    export = f"nfs://{host}/v0/{{}}?nfsport={port}&mountport={port}"
    (tmp_path / "file").write_bytes(b"a client's file\n" * 1000)
    subprocess.run([copy, tmp_path / "file", export.format("copied")], check=True, capture_output=True)
    read = subprocess.run([cat, export.format("copied")], capture_output=True, check=True)
    assert read.stdout == (tmp_path / "file").read_bytes()
