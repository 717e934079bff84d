"""A session on hosts: combines each trial's clients slice by slice, with the CPU of their machines and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iotax.labs.base import TrialFailed
from iotax.labs.hosts.measure import Answer
from iotax.labs.hosts.merge import Part, initiator_cpu, merged, worker_cpu, worker_said
from iotax.labs.turns import Seen, Session
from iotax.records import CpuTime, CpuUse
from iotax.records.cpu import TICK_NS, Role
from iotax.trial import Connected, Slice, TrialResult


@dataclass(frozen=True)
class Told:
    """What is known of a trial beforehand."""

    kernel: bool
    """The hosts' kernels make its path."""
    threads: int
    """Threads of a client's load."""
    server_threads: int | None
    """Threads of our own server on the first target; None if the server is not ours."""


@dataclass(frozen=True)
class Client:
    """A host that loaded, in the slices that count."""

    answer: Answer
    result: TrialResult
    seen: Seen
    """Its machine, by the station there that reads it most exactly."""

    @property
    def slices(self) -> Mapping[int, Slice]:
        """Slices by place."""
        return {each.place: each for each in self.result.slices}

    @property
    def began_ns(self) -> int:
        """Start of its session, by our clock."""
        first = self.result.slices[0]
        return self.result.window.start_unix_ns - self.answer.offset.ahead_ns - first.start_ns

    @property
    def whole(self) -> TrialResult:
        """Its result, with the machine's CPU time of all its slices as it was read most exactly."""
        own = [each for each in self.result.slices if each.place in self.seen.busy_ns]
        over_ns = sum(each.duration_ns for each in own)
        busy_ns = sum(self.seen.busy_ns[each.place] for each in own)
        read = {
            "busy_ns": round(busy_ns * self.result.window.duration_ns / over_ns) if over_ns else 0,
            "resolution_ns": _resolution_ns(self.seen, len(own)),
        }
        parts = [part.model_copy(update=read) if part.layer == "machine" else part for part in self.result.cpu]
        return self.result.model_copy(update={"cpu": CpuUse(parts)})


class HostSession:
    """One that went well. `targets` are the names of the hosts that are observed as targets, the serving one first."""

    def __init__(self, session: Session, answers: Sequence[Answer], targets: Sequence[str]) -> None:
        self._session, self._answers = session, answers
        self._seen = [Seen.of(answer.observed, session.order) for answer in answers]
        by_host = {answer.host: index for index, answer in enumerate(answers)}
        self._targets = [(answers[by_host[name]], self._seen[by_host[name]]) for name in targets]

    def trial(self, name: str, told: Told) -> tuple[TrialResult, Connected, list[str]]:
        """The results, and lines for the log. Raises TrialFailed, ValidationError."""
        clients = self._clients(name)
        places = self._places(clients)
        missed = self._session.missed(name, len(places))
        if silent := [each.answer.host for each in clients if not each.result.ios and not each.result.idle]:
            raise TrialFailed(f"no I/O completed within the slices of {name} on {', '.join(silent)}")
        cpu: list[CpuTime] = []
        for each in clients:
            result, window_ns = each.whole, each.result.window.duration_ns
            idle_ns = round(each.seen.idle_cores * window_ns)
            cpu += initiator_cpu(each.answer.host, result, told.threads, idle_ns, kernel=told.kernel)
        slices = [self._slice(place, clients, told) for place in sorted(places)]
        # Clients also did I/O in slices that others missed, at the same cost for the target.
        in_slices = sum(each.ios for each in slices)
        scale = sum(each.result.ios for each in clients) / in_slices if in_slices else 1.0
        for index, (answer, seen) in enumerate(self._targets):
            threads = told.server_threads if index == 0 else None
            cpu += _target_parts(answer, seen, slices, scale, threads)
        parts = [Part(each.answer.host, each.answer.offset, each.result) for each in clients]
        result = merged(parts, CpuUse(cpu))
        starts_ns = [each.began_ns + each.slices[min(places)].start_ns for each in clients]
        first_ns = min(starts_ns)
        each_of = zip(result.clients, starts_ns, strict=True)
        result = result.model_copy(
            update={
                "slices": tuple(slices),
                "checks": result.checks.model_copy(update={"start_skew_ns": max(starts_ns) - first_ns}),
                # Other treatments run between slices, so a session's clients are compared slice by slice.
                "clients": tuple(
                    client.model_copy(update={"started_after_ns": start_ns - first_ns, "intervals": ()})
                    for client, start_ns in each_of
                ),
            }
        )
        connected = Connected.model_validate((clients[0].answer.connected or {})[name])
        connected = connected.told(connected.endpoint, self._session.facts(self._answers))
        of = f"{missed} of {self._session.slices.rounds} slices"
        log = [f"{of} were too late on a host, and are left out"] if missed else []
        return result, connected, log + self._workers()

    def _workers(self) -> list[str]:
        """CPU over the session of the processes through which hosts are reached."""
        return [
            worker_said(worker_cpu(each.host, each.beside, each.observed["window"]["duration_ns"]))
            for each in self._answers
            if each.beside is not None
        ]

    def _clients(self, name: str) -> list[Client]:
        found = []
        for station, answer, seen in zip(self._session.stations, self._answers, self._seen, strict=True):
            if name in station.loads:
                result = TrialResult.model_validate((answer.result or {})[name])
                found.append(Client(answer, result, seen if seen.is_exact else self._exact_on(answer.host, seen)))
        return found

    def _exact_on(self, host: str, seen: Seen) -> Seen:
        """Read by another engine there, which may have access that this one lacks."""
        stations = zip(self._answers, self._seen, strict=True)
        return next((each for answer, each in stations if answer.host == host and each.is_exact), seen)

    def _places(self, clients: Sequence[Client]) -> set[int]:
        """Slices that every client loaded, and every machine was read over."""
        found = set(clients[0].slices)
        for each in clients:
            found &= set(each.slices) & set(each.seen.busy_ns)
        for _, seen in self._targets:
            found &= set(seen.busy_ns)
        return found

    def _slice(self, place: int, clients: Sequence[Client], told: Told) -> Slice:
        parts = [each.slices[place] for each in clients]
        alone, first = len(parts) == 1, parts[0]
        outstanding = [each.mean_outstanding for each in parts if each.mean_outstanding is not None]
        counts = ("ios", "bytes", "latency_sum_ns", "initiator_cpu_ns", "run_queue_wait_ns")
        return first.model_copy(
            update={
                **{name: sum(getattr(each, name) for each in parts) for name in counts},
                "latency_p50_ns": first.latency_p50_ns if alone else None,
                "latency_p99_ns": first.latency_p99_ns if alone else None,
                "mean_outstanding": sum(outstanding) if len(outstanding) == len(parts) else None,
                "cpu_window_ns": max(each.cpu_window_ns for each in parts),
                "machine_busy_ns": sum(each.seen.busy_ns[place] for each in clients),
                "target_cpu_ns": self._target_ns(place, first.duration_ns, told),
            }
        )

    def _target_ns(self, place: int, duration_ns: int, told: Told) -> int | None:
        """None if it is not observed, or if a slice is too short for its machine's clock."""
        if not self._targets:
            return None
        if told.server_threads is not None:
            return self._targets[0][1].watched_ns[place].get(SERVER)
        if not all(seen.is_exact for _, seen in self._targets):
            return None
        return max(0, sum(seen.net_ns(place, duration_ns) for _, seen in self._targets))


SERVER = "target"
"""Among the processes that are watched."""


def _target_parts(
    answer: Answer, seen: Seen, slices: Sequence[Slice], scale: float, server_threads: int | None
) -> list[CpuTime]:
    """A target's machine and, if it is ours, its server: in these slices, times `scale`."""
    window_ns = round(scale * sum(each.duration_ns for each in slices))
    processors = len(answer.observed["machine"]["cores"]) or None
    role: Role = "target" if server_threads is None else "other"

    def part(role: Role, layer: str, busy_ns: int, **more: int | None) -> CpuTime:
        known = {"host": answer.host, "role": role, "layer": layer, "busy_ns": round(busy_ns * scale)}
        return CpuTime.model_validate(known | {"window_ns": window_ns} | more)

    machine = part(
        role,
        "machine",
        sum(seen.busy_ns[each.place] for each in slices),
        background_ns=round(seen.idle_cores * window_ns),
        processors=processors,
        resolution_ns=_resolution_ns(seen, len(slices)),
    )
    if server_threads is None:
        return [machine]
    busy_ns = sum(seen.watched_ns[each.place].get(SERVER, 0) for each in slices)
    return [machine, part("target", "process", busy_ns, processors=min(server_threads, processors or server_threads))]


def _resolution_ns(seen: Seen, slices: int) -> int:
    """Each slice has two ends."""
    return 0 if seen.is_exact else TICK_NS * slices
