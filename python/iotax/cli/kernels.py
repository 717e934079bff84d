"""The cost of the Linux kernel's stacks, printed after a study of iotax's own stacks so that readers can judge how far
it applies."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from iotax.analysis import Summary, summarise
from iotax.analysis.estimate import Estimate
from iotax.analysis.withheld import carriers_of, described
from iotax.cli.console import console
from iotax.cli.loading import load
from iotax.collected import study_data
from iotax.design import plan
from iotax.labs.vm.qemu import PROGRAM
from iotax.notebook import Notebook, NotebookError
from iotax.outputs import OUT
from iotax.study import Study
from iotax.units import show_minutes
from iotax.wording import title

_EXACT = "kernel-exact"
_INSTRUCTIONS_PER_US = 250
"""The exact clock counts 4 ns for each instruction."""


def print_kernels(study: Study) -> None:
    """Prints the table after a study that compared user-space stacks of this machine by CPU per I/O."""
    protocols = [each.protocol for each in study.endpoints().values() if each.embedded and each.protocol != "local"]
    if len(set(protocols)) < 2 or "cpu_per_io" not in study.responses or study.lab.name != "loopback":
        return
    out = console()
    path = OUT / f"{_EXACT}.iotax"
    if (found := _measured(path)) is None:
        out.print(escape(_how_to_measure()), soft_wrap=True, highlight=False)
        return
    summary, day = found
    out.print(_table(summary))
    out.print(
        escape(
            f"The Linux kernel's own stacks: thousands of instructions per I/O with 95 % confidence intervals, "
            f"initiator and target together, over {' and '.join(summary.grid.conditions)} "
            f"(study {_EXACT}, {day}, {path}). {_emulated(summary)}".rstrip()
        ),
        style="dim",
        soft_wrap=True,
        highlight=False,
    )


def _measured(path: Path) -> tuple[Summary, str] | None:
    """The latest complete run of the exact study, and its date."""
    if not path.is_file():
        return None
    try:
        with Notebook(path) as notebook:
            run = notebook.run()
            data = study_data(notebook, run.id)
            if notebook.left(run.id) or not data.runs or data.study.name != _EXACT:
                return None
            return summarise(data), f"{datetime.fromtimestamp(run.started_unix_ns / 1e9).astimezone():%Y-%m-%d}"
    except NotebookError:
        return None


def _table(summary: Summary) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("kernel")
    for condition in summary.grid.conditions:
        table.add_column(condition, justify="right")
    by_arm: dict[str, dict[str, str]] = {}
    for cell in summary.cells:
        cpu = cell.values.get("cpu")
        by_arm.setdefault(cell.arm, {})[cell.condition] = "–" if cpu is None else _thousands(cpu)
    for arm, shown in by_arm.items():
        table.add_row(title(arm), *(shown.get(condition, "–") for condition in summary.grid.conditions))
    return table


def _thousands(cpu_us: Estimate) -> str:
    """Thousands of instructions, with the interval if there is one."""

    def shown(us: float) -> str:
        return f"{us * _INSTRUCTIONS_PER_US / 1e3:.1f}"

    if cpu_us.low is None or cpu_us.high is None:
        return shown(cpu_us.value)
    return escape(f"{shown(cpu_us.value)} [{shown(cpu_us.low)}, {shown(cpu_us.high)}]")


def _emulated(summary: Summary) -> str:
    """What emulates hardware here, whose cost is part of the figures."""
    grid, runs = summary.grid, summary.data.measured
    carriers = carriers_of([grid.cell(run.trial) for run in runs], runs)
    by_arm = {grid.arm(cell): carrier for cell, carrier in carriers.items() if carrier.emulated}
    said = [f"{title(arm)} runs here over {described(carrier)}" for arm, carrier in by_arm.items()]
    return f"{'; '.join(said)}: that cost is in these figures." if said else ""


def _how_to_measure() -> str:
    study, _ = load(_EXACT)
    takes = show_minutes(plan(study).duration_ns / 1e9)
    needs = "" if shutil.which(PROGRAM) else "; it needs QEMU (Debian: qemu-system-x86)"
    return (
        f"These are stacks in user space. `iotax run {_EXACT}` measures the Linux kernel's own, in instructions per "
        f"I/O: about {takes}, in virtual machines, no root needed{needs}."
    )
