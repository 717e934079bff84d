"""NFS servers for fio's `nfs` engine (libnfs): unfs3 and nfs-ganesha on a directory in memory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path

from bench.load import VOLUME_BYTES
from bench.process import UnavailableError, free_port, named, program, running, wait_for_port, wait_until
from bench.subjects.base import Place
from bench.subjects.fio import Reached

_MEMORY = Path("/dev/shm")  # noqa: S108
_GANESHA = """\
NFS_CORE_PARAM {{ NFS_Protocols = 4; NFS_Port = {port}; MNT_Port = {port}; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ Grace_Period = 5; RecoveryBackend = fs; RecoveryRoot = {folder}; Minor_Versions = 0, 1; }}
EXPORT {{ Export_Id = 1; Path = {folder}; Pseudo = /bench; Protocols = 4; Access_Type = RW; Squash = None;
         SecType = sys; FSAL {{ Name = VFS; }} }}
"""


@contextlib.contextmanager
def unfs3(place: Place) -> Generator[Reached]:
    unfsd = named("IOTAX_BENCH_UNFS3", "unfsd")
    port, log = free_port(), place.folder / "unfsd.log"
    with _exported() as folder:
        exports = place.folder / "unfsd.exports"
        exports.write_text(f"{folder} 127.0.0.1(rw,no_root_squash)\n")
        command = [unfsd, "-d", "-p", "-u", "-t", "-n", str(port), "-m", str(port), "-e", exports]
        with running(command, cpu=place.target_cpu, log=log) as process:
            wait_for_port(process, port, log)
            url = f"nfs://127.0.0.1{folder}?nfsport={port}&mountport={port}&version=3"
            yield Reached([f"--nfs_url={url}", "--filename=data"], process.pid)


@contextlib.contextmanager
def ganesha(place: Place) -> Generator[Reached]:
    server = program("ganesha.nfsd", "nfs-ganesha")
    port, log = free_port(), place.folder / "ganesha.log"
    with _exported() as folder:
        config = place.folder / "ganesha.conf"
        config.write_text(_GANESHA.format(port=port, folder=folder))
        command = [server, "-F", "-f", config, "-L", log, "-p", place.folder / "ganesha.pid"]
        with running(command, cpu=place.target_cpu, log=log, kill=True) as process:
            wait_for_port(process, port, log)
            # It refuses state until its grace period is over.
            wait_until(
                lambda: "NOT IN GRACE" in log.read_text(errors="replace"), process, log, "ganesha stays in grace", 60
            )
            url = f"nfs://127.0.0.1/bench?nfsport={port}&version=4"
            yield Reached([f"--nfs_url={url}", "--filename=data"], process.pid)


@contextlib.contextmanager
def _exported() -> Generator[Path]:
    """A directory with a file of the volume's size."""
    if not _MEMORY.is_dir():
        raise UnavailableError(f"{_MEMORY} is not there")
    with tempfile.TemporaryDirectory(prefix="iotax-bench-", dir=_MEMORY) as folder:
        Path(folder).chmod(0o777)
        data = Path(folder, "data")
        with data.open("wb") as file:
            file.write(bytes(1 << 20) * (VOLUME_BYTES >> 20))
        data.chmod(0o666)
        yield Path(folder)
