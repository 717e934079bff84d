"""DiskSpd's XML (`-Rxml`) and its text (`diskspd_text`). Latencies in ms, and only with `-L`; percentiles, which belong
to one run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as Xml

from iotax.imports import diskspd_text
from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, WORKERS, Measured, block_size_of, readable
from iotax.imports.problems import Notes, Unreadable, level_of, number, small, text_of
from iotax.records import CpuTime
from iotax.trial import Direction, LevelValue

PROGRAM = "DiskSpd"
_NS_PER_MS = 1e6


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each time span of each run in the file. Raises Unreadable."""
    roots = _roots(path, notes)
    if not any(root.findall("TimeSpan") for root in roots):
        raise Unreadable(path, "no result in it", at="Results/TimeSpan")
    spans = [each for run, root in enumerate(roots, start=1) for each in _spans(path, run, root, notes)]
    if not spans:
        raise Unreadable(path, "the test was interrupted before it measured anything", at="TimeSpan/Error")
    return readable(spans, lambda each: each.measured(path), notes)


def _roots(path: Path, notes: Notes) -> list[Xml.Element]:
    """`<Results>` of each run, from XML or from what DiskSpd prints otherwise."""
    text = text_of(path)
    begins = [found.start() for found in re.finditer("<Results[ >]", text)]
    if not begins:
        if diskspd_text.recognised(text):
            return diskspd_text.roots_of(path, text)
        raise Unreadable(path, "neither `<Results>` (-Rxml) nor `Results for timespan` (-Rtext): not a DiskSpd result")
    head = text[: begins[0]].strip().removeprefix('<?xml version="1.0" encoding="utf-8"?>')
    if head:
        notes.add(path, f"skipped what stands before the results: {head.splitlines()[0][:100]!r}", line=1)
    found = []
    for begin in begins:
        end = text.find("</Results>", begin)
        part = text[: end + len("</Results>")] if end >= 0 else text
        try:
            found.append(root_of(path, part, begin, "; measure again or leave this file out"))
        except Unreadable as problem:
            if not found:
                raise
            notes.add(None, f"{problem}: left out")
    return found


def _spans(path: Path, run: int, root: Xml.Element, notes: Notes) -> Iterator[_Span]:
    spans = root.findall("TimeSpan")
    profiles = root.findall("Profile/TimeSpans/TimeSpan")
    asked = profiles if len(profiles) == len(spans) else [None] * len(spans)
    version = (root.findtext("System/Tool/Version") or "").strip()
    start_ns = _start_unix_ns(root.findtext("System/RunTime") or "") if len(spans) == 1 else None
    for at, (span, profile) in enumerate(zip(spans, asked, strict=True), start=1):
        part = f"time span {at}" if len(spans) > 1 else ""
        if span.find("Error") is not None:
            said = (span.findtext("Error") or "").strip()
            notes.add(path, f"{part or 'its time span'} is left out: DiskSpd says {said!r}", at="TimeSpan/Error")
        else:
            yield _Span(span, profile, version, run, part, start_ns)


def root_of(path: Path, text: str, begin: int, advice: str = "") -> Xml.Element:
    """What begins there. Raises Unreadable, with this advice where it is damaged."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise Unreadable(path, "it declares a document type, which DiskSpd never writes")
    try:
        return Xml.fromstring(text[begin:])  # noqa: S314 - as above
    except Xml.ParseError as error:
        line = text.count("\n", 0, begin) + error.position[0]
        raise Unreadable(path, f"the XML ends in the middle or is damaged{advice}", line=line) from None


def _start_unix_ns(text: str) -> int | None:
    """When DiskSpd began, its warm-up not counted; it writes UTC. None if it does not say."""
    try:
        at = datetime.strptime(text.strip(), "%Y/%m/%d %H:%M:%S UTC").replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(at.timestamp() * 1e9)


@dataclass(frozen=True)
class _Span:
    """A time span's result, and what was asked of it."""

    span: Xml.Element
    profile: Xml.Element | None
    version: str
    run: int
    part: str
    start_unix_ns: int | None
    """Of the run, with its warm-up."""

    def measured(self, path: Path) -> Measured:
        span, profile = self.span, self.profile
        seconds = _figure(path, span, "TestTimeSeconds")
        if seconds <= 0:
            raise Unreadable(path, "it lasted no time", at="TimeSpan/TestTimeSeconds")
        targets = span.findall("Thread/Target")
        latency = span.find("Latency")
        read = _direction(path, targets, latency, "Read")
        write = _direction(path, targets, latency, "Write")
        said = [] if latency is not None else ["latency was not measured: run DiskSpd with -L"]
        settings, workers, per_worker = _settings(profile)
        block = block_size_of(settings.get(BLOCK_SIZE), read.bytes + write.bytes, read.ios + write.ios)
        warmup = profile.findtext("Warmup") if profile is not None else None
        warmup_ns = round(number(path, warmup, at="Profile/TimeSpans/TimeSpan/Warmup") * 1e9) if warmup else None
        return Measured(
            path=path,
            program=PROGRAM,
            version=self.version,
            run=self.run,
            part=self.part,
            read=read,
            write=write,
            duration_ns=round(seconds * 1e9),
            percentiles=_percentiles(path, latency, "Total"),
            settings=settings | ({BLOCK_SIZE: block} if block is not None else {}),
            workers=workers,
            per_worker=per_worker,
            loop="unknown" if profile is None or _throttled(profile) else "closed",
            start_unix_ns=None if self.start_unix_ns is None else self.start_unix_ns + (warmup_ns or 0),
            warmup_ns=warmup_ns,
            stack="kernel",
            cpu=_cpu(path, span, seconds),
            notes=said,
        )


def _direction(path: Path, targets: Iterable[Xml.Element], latency: Xml.Element | None, name: str) -> Direction:
    ios, size = (sum(int(_figure(path, each, f"{name}{what}")) for each in targets) for what in ("Count", "Bytes"))
    mean = latency.findtext(f"Average{name}Milliseconds") if latency is not None else None
    if not ios or mean is None:
        return Direction(ios=ios, bytes=size, latency="none", latency_sum_ns=0, latency_min_ns=0, latency_max_ns=0)
    percentiles = _percentiles(path, latency, name)
    extremes = dict(_percentiles(path, latency, name, ends=True))
    return Direction(
        ios=ios,
        bytes=size,
        latency="percentiles" if percentiles else "mean",
        latency_sum_ns=round(number(path, mean, at=f"Average{name}Milliseconds") * _NS_PER_MS * ios),
        latency_min_ns=extremes.get(0.0, 0),
        latency_max_ns=extremes.get(100.0, 0),
        percentiles=percentiles,
    )


def _percentiles(path: Path, latency: Xml.Element | None, name: str, *, ends: bool = False) -> list[tuple[float, int]]:
    """(percent, ns), without minimum and maximum unless they are asked for."""
    found = []
    for bucket in latency.findall("Bucket") if latency is not None else ():
        value = bucket.findtext(f"{name}Milliseconds")
        percent = _figure(path, bucket, "Percentile")
        if value is not None and (ends or 0 < percent < 100):
            found.append((percent, round(number(path, value, at=f"Bucket/{name}Milliseconds") * _NS_PER_MS)))
    return found


def _settings(profile: Xml.Element | None) -> tuple[dict[str, LevelValue], int | None, int | None]:
    """Of the only target, or of all where they are alike. Threads are each target's own, or (-F) serve all targets,
    with requests to each, or (-O) to all of them together."""
    targets = profile.findall("Targets/Target") if profile is not None else []
    if profile is None or not targets:
        return {}, None, None
    names = {BLOCK_SIZE: "BlockSize", OUTSTANDING: "RequestCount", WORKERS: "ThreadsPerFile", "write": "WriteRatio"}
    found: dict[str, LevelValue] = {}
    for name, field in names.items():
        values = dict.fromkeys((each.findtext(field) or "").strip() for each in targets)
        text = "+".join(values)
        if text:
            found[name] = level_of(text)
    random = any(each.find("Random") is not None or each.find("RandomRatio") is not None for each in targets)
    found["access"] = "random" if random else "sequential"
    shared, of_thread = (_count(profile, name) for name in ("ThreadCount", "RequestCount"))
    per_worker, threads = found.get(OUTSTANDING), found.get(WORKERS)
    if shared:
        found[WORKERS] = shared
        per_target = per_worker * len(targets) if isinstance(per_worker, int) else None
        return found, shared, of_thread or per_target
    workers = threads * len(targets) if isinstance(threads, int) and threads else None
    return found, workers, per_worker if isinstance(per_worker, int) else None


def _count(profile: Xml.Element, name: str) -> int:
    """0 where it is not said."""
    text = (profile.findtext(name) or "").strip()
    return small(text) or 0


def _throttled(profile: Xml.Element) -> bool:
    return any((each.text or "0").strip() not in ("", "0") for each in profile.iter("Throughput"))


def _cpu(path: Path, span: Xml.Element, seconds: float) -> list[CpuTime]:
    """Of the whole machine on which DiskSpd ran."""
    average = span.find("CpuUtilization/Average")
    processors = len(span.findall("CpuUtilization/CPU"))
    if average is None or not processors:
        return []
    whole_ns = seconds * processors * 1e9
    return [
        CpuTime(
            role="initiator",
            layer="machine",
            busy_ns=round(_figure(path, average, "UsagePercent") / 100 * whole_ns),
            user_ns=round(_figure(path, average, "UserPercent") / 100 * whole_ns),
            system_ns=round(_figure(path, average, "KernelPercent") / 100 * whole_ns),
            window_ns=round(seconds * 1e9),
            processors=processors,
        )
    ]


def _figure(path: Path, element: Xml.Element, name: str) -> float:
    text = element.findtext(name)
    if text is None:
        raise Unreadable(path, "missing", at=f"{element.tag}/{name}")
    return number(path, text.replace(",", "."), at=f"{element.tag}/{name}")
