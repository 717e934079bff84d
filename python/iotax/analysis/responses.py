"""What is compared: a number for each run, its unit, and which way is good."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from iotax.analysis import histogram
from iotax.trial import Cpu, Trial, TrialResult

MIB = 1 << 20


@dataclass(frozen=True)
class Run:
    """A trial that was measured: the unit of observation."""

    trial: Trial
    result: TrialResult

    @cached_property
    def latency(self) -> histogram.Histogram:
        """Reads and writes together."""
        return histogram.of(self.result.read.histogram, self.result.write.histogram)

    @property
    def local(self) -> bool:
        return self.result.endpoint.startswith("local:")

    @property
    def duration_s(self) -> float:
        return self.result.window.duration_ns / 1e9

    @property
    def total_outstanding(self) -> int:
        return self.result.outstanding.workers * self.result.outstanding.per_worker


@dataclass(frozen=True)
class Response:
    key: str
    title: str
    unit: str
    more_is_better: bool
    of: Callable[[Run], float | None]
    """None where it was not measured or does not exist."""

    @property
    def short(self) -> str:
        """The title without what it is the sum of."""
        return self.title.partition(",")[0]


def _latency_us(percent: float) -> Callable[[Run], float | None]:
    """None where a run has too few I/Os to carry the percentile."""
    enough = histogram.smallest_count(percent)
    return lambda run: run.latency.percentile_ns(percent) / 1e3 if run.latency.total >= enough else None


def _latency_mean_us(run: Run) -> float | None:
    return run.result.latency_mean_ns / 1e3 if run.result.ios else None


def _process_us(run: Run, cpu: Cpu | None) -> float | None:
    return cpu.total_ns / 1e3 / run.result.ios if cpu and run.result.ios else None


def _initiator_us(run: Run) -> float | None:
    return _process_us(run, run.result.cpu.initiator)


def _target_us(run: Run) -> float | None:
    return None if run.local else _process_us(run, run.result.cpu.target)


def _hypervisor_us(run: Run) -> float | None:
    return _process_us(run, run.result.cpu.hypervisor)


def _both_us(run: Run) -> float | None:
    """Initiator and target together. A local run has no target; a target elsewhere was not measured."""
    initiator, target = _initiator_us(run), _target_us(run)
    if initiator is None or (target is None and not run.local):
        return None
    return initiator + (target or 0.0)


def _machine_us(run: Run) -> float | None:
    machine = run.result.cpu.machine
    return machine.busy_ns / 1e3 / run.result.ios if machine and run.result.ios else None


IOPS = Response("iops", "Throughput", "IOPS", True, lambda run: run.result.rate_iops or None)
LATENCY = Response("latency", "Mean latency", "µs", False, _latency_mean_us)
P50 = Response("latency_p50", "Median latency", "µs", False, _latency_us(50))
P99 = Response("latency_p99", "p99 latency", "µs", False, _latency_us(99))
P999 = Response("latency_p999", "p99.9 latency", "µs", False, _latency_us(99.9))
BANDWIDTH = Response("bandwidth", "Bandwidth", "MiB/s", True, lambda run: run.result.rate_bytes_per_s / MIB or None)
CPU = Response("cpu", "CPU per I/O, initiator + target", "µs", False, _both_us)
CPU_INITIATOR = Response("cpu_initiator", "CPU per I/O, initiator", "µs", False, _initiator_us)
CPU_TARGET = Response("cpu_target", "CPU per I/O, target", "µs", False, _target_us)
CPU_HYPERVISOR = Response("cpu_hypervisor", "CPU per I/O, initiator's hypervisor", "µs", False, _hypervisor_us)
CPU_MACHINE = Response("cpu_machine", "CPU per I/O, whole machine", "µs", False, _machine_us)

RESPONSES = (IOPS, BANDWIDTH, LATENCY, P50, P99, P999, CPU, CPU_INITIATOR, CPU_TARGET, CPU_HYPERVISOR, CPU_MACHINE)

ASKED = {"iops": IOPS, "latency": LATENCY, "cpu_per_io": CPU}
"""A study's word for a response → the response that answers it."""
