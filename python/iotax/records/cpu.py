"""CPU time spent over a window: a list by host, role and layer, from which responses choose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, RootModel, field_validator

from iotax.records.base import Record

Role: TypeAlias = Literal["initiator", "target", "both", "hypervisor", "disk", "other"]
"""`both`: initiator and target on one machine, which share one figure there. `hypervisor`: what runs the
initiator's
virtual machine, a QEMU process or the whole host. `disk`: what serves the load a virtual disk, in the initiator's
machine. What counts for which role of a result, `roles.cpu_of` alone decides."""

Layer: TypeAlias = Literal["process", "machine", "guest"]
"""`process`: a process's own clock. `machine`: all that a machine did, its kernel's threads and interrupts included.
`guest`: the same of a virtual machine, by its own clock."""


class Core(Record):
    """One processor's times over the window, from /proc/stat (10 ms ticks)."""

    cpu: int
    user_ns: int
    nice_ns: int
    system_ns: int
    irq_ns: int
    softirq_ns: int
    steal_ns: int
    idle_ns: int
    iowait_ns: int
    guest_ns: int | None = None
    """Time of this machine's guests within user and nice time; None if an earlier version did not read it."""


class CpuEvents(Record):
    """Counts of the processor's own counters for threads, in user space and in the kernel."""

    user_instructions: int
    kernel_instructions: int
    user_cycles: int
    kernel_cycles: int


class VmThreads(Record):
    """CPU time of the threads of a virtual machine's process, by QEMU's names for them."""

    processors_ns: int
    """Threads that stand for the guest's processors, including its own time."""
    io_ns: int
    """I/O threads."""
    vhost_ns: int
    """vhost's workers that are threads of the process, as since Linux 6.4."""
    vhost_apart_ns: int
    """vhost's workers that are the kernel's own, beside the process."""


class ProcessCpu(Record):
    """CPU time of one process over the window, from precise process clocks, as the engine gives it."""

    pid: int
    total_ns: int
    user_ns: int
    system_ns: int
    guest_ns: int | None = None
    """Time of guests within it, for a process that runs one."""
    run_queue_wait_ns: int | None = None
    max_rss_bytes: int | None = None
    threads: VmThreads | None = None
    """Threads of a process that runs a virtual machine, if they are named."""
    events: CpuEvents | None = None
    no_events: str | None = None


class CpuTime(Record):
    """CPU time of one layer of one host over a window."""

    host: str = ""
    """The machine, by its part in the lab; empty if unknown."""
    role: Role
    layer: Layer
    busy_ns: int
    guests_ns: int | None = None
    """Time of this machine's guests within it, in user space and in the kernel; None if it was not read."""
    background_ns: int | None = None
    """Time without load within the rest, as measured before the block; None if it was not measured."""
    meter: str = ""
    """The tool that read it if it was not an engine: esxtop, mpstat, sadf, fio."""
    window_ns: int | None = None
    """Duration over which it was read."""
    processors: int | None = None
    """Processors that this part could use; None if unknown."""
    resolution_ns: int = 0
    """Error of the window's two ends: a tick, if the clock ticks."""
    user_ns: int | None = None
    system_ns: int | None = None
    run_queue_wait_ns: int | None = None
    """Ready to run, but without a processor."""
    pid: int | None = None
    max_rss_bytes: int | None = None
    threads: VmThreads | None = None
    """Threads of a process that runs a virtual machine; None if they are not named."""
    events: CpuEvents | None = None
    """None if nothing counted them."""
    no_events: str | None = None
    """Why."""
    cores: list[Core] = Field(default=[])
    """Processor by processor, where they were read."""

    @property
    def own_ns(self) -> int:
        """Without its guests."""
        return max(0, self.busy_ns - (self.guests_ns or 0))

    @property
    def net_ns(self) -> int:
        """Time without its guests and without the background."""
        return max(0, self.own_ns - (self.background_ns or 0))

    @property
    def busy_share(self) -> float | None:
        """Share of the processors that it could use, without its guests; None if unknown."""
        if not self.window_ns or not self.processors:
            return None
        return self.own_ns / (self.window_ns * self.processors)


class Call(Record):
    """A function under its callers."""

    caller: int
    """Its caller's place in the same list, before this one's; −1 where nobody called it."""
    layer: str
    function: str
    instructions: int
    """Its own, and those of called functions that are too small to be listed."""


class Profile(Record):
    """The instructions of one machine over a window."""

    host: str
    """The machine, by its part in the lab."""
    role: Role
    """`both` where initiator and target are one machine."""
    ios: float
    """I/Os that they were spent on."""
    layers: dict[str, dict[str, int]] = Field(default={})
    """Layer → function → instructions. A module's functions are written `nvme_tcp_queue_rq [nvme_tcp]`."""
    calls: tuple[Call, ...] = ()
    """The same instructions as a tree of calls; a function below half a percent is counted with its caller."""
    copied_bytes: dict[str, dict[str, int]] = Field(default={})
    """Layer → function that had them copied → bytes that the kernel copied, by copying functions or `rep movs`."""
    cache_lines: dict[str, dict[str, int]] = Field(default={})
    """Layer → function → lines of 64 bytes fetched into a modelled cache of 32 KiB, 8 ways."""

    @property
    def instructions(self) -> int:
        """The total, including unlisted layers and functions."""
        return sum(sum(own.values()) for own in self.layers.values())


_Counts = TypeVar("_Counts", CpuEvents, VmThreads)
TICK_NS = 10_000_000
"""Length of a tick in /proc/stat (USER_HZ is 100 on Linux)."""
_ENGINE_PARTS: tuple[tuple[str, Role, Layer], ...] = (
    ("initiator", "initiator", "process"),
    ("target", "target", "process"),
    ("hypervisor", "hypervisor", "process"),
    ("machine", "other", "machine"),
)
"""The engine's names (docs/reference/engine.md), which notebooks held too before this list."""


class CpuUse(RootModel[list[CpuTime]]):
    """Every part that was read. Takes the engine's own form too: {initiator, target, machine}."""

    model_config = ConfigDict(frozen=True)

    @field_validator("root", mode="before")
    @classmethod
    def _by_role(cls, given: Any) -> Any:
        return _parts_of(given) if isinstance(given, Mapping) else given

    def __iter__(self) -> Iterator[CpuTime]:  # ty: ignore[incompatible-method-override]
        return iter(self.root)

    def part(self, role: Role, *layers: Layer) -> CpuTime | None:
        """The part with this role in the first of these layers that was read; in any layer if none is named. If several
        hosts have it, their sum."""
        for layer in layers or ("guest", "process", "machine"):
            found = [each for each in self.root if (each.role, each.layer) == (role, layer)]
            if found:
                return found[0] if len(found) == 1 else _together(found)
        return None

    @property
    def initiator(self) -> CpuTime | None:
        """Time of its guest or process."""
        return self.part("initiator", "guest", "process")

    @property
    def target(self) -> CpuTime | None:
        """Time of its guest or process."""
        return self.part("target", "guest", "process")

    @property
    def hypervisor(self) -> CpuTime | None:
        """The whole host minus its guests, else the processes that run them; None if the guests were not read."""
        whole = self.part("hypervisor", "machine")
        if whole is not None:
            return whole if whole.guests_ns is not None else None
        return self.part("hypervisor", "process")

    @property
    def machines(self) -> list[CpuTime]:
        """Whole machines, none of them within another; where guests alone were read, these."""
        return [each for each in self.root if each.layer == "machine"] or [
            each for each in self.root if each.layer == "guest"
        ]

    @property
    def machine_ns(self) -> int | None:
        """All busy time of whole machines, including background; None if none was read."""
        return sum(each.busy_ns for each in self.machines) if self.machines else None


def _together(parts: Sequence[CpuTime]) -> CpuTime:
    """The sum of the part over several hosts. Values that one of them lacks are unknown."""

    def total(name: str) -> int | None:
        known = [value for each in parts if (value := getattr(each, name)) is not None]
        return sum(known) if len(known) == len(parts) else None

    summed: dict[str, Any] = {
        name: total(name)
        for name in (
            "busy_ns",
            "guests_ns",
            "background_ns",
            "processors",
            "user_ns",
            "system_ns",
            "run_queue_wait_ns",
            "max_rss_bytes",
        )
    }
    events = [each.events for each in parts if each.events is not None]
    threads = [each.threads for each in parts if each.threads is not None]
    windows = [each.window_ns for each in parts if each.window_ns is not None]
    return CpuTime(
        role=parts[0].role,
        layer=parts[0].layer,
        window_ns=max(windows) if len(windows) == len(parts) else None,
        meter=" and ".join(dict.fromkeys(each.meter for each in parts if each.meter)),
        resolution_ns=sum(each.resolution_ns for each in parts),
        events=_summed(CpuEvents, events) if len(events) == len(parts) else None,
        threads=_summed(VmThreads, threads) if len(threads) == len(parts) else None,
        no_events=next((each.no_events for each in parts if each.no_events), None),
        cores=[core for each in parts for core in each.cores],
        **summed,
    )


def _summed(kind: type[_Counts], parts: Sequence[_Counts]) -> _Counts:
    """Field by field."""
    return kind(**{name: sum(getattr(each, name) for each in parts) for name in kind.model_fields})


def _parts_of(engine: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for name, role, layer in _ENGINE_PARTS:
        given = engine.get(name)
        if given is None:
            continue
        part = given.model_dump() if isinstance(given, Record) else dict(given)
        part["busy_ns"] = part.pop("total_ns", part.get("busy_ns"))
        if layer == "machine":
            # The engine says so if it is finer than a tick.
            part = {"resolution_ns": TICK_NS} | part | {"processors": len(part.get("cores", ())) or None}
        found.append({**part, "role": role, "layer": layer})
    return found
