"""SPDK: nvmf_tgt, iscsi_tgt and spdk_nvme_perf. All poll, so the targets are stopped while others are measured."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.load import VOLUME_BYTES, Load, Timing
from bench.peers import peer
from bench.process import (
    FailedError,
    UnavailableError,
    free_port,
    measure_window,
    parked,
    running,
    wait_for_end,
    wait_for_port,
    wait_until,
)
from bench.sample import Figures, Sample
from bench.subjects.base import Place, Reached

_NQN = "nqn.2026-11.io.iotax.bench:spdk"
_IQN = "iqn.2026-11.io.iotax.bench:spdk"
_BLOCK_BYTES = 512
_MEMORY_MIB = 1536
_QUEUE = 256
"""Large enough that no I/O of the deepest load waits in perf itself."""


@contextlib.contextmanager
def _target(
    binary: str, place: Place, port: int, subsystems: Sequence[Mapping[str, object]], *, polls: bool
) -> Generator[int]:
    """A target of `binary` with a memory volume `m0`, configured before it starts."""
    path = _built(binary)
    memory = {
        "subsystem": "bdev",
        "config": [_call("bdev_malloc_create", name="m0", num_blocks=VOLUME_BYTES // _BLOCK_BYTES, block_size=512)],
    }
    config, log = place.folder / f"{binary}.json", place.folder / f"{binary}.log"
    config.write_text(json.dumps({"subsystems": [memory, *subsystems]}))
    command = [
        path, "-m", f"[{place.target_cpu}]", "-s", str(_MEMORY_MIB), "--iova-mode", "va", "-c", config,
        "-r", place.folder / f"{binary}.sock", *([] if polls else ["--interrupt-mode"]),
    ]  # fmt: skip
    _require_huge_pages()
    with running(command, cpu=place.target_cpu, log=log) as process:
        wait_for_port(process, port, log, 60.0)
        yield process.pid


def _built(name: str) -> Path:
    path = peer("IOTAX_BENCH_SPDK", "SPDK") / "bin" / name
    if not path.exists():
        raise UnavailableError(f"{path} is not there")
    return path


def _require_huge_pages() -> None:
    """Without huge pages SPDK reports only that its environment does not start."""
    free = free_huge_mib(Path("/proc/meminfo").read_text())
    if free < _MEMORY_MIB:
        raise FailedError(
            f"SPDK takes {_MEMORY_MIB} MiB of huge pages, {free} MiB are free:"
            " echo 2200 > /proc/sys/vm/nr_hugepages, and mount hugetlbfs at /dev/hugepages"
        )


def free_huge_mib(meminfo: str) -> int:
    """Free huge pages in MiB, from /proc/meminfo."""
    told = dict(re.findall(r"^(HugePages_Free|Hugepagesize):\s*(\d+)", meminfo, re.MULTILINE))
    return int(told.get("HugePages_Free", 0)) * int(told.get("Hugepagesize", 0)) >> 10


def _call(method: str, **parameters: object) -> dict[str, object]:
    return {"method": method, "params": parameters}


def _listen(host: str, port: int) -> dict[str, str]:
    return {"trtype": "TCP", "adrfam": "IPv4", "traddr": host, "trsvcid": str(port)}


@dataclass(frozen=True)
class SpdkNvmf:
    """nvmf_tgt, which polls; with `polls` false it sleeps."""

    polls: bool = True

    @property
    def name(self) -> str:
        return "SPDK nvmf_tgt" + ("" if self.polls else ", interrupt mode,")

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        port = free_port()
        nvmf = {
            "subsystem": "nvmf",
            "config": [
                _call("nvmf_create_transport", trtype="TCP"),
                _call("nvmf_create_subsystem", nqn=_NQN, allow_any_host=True),
                _call("nvmf_subsystem_add_ns", nqn=_NQN, namespace={"bdev_name": "m0", "nsid": 1}),
                _call("nvmf_subsystem_add_listener", nqn=_NQN, listen_address=_listen("127.0.0.1", port)),
            ],
        }
        with _target("nvmf_tgt", place, port, [nvmf], polls=self.polls) as pid, parked(pid) as awake:
            yield Reached(f"nvme-tcp://127.0.0.1:{port}/{_NQN}?ns=1", pid, awake)


@dataclass(frozen=True)
class SpdkIscsi:
    """iscsi_tgt, which polls."""

    name: str = "SPDK iscsi_tgt"

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        port = free_port()
        portals = [{"host": "127.0.0.1", "port": str(port)}]
        config = [
            _call("iscsi_create_portal_group", tag=1, portals=portals),
            _call("iscsi_create_initiator_group", tag=2, initiators=["ANY"], netmasks=["ANY"]),
            _call(
                "iscsi_create_target_node",
                name=_IQN,
                alias_name="bench",
                pg_ig_maps=[{"pg_tag": 1, "ig_tag": 2}],
                luns=[{"lun_id": 0, "bdev_name": "m0"}],
                queue_depth=128,
                disable_chap=True,
            ),
        ]
        iscsi = {"subsystem": "iscsi", "config": config}
        with _target("iscsi_tgt", place, port, [iscsi], polls=True) as pid, parked(pid) as awake:
            yield Reached(f"iscsi://127.0.0.1:{port}/{_IQN}/0", pid, awake)


@dataclass(frozen=True)
class SpdkPerf:
    """spdk_nvme_perf, which polls."""

    name: str = "perf"

    def find(self) -> Path:
        return _built("spdk_nvme_perf")

    def measure(self, program: Path, reached: Reached, place: Place, load: Load, timing: Timing) -> Sample:
        log = place.folder / "spdk_nvme_perf.log"
        log.unlink(missing_ok=True)
        mode = ["-w", load.fio_rw, *(["-M", "50"] if load.direction == "mixed" else [])]
        command = [
            # Line-buffered output, because its first line starts the measured window.
            "stdbuf", "--output=L", program, "-q", str(load.depth), "-o", str(load.block_bytes), *mode,
            "-t", str(round(timing.window_s + 0.5)), "-a", str(max(1, round(timing.warmup_s))), "-L",
            "-c", f"[{place.initiator_cpu}]", "-s", str(_MEMORY_MIB), "--iova-mode", "va",
            "--io-queue-size", str(_QUEUE), "-r", transport_id(reached.endpoint),
        ]  # fmt: skip
        _require_huge_pages()
        with running(command, cpu=place.initiator_cpu, log=log) as process:
            begun = r"Initialization complete"
            wait_until(lambda: begun in log.read_text(errors="replace"), process, log, "perf did not begin", 60.0)
            usage = measure_window(process.pid, reached.pid, timing)
            wait_for_end(process, "perf", timing.window_s + 60)
        return Sample(parse_perf(log.read_text(errors="replace")), usage)


def transport_id(endpoint: str) -> str:
    """`nvme-tcp://HOST:PORT/NQN?ns=1` in SPDK's format."""
    url = urlsplit(endpoint)
    if url.hostname is None or url.port is None:
        raise ValueError(f"{endpoint}: not an address and a port")
    address = " ".join(f"{name}:{value}" for name, value in _listen(url.hostname, url.port).items())
    return f"{address} subnqn:{url.path.removeprefix('/')}"


def parse_perf(text: str) -> Figures:
    """The total line of spdk_nvme_perf and, with -L, its latency summary."""
    total = re.search(r"^Total\s*:\s*([\d.]+)", text, re.MULTILINE)
    if total is None:
        raise FailedError(f"spdk_nvme_perf told no rate: {text.strip()[-200:]}")
    percentile = {
        name: float(value) for name, value in re.findall(r"^\s*([\d.]+)%\s*:\s*([\d.]+)us", text, re.MULTILINE)
    }
    return Figures(float(total[1]), percentile.get("50.00000"), percentile.get("99.00000"))
