"""Third-party clients on iotax's targets: libnfs's tools, and qemu's block layer over iscsi:// and nfs://."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from needed import missing, program

Serve = Callable[[dict[str, Any]], dict[str, Any]]
SIZE_BYTES = 32 << 20
PROTOCOLS = ("iscsi", "nfs3")
# qemu gets the NFS ports from the portmapper: iotax's own, at a loopback address that nothing else uses.
NFS_HOST = "127.0.111.1"


def run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert not check or done.returncode == 0, (words, done.stdout, done.stderr)
    return done


@pytest.fixture
def url(request: pytest.FixtureRequest, serve: Serve) -> str:
    """iotax's volume of zeros, as a URL of libiscsi or libnfs."""
    volumes = [{"name": "v0", "media": "memory", "size_bytes": SIZE_BYTES}]
    export: dict[str, Any] = {"protocol": request.param, "listen": "127.0.0.1:0", "volume": "v0"}
    if request.param == "iscsi":
        return serve({"volumes": volumes, "exports": [export]})["portals"][0]["endpoint"]
    try:
        socket.create_server((NFS_HOST, 111)).close()
    except OSError as error:
        pytest.skip(f"no portmapper can listen at {NFS_HOST}:111: {error}")
    serve({"volumes": volumes, "exports": [export | {"listen": f"{NFS_HOST}:0", "portmap": f"{NFS_HOST}:111"}]})
    return f"nfs://{NFS_HOST}/v0/data"


def qemu(tool: str, url: str) -> str:
    """The path of a qemu tool that has the module for this URL's scheme. Without it, opening port 1 gives an "Unknown
    protocol" error."""
    path = program(tool, "qemu-utils")
    scheme = url.partition(":")[0]
    if (
        "Unknown protocol"
        in run(program("qemu-img", "qemu-utils"), "info", f"{scheme}://127.0.0.1:1/x/0", check=False).stderr
    ):
        missing(f"qemu has no {scheme} (Debian package qemu-block-extra)")
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image of the volume's size: random data, a hole, and random data again."""
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.write(os.urandom(5 << 20))
        file.seek(20 << 20)
        file.write(os.urandom(3 << 20))
        file.truncate(SIZE_BYTES)
    return path


@pytest.mark.parametrize("url", PROTOCOLS, indirect=True)
def test_qemu_img_converts_onto_our_volume_and_back(url: str, image: Path, tmp_path: Path) -> None:
    tool = qemu("qemu-img", url)
    run(tool, "convert", "-n", "-f", "raw", "-O", "raw", str(image), url)
    assert "identical" in run(tool, "compare", "-f", "raw", "-F", "raw", str(image), url).stdout
    back = tmp_path / "back"
    run(tool, "convert", "-f", "raw", "-O", "raw", url, str(back))
    assert back.read_bytes() == image.read_bytes()


@pytest.mark.parametrize("url", PROTOCOLS, indirect=True)
def test_qemu_io_writes_discards_and_verifies(url: str) -> None:
    tool = qemu("qemu-io", url)
    commands = [
        "write -P 0xab 0 1M",
        "aio_write -P 0xcd 1M 2M",
        "aio_flush",
        "write -z 64k 64k",
        "flush",
        "read -P 0xab 0 64k",
        "read -P 0 64k 64k",
        "read -P 0xab 128k 896k",
        "read -P 0xcd 1M 2M",
        "write -P 0xef 512 512",
        "read -P 0xef 512 512",
        "read -P 0xab 0 512",
        "discard 1M 1M",
        "read -P 0xcd 2M 1M",
    ]
    done = run(tool, "-f", "raw", *[word for command in commands for word in ("-c", command)], url)
    assert "failed" not in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("url", ["nfs3"], indirect=True)
def test_libnfs_tools_copy_list_and_read_back(url: str, image: Path) -> None:
    export = url.removesuffix("/data")
    copy, cat, listing = (program(tool, "libnfs-utils") for tool in ("nfs-cp", "nfs-cat", "nfs-ls"))
    for name in ("one", "two"):
        run(copy, str(image), f"{export}/{name}")
    read = subprocess.run([cat, f"{export}/two"], capture_output=True, timeout=180, check=True)
    assert read.stdout == image.read_bytes()
    listed = {line.split()[-1]: line.split()[-2] for line in run(listing, export).stdout.splitlines()}
    size = str(SIZE_BYTES)
    assert {name: listed[name] for name in ("data", "one", "two")} == {"data": size, "one": size, "two": size}
    assert run(cat, f"{export}/three", check=False).returncode != 0
