"""NFS servers on files in memory. unfs3 and nfs-ganesha serve fio's `nfs` engine (libnfs, NFSv3); nfs-ganesha and
Chimera serve our NFSv4.1 initiator."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.files import memory_folder, write_zeros
from bench.peers import peer
from bench.process import UnavailableError, free_port, listens, program, run, running, wait_for_port
from bench.subjects.base import Place, Reached

_GANESHA = """\
NFS_CORE_PARAM {{ NFS_Protocols = {version}; NFS_Port = {port}; MNT_Port = {mount_port}; Enable_NLM = false;
                 Enable_RQUOTA = false; mount_path_pseudo = false; }}
NFSV4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = {folder}; }}
EXPORT {{ Export_Id = 1; Path = {folder}; Pseudo = /bench; Protocols = {version}; Access_Type = RW; Squash = None;
         SecType = sys; FSAL {{ Name = VFS; }} }}
"""
_PORTMAPPER_PORT = 111
_CHIMERA = {"server": {"threads": 1}, "mounts": {"bench": {"module": "memfs", "path": "/"}}}
_CHIMERA_PORTS = (_PORTMAPPER_PORT, 2049, 20048)


@dataclass(frozen=True)
class Unfs3:
    name: str = "unfs3"

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        unfsd = peer("IOTAX_BENCH_UNFS3", "unfsd")
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
    version: Literal[3, 4] = 3
    name: str = "nfs-ganesha"

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        server = program("ganesha.nfsd", "nfs-ganesha")
        port, mount_port, log = free_port(), free_port(), place.folder / "ganesha.log"
        with _portmapper(place), _exported() as folder:
            config = place.folder / "ganesha.conf"
            config.write_text(_GANESHA.format(version=self.version, port=port, mount_port=mount_port, folder=folder))
            command = [server, "-F", "-f", config, "-L", log, "-p", place.folder / "ganesha.pid"]
            with running(command, cpu=place.target_cpu, log=log, kill=True) as process:
                wait_for_port(process, port, log)
                if self.version == 4:
                    yield Reached(f"nfs41://127.0.0.1:{port}/bench/data", process.pid)
                else:
                    yield _reached(folder, port, mount_port, process.pid)


@dataclass(frozen=True)
class Chimera:
    """Chimera with its own file system in memory, one thread. It listens on NFS's standard ports, all addresses."""

    name: str = "Chimera"

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        daemon, copy = peer("IOTAX_BENCH_CHIMERA", "chimera"), program("nfs-cp", "libnfs-utils")
        for port in _CHIMERA_PORTS:
            if listens(port):
                raise UnavailableError(f"port {port} is taken, and Chimera takes no other")
        log, config = place.folder / "chimera.log", place.folder / "chimera.json"
        config.write_text(json.dumps(_CHIMERA))
        with (
            memory_folder() as folder,
            running([daemon, "-c", config], cpu=place.target_cpu, log=log, kill=True) as process,
        ):
            for port in _CHIMERA_PORTS:
                wait_for_port(process, port, log)
            write_zeros(folder / "data")
            run(copy, folder / "data", "nfs://127.0.0.1/bench/data")
            (folder / "data").unlink()
            yield Reached("nfs41://127.0.0.1/bench/data", process.pid)


def _reached(folder: Path, port: int, mount_port: int, pid: int) -> Reached:
    return Reached(f"nfs://127.0.0.1:{port}{folder}/data?mountport={mount_port}", pid)


@contextlib.contextmanager
def _portmapper(place: Place) -> Generator[None]:
    """nfs-ganesha serves NFSv3 only if an rpcbind runs: the machine's, or one started here."""
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
