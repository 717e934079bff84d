"""CPU of a machine in short slices, compared with the kernel's own account of task run time, and with instructions that
QEMU counts: those of processes, kernel threads and interrupts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from iotax.cli.app import app
from iotax.labs.hosts.measure import Job, Schedule, Turn, measure
from iotax.labs.turns import Seen
from iotax.labs.vm.guests import Guest, Guests
from iotax.labs.vm.image import build
from iotax.notebook import Notebook
from iotax.places.guest import ENGINE
from iotax.places.waiting import wait_for
from iotax.trial import TrialResult

from .needed import require

pytestmark = pytest.mark.long

MS = 1_000_000
SLICES = 24
OFF_CORES = 0.03
"""On a busier machine, less of the load runs while the clocks are read."""
NS_PER_INSTRUCTION = 4
STUDY = """\
name: rates
question: What do a kernel's paths spend at a known rate?
lab: {{vm: {{guests: 1, clock: icount{profile}}}}}
topology: {{kernel: "{kernel}"}}
volume: {{size: 16MiB}}
factors: {{protocol: [nvme-tcp, nfs3], rate_iops: [100, 500, 1500]}}
load: {{read: 75%, outstanding: 64{window}}}
design: {{{design}, seed: 1}}
baseline: {{protocol: nvme-tcp, rate_iops: 100}}
"""
BURN = """
exec >/dev/null 2>&1 </dev/null
[ -p /tmp/never ] || mkfifo /tmp/never
exec 9<>/tmp/never
while [ -e /tmp/burn ]; do
    step=0
    while [ "$step" -lt {steps} ]; do step=$((step + 1)); done
    read -t 0.05 -r nothing <&9
done
"""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    engine = require()
    image = build(engine, lambda _: None)
    # The guest's clock counts its instructions, so other work on this machine does not affect it.
    guests = Guests(image, accelerator="tcg", clock="icount", volume_bytes=16 << 20)
    yield guests["initiator"]
    guests.close()


def tasks(guest: Guest) -> tuple[float, float]:
    """Uptime, and the time that tasks ran on all processors until then, both in seconds. Interrupts during idle time
    are not counted as task time."""
    uptime, *rows = guest.run("cat /proc/uptime /proc/schedstat")
    spent_ns = sum(int(row.split()[7]) for row in rows if row.startswith("cpu"))
    return float(uptime.split()[0]), spent_ns / 1e9


def slices_of(guest: Guest, slices: int) -> Seen:
    turns = Turn({}, [[None] * slices])
    [answer] = wait_for(
        measure(
            [Job(guest.port, ENGINE, turns=turns)],
            warmup_ns=10 * MS,
            runtime_ns=250 * MS,
            sample_ns=250 * MS,
            schedule=Schedule(slices, 0, 10 * MS, 1),
        )
    )
    return Seen.of(answer.observed, [None] * slices)


def busy_and_burned(guest: Guest, steps: int | None) -> tuple[float, float]:
    """Busy cores while `steps` burn CPU, from the slices and from the scheduler. None burns nothing."""
    if steps is not None:
        guest.run(f"touch /tmp/burn; ({BURN.format(steps=steps)}) & :")
    try:
        # Starting and ending take the same time in both measurements, so the difference leaves them out.
        marks = [tasks(guest)]
        for slices in (SLICES // 4, SLICES):
            seen = slices_of(guest, slices)
            marks.append(tasks(guest))
    finally:
        guest.run("rm -f /tmp/burn; sleep 0.3")
    assert seen.is_exact
    assert len(seen.busy_ns) >= SLICES // 2
    first, last = ((at - before_at, spent - before) for (before_at, before), (at, spent) in itertools.pairwise(marks))
    return seen.idle_cores, (last[1] - first[1]) / (last[0] - first[0])


def test_short_slices_find_what_tasks_burn_from_little_to_most_of_a_processor(guest: Guest) -> None:
    """Compares increases over idle, because the clock readings between slices use CPU too: the same without load."""
    idle_found, idle_burned = busy_and_burned(guest, None)
    for steps in (100, 400, 1600):
        found, burned = busy_and_burned(guest, steps)
        print(f"{steps} steps: {found - idle_found:.3f} cores in slices, {burned - idle_burned:.3f} by the scheduler")
        assert found - idle_found == pytest.approx(burned - idle_burned, abs=OFF_CORES)


def measured(folder: Path, text: str) -> dict[tuple[object, ...], TrialResult]:
    file, notebook = folder / "rates.yaml", folder / "rates.iotax"
    file.write_text(text)
    done = CliRunner().invoke(app, ["run", str(file), str(notebook), "--no-report"])
    assert done.exit_code == 0, done.output
    with Notebook(notebook) as opened:
        return {tuple(each.trial.treatment.values()): each.result for each in opened.attempts() if each.result}


@pytest.mark.parametrize("kernel", ["stock", "6.12"])
def test_short_slices_find_what_kernel_paths_spend_in_processes_threads_and_interrupts(
    tmp_path: Path, kernel: str
) -> None:
    """A load at a known rate is the burn; the truth is the number of instructions that QEMU counts in its windows."""
    for folder in (truth := tmp_path / "counted", found := tmp_path / "slices"):
        folder.mkdir()
    of = {"kernel": kernel}
    windows = {"profile": ", profile: true", "window": ", warmup: 250ms, runtime: 1s", "design": "replicates: 1"}
    slices = {"profile": "", "window": "", "design": "sessions: 1, rounds: 4, slice: 500ms, settle: 20ms"}
    counted = measured(truth, STUDY.format(**of, **windows))
    sliced = measured(found, STUDY.format(**of, **slices))
    assert counted.keys() == sliced.keys() and len(counted) == 6
    for treatment, whole in counted.items():
        instructions = sum(sum(layer.values()) for part in whole.profile for layer in part.layers.values())
        truth_cores = NS_PER_INSTRUCTION * instructions / whole.window.duration_ns
        [both] = [part for part in sliced[treatment].cpu if part.role == "both"]
        assert both.background_ns is not None
        cores = (both.busy_ns - both.background_ns) / sliced[treatment].window.duration_ns
        print(f"{kernel} {treatment}: {cores:.4f} cores in slices, {truth_cores:.4f} by instructions")
        assert cores == pytest.approx(truth_cores, abs=OFF_CORES)
