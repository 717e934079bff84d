"""The cases that are measured repeatedly, and the neighbour that disturbs them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass

PROTOCOLS = ("nfs3", "iscsi", "nvme-tcp")
"""One per run, in turns."""
LOOPBACK, SSH, KERNEL = "loopback", "ssh", "kernel"
"""Where a case runs: on this machine, between two hosts over SSH, over a kernel's paths in a virtual machine."""
RESPONSES = ("iops", "latency", "cpu")
DELAYS_US = (2000, 2100)
"""Both arms wait with the same timers, so only the difference of their delays distinguishes them."""


@dataclass(frozen=True)
class Hosts:
    """Two hosts by their names in the SSH configuration."""

    initiator: str
    target: str
    address: str
    """On which the target serves."""


@dataclass(frozen=True)
class Case:
    key: str
    title: str
    injected: str = ""
    """What the target adds: burn (CPU time) or delay."""
    neighbour: bool = False
    where: str = LOOPBACK


CASES = (
    Case("quiet", "no difference"),
    Case("disturbed", "no difference, beside an intermittent load", neighbour=True),
    Case("burn", "+5 % CPU per I/O injected into the target", injected="burn"),
    Case("delay", "+5 % latency injected into the target (2.1 ms for 2 ms)", injected="delay"),
    Case("ssh", "no difference, two hosts over SSH", where=SSH),
    Case("kernel", "no difference, a kernel's paths in a virtual machine, counted instructions", where=KERNEL),
)
SLICE_MS = {
    LOOPBACK: 50,
    # Clocks agree within 0.3 ms, and a slice has to be 200 times as long.
    SSH: 100,
    # The guest has one processor, so its clocks may be read later than a tenth of 50 ms, which costs the slice.
    KERNEL: 250,
}
"""A tenth of each slice goes before it, for settling."""

_STUDY = """\
name: {key}
question: Is what differs found, and nothing else?
{lab}volume: {{size: 64MiB}}
factors: {factors}
load: {{block_size: 4KiB, read: 75%, outstanding: 1}}
{connection}design: {{sessions: {sessions}, rounds: {rounds}, slice: {slice_ms}ms, settle: {settle_ms}ms, seed: {seed}}}
baseline: {baseline}
responses: [iops, latency, cpu_per_io]
"""

_NEIGHBOUR = """\
import random, time
chance = random.Random({seed})
while True:
    until = time.monotonic() + chance.uniform(0.02, 0.5)
    while time.monotonic() < until:
        pass
    time.sleep(chance.uniform(0.1, 1.5))
"""
"""Keeps a processor busy for about a quarter of the time."""


def study_text(case: Case, number: int, *, burn_ns: int, sessions: int, rounds: int, hosts: Hosts | None = None) -> str:
    """The study of run `number`; each has its own order. A case over SSH needs `hosts`."""
    protocol = PROTOCOLS[number % len(PROTOCOLS)]
    connection = f"connection: {{protocol: {protocol}}}\n"
    if case.injected == "burn":
        factors, baseline = f"{{burn: [0us, {burn_ns}ns]}}", "{burn: 0us}"
    elif case.injected == "delay":
        less, more = DELAYS_US
        factors, baseline = f"{{delay: [{less}us, {more}us]}}", f"{{delay: {less}us}}"
    else:
        factors, baseline, connection = f"{{protocol: {{A: {protocol}, B: {protocol}}}}}", "{protocol: A}", ""
    return _STUDY.format(
        key=case.key,
        lab=_lab(case, hosts),
        slice_ms=SLICE_MS[case.where],
        settle_ms=SLICE_MS[case.where] // 10,
        factors=factors,
        baseline=baseline,
        connection=connection,
        sessions=sessions,
        rounds=rounds,
        seed=number + 1,
    )


def _lab(case: Case, hosts: Hosts | None) -> str:
    if case.where == KERNEL:
        return "lab: {vm: {guests: 1, clock: icount}}\n"
    if case.where == SSH:
        assert hosts is not None, "a case over SSH names its hosts"
        served = f"{{name: {hosts.target}, data_address: {hosts.address}}}"
        return f"lab: {{hosts: {{initiators: [{hosts.initiator}], targets: [{served}]}}}}\n"
    return ""


@contextlib.contextmanager
def neighbour(case: Case) -> Generator[None]:
    """If the case requires it, two processes that start and stop work at random times."""
    busy = [
        subprocess.Popen([sys.executable, "-c", _NEIGHBOUR.format(seed=seed)])
        for seed in ((1, 2) if case.neighbour else ())
    ]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()
