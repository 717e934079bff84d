"""Whether a record's figures can be those of any measurement: finite, within 64 bits, of some duration.

Records come from engines, from other programs' files and from notebooks that somebody sent. Their types are checked
where they are read; a number of 400 digits has the right type, and ends every calculation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from pydantic import BaseModel

from iotax.trial import Direction, TrialResult

MOST = (1 << 62) - 1
"""Sums of two still fit 64 bits."""
_YEARS_NS = 10 * 366 * 86_400 * 10**9
"""Longer is not a run."""
_DEPTH_MAX = 32


def unsound(result: TrialResult) -> str:
    """Which figure of a result is not a possible one, and what it is; empty if all are."""
    if wrong := out_of_range(result):
        return wrong
    if not 0 < result.window.duration_ns < _YEARS_NS:
        return f"window.duration_ns: {result.window.duration_ns}"
    for name, stream in (("read", result.read), ("write", result.write), ("sync", result.sync)):
        if stream is not None and (wrong := unsound_direction(stream)):
            return f"{name}: {wrong}"
    for at, each in enumerate(result.slices):
        if each.duration_ns <= 0:
            return f"slices[{at}].duration_ns: {each.duration_ns}"
    for at, each in enumerate(result.profile):
        kinds = (each.layers, each.copied_bytes, each.cache_lines)
        counts = chain.from_iterable(own.values() for kind in kinds for own in kind.values())
        if (wrong := min(chain([each.ios], counts, (call.instructions for call in each.calls)))) < 0:
            return f"profile[{at}]: {wrong:g}"
        for place, call in enumerate(each.calls):
            if not -1 <= call.caller < place:
                return f"profile[{at}].calls[{place}].caller: {call.caller}"
    return ""


def unsound_direction(stream: Direction) -> str:
    times = (stream.latency_sum_ns, stream.latency_min_ns, stream.latency_max_ns)
    counts = (stream.ios, stream.bytes, *times, *chain.from_iterable(stream.histogram.counts))
    for wrong in (min(counts), max(counts)):
        if not 0 <= wrong <= MOST:
            return f"{wrong:g} is not a possible value"
    if stream.latency != "none" and stream.latency_max_ns and stream.latency_min_ns > stream.latency_max_ns:
        return "the least latency is more than the greatest"
    return next((wrong for pair in stream.percentiles if (wrong := unsound_percentile(*pair))), "")


def unsound_percentile(percent: float, value_ns: int) -> str:
    possible = 0 <= percent <= 100 and 0 <= value_ns <= MOST
    return "" if possible else f"a {percent:g}th percentile of {value_ns:g} ns is not a possible value"


def out_of_range(value: Any, depth: int = 0) -> str:
    """The first number in a record, or in JSON, that is not finite or needs more than 64 bits; empty if none is."""
    match value:
        case bool() | str() | None:
            return ""
        case int():
            return "" if abs(value) <= MOST else f"a number of {value.bit_length()} bits"
        case float():
            return "" if math.isfinite(value) else str(value)
        case list() | tuple():
            if _only_small(value):
                return ""
            parts = enumerate(value)
        case BaseModel():
            parts = value.__dict__.items()
        case Mapping():
            parts = value.items()
        case _:
            return ""
    if depth > _DEPTH_MAX:
        return "nested too deeply"
    for name, each in parts:
        # Most are numbers, each of which costs a call otherwise.
        in_range = type(each) is int and -MOST <= each <= MOST
        if not in_range and (wrong := out_of_range(each, depth + 1)):
            return f"{name}: {wrong}"
    return ""


def _only_small(values: Sequence[Any]) -> bool:
    """Whether all are integers of 62 bits, or tuples of such integers.

    Histograms and series are most of a record. Testing a whole list takes a quarter of the time of testing each value.
    """
    kinds = set(map(type, values))
    if kinds == {tuple}:
        values = list(chain.from_iterable(values))
        kinds = set(map(type, values))
    return kinds == {int} and min(values) >= -MOST and max(values) <= MOST
