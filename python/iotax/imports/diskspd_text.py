"""What DiskSpd prints by default (`-Rtext`), as the XML that it would have written. DiskSpd for Linux prints nearly the
same of each job of a run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Xml  # nosec: builds trees, reads none
from collections.abc import Sequence
from pathlib import Path

from iotax.imports.problems import Unreadable, number, runs_of, whole

_BEGIN = re.compile(r"^Command Line:|^Input parameters:")
_SPAN = re.compile(r"^Results for (?:timespan|job) (\d+):")
_ANY_RESULT = re.compile(r"^(?:actual )?test time:|interrupted before the measurements began")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_CPU = re.compile(r"^(?P<name>[\sPE\d|]*?(?:\d+|avg[.:]))\s*\|?(?P<shares>(?:\s*[\d.]+%\s*\|?){4,5})\s*$")
_CPU_COLUMNS = ("UsagePercent", "UserPercent", "KernelPercent", "IdlePercent")
_CPU_COLUMNS_OF_LINUX = ("UsagePercent", "UserPercent", "KernelPercent", "WaitPercent", "IdlePercent")
_PERCENTILE = re.compile(
    r"^\s*(?P<name>min|max|[\d.]+th|\d{1,2}-nines?)\s*\|(?P<read>[^|]+)\|(?P<write>[^|]+)\|(?P<total>[^|]+)$"
)
_INTERRUPTED = "The test was interrupted before the measurements began."
_OPTIONS = (
    ("BlockSize", r"block size: (\S+)"),
    ("ThreadsPerFile", r"threads per file: (\d+)"),
    ("RequestCount", r"number of outstanding I/O operations(?: per thread)?: (\d+)"),
    ("MaxFileSize", r"max file size: (\S+)"),
    ("Throughput", r"throughput rate-limited to (\d+) "),
)


def recognised(text: str) -> bool:
    return any(_SPAN.match(line) for line in text.splitlines())


def roots_of(path: Path, text: str) -> list[Xml.Element]:
    """`<Results>` of each run in the text. Raises Unreadable."""
    return [_root(path, each) for each in runs_of(text, _BEGIN, _ANY_RESULT) if recognised(each)]


def _root(path: Path, text: str) -> Xml.Element:
    root = Xml.Element("Results")
    system = _add(root, "System")
    if found := re.search(r"^\s*start time:\s*(.+?)\s*$", text, re.MULTILINE):
        _add(system, "RunTime", found[1])
    if found := re.search(r"tool version:?\s*([\d.]+)", text, re.IGNORECASE):
        _add(_add(system, "Tool"), "Version", found[1])
    lines = text.splitlines()
    starts = [at for at, line in enumerate(lines) if _SPAN.match(line)]
    profile = _add(_add(root, "Profile"), "TimeSpans")
    _profile(profile, lines[: starts[0]])
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        root.append(_span(path, lines[:end], start))
    return root


def _profile(spans: Xml.Element, lines: Sequence[str]) -> None:
    """What was asked of each time span, from the lines under `Input parameters`."""
    span: Xml.Element | None = None
    targets = target = None
    for content in map(str.strip, lines):
        if re.match(r"(?:timespan|job):\s+\d+", content):
            span = _add(spans, "TimeSpan")
            targets, target = _add(span, "Targets"), None
        elif span is None or targets is None:
            continue
        elif found := re.match(r"(?:path: |template target )", content):
            target = _add(targets, "Target")
            _add(target, "Path", content[found.end() :].strip("'"))
        elif target is None:
            for name, form in (
                ("Duration", r"duration: (\d+)s"),
                ("Warmup", r"warm up time: (\d+)s"),
                ("ThreadCount", r"thread pool with (\d+) threads"),
                ("RequestCount", r"number of outstanding I/O operations per thread: (\d+)"),
            ):
                if found := re.match(form, content):
                    _add(span, name, found[1])
        else:
            _target(target, content)


def _target(target: Xml.Element, content: str) -> None:
    for name, form in _OPTIONS:
        if found := re.match(form, content):
            text = found[1]
            if name in ("BlockSize", "MaxFileSize"):
                text = str(_bytes(text))
            _add(target, name, text)
            if name == "Throughput" and content.endswith("IOPS"):
                target[-1].set("unit", "IOPS")
    if content.startswith("performing"):
        ratio = re.search(r"read/write ratio: \d+/(\d+)", content)
        _add(target, "WriteRatio", ratio[1] if ratio else "100" if "write test" in content else "0")
    elif content.startswith("using mixed random"):
        share = re.search(r"\((\d+)% random\)", content)
        _add(target, "RandomRatio", share[1] if share else "50")
    elif content.startswith("using random I/O"):
        _add(target, "Random", "1")
    elif content.startswith("using interlocked sequential"):
        _add(target, "InterlockedSequential", "true")


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text)
    return round(float(found[1]) * _UNITS[found[2].upper()]) if found and len(text) < 24 else 0


def _span(path: Path, lines: Sequence[str], start: int) -> Xml.Element:
    """The result of a time span, whose first line is `start`."""
    span = Xml.Element("TimeSpan")
    latency: Xml.Element | None = None
    section, columns, threads = "", [], 0
    target = _add(_add(span, "Thread"), "Target")
    cpus = _add(span, "CpuUtilization")
    seconds: str | None = None
    for line, content in enumerate(lines[start:], start=start + 1):
        if _INTERRUPTED in content:
            _add(span, "Error", _INTERRUPTED)
            return span
        if found := re.match(r"(?:actual )?test time:\s*([\d.,]+)s", content):
            seconds = found[1]
        elif content.strip() in ("Total IO", "Read IO", "Write IO"):
            section, threads = content.split()[0], 0
        elif content.startswith("thread |"):
            columns = [each.strip().removesuffix("(ms)") for each in content.split("|")]
        elif section == "Write" and re.match(r"\s*\d+ \|", content):
            threads += 1
        elif content.startswith("total:") and section in ("Read", "Write"):
            cells = ["total", *content.removeprefix("total:").split("|")]
            values = dict(zip(columns, (each.strip() for each in cells), strict=False))
            for name, column in (("Bytes", "bytes"), ("Count", "I/Os")):
                _add(target, f"{section}{name}", str(whole(path, values.get(column), line=line, at=column)))
            if "AvgLat" in values:
                latency = _add(span, "Latency") if latency is None else latency
                if values["AvgLat"].rstrip("0.") or target.findtext(f"{section}Count") != "0":
                    _add(latency, f"Average{section}Milliseconds", values["AvgLat"])
        elif content.lower().startswith("total latency distribution"):
            latency = _add(span, "Latency") if latency is None else latency
            section = "Latency"
        elif section == "Write" and latency is not None and content.startswith("  %-ile |"):
            section = "Latency of Linux"
        elif section.startswith("Latency") and latency is not None and (found := _PERCENTILE.match(content)):
            bucket = _bucket(path, line, found)
            latency.append(_merged_once(bucket, threads) if section == "Latency of Linux" else bucket)
        elif not section and (found := _CPU.match(content)):
            _cpu(path, line, cpus, found)
    if seconds is None:
        raise Unreadable(path, "it ends before its result", line=len(lines), at="actual test time")
    _add(span, "TestTimeSeconds", seconds)
    missing = [name for name in ("ReadCount", "WriteCount") if target.find(name) is None]
    if missing:
        raise Unreadable(path, "it ends in the middle of its result", line=len(lines), at=f"{missing[0][:-5]} IO")
    return span


def _bucket(path: Path, line: int, found: re.Match[str]) -> Xml.Element:
    name = found["name"]
    bucket = Xml.Element("Bucket")
    _add(bucket, "Percentile", f"{_percent(name):.10g}")
    for side in ("read", "write", "total"):
        text = found[side].strip()
        if text not in ("N/A", ""):
            number(path, text.replace(",", "."), line=line, at=name)
            _add(bucket, f"{side.capitalize()}Milliseconds", text.replace(",", "."))
    return bucket


def _merged_once(bucket: Xml.Element, threads: int) -> Xml.Element:
    """DiskSpd for Linux counts the first threads' I/Os several times in its column of reads and writes together: that
    column is kept for one thread, and replaced if all I/Os have one direction."""
    total = bucket.find("TotalMilliseconds")
    one_way = [each for each in bucket if each.tag in ("ReadMilliseconds", "WriteMilliseconds")]
    if total is not None and threads > 1:
        if len(one_way) == 1:
            total.text = one_way[0].text
        else:
            bucket.remove(total)
    return bucket


def _percent(name: str) -> float:
    if name in ("min", "max"):
        return 0.0 if name == "min" else 100.0
    if "nine" in name:
        return 100 - 100 * 10.0 ** -int(name.partition("-")[0])
    return float(name.removesuffix("th"))


def _cpu(path: Path, line: int, cpus: Xml.Element, found: re.Match[str]) -> None:
    """Of one processor, or of all of them."""
    whole_of = "avg" in found["name"]
    element = _add(cpus, "Average" if whole_of else "CPU")
    shares = re.findall(r"[\d.,]+(?=%)", found["shares"])
    names = _CPU_COLUMNS if len(shares) == len(_CPU_COLUMNS) else _CPU_COLUMNS_OF_LINUX
    for name, share in zip(names, shares, strict=True):
        number(path, share.replace(",", "."), line=line, at="CPU")
        _add(element, name, share)


def _add(parent: Xml.Element, name: str, text: str | None = None) -> Xml.Element:
    element = Xml.SubElement(parent, name)
    element.text = text
    return element
