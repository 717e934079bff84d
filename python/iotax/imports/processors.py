"""CPU that a monitor recorded beside the runs, joined with them by time: JSON of sadf and mpstat, text of sar and
mpstat, CSV of esxtop -b.

What the hosts of the initiators spent is told without their guests' own time, where these were recorded as well; what
all of them do without load comes from the time between the runs.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from iotax.imports import sar_text
from iotax.imports.json_text import Fields, read_documents
from iotax.imports.naming import PatternError
from iotax.imports.problems import Notes, Unreadable, head_of, lines_of, number, rows_of
from iotax.records import CPU_ROLES, CpuTime, CpuUse, Facts, Layer, Role, cpu_of
from iotax.trial import Background, CpuSecond

COVERED_MIN = 0.8
"""Share of a run that samples must cover; less, and the run has no figure."""
IDLE_MIN_NS = 5_000_000_000
"""A stretch without load that is shorter says little of what machines do then."""
AROUND_NS = 600_000_000_000
"""How long before the first run and after the last one the machines are taken to be what they were between."""
_STAMP_NS = 1_000_000_000
"""By which the time that a program stamps on its result may be off."""
ROLES: dict[str, tuple[Role, Layer]] = {
    "initiator": ("initiator", "machine"),
    "target": ("target", "machine"),
    "hypervisor": ("hypervisor", "machine"),
    "guest": ("initiator", "guest"),
}
"""The command line's words."""
ELSEWHERE = Facts(lab="elsewhere")
_TOTAL = re.compile(r"^\\\\(?P<host>[^\\]+)\\Physical Cpu\(_Total\)\\% Util Time$")
_ONE = re.compile(r"^\\\\[^\\]+\\Physical Cpu\(\d+\)\\% Util Time$")
_ESXTOP_TIME = "%m/%d/%Y %H:%M:%S"


@dataclass(frozen=True)
class CpuSample:
    """How busy a machine was over an interval."""

    start_unix_ns: int
    end_unix_ns: int
    busy_share: float


@dataclass(frozen=True)
class Recorded:
    """What one monitor recorded of one machine."""

    role: Role
    host: str
    processors: int
    samples: Sequence[CpuSample]
    layer: Layer = "machine"
    """`guest`: a virtual machine that runs the load."""
    meter: str = ""

    def during(self, start_unix_ns: int, end_unix_ns: int) -> CpuTime | None:
        """Busy time over a run; None if the samples do not cover it."""
        covered = busy = 0.0
        for sample in self.samples[self._first(start_unix_ns) :]:
            if sample.start_unix_ns >= end_unix_ns:
                break
            shared = min(end_unix_ns, sample.end_unix_ns) - max(start_unix_ns, sample.start_unix_ns)
            if shared > 0:
                covered += shared
                busy += shared * sample.busy_share
        window_ns = end_unix_ns - start_unix_ns
        if window_ns <= 0 or covered < COVERED_MIN * window_ns:
            return None
        return CpuTime(
            host=self.host,
            role=self.role,
            layer=self.layer,
            busy_ns=round(busy / covered * window_ns * self.processors),
            window_ns=window_ns,
            processors=self.processors,
            meter=self.meter,
        )

    def _first(self, start_unix_ns: int) -> int:
        """The first sample that may reach beyond that time: samples follow each other."""
        return max(0, bisect_right(self.samples, start_unix_ns, key=lambda sample: sample.start_unix_ns) - 1)

    @property
    def interval_ns(self) -> int:
        """Between its samples; the longest."""
        return max(sample.end_unix_ns - sample.start_unix_ns for sample in self.samples)


@dataclass(frozen=True)
class Busy:
    """When a run loaded the machines, its warm-up included."""

    start_unix_ns: int
    end_unix_ns: int


class Monitors:
    """All that was recorded beside the runs of a campaign."""

    def __init__(self, recorded: Sequence[Recorded], runs: Sequence[Busy]) -> None:
        virtual = any(each.role == "hypervisor" for each in recorded)
        self.hypervisors = [each for each in recorded if each.role == "hypervisor"]
        # What a hypervisor's host runs is a guest, whatever the command line calls it.
        self.others = [
            replace(each, layer="guest") if virtual and each.role == "initiator" else each
            for each in recorded
            if each.role != "hypervisor"
        ]
        self.idle = self._idle(runs)
        """What they did between the runs, stretch by stretch."""

    @property
    def any(self) -> bool:
        return bool(self.hypervisors or self.others)

    def during(self, start_unix_ns: int, end_unix_ns: int) -> list[CpuTime]:
        """Of every role that was recorded, less nothing; without those whose samples do not cover it."""
        found = [part for each in self.others if (part := each.during(start_unix_ns, end_unix_ns)) is not None]
        hosts = [part for each in self.hypervisors if (part := each.during(start_unix_ns, end_unix_ns)) is not None]
        if not hosts or len(hosts) < len(self.hypervisors):
            return found
        guests = [part for part in found if part.layer == "guest"]
        whole = guests and len(guests) == sum(each.layer == "guest" for each in self.others)
        together = hosts[0].model_copy(
            update={
                "host": " and ".join(part.host for part in hosts),
                "busy_ns": sum(part.busy_ns for part in hosts),
                "processors": sum(part.processors or 0 for part in hosts),
                "guests_ns": sum(part.busy_ns for part in guests) if whole else None,
                "meter": " and ".join(dict.fromkeys(part.meter for part in hosts)),
            }
        )
        return [*found, together]

    def missing(self, start_unix_ns: int, end_unix_ns: int) -> list[str]:
        """The machines whose samples do not cover this time."""
        every = [*self.others, *self.hypervisors]
        return [each.host or each.role for each in every if each.during(start_unix_ns, end_unix_ns) is None]

    def beside(self, start_unix_ns: int, end_unix_ns: int) -> list[CpuTime]:
        """The same over a run, with what they do without load."""
        window_ns = end_unix_ns - start_unix_ns

        def background_ns(part: CpuTime) -> int | None:
            spans = [
                (same.own_ns, idle.duration_ns)
                for idle in self.idle
                for same in idle.cpu
                if (same.host, same.role, same.layer) == (part.host, part.role, part.layer)
            ]
            whole_ns = sum(length_ns for _, length_ns in spans)
            return round(sum(busy_ns for busy_ns, _ in spans) * window_ns / whole_ns) if whole_ns else None

        parts = self.during(start_unix_ns, end_unix_ns)
        return [part.model_copy(update={"background_ns": background_ns(part)}) for part in parts]

    def series(self, start_unix_ns: int, end_unix_ns: int) -> list[CpuSecond]:
        """CPU over a run by role, over the intervals of the monitor with the longest."""
        every = [*self.others, *self.hypervisors]
        if not every:
            return []
        found = []
        longest = max(every, key=lambda each: each.interval_ns)
        for sample in longest.samples:
            if sample.start_unix_ns < start_unix_ns or sample.end_unix_ns > end_unix_ns:
                continue
            cpu = CpuUse(self.during(sample.start_unix_ns, sample.end_unix_ns))
            busy_ns = {role: own for role in CPU_ROLES if (own := cpu_of(cpu, ELSEWHERE, role).own_ns) is not None}
            if busy_ns:
                found.append(
                    CpuSecond(
                        at_ns=sample.start_unix_ns - start_unix_ns,
                        duration_ns=sample.end_unix_ns - sample.start_unix_ns,
                        busy_ns=busy_ns,
                    )
                )
        return found

    def _idle(self, runs: Sequence[Busy]) -> list[Background]:
        """Of every stretch between runs, and for a while before and after them, that is long enough and that all
        monitors cover; less an interval at each end, in which a run may have started or ended."""
        every = [*self.others, *self.hypervisors]
        if not every or not runs:
            return []
        margin_ns = max(each.interval_ns for each in every) + _STAMP_NS
        ordered = sorted(runs, key=lambda run: run.start_unix_ns)
        begin_ns = max(*(each.samples[0].start_unix_ns for each in every), ordered[0].start_unix_ns - AROUND_NS)
        last_ns = max(run.end_unix_ns for run in ordered)
        end_ns = min(*(each.samples[-1].end_unix_ns for each in every), last_ns + AROUND_NS)
        free_ns, found = begin_ns, []
        for run in [*ordered, Busy(end_ns + margin_ns, end_ns)]:
            until_ns = run.start_unix_ns - margin_ns
            length_ns = until_ns - free_ns
            if length_ns >= IDLE_MIN_NS and not self.missing(free_ns, until_ns):
                cpu = CpuUse(self.during(free_ns, until_ns))
                found.append(Background(block=1, started_unix_ns=free_ns, duration_ns=length_ns, cpu=cpu))
            free_ns = max(free_ns, run.end_unix_ns + margin_ns)
        return found


def recorded(word: str, notes: Notes) -> Recorded:
    """Of `ROLE=FILE`. Raises Unreadable, and PatternError where the word is not of that form."""
    name, equals, file_name = word.partition("=")
    if not equals or name not in ROLES or not file_name:
        raise PatternError(f"--cpu {word}: write ROLE=FILE, where ROLE is {', '.join(ROLES)}")
    role, layer = ROLES[name]
    path = Path(file_name)
    head = head_of(path).lstrip()
    if head.startswith("{"):
        host, processors, samples, meter = _sysstat(path, notes)
    elif sar_text.recognised(head):
        host, processors, samples, meter = _sar(path, notes)
    else:
        host, processors, samples, meter = _esxtop(path)
    if not samples or not processors:
        raise Unreadable(path, "no interval with CPU in it")
    return Recorded(role, host, processors, samples, layer, meter)


def _sysstat(path: Path, notes: Notes) -> tuple[str, int, list[CpuSample], str]:
    hosts = read_documents(path, notes)[0].part("sysstat").parts("hosts")
    if not hosts:
        raise Unreadable(path, "no `sysstat` with hosts: name what `sadf -j` or `mpstat -o JSON` wrote")
    host = hosts[0]
    samples: list[CpuSample] = []
    previous: datetime | None = None
    for each in host.parts("statistics"):
        loads = each.parts("cpu-load") or each.parts("cpu-load-all")
        whole = next((load for load in loads if load.text("cpu") in ("all", "-1")), None)
        end = _end(path, host, each, notes)
        if previous is not None:
            end = _past_midnight(end, previous)
        seconds = _interval_s(each, end, previous)
        previous = end
        if whole is None or seconds <= 0:
            continue
        end_ns = round(end.timestamp() * 1e9)
        idle = whole.positive("idle") + whole.positive("iowait", 0) + whole.positive("steal", 0)
        samples.append(CpuSample(end_ns - round(seconds * 1e9), end_ns, max(0.0, 1 - idle / 100)))
    dated = any(isinstance(each.values.get("timestamp"), dict) for each in host.parts("statistics")[:1])
    return host.text("nodename"), host.whole("number-of-cpus", 0), samples, "sadf" if dated else "mpstat"


def _sar(path: Path, notes: Notes) -> tuple[str, int, list[CpuSample], str]:
    printed = sar_text.read(path, lambda text: _iso(path, text), _past_midnight, notes)
    samples = [
        CpuSample(round(begin.timestamp() * 1e9), round(end.timestamp() * 1e9), share)
        for begin, end, share in printed.shares
    ]
    return printed.host, printed.processors, samples, "sar"


def _end(path: Path, host: Fields, statistic: Fields, notes: Notes) -> datetime:
    """sadf says dates and UTC; mpstat a time of day, and the date once."""
    if isinstance(statistic.values.get("timestamp"), dict):
        stamp = statistic.part("timestamp")
        text = f"{stamp.text('date')} {stamp.text('time')}"
        if not stamp.number("utc", 0):
            notes.add(path, "times are local ones, taken as UTC: write it with `sadf -j -U` or TZ=UTC")
    else:
        notes.add(path, "times have no zone: taken as UTC. Record with TZ=UTC S_TIME_FORMAT=ISO")
        text = f"{_iso(path, host.text('date'))} {statistic.text('timestamp')}"
    # mpstat writes the time of day as the locale does.
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %I:%M:%S %p"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise Unreadable(path, f"found {text!r} where date and time are expected", at="timestamp")


def _past_midnight(end: datetime, previous: datetime) -> datetime:
    """mpstat gives the date of its beginning only: a time of day long before the one above it is of the next day."""
    half_a_day = timedelta(hours=12)
    if end >= previous - half_a_day:
        return end
    end += timedelta(days=(previous.date() - end.date()).days)
    return end if end >= previous - half_a_day else end + timedelta(days=1)


def _iso(path: Path, text: str) -> str:
    for form in ("%Y-%m-%d", "%m/%d/%y", "%m/%d/%Y"):
        try:
            return datetime.strptime(text, form).date().isoformat()
        except ValueError:
            continue
    raise Unreadable(path, f"found {text!r} where a date is expected: record with S_TIME_FORMAT=ISO", at="date")


def _interval_s(statistic: Fields, end: datetime, previous: datetime | None) -> float:
    """mpstat does not say its interval: it is the time since the last, and a second for the first."""
    dated = isinstance(statistic.values.get("timestamp"), dict)
    if dated and (interval := statistic.part("timestamp").positive("interval", 0)):
        return interval
    return (end - previous).total_seconds() if previous is not None else 1.0


def _esxtop(path: Path) -> tuple[str, int, list[CpuSample], str]:
    """Streams: 300 MB and 50,000 columns are normal, of which one is wanted."""
    rows = rows_of(path, (text for _, text in lines_of(path)))
    _, header = next(rows, (1, []))
    columns = esxtop_columns(header)
    if columns is None:
        raise Unreadable(
            path,
            "neither a column “Physical Cpu(_Total)\\% Util Time” of esxtop -b, nor sar, sadf or mpstat",
            line=1,
        )
    host, total, processors = columns
    if not processors:
        raise Unreadable(path, "no columns of single processors: record with esxtop -a", line=1)
    return host, processors, list(_esxtop_samples(path, rows, total)), "esxtop"


def esxtop_columns(header: list[str]) -> tuple[str, int, int] | None:
    """Of `esxtop -b`: the host, the column of all its processors' use in percent, and how many there are."""
    if not header or not header[0].startswith("(PDH-CSV"):
        return None
    for at, name in enumerate(header):
        if match := _TOTAL.match(name):
            return match["host"], at, sum(1 for each in header if _ONE.match(each))
    return None


def _esxtop_samples(path: Path, rows: Iterator[tuple[int, list[str]]], total: int) -> Iterator[CpuSample]:
    previous: int | None = None
    for line, row in rows:
        if len(row) <= total:
            continue  # the last line of a recording that was killed
        try:
            at = datetime.strptime(row[0], _ESXTOP_TIME).replace(tzinfo=UTC)
        except ValueError:
            raise Unreadable(path, f"found {row[0]!r} where MM/DD/YYYY HH:MM:SS is expected", line=line) from None
        end_ns = round(at.timestamp() * 1e9)
        if previous is not None and end_ns > previous:
            # Each row is of the interval that ends with it; the first one's is not known.
            share = number(path, row[total], line=line, at="Physical Cpu(_Total)") / 100
            yield CpuSample(previous, end_ns, share)
        previous = end_ns
