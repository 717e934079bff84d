"""Builds the peers that distributions do not package, each from a pinned commit: `python -m bench.peers [NAME …]`.

They come below `out/peers`, where the bench finds them; a variable such as `IOTAX_BENCH_SPDK` names another build. The
sources are fetched with git. What is built already is kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.process import UnavailableError

FOLDER = Path(__file__).resolve().parents[1] / "out" / "peers"


@dataclass(frozen=True)
class Peer:
    url: str
    commit: str
    """In full: a tag could be moved."""
    commands: tuple[str, ...]
    """Shell commands in the peer's folder. `$PEERS` is the folder of all peers."""
    built: str
    """What the last command makes, below the peer's folder."""
    packages: tuple[str, ...]
    """What Debian calls the packages that the build needs, apart from `build-essential`, `git` and `pkg-config`."""
    used: Mapping[str, str] = field(default_factory=dict)
    """What the bench uses: variable that names another build → path below the peer's folder."""
    needs: tuple[str, ...] = ()
    """Peers that must be built before."""
    submodules: tuple[str, ...] = ()


_DPDK_LIBRARIES = (
    "kvargs,telemetry,eal,ring,mempool,mbuf,net,meter,ethdev,pci,cmdline,hash,rcu,timer,power,stack,compressdev,"
    "cryptodev,security,reorder,vhost,dmadev"
)

PEERS = {
    "unfs3": Peer(
        url="https://github.com/unfs3/unfs3",
        commit="ec1660ba33c80d5c67131e163e68834c1a10e243",  # unfs3-0.11.0
        commands=("./bootstrap", "./configure --quiet", "make --quiet -j$JOBS"),
        built="unfsd",
        packages=("autoconf", "automake", "flex", "bison", "libtirpc-dev"),
        used={"IOTAX_BENCH_UNFS3": "unfsd"},
    ),
    # No release has the fix of `rpc_disconnect`, without which fio does not always end.
    "libnfs": Peer(
        url="https://github.com/sahlberg/libnfs",
        commit="8d4c2f6057acb6a01a316fbb7eea1c05a06e34c6",
        commands=(
            "cmake -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=$PEERS/libnfs/installed"
            " -DCMAKE_INSTALL_LIBDIR=lib",
            "cmake --build build --parallel $JOBS",
            "cmake --install build",
        ),
        built="installed/lib/libnfs.so",
        packages=("cmake", "libgnutls28-dev"),
    ),
    "libiscsi": Peer(
        url="https://github.com/sahlberg/libiscsi",
        commit="46631b90834d0d8f28ff270a74eb839b973ccd9f",  # 1.20.3
        commands=(
            "./autogen.sh",
            "./configure --quiet --prefix=$PEERS/libiscsi/installed --disable-werror --disable-manpages",
            "make --quiet -j$JOBS",
            "make --quiet install",
        ),
        built="installed/lib/libiscsi.so",
        packages=("autoconf", "automake", "libtool"),
    ),
    "fio": Peer(
        url="https://github.com/axboe/fio",
        commit="ab77643023f5d7e3c1b71a7576a564f368bf577a",  # fio-3.42
        commands=(
            # libnfs reads into fio's buffer itself since version 6 and passes no data; fio copies from a null pointer.
            "sed -i '/memcpy(io_u->buf, data, res);/s/.*/;/' engines/nfs.c",
            "PKG_CONFIG_PATH=$PEERS/libnfs/installed/lib/pkgconfig:$PEERS/libiscsi/installed/lib/pkgconfig"
            " ./configure --enable-libnfs --enable-libiscsi",
            "LD_RUN_PATH=$PEERS/libnfs/installed/lib:$PEERS/libiscsi/installed/lib make --quiet -j$JOBS",
        ),
        built="fio",
        packages=("zlib1g-dev", "libaio-dev"),
        used={"IOTAX_BENCH_FIO": "fio", "IOTAX_BENCH_T_IO_URING": "t/io_uring"},
        needs=("libnfs", "libiscsi"),
    ),
    "dpdk": Peer(
        url="https://github.com/DPDK/dpdk",
        commit="ed957165eadbe60a47d5ec223578cdd1c13d0bd9",  # v25.11
        commands=(
            "meson setup build --prefix=$PEERS/dpdk/installed --libdir=lib --default-library=static"
            " -Dtests=false -Denable_docs=false -Denable_drivers='bus,bus/pci,bus/vdev,mempool/ring,power/*'"
            f" -Ddisable_apps='*' -Denable_libs={_DPDK_LIBRARIES}",
            "ninja -C build -j$JOBS install",
        ),
        built="installed/lib/pkgconfig/libdpdk.pc",
        packages=("meson", "ninja-build", "python3-pyelftools", "libnuma-dev"),
    ),
    "spdk": Peer(
        url="https://github.com/spdk/spdk",
        commit="3230130e6a4114a97991d7e27cecd5ab64b696c3",
        commands=(
            "./configure --with-dpdk=$PEERS/dpdk/installed --without-isal-crypto --without-crypto --without-vhost"
            " --without-virtio --disable-tests --disable-unit-tests",
            "make --quiet -j$JOBS",
        ),
        built="build/bin/nvmf_tgt",
        packages=("nasm", "libtool", "libaio-dev", "libnuma-dev", "libfuse3-dev", "uuid-dev", "libssl-dev",
                  "libncurses-dev", "python3-jinja2", "python3-tabulate"),
        used={"IOTAX_BENCH_SPDK": "build"},
        needs=("dpdk",),
        submodules=("isa-l",),
    ),
}  # fmt: skip


def peer(variable: str, what: str) -> Path:
    """The path of a peer: what the environment variable names, or what was built here. Raises UnavailableError."""
    named = os.environ.get(variable)
    if named:
        path = Path(named)
        if not path.exists():
            raise UnavailableError(f"{variable} names {path}, which does not exist")
        return path
    for name, each in PEERS.items():
        if variable in each.used:
            path = FOLDER / name / each.used[variable]
            if path.exists():
                return path
            raise UnavailableError(f"{what} is not built: `make bench-peers`, or set {variable} to its path")
    raise UnavailableError(f"{variable} is not set: the path of {what}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="Build the peers of the bench.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(PEERS)} (default: all)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="compilers at a time")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.names if name not in PEERS]:
        parser.error(f"there is no recipe for {', '.join(unknown)}; there are {', '.join(PEERS)}")
    wanted = _with_needs(asked.names or list(PEERS))
    missing = _missing_packages(wanted)
    if missing:
        print(f"Packages are missing: apt-get install {' '.join(missing)}", file=sys.stderr)
        return 2
    for name in wanted:
        try:
            _build(name, asked.jobs)
        except subprocess.CalledProcessError as error:
            print(f"{name}: `{error.cmd[-1]}` failed; its output is in {_log(name)}", file=sys.stderr)
            return 1
    return 0


def _with_needs(names: Sequence[str]) -> list[str]:
    """In the order of `PEERS`, in which a peer follows what it needs."""
    needed = {each for name in names for each in (name, *PEERS[name].needs)}
    return [name for name in PEERS if name in needed]


def _missing_packages(names: Sequence[str]) -> list[str]:
    """Empty if this is no Debian."""
    if shutil.which("dpkg-query") is None:
        return []
    wanted = {"build-essential", "git", "pkg-config", *(each for name in names for each in PEERS[name].packages)}
    told = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev} ${Package} ${Provides}\n"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    installed = {word.strip(",") for line in told.splitlines() if line.startswith("ii") for word in line.split()}
    return sorted(wanted - installed)


def _build(name: str, jobs: int) -> None:
    it, folder = PEERS[name], FOLDER / name
    if (folder / it.built).exists():
        print(f"{name}: built already, in {folder}")
        return
    print(f"{name}: building {it.commit} in {folder}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    fetching = (
        "git init --quiet",
        f"git fetch --quiet --depth 1 {it.url} {it.commit}",
        "git checkout --quiet --force FETCH_HEAD",
        *(f"git submodule update --quiet --init --depth 1 {each}" for each in it.submodules),
    )
    # Programs of Debian come first: meson needs Debian's Python.
    variables = {"PEERS": str(FOLDER), "JOBS": str(jobs), "PATH": f"/usr/bin:{os.environ.get('PATH', '')}"}
    with _log(name).open("wb") as log:
        for command in (*fetching, *it.commands):
            subprocess.run(
                ["/bin/sh", "-c", command],
                check=True, cwd=folder, env=os.environ | variables, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip


def _log(name: str) -> Path:
    return FOLDER / f"{name}.log"


if __name__ == "__main__":
    sys.exit(main())
