"""NFSv3 servers for fio's `nfs` engine (libnfs): unfs3 and nfs-ganesha on a directory in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from bench.files import memory_folder, write_zeros
from bench.process import free_port, listens, named, program, running, wait_for_port
from bench.subjects.base import Place, Reached

_GANESHA = """\
NFS_CORE_PARAM {{ NFS_Protocols = 3; NFS_Port = {port}; MNT_Port = {mount_port}; Enable_NLM = false;
                 Enable_RQUOTA = false; mount_path_pseudo = false; }}
NFSV4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = {folder}; }}
EXPORT {{ Export_Id = 1; Path = {folder}; Pseudo = /bench; Protocols = 3; Access_Type = RW; Squash = None;
         SecType = sys; FSAL {{ Name = VFS; }} }}
"""
_PORTMAPPER_PORT = 111


@dataclass(frozen=True)
class Unfs3:
    name: str = "unfs3"

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        unfsd = named("IOTAX_BENCH_UNFS3", "unfsd")
        port, log = free_port(), place.folder / "unfsd.log"
        with _exported() as folder:
            exports = place.folder / "unfsd.exports"
            exports.write_text(f"{folder} 127.0.0.1(rw,no_root_squash)\n")
            command = [unfsd, "-d", "-p", "-u", "-t", "-n", str(port), "-m", str(port), "-e", exports]
            with running(command, cpu=place.target_cpu, log=log) as process:
                wait_for_port(process, port, log)
                yield _reached(folder, port, port, process.pid)


@dataclass(frozen=True)
class Ganesha:
    name: str = "nfs-ganesha"

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        server = program("ganesha.nfsd", "nfs-ganesha")
        port, mount_port, log = free_port(), free_port(), place.folder / "ganesha.log"
        with _portmapper(place), _exported() as folder:
            config = place.folder / "ganesha.conf"
            config.write_text(_GANESHA.format(port=port, mount_port=mount_port, folder=folder))
            command = [server, "-F", "-f", config, "-L", log, "-p", place.folder / "ganesha.pid"]
            with running(command, cpu=place.target_cpu, log=log, kill=True) as process:
                wait_for_port(process, port, log)
                yield _reached(folder, port, mount_port, process.pid)


def _reached(folder: Path, port: int, mount_port: int, pid: int) -> Reached:
    return Reached(f"nfs://127.0.0.1:{port}{folder}/data?mountport={mount_port}", pid)


@contextlib.contextmanager
def _portmapper(place: Place) -> Generator[None]:
    """nfs-ganesha does not serve NFSv3 where no rpcbind knows of it: the one that runs, or one of our own."""
    if listens(_PORTMAPPER_PORT):
        yield
        return
    log = place.folder / "rpcbind.log"
    command = [program("rpcbind", "rpcbind"), "-f"]
    with running(command, cpu=place.initiator_cpu, log=log) as process:
        wait_for_port(process, _PORTMAPPER_PORT, log)
        yield


@contextlib.contextmanager
def _exported() -> Generator[Path]:
    """A directory with a file of the volume's size."""
    with memory_folder() as folder:
        data = folder / "data"
        write_zeros(data)
        data.chmod(0o666)
        yield folder
