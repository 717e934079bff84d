"""Sizes, durations, percentages and rates, in and out of words.

Suffixes of sizes are fio's: k, m, g, t are binary, with or without `iB` or `B`. Those of rates are decimal. Every
`format_*` writes what its `parse_*` reads back to the same value.
"""

from __future__ import annotations

import re

_NUMBER = r"(?P<number>\d{1,19}(?:\.\d{1,12})?)\s*"
_VALUE_MAX = (1 << 63) - 1
_SIZE = re.compile(_NUMBER + r"(?P<unit>[kmgt]?)(?:ib|b)?", re.IGNORECASE)
_DURATION = re.compile(_NUMBER + r"(?P<unit>ns|us|µs|ms|s|min|m|h)")
_PERCENT = re.compile(_NUMBER + r"(?P<sign>%?)")
_RATE = re.compile(_NUMBER + r"(?P<unit>[kM]?)")
_RATIO = re.compile(_NUMBER + r"(?::\s*1)?")
_BIT_RATE = re.compile(_NUMBER + r"(?P<unit>[KMG])bit(?:/s)?")

_DECIMAL_SIZE = re.compile(_NUMBER + r"(?P<unit>[kmgt])b", re.IGNORECASE)

_IOPS = {"": 1, "k": 1_000, "M": 1_000_000}
_BITS_PER_S = {"K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_SIZE_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}


def parse_size(value: object) -> int:
    """Bytes from `4096`, `4k`, `4KiB`, `1g`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _positive(value, "a size")
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        raise ValueError("not a size; write it as 4KiB, 4k or 4096 (k, m, g, t are binary)")
    return _positive(_whole(found["number"], _SIZE_BYTES[found["unit"].lower()], "bytes"), "a size")


def read_as_binary(value: object) -> str | None:
    """How a size that is written with a decimal unit is read: `128MiB` for `128MB`; None for any other value."""
    found = _DECIMAL_SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return f"{found['number']}{found['unit'].upper()}iB" if found else None


def format_size(size_bytes: int) -> str:
    """`4KiB`, `512B`: the largest unit that needs no fraction."""
    for suffix, unit in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{suffix}"
    return f"{size_bytes}B"


def parse_rate(value: object) -> int:
    """I/Os per second from `70000`, `70k`, `1.5M`: k and M are decimal here."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _bounded(value, "a rate")
    found = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        raise ValueError("not a rate in I/Os per second; write it as 70000, 70k or 1.5M")
    return _whole(found["number"], _IOPS[found["unit"]], "I/Os per second")


def parse_bit_rate(value: object) -> int:
    """Bits a second from `100Mbit`, `1Gbit`."""
    found = _BIT_RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        raise ValueError("not the rate of a link; write it as 100Mbit or 1Gbit")
    return _positive(_whole(found["number"], _BITS_PER_S[found["unit"]], "bits a second"), "a rate")


def format_bit_rate(rate_bits_per_s: int) -> str:
    """`100Mbit`: the largest unit that needs no fraction."""
    unit = next((unit for unit in "GM" if rate_bits_per_s % _BITS_PER_S[unit] == 0), "K")
    return f"{rate_bits_per_s / _BITS_PER_S[unit]:g}{unit}bit"


def parse_duration(value: object) -> int:
    """Nanoseconds from `500ms`, `2s`, `5min`, or a plain number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("a duration cannot be negative")
        return _bounded(round(value * 1e9), "a number of nanoseconds")
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        raise ValueError("not a duration; write it as 500ms, 2s or 5min")
    return _whole(found["number"], _DURATION_NS[found["unit"]], "nanoseconds")


def format_duration(duration_ns: int) -> str:
    """`2s`, `500ms`: the largest unit that needs no fraction."""
    for suffix in ("h", "min", "s", "ms", "us"):
        unit = _DURATION_NS[suffix]
        if duration_ns >= unit and duration_ns % unit == 0:
            return f"{duration_ns // unit}{suffix}"
    return "0s" if duration_ns == 0 else f"{duration_ns}ns"


COMPRESS_MAX = 8.0
DEDUPE_MAX = 20.0
"""The ratios to which data can be made reducible, as the engine's: what a pattern block has room for, and what is still
told from equal blocks alone."""


def parse_ratio(value: object) -> float:
    """So many to one, from `2`, `2.5` or `2.5:1`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _RATIO.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        raise ValueError("not a ratio; write it as 2.5 or 2.5:1")
    return float(found["number"])


def format_ratio(ratio: float) -> str:
    """`2.5:1`."""
    return f"{ratio:g}:1"


def parse_percent(value: object) -> float:
    """Percent from `75%`, `75` or `0.5%`. A fraction of 1 needs its sign: 0.75 may be meant as 75 % or as 0.75 %."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        percent, text, exact = float(value), repr(value), isinstance(value, int)
    else:
        found = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
        if not found:
            raise ValueError("not a percentage; write it as 75%")
        percent, text = float(found["number"]), found["number"]
        exact = bool(found["sign"]) or "." not in text
    if not 0 <= percent <= 100:
        raise ValueError("a percentage lies between 0% and 100%")
    if not exact and 0 < percent <= 1:
        raise ValueError(f"a fraction of 1 or a percentage? Write {format_percent(round(percent * 100, 9))} or {text}%")
    return percent


def parse_share(value: object) -> float:
    """A weight beside others of its kind, above 0: `30%`, `30` or `0.3`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return parse_percent(value)


def format_percent(percent: float) -> str:
    return f"{percent!r}".removesuffix(".0") + "%"


def show_time(duration_ns: float) -> str:
    """For reading, three significant figures: `12.3 µs`."""
    for suffix, unit in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(duration_ns) >= unit:
            return f"{_three(duration_ns / unit)} {suffix}"
    return f"{duration_ns:.0f} ns"


def show_rate(rate: float) -> str:
    """For reading, three significant figures: `123k`, `4.56M`."""
    for suffix, unit in (("M", 1e6), ("k", 1e3)):
        if abs(rate) >= unit:
            return f"{_three(rate / unit)}{suffix}"
    return _three(rate)


def show_minutes(duration_s: float) -> str:
    """For reading: `45 s`, `2 min 30 s`, `1 h 05 min`."""
    seconds = max(0, round(duration_s))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def show_share(share: float, digits: int = 1) -> str:
    """ "4.1 %"."""
    return f"{100 * share:.{digits}f} %"


def counted(n: int, noun: str) -> str:
    """ "1 run", "3 runs"."""
    return f"{n} {noun}" + ("" if n == 1 else "s")


def _three(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def _whole(number: str, unit: int, of: str) -> int:
    """number × unit exactly; a decimal fraction is fine where it gives a whole number."""
    whole, _, fraction = number.partition(".")
    scaled = int(whole + fraction) * unit
    if scaled % 10 ** len(fraction):
        raise ValueError(f"not a whole number of {of}")
    return _bounded(scaled // 10 ** len(fraction), f"a number of {of}")


def _positive(value: int, what: str) -> int:
    if value <= 0:
        raise ValueError(f"{what} must be greater than zero")
    return _bounded(value, what)


def _bounded(value: int, what: str) -> int:
    if value > _VALUE_MAX:
        raise ValueError(f"{what} of {value:.3g} is more than iotax counts")
    return value
