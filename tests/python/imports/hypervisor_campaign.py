"""A campaign of fio in a hypervisor's guest, recorded by esxtop and sar, with known costs per I/O."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from import_samples import fio_file, fio_job, fio_side

START_S = 1_700_000_000  # 2023-11-14 22:13:20 UTC
RUN_S, GAP_S = 40, 30
RATES = (1000, 2500, 4000)
REPLICATES = 3
HYPERVISOR_US = {"fc": 41.0, "nfs": 81.0}
GUEST_US = 20.0
BACKGROUND_CORES, GUEST_BACKGROUND_CORES = 0.30, 0.05
PROCESSORS, GUEST_PROCESSORS = 8, 2
_WOBBLE = (1.0, 1.004, 0.997, 1.002, 0.996, 1.001)
"""Small scatter between runs."""


def campaign(folder: Path) -> dict[str, Path]:
    """Writes the campaign, and returns its files by role; `runs` is the folder of the runs. Runs take 40 s, with 30 s
    between them."""
    folder.mkdir(exist_ok=True)
    busy: list[tuple[int, float, float]] = []
    """(start, hypervisor's cores, guest's cores) of each run, without background."""
    begin_s, count = START_S + GAP_S, 0
    for replicate in range(1, REPLICATES + 1):
        for rate in RATES:
            for protocol, us in HYPERVISOR_US.items():
                wobble = _WOBBLE[(count + 2 * replicate) % len(_WOBBLE)]
                count += 1
                side = fio_side(rate * RUN_S, runtime_ms=1000 * RUN_S)
                job = fio_job(options={"rate_iops": str(rate)}, read=side, job_runtime=1000 * RUN_S)
                fio_file(folder / f"{protocol}-{rate}-r{replicate}.json", job, timestamp_ms=1000 * (begin_s + RUN_S))
                busy.append((begin_s, rate * us * wobble * 1e-6, rate * GUEST_US * wobble * 1e-6))
                begin_s += RUN_S + GAP_S
    seconds = range(START_S, begin_s)

    def cores(at_s: int, which: int, background: float) -> float:
        return background + next((run[which] for run in busy if run[0] < at_s <= run[0] + RUN_S), 0.0)

    def guest(at_s: int) -> float:
        return cores(at_s, 2, GUEST_BACKGROUND_CORES)

    of_guest = sar(folder.parent / "guest.json", seconds, guest)
    return {
        "runs": folder,
        "hypervisor": esxtop(
            folder.parent / "esxtop.csv", seconds, lambda at_s: cores(at_s, 1, BACKGROUND_CORES) + guest(at_s)
        ),
        "guest": of_guest,
        "initiator": of_guest,
    }


def clock(at_s: int) -> tuple[str, str]:
    whole = at_s - START_S + 22 * 3600 + 13 * 60 + 20
    assert whole < 24 * 3600
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}", "2023-11-14"


def sar(path: Path, seconds: range, cores: Callable[[int], float]) -> Path:
    statistics = []
    for at_s in seconds:
        time, date = clock(at_s)
        busy = 100 * cores(at_s) / GUEST_PROCESSORS
        load = {"cpu": "all", "user": busy / 2, "system": busy / 2, "iowait": 1.0, "steal": 2.0, "idle": 97.0 - busy}
        statistics.append({"timestamp": {"date": date, "time": time, "utc": 1, "interval": 1}, "cpu-load": [load]})
    host = {"nodename": "vm1", "number-of-cpus": GUEST_PROCESSORS, "statistics": statistics}
    path.write_text(json.dumps({"sysstat": {"hosts": [host]}}))
    return path


def esxtop(path: Path, seconds: range, cores: Callable[[int], float]) -> Path:
    """Rows every 5 s, each the mean of the preceding 5 s."""
    names = ["(PDH-CSV 4.0) (UTC)(0)", *(rf"\\esx1\Physical Cpu({at})\% Util Time" for at in range(PROCESSORS)),
             r"\\esx1\Physical Cpu(_Total)\% Util Time"]  # fmt: skip
    rows = [names]
    for at_s in seconds[::5]:
        time, _ = clock(at_s)
        share = 100 * sum(cores(each) for each in range(at_s - 4, at_s + 1)) / 5 / PROCESSORS
        rows.append([f"11/14/2023 {time}", *["0.0"] * PROCESSORS, f"{share:.4f}"])
    path.write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\n")
    return path
