"""The guide's unit: systemd accepts it without a warning, and its service works as the unit says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from test_serve import FREE_PORTS

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "serve.md"
PROGRAM, ADDRESS, STATE = "/opt/iotax/bin/iotax", "10.0.0.5", "/var/lib/iotax"


def unit() -> str:
    [text] = re.findall(r"```ini\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return text


def asked(name: str) -> str:
    [value] = re.findall(rf"^{name}=(.*)$", unit(), re.MULTILINE)
    return value


def command(written: str, folder: Path) -> list[str]:
    """The unit's command, on loopback and free ports."""
    for theirs, ours in ((ADDRESS, "127.0.0.1"), ("10.0.0.0/24", "127.0.0.0/8"), (STATE, str(folder))):
        written = written.replace(theirs, ours)
    words = shlex.split(written)
    assert words[0] in (PROGRAM, "iotax")
    return [sys.executable, "-m", "iotax", *words[1:], *FREE_PORTS]


def test_systemd_reads_the_unit_without_a_word(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian package systemd)")
    path = tmp_path / "iotax-serve.service"
    # It checks whether the program exists.
    path.write_text(unit().replace(PROGRAM, sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False, timeout=180)
    said = [line for line in (done.stdout + done.stderr).splitlines() if path.name in line]
    assert (done.returncode, said) == (0, []), done.stderr


def test_what_the_unit_starts_serves_says_so_and_stops_in_order(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    assert (asked("Type"), asked("NotifyAccess")) == ("notify", "main")
    [first] = re.findall(r"^# The first start creates the file: (.*)$", unit(), re.MULTILINE)
    for written in (first.replace("100GiB", "16MiB"), asked("ExecStart")):
        address = str(tmp_path / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.bind(address)
            channel.settimeout(60)
            process = subprocess.Popen(
                command(written, tmp_path), env={**os.environ, "NOTIFY_SOCKET": address}, cwd="/",
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            try:
                # Like systemd, sends the signal only to the main process.
                assert channel.recv(100) == b"READY=1"
            finally:
                process.send_signal(signal.SIGTERM)
                _, said = process.communicate(timeout=180)
        assert process.returncode == 0, said
        Path(address).unlink()
    assert (tmp_path / "volume").stat().st_size == 16 << 20
