"""The records of a measurement: a trial, what was measured in it, and each attempt at it.

These are the words that the lab, the runner, the notebook and the analysis share. `TrialResult` mirrors the engine's
`result` line (docs/reference/engine.md); fields that this version does not know are ignored. Times are in
nanoseconds, sizes in bytes, and names say so.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from operator import lt
from typing import Any, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from iotax.records import (
    CPU_ROLES,
    CpuRole,
    CpuTime,
    CpuUse,
    Facts,
    Negotiated,
    NothingAgreed,
    Origin,
    Profile,
    Record,
    RoleCpu,
    cpu_of,
    understood,
)
from iotax.records.interruptions import Counts, Gaps, Happened
from iotax.units import counted

LevelValue: TypeAlias = bool | int | float | str
"""A factor's level as the analysis sees it: a label (protocol, driver), a count, bytes, percent or nanoseconds."""

Status: TypeAlias = Literal["running", "done", "failed", "interrupted", "abandoned"]
"""`running`: no ending written yet. `abandoned`: its process ended without a message (kill -9, power failure).
Only `done` has a result."""


class Trial(Record):
    """One run of one treatment, in one block, as one replicate."""

    id: str
    """Unique within the study and stable over runs: the levels' labels and the replicate, `iscsi/8/r2`."""
    study: str
    treatment: dict[str, LevelValue]
    """Factor → level, in the order of the study's factors."""
    block: int
    """From 1."""
    replicate: int
    """From 1. 0 is a run beside the comparison: a sentinel (of the baseline, to see drift), a probe of a search, or one
    that confirms what a search found; the id's last part says which."""
    order: int
    """Place in the run order of the whole study, from 1."""

    @property
    def compared(self) -> bool:
        """Whether it is one of the runs that answer the study's question."""
        return self.replicate > 0

    @property
    def levels(self) -> str:
        """The labels of its levels, as its id begins: "nfs3/8"."""
        return self.id.rpartition("/")[0]

    @property
    def role(self) -> str:
        """`replicate`, `sentinel`, `probe` or `confirm`."""
        return "replicate" if self.compared else self.id.rpartition("/")[2].partition(" ")[0]


class Histogram(Record):
    """Sparse bins; each value is the highest that its bin stands for (relative error below 10^-significant_digits)."""

    unit: Literal["ns"] = "ns"
    significant_digits: int = 3
    counts: list[tuple[int, int]] = Field(default=[])
    edges_ns: list[int] = Field(default=[])
    """Bounds of the bins of another program whose bins are wider than that: `counts` are spread evenly over each of
    them, and a percentile is known to lie between two of these only."""

    def between_ns(self, value_ns: float) -> tuple[int, int] | None:
        """The bounds of the bin that a value was spread over; None if values are as exact as they say."""
        at = bisect_left(self.edges_ns, value_ns)
        return (self.edges_ns[at - 1], self.edges_ns[at]) if 0 < at < len(self.edges_ns) else None

    @cached_property
    def cumulated(self) -> tuple[list[int], list[int]]:
        """The values in order, and for each how many do not exceed it. A study's every chart and sentence asks."""
        values = [value for value, _ in self.counts]
        if all(map(lt, values, values[1:])):
            return values, list(accumulate(count for _, count in self.counts))
        counts = merge_counts(self)
        return list(counts), list(accumulate(counts.values()))


class Latency(Record):
    """How long something took, over all I/Os of the window."""

    latency_sum_ns: int
    latency_min_ns: int
    latency_max_ns: int
    histogram: Histogram = Histogram()

    def mean_ns(self) -> float:
        """By the exact sum; nan where there were none."""
        count = sum(count for _, count in self.histogram.counts)
        return self.latency_sum_ns / count if count else float("nan")

    def percentile_ns(self, percent: float) -> float:
        return percentile(percent, self.histogram)


LatencyKnown: TypeAlias = Literal["histogram", "percentiles", "mean", "none"]
"""How much of a latency is known. iotax itself keeps histograms, which add up over runs. Of what others measured there
may be percentiles only, which belong to one run and do not add up, a mean only, or nothing."""


class Direction(Record):
    """The reads or the writes that completed inside the window."""

    ios: int
    bytes: int
    errors: int = 0
    latency: LatencyKnown = "histogram"
    latency_sum_ns: int
    """0, as the next two, where it is not known."""
    latency_min_ns: int
    latency_max_ns: int
    histogram: Histogram = Histogram()
    percentiles: list[tuple[float, int]] = Field(default=[])
    """(percent, ns), where that is all that is known."""
    service: Latency | None = None
    """From submission on; of an open loop, where the latency above runs from the intended start."""

    def percentile_ns(self, percent: float) -> float:
        """nan where there were none, or where it is unknown."""
        if self.latency != "histogram":
            return float(dict(self.percentiles).get(percent, float("nan")))
        return percentile(percent, self.histogram)


class Window(Record):
    """The measured interval: after the warm-up, before the end."""

    start_unix_ns: int
    start_ns: int
    duration_ns: int


class Second(Record):
    """One interval of the series, which begins at `at_ns` after the window's start."""

    at_ns: int
    duration_ns: int | None = None
    reads: int
    writes: int
    read_bytes: int
    write_bytes: int
    latency_p50_ns: int | None = None
    latency_p99_ns: int | None = None
    latency_max_ns: int | None = None


class Outstanding(Record):
    """I/Os in flight: asked for and found (time average over the window)."""

    workers: int | None
    per_worker: int | None
    """None if another program's file does not say."""
    mean: float

    @property
    def total(self) -> int | None:
        """None if not known."""
        return None if self.workers is None or self.per_worker is None else self.workers * self.per_worker


class Verify(Record):
    """What checking the data read gave, in blocks of 512 bytes or the unit's own size."""

    checked_blocks: int
    never_written_blocks: int
    wrong_blocks: int
    read_back_blocks: int = 0
    """Of the checked ones, those read after the run, in which something happened: all whose write was acknowledged."""


class Checks(Record):
    """What the engine can say about the run's own validity."""

    errors: int | None = 0
    """None, as the next, where another program's file does not say."""
    start_skew_ns: int | None = 0
    cpu_window_ns: int | None = None
    """Between the two readings of the process clocks; close to the window's own length."""
    run_queue_wait: float | None = None
    clock: str = ""


class Arrived(Record):
    """What came due inside the window of an open loop."""

    offered: int
    dropped: int = 0
    """Offered, but the backlog was full: never submitted."""
    backlog_peak: int = 0
    """Most that waited at once, summed over workers."""
    backlog_end: int = 0
    """Waiting still at the window's end."""


class Open(Arrived):
    """An open loop: what was asked for and what came of it."""

    rate_iops: float
    """Of all workers together."""
    arrivals: str = "constant"
    backlog_max: int = 0
    achieved: float = 1.0
    """I/Os completed in the window over I/Os offered in it; 1 where none were offered."""
    offered_sd: float = 0.0
    """Standard deviation of `offered`, where arrivals are random and only their expected number is known; 0 where they
    were counted."""
    lateness: Latency | None = None
    """From when the generator could have submitted an I/O to when it did: its own, not the target's."""


class StreamResult(Record):
    """One stream of a load with several."""

    name: str
    workers: int
    block_size_bytes: int
    read_percent: float
    random_percent: float
    rate_iops: float | None = None
    read: Direction
    write: Direction
    arrived: Arrived | None = None


class PathUse(Record):
    """What went over one of several paths to the volume, around the window too."""

    name: str
    ios: int
    bytes: int
    """0 where the kernel counts none."""
    losses: int = 0
    """How often the load gave it up; counted only by iotax's own initiator, as the next three."""
    lost: int = 0
    """I/Os that were outstanding on it then."""
    down_ns: int = 0
    refused: int = 0
    """I/Os that the target refused on it because of its access state, and that were sent again over another path."""


class Paths(Record):
    """Several paths to the volume: links, or connections of a mount."""

    policy: str
    even: bool
    """Whether the policy promises every path an equal share."""
    used: list[PathUse]


class Slice(Record):
    """One slice of a treatment that was measured in rounds."""

    round: int
    """From 1."""
    place: int
    """Among all slices of its session, from 1."""
    start_ns: int
    """Since the session's load process began."""
    duration_ns: int
    ios: int
    bytes: int
    latency_sum_ns: int
    latency_p50_ns: int | None
    """None if several hosts measured it, as the 99th percentile: those of a session are exact."""
    latency_p99_ns: int | None
    mean_outstanding: float | None = None
    """I/Os, over the slice's time; None if an earlier version measured."""
    cpu_window_ns: int
    """Between the readings of the CPU clocks; the times below are scaled to `duration_ns`."""
    initiator_cpu_ns: int
    target_cpu_ns: int | None = None
    machine_busy_ns: int
    run_queue_wait_ns: int = 0


class Client(Record):
    """What one host of several did in the window."""

    host: str
    started_after_ns: int
    """After the first host that started, by its own clock less its offset."""
    clock_error_ns: int
    """By how much that may be off: half the least round trip."""
    duration_ns: int
    ios: int
    bytes: int
    latency_sum_ns: int
    latency_p50_ns: float | None = None
    latency_p99_ns: float | None = None
    longest_gap_ns: int | None = None
    """Without a completed I/O of its own."""
    pace: float | None = None
    """Of its clock over warm-up and window, that of the host below it being 1: a guest whose time is that of its
    instructions. None for all others."""
    intervals: tuple[tuple[int, int], ...] = ()
    """(end since its own start in ns, I/Os completed), one after another; from this version on."""


class SiteWork(Record):
    """What the simulated machines of one side did in the window."""

    wakes: int
    """Threads that slept and were woken."""
    wakes_deep_permille: int | None = None
    """How deep they slept, added up: 1000 each where it was for 30 µs or longer; None if an earlier version did not
    count it."""
    turns: int
    """In each of which a thread did all that had come."""
    sends: int
    """Of what a connection had."""
    bytes: int
    """Sent and received, and in how many segments."""
    segments: int
    sent_bytes: int = 0
    """Of the bytes, those sent; 0 where an earlier version did not count them."""
    sent_ns: int
    """How long the machines' ports were busy with it, added up."""
    received_ns: int
    busiest_port_ns: int | None = None
    """How long the busiest of them was, in the direction that was busier; None if no zones load them unequally."""
    credits_ns: int = 0
    """And idle with frames to send, because no credits are left."""
    lost: int = 0
    """Segments that they sent and that were lost."""
    timeouts: int = 0
    """How often a connection waited for its timeout to send one again."""


class CpuSecond(Record):
    """CPU time of one interval by role, from `at_ns` after the window's start. Background included, guests aside."""

    at_ns: int
    duration_ns: int
    busy_ns: dict[CpuRole, int]
    """Of the roles that were read."""
    initiators: SiteWork | None = None
    """Of a simulation, as the engine tells it: what they did, from which the hypervisor's part follows."""
    ios: int | None = None

    @field_validator("busy_ns", mode="before")
    @classmethod
    def _of_roles(cls, given: Any) -> Any:
        """The engine names all that it watches."""
        return {name: ns for name, ns in given.items() if name in CPU_ROLES} if isinstance(given, Mapping) else given

    def cores(self, role: CpuRole) -> float | None:
        """Processors that the role kept busy."""
        busy_ns = self.busy_ns.get(role)
        return None if busy_ns is None or not self.duration_ns else busy_ns / self.duration_ns


class LaneWork(Record):
    """What one direction of a simulated link did in the window."""

    busy_ns: int
    credits_ns: int
    """Idle with frames to send, because no credits are left."""
    lost: int
    """Segments that found no room in front of it."""


class TrunksWork(Record):
    """Of the trunks between the switches of all fabrics together."""

    to_targets: LaneWork
    to_initiators: LaneWork


class ControllerWork(Record):
    """What one simulated controller did in the window."""

    controller: int
    """From 1 on."""
    busy_ns: int
    """CPU time."""
    forwarded_bytes: int
    """For its partner, and back."""
    interconnect_ns: int
    """How long it sent over the interconnect."""


class Simulated(Record):
    """What a simulation knows of itself."""

    initiators: SiteWork
    """All of them together."""
    target: SiteWork
    media_busy_ns: int | None = None
    """Of all servers of the media, added up; None if the volume is memory."""
    luns_busy_ns: int | None = None
    """Of each place in the queues of all clients' LUNs, added up; None if they have no end."""
    adapters_busy_ns: int | None = None
    """The same of clients' adapters."""
    trunks: TrunksWork | None = None
    """None if there is none."""
    controllers: list[ControllerWork] | None = None
    """Those that there are; None if the study asks for neither partners nor takeovers."""


class ModelledMedia(Record):
    """What media that are a model did, and how exactly in time: from before the load connects to its end, with the
    warm-up and, in rounds, with what lies between the slices."""

    operations: int
    """All but those that a cache answered without a disk."""
    busy_ns: int
    """Of all their servers together."""
    told: int
    """Operations that waited for their time."""
    late_sum_ns: int
    """By how much the server told these after the time that the model says, added up."""
    late_max_ns: int

    def since(self, before: ModelledMedia) -> ModelledMedia:
        """What was done after `before`."""
        names = ("operations", "busy_ns", "told", "late_sum_ns")
        return self.model_copy(update={name: getattr(self, name) - getattr(before, name) for name in names})

    @property
    def service_mean_ns(self) -> float:
        """nan where there were no operations."""
        return self.busy_ns / self.operations if self.operations else math.nan

    @property
    def late_mean_ns(self) -> float:
        """0 where none waited."""
        return self.late_sum_ns / self.told if self.told else 0.0


class Database(Record):
    """What a database did in the window, on the volume and in memory; its results count transactions, not I/Os."""

    size_bytes: int
    memory_bytes: int
    """What its processes and the cached pages of its files may have of the initiator's memory; of iotax's own its
    buffers."""
    checkpoints: int
    """From before the load to its end, of which one at least lies within the window; iotax's own: that ended in it."""
    reads: int
    """I/Os of the initiator's kernel on the volume; iotax's own of its pages and its log."""
    writes: int
    read_bytes: int
    write_bytes: int
    log_writes: int | None = None
    """Of the writes, those of the log; None, as the next two, where the database is not iotax's own."""
    log_write_bytes: int | None = None
    flushes: int | None = None


class TrialResult(Record):
    """What one attempt measured."""

    generator: str = "iotax"
    """What issued the I/O: iotax, fio, or another program that results were imported from."""
    engine_version: str
    """Of the generator."""
    driver: str
    endpoint: str
    window: Window
    read: Direction
    write: Direction
    """All streams of the load together."""
    sync: Direction | None = None
    """Flushes (fsync, fdatasync), where the load issued some and they were timed; none of them counts as an I/O."""
    percentiles: list[tuple[float, int]] = Field(default=[])
    """(percent, ns) of reads and writes together, where there is no histogram."""
    streams: list[StreamResult] = Field(default=[])
    """One by one, where the load has several."""
    open: Open | None = None
    """Of an open loop."""
    cpu: CpuUse
    series: list[Second] = Field(default=[])
    cpu_series: list[CpuSecond] = Field(default=[])
    """CPU over the window by role, where it was read more often than at its ends."""
    outstanding: Outstanding
    gaps: Gaps | None = None
    """None if another program made the load, or an earlier version."""
    counted: Counts | None = None
    """Of a run in which something was made to happen."""
    events: tuple[Happened, ...] = ()
    """By time."""
    verify: Verify | None = None
    checks: Checks = Checks()
    paths: Paths | None = None
    """Where there are several, and they were counted."""
    facts: Facts = Facts()
    """How it came about, as the lab knows."""
    clients: tuple[Client, ...] = ()
    """One by one, where several hosts ran the load; the other figures are theirs together."""
    left_out: tuple[str, ...] = ()
    """Clients of the treatment that were lost and took no part, as the user allowed: compared with nothing."""
    slices: tuple[Slice, ...] = ()
    """Of a trial that was measured in rounds; the other figures are those of its slices together."""
    simulated: Simulated | None = None
    """Of a simulated trial, from this version on."""
    media: ModelledMedia | None = None
    """Of a volume whose media are a model: over the trial with its warm-up; of rounds over the session, with what other
    treatments did on it."""
    database: Database | None = None
    """Where the load is a database's: every I/O elsewhere in this record is then one transaction, and a read."""
    origin: Origin | None = None
    """Of a result that was imported."""
    profile: tuple[Profile, ...] = ()
    """By machine, whose instructions the window's were, where they were counted by layer and function."""

    @property
    def counts(self) -> str:
        """What one of its I/Os is: "I/O" or "transaction"."""
        return "I/O" if self.database is None else "transaction"

    @property
    def rate_unit(self) -> str:
        """In which its throughput is said."""
        return "IOPS" if self.database is None else "transactions/s"

    @property
    def ios(self) -> int:
        return self.read.ios + self.write.ios

    @property
    def duration_s(self) -> float:
        return self.window.duration_ns / 1e9

    @property
    def rate_iops(self) -> float:
        return self.ios / self.duration_s

    @property
    def moved_bytes(self) -> int:
        """Read and written."""
        return self.read.bytes + self.write.bytes

    @property
    def rate_bytes_per_s(self) -> float:
        return self.moved_bytes / self.duration_s

    @property
    def active(self) -> list[Direction]:
        """Reads and writes, as far as there were any."""
        return [each for each in (self.read, self.write) if each.ios]

    @property
    def latency_known(self) -> LatencyKnown:
        """Of reads and writes together."""
        known = {each.latency for each in self.active}
        if known <= {"histogram"}:
            return "histogram"
        if "none" in known:
            return "none"
        return "percentiles" if self.own_percentiles else "mean"

    @property
    def own_percentiles(self) -> dict[float, int]:
        """Percent → ns, of all I/Os, as the program that measured them gave them; those of reads and of writes alone
        do not give those of both."""
        only = self.active[0].percentiles if len(self.active) == 1 else []
        return dict(self.percentiles or only)

    @property
    def latency_mean_ns(self) -> float:
        """nan where there were none, or where it is unknown."""
        if not self.ios or self.latency_known == "none":
            return float("nan")
        return (self.read.latency_sum_ns + self.write.latency_sum_ns) / self.ios

    @property
    def latency_max_ns(self) -> int | None:
        """Of the slowest I/O; None if it is not known."""
        return max((each.latency_max_ns for each in self.active if each.latency != "none"), default=0) or None

    def slow_ios(self, over_ns: int) -> int | None:
        """I/Os that took longer, as exactly as the histogram tells; None if it is not known."""
        if self.latency_known != "histogram":
            return None
        return sum(count for value_ns, count in self.latency_counts().items() if value_ns > over_ns)

    @property
    def service_mean_ns(self) -> float:
        """From submission to completion: the mean latency, but for an open loop's time in the backlog."""
        parts = [each.service for each in (self.read, self.write) if each.service is not None]
        if not parts:
            return self.latency_mean_ns
        return sum(each.latency_sum_ns for each in parts) / self.ios if self.ios else float("nan")

    @property
    def idle(self) -> bool:
        """Nothing was asked: the zero-load treatment."""
        return self.open is not None and self.open.rate_iops == 0

    def latency_counts(self) -> dict[int, int]:
        """Latency bins of reads and writes together: value_ns → count; empty if a part of them has none."""
        if self.latency_known != "histogram":
            return {}
        return merge_counts(self.read.histogram, self.write.histogram)

    def latency_ns(self, percent: float) -> float:
        """The latency below which `percent` of the I/Os completed; nan where there were none, or where it is
        unknown."""
        if self.latency_known != "histogram":
            return float(self.own_percentiles.get(percent, float("nan")))
        return percentile(percent, self.read.histogram, self.write.histogram)

    @property
    def cpu_over_time(self) -> list[CpuSecond]:
        """CPU as it was read within the run; of rounds slice by slice, from the first slice's start."""
        if self.cpu_series or not self.slices:
            return self.cpu_series
        found = []
        for each in self.slices:
            busy_ns: dict[CpuRole, int] = {"initiator": each.initiator_cpu_ns, "machine": each.machine_busy_ns}
            if each.target_cpu_ns is not None:
                busy_ns["target"] = each.target_cpu_ns
            at_ns = each.start_ns - self.slices[0].start_ns
            found.append(CpuSecond(at_ns=at_ns, duration_ns=each.duration_ns, busy_ns=busy_ns))
        return found

    def between_ns(self, percent: float) -> tuple[int, int] | None:
        """The bounds between which that latency lies, where another program's bins are so wide that it was
        interpolated; None elsewhere."""
        parts = [each.histogram for each in self.active if each.histogram.edges_ns]
        if self.latency_known != "histogram" or not parts:
            return None
        found = [bounds for each in parts if (bounds := each.between_ns(self.latency_ns(percent))) is not None]
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None

    def role(self, role: CpuRole) -> RoleCpu:
        """CPU time of a role, or the reason why there is none (`records.roles`)."""
        return cpu_of(self.cpu, self.facts, role)

    @property
    def cpu_initiator(self) -> CpuTime | None:
        """What the path needs, of the layer that was read."""
        parts = self.role("initiator").parts
        return parts[0] if parts else None

    @property
    def hypervisor_within(self) -> CpuTime | None:
        """What the initiator's hypervisor spent, where that is time by the same clock and belongs to what an I/O costs:
        simulated. Elsewhere it stands beside."""
        return self.cpu.hypervisor if self.facts.simulated else None

    def cpu_ns(self, role: CpuRole) -> int | None:
        """CPU time of a role, background taken off where it is known but for the machine's; None if not measured."""
        return self.role(role).net_ns

    def cpu_per_io_ns(self, role: CpuRole) -> float | None:
        """CPU time per I/O; None if that role was not measured."""
        spent_ns = self.cpu_ns(role)
        return spent_ns / self.ios if self.ios and spent_ns is not None else None


class Connected(Record):
    """What the initiator found when it connected."""

    driver: str = ""
    endpoint: str = ""
    size_bytes: int | None = None
    block_size_bytes: int | None = None
    max_io_bytes: int | None = None
    identity: dict[str, str] = Field(default={})
    negotiated: Negotiated = NothingAgreed()
    found: dict[str, str] = Field(default={})
    """What else was said of the path, by its own names: a device, an MTU, a policy."""

    @model_validator(mode="before")
    @classmethod
    def _by_words(cls, given: Any) -> Any:
        """Takes what was agreed on in words, too: as the engine says it, and as notebooks held it until there were
        records."""
        said = given.get("negotiated") if isinstance(given, Mapping) else None
        if not isinstance(said, Mapping) or "protocol" in said:
            return given
        agreed, rest = understood(said)
        return {**given, "negotiated": agreed, "found": rest | given.get("found", {})}

    @property
    def words(self) -> dict[str, str]:
        """All that was said, by name: of the target, what was agreed on, and the rest."""
        return {name: value for name, value in self.identity.items() if value} | self.negotiated.words() | self.found

    def told(self, endpoint: str, words: Mapping[str, str]) -> Connected:
        """With the endpoint as the study has it, and what the lab found of a path that the engine sees as a device."""
        agreed, rest = understood({**self.negotiated.words(), **words})
        return self.model_copy(update={"endpoint": endpoint, "negotiated": agreed, "found": self.found | rest})


class Kept(Record):
    """What is left of a session that failed or was stopped: slices that ended before. They do not make a result:
    treatments have unequal numbers of them, and the machine's CPU is as the load's engine read it."""

    host: str
    """That measured them; empty for this machine."""
    slices: tuple[Slice, ...]


class Attempt(Record):
    """One try at a trial. A trial that failed is tried again once; every try is kept."""

    trial: Trial
    number: int
    """From 1."""
    status: Status
    reason: str
    """Why it is not `done`, in words; empty for `done`."""
    started_unix_ns: int
    ended_unix_ns: int | None
    result: TrialResult | None = None
    connected: Connected | None = None
    log: str = ""
    """The last lines that the processes wrote on standard error."""
    kept: tuple[Kept, ...] = ()
    """Of an attempt without a result that was part of a session."""

    @property
    def kept_slices(self) -> int:
        return sum(len(each.slices) for each in self.kept)

    @property
    def why(self) -> str:
        """Why it is not `done`, and what is left of it, in words."""
        left = f"{counted(self.kept_slices, 'slice')} kept" if self.kept else ""
        return "; ".join(filter(None, (self.reason, left)))


class Look(Record):
    """Replicates were added to a run that had results, which may have been seen."""

    at_unix_ns: int
    results: int
    """Trials that were done by then."""
    replicates: int
    """Planned until then; of a study by rounds, sessions."""
    raised_to: int


class Background(Record):
    """What the lab did without load, measured before a block."""

    block: int
    started_unix_ns: int
    duration_ns: int
    cpu: CpuUse


def merge_counts(*histograms: Histogram) -> dict[int, int]:
    """Adds bins, sorted by value."""
    total: dict[int, int] = {}
    for histogram in histograms:
        for value, count in histogram.counts:
            total[value] = total.get(value, 0) + count
    return dict(sorted(total.items()))


def rank(percent: float, total: int) -> int:
    """Which of `total` values in order is the percentile: the first that at least `percent` of them do not exceed."""
    return max(1, min(total, math.ceil(percent / 100 * total - 1e-9)))


def percentile(percent: float, *histograms: Histogram) -> float:
    """The smallest bin value that at least `percent` of all counts do not exceed; nan for none."""
    parts = [each.cumulated for each in histograms if each.counts]
    total = sum(cumulated[-1] for _, cumulated in parts)
    if not total:
        return float("nan")
    wanted = rank(percent, total)

    def seen(value: int) -> int:
        return sum(cumulated[at - 1] for values, cumulated in parts if (at := bisect_right(values, value)))

    reached = ((values, bisect_left(values, wanted, key=seen)) for values, _ in parts)
    return float(min(values[at] for values, at in reached if at < len(values)))
