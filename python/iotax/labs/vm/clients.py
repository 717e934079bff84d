"""The load of several initiator guests: all receive one start, as hosts do, each in its own clock. The clocks of guests
that count their instructions run apart, each as fast as the host lets its processor work: their starts are compared by
this machine's clock just before, and each guest's pace is kept with its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from iotax.labs.base import Progress, TrialFailed
from iotax.labs.hosts.intervals import Intervals
from iotax.labs.hosts.measure import Answer, Job, measure
from iotax.labs.hosts.merge import HostSeries, Part, merged
from iotax.labs.load import of_client, run_document
from iotax.labs.outcomes import malformed
from iotax.labs.vm import datastore
from iotax.labs.vm.counters import (
    HypervisorClocks,
    LoadCost,
    Reading,
    hypervisor_part,
    load_parts,
    target_part,
    with_cpu,
)
from iotax.labs.vm.guests import Guest
from iotax.places.guest import ENGINE
from iotax.places.waiting import wait_for
from iotax.records import CpuUse
from iotax.study import Settings
from iotax.trial import Connected, TrialResult


@dataclass(frozen=True)
class Client:
    """One initiator guest."""

    guest: Guest
    path: str
    """Path of the volume in the guest."""
    idle_cores: float
    """Background of the guest and its hypervisor."""
    idle_hypervisor_cores: float
    daemon: int | None = None
    """The process there that serves it a virtual disk, if there is one."""


@dataclass(frozen=True)
class Run:
    """A trial's load."""

    clients: Sequence[Client]
    storage: Guest
    idle_storage_cores: float
    cpus: int
    """Processors of each guest."""

    def measure(
        self, settings: Settings, *, seed: int, sample_ns: int, progress: Progress
    ) -> tuple[TrialResult, Connected]:
        """Raises TrialFailed, EngineError."""
        load, ports = settings.load, [client.guest.port for client in self.clients]
        documents = [
            document(settings, client.path, number, sharing=len(self.clients), seed=seed, daemon=client.daemon)
            for number, client in enumerate(self.clients)
        ]
        jobs = [Job(port, ENGINE, asked) for port, asked in zip(ports, documents, strict=True)]
        # A guest counts as a whole for its initiator; the hypervisor's clocks are read at both ends only.
        names = [port.name for port in ports]
        observed = [HostSeries(name, (), {"initiator": "machine"}, virtual=True) for name in names]
        hear = Intervals(names, observed, progress).hear
        moved, target, hypervisors = self._bytes(), self._target(), self._hypervisors()
        answers = wait_for(measure(jobs, hear, warmup_ns=load.warmup, runtime_ns=load.runtime, sample_ns=sample_ns))
        later, target_later, moved = self._hypervisors(), self._target(), self._bytes() - moved
        try:
            parts = [_part(client, answer) for client, answer in zip(self.clients, answers, strict=True)]
            connected = Connected.model_validate(answers[0].connected)
        except ValidationError as error:
            raise TrialFailed(malformed(error)) from error
        if silent := [part.host for part in parts if not part.result.ios and not part.result.idle]:
            raise TrialFailed(f"no I/O completed within the measured window of {', '.join(silent)}")
        result = merged(parts, CpuUse([]))
        cpu = [
            each
            for client, part in zip(self.clients, parts, strict=True)
            for each in load_parts(
                part.result, host=f"{part.host} guest", processors=self.cpus, idle_cores=client.idle_cores
            )
        ]
        target_ns = LoadCost(target, target_later, moved).cpu_ns(result.moved_bytes, self.idle_storage_cores)
        if target_ns is not None:
            cpu.append(target_part(target_ns, result.window.duration_ns, self.cpus))
        for client, before, after in zip(self.clients, hypervisors, later, strict=True):
            spent_ns = LoadCost(before, after, moved).cpu_ns(result.moved_bytes, client.idle_hypervisor_cores)
            if spent_ns is not None:
                cpu.append(hypervisor_part(spent_ns))
        return with_cpu(result, cpu), connected

    def _bytes(self) -> int:
        """Bytes that all initiators' kernels have read and written so far."""
        return sum(client.guest.bytes(client.path) for client in self.clients)

    def _target(self) -> Reading:
        return Reading.parse(self.storage.counters(), self.cpus)

    def _hypervisors(self) -> list[HypervisorClocks]:
        return [client.guest.hypervisor() for client in self.clients]


def document(
    settings: Settings, path: str, number: int, *, sharing: int, seed: int, daemon: int | None = None
) -> dict[str, object]:
    """The engine's `run` task of one of so many clients: on its part of the volume that they share, or on its own."""
    endpoint = f"local:{path}"
    watched = datastore.watched(daemon)
    asked = run_document(settings, endpoint, seed=seed, driver="auto", cpus=[], watch_pids=watched)
    # The storage is the lab's own.
    asked |= {"options": {}, "destroy": endpoint}
    return of_client(asked, settings, number, sharing=sharing if settings.volumes == 1 else 1)


def _part(client: Client, answer: Answer) -> Part:
    return Part(client.guest.name, answer.offset, TrialResult.model_validate(answer.result), answer.pace)
