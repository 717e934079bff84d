"""What is compared with what, and the required ratios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.files import read_through
from bench.load import Load
from bench.subjects.base import Initiator, LocalFile, Sides, Subject, Target
from bench.subjects.fio import FioFile, FioNet, TIoUring
from bench.subjects.nfs import Chimera, Ganesha, Unfs3
from bench.subjects.ours import OurInitiator, OurTarget, both_sides
from bench.subjects.raw import RawLimit
from bench.subjects.spdk import SpdkIscsi, SpdkNvmf, SpdkPerf
from bench.subjects.tgt import IscsiPerf, Tgt

Read = partial(Load, "read")
Write = partial(Load, "write")
Mixed = partial(Load, "mixed")

_SMALL = (Read(32), Write(32))
_LARGE = (Read(32, 128 << 10), Write(32, 128 << 10), Mixed(32, 128 << 10))
_HUGE = (Read(8, 1 << 20), Write(8, 1 << 20))


@dataclass(frozen=True)
class Case:
    group: str
    """The name that `--only` selects."""
    path: str
    """How the volume is reached."""
    load: Load
    ours: Subject
    theirs: Subject | None = None
    goal: float | None = None
    """The minimum ratio of rates."""
    cpu_goal: bool = False
    """Whether neither of our sides may take more CPU time per I/O than theirs."""
    prepare: Callable[[], None] | None = None
    """Runs right before the first pair, so that both sides find the same state."""


def cases(file: Path) -> list[Case]:
    """`file` is a file of the volume's size on a disk's file system, for local I/O."""
    nvme, iscsi, nfs = both_sides("nvme-tcp"), both_sides("iscsi"), both_sides("nfs3")
    polling = both_sides("nvme-tcp", "iotax, polling", polling="auto")
    local = Sides(LocalFile(file), OurInitiator(options={"direct": False}), "iotax")
    io_uring, libaio, least, unregistered = (
        Sides(LocalFile(file), initiator, initiator.name)
        for initiator in (FioFile("io_uring"), FioFile("libaio"), TIoUring(), TIoUring("not registered", ("-F0",)))
    )
    libiscsi, libnfs = FioNet("libiscsi"), FioNet("nfs")
    spdk, spdk_iscsi = Sides(SpdkNvmf(), SpdkPerf()), Sides(SpdkIscsi(), libiscsi)
    nfs_servers: list[tuple[Subject, float]] = [(Sides(Unfs3(), libnfs), 6), (Sides(Ganesha(), libnfs), 12)]
    accounted = both_sides("nvme-tcp", "iotax, verifying", verify=True)
    # The file may have left the page cache before its cases run.
    cached = partial(read_through, file)
    return [
        Case("nvme", "NVMe/TCP", Read(1), nvme, Sides(SpdkNvmf(polls=False), SpdkPerf()), 1.0),
        Case("nvme", "NVMe/TCP", Read(1), polling, spdk, 1.0),
        Case("nvme", "NVMe/TCP", Read(32), nvme, spdk, 1.25, cpu_goal=True),
        Case("nvme", "NVMe/TCP", Read(128), nvme, spdk, 1.5, cpu_goal=True),
        Case("nvme", "NVMe/TCP", Write(32), nvme, spdk, 1.25, cpu_goal=True),
        Case("nvme", "NVMe/TCP", Write(128), nvme, spdk, 1.25, cpu_goal=True),
        Case("nvme", "NVMe/TCP", Read(32, 65536, random=False), nvme, spdk, 1.1),
        *(Case("nvme", "NVMe/TCP", load(depth), polling, spdk) for depth in (32, 128) for load in (Read, Write)),
        Case("iscsi", "iSCSI", Read(32), iscsi, Sides(Tgt(), IscsiPerf()), 9),
        Case("iscsi", "iSCSI", Write(32), iscsi, Sides(Tgt(), libiscsi), 9),
        Case("iscsi", "iSCSI", Read(32), iscsi, spdk_iscsi, 3),
        Case("iscsi", "iSCSI", Write(32), iscsi, spdk_iscsi, 8),
        *(
            Case("nfs", "NFSv3", load, nfs, server, goal)
            for server, goal in nfs_servers
            for load in (Read(32), Write(32))
        ),
        *nfs41(),
        *sides_apart(),
        *(
            Case("raw", path, Read(128), ours, RawLimit(), 0.7)
            for path, ours in (("NVMe/TCP", nvme), ("iSCSI", iscsi), ("NFSv3", nfs))
        ),
        Case("raw", "NVMe/TCP", Read(32), nvme, RawLimit()),
        *(
            Case("scale", path, Read(32), both_sides(protocol, "iotax, 2 + 2 cores", cores=2), ours, 1.8)
            for path, protocol, ours in (
                ("NVMe/TCP", "nvme-tcp", nvme),
                ("iSCSI", "iscsi", iscsi),
                ("NFSv3", "nfs3", nfs),
            )
        ),
        Case("optimisations", "NVMe/TCP", Read(1), polling, nvme),
        *(
            Case("optimisations", "NVMe/TCP", load(32), nvme, both_sides("nvme-tcp", "iotax, epoll", driver="epoll"))
            for load in (Read, Write)
        ),
        *(
            Case(
                "optimisations",
                "no protocol",
                Read(depth),
                RawLimit(),
                RawLimit("without pieces", ("--without", "pieces")),
            )
            for depth in (32, 128)
        ),
        # A whole volume; few blocks would stay in the processor's cache.
        *(
            Case(
                "optimisations",
                "no protocol",
                Read(depth),
                RawLimit("512 MiB", ("--region-mib", "512")),
                RawLimit("without prefetch", ("--region-mib", "512", "--without", "prefetch")),
            )
            for depth in (32, 128)
        ),
        Case(
            "optimisations", "no protocol", Read(32, 65536), RawLimit(), RawLimit("without reno", ("--without", "reno"))
        ),
        Case("optimisations", "file", Read(32), least, unregistered, prepare=cached),
        Case("local", "file", Read(32), local, io_uring, 2, prepare=cached),
        Case("local", "file", Read(32), local, least, 0.85, prepare=cached),
        Case("local", "file", Read(32), local, libaio, prepare=cached),
        Case("verify", "NVMe/TCP", Read(32), accounted, nvme),
    ]


def nfs41() -> list[Case]:
    """Our target and other servers of NFSv4.1, with our initiator, because libnfs does not support minor version 1."""
    ours, initiator, path = OurTarget("nfs4.1"), OurInitiator(), "NFSv4.1"
    servers: list[tuple[Target, float, float]] = [(Ganesha(4), 5, 1.1), (Chimera(), 1, 1)]
    return [
        *(
            Case("nfs41", path, load, Sides(ours, initiator, "iotax"), Sides(server, initiator), goal)
            for server, small, large in servers
            for loads, goal in ((_SMALL, small), (_LARGE, large))
            for load in loads
        ),
        *(
            Case("nfs41", path, load, Sides(ours, initiator, "iotax"), both_sides("nfs3", "iotax, NFSv3"))
            for load in _SMALL
        ),
    ]


def sides_apart() -> list[Case]:
    """One of our sides against the same side of another program, each with the same opposite side."""
    perf, libiscsi, libnfs = SpdkPerf(), FioNet("libiscsi"), FioNet("nfs")
    nvme, iscsi, nfs = OurTarget("nvme-tcp"), OurTarget("iscsi"), OurTarget("nfs3")
    initiator = OurInitiator()
    targets: list[tuple[str, Target, Target, Initiator, tuple[Load, ...]]] = [
        ("NVMe/TCP", nvme, SpdkNvmf(), perf, (Read(1), *_SMALL, Read(128), Write(128), *_LARGE, *_HUGE)),
        ("iSCSI", iscsi, SpdkIscsi(), libiscsi, (*_SMALL, *_LARGE, *_HUGE)),
        ("iSCSI", iscsi, Tgt(), libiscsi, (*_SMALL, *_LARGE)),
        ("NFSv3", nfs, Ganesha(), libnfs, (*_SMALL, *_LARGE)),
    ]
    initiators: list[tuple[str, Target, Initiator, tuple[Load, ...]]] = [
        ("NVMe/TCP", SpdkNvmf(), perf, (*_SMALL, *_LARGE)),
        ("iSCSI", SpdkIscsi(), libiscsi, (*_SMALL, *_LARGE)),
        ("NFSv3", Ganesha(), libnfs, _SMALL),
    ]
    return [
        *(
            Case("target", path, load, Sides(ours, opposite), Sides(theirs, opposite), 1.1 if load in _LARGE else 1.0)
            for path, ours, theirs, opposite, loads in targets
            for load in loads
        ),
        *(
            Case("initiator", path, load, Sides(opposite, initiator), Sides(opposite, theirs))
            for path, opposite, theirs, loads in initiators
            for load in loads
        ),
    ]
