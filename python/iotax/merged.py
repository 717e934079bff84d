"""Streams that ran at the same time, as one: histograms add up, percentiles and means of several do not."""

from __future__ import annotations

from collections.abc import Sequence

from iotax.trial import Direction, Gaps, Histogram, Latency, LatencyKnown, merge_counts


def merged_directions(streams: Sequence[Direction]) -> Direction:
    """Of reads, or of writes."""
    # One without any I/O says 0, which is not a latency.
    active = [each for each in streams if each.ios]
    services = [each.service for each in streams if each.service is not None]
    return Direction(
        ios=sum(each.ios for each in streams),
        bytes=sum(each.bytes for each in streams),
        errors=sum(each.errors for each in streams),
        latency=_known([each.latency for each in active]),
        latency_sum_ns=sum(each.latency_sum_ns for each in active),
        latency_min_ns=min((each.latency_min_ns for each in active), default=0),
        latency_max_ns=max((each.latency_max_ns for each in active), default=0),
        histogram=merged_histograms([each.histogram for each in active or streams]),
        percentiles=active[0].percentiles if len(active) == 1 else [],
        service=merged_latencies(services) if services else None,
    )


def merged_histograms(parts: Sequence[Histogram]) -> Histogram:
    """As exact as the least exact of them."""
    digits = min((each.significant_digits for each in parts), default=Histogram().significant_digits)
    edges_ns = sorted({edge for each in parts for edge in each.edges_ns})
    return Histogram(significant_digits=digits, counts=list(merge_counts(*parts).items()), edges_ns=edges_ns)


def merged_latencies(parts: Sequence[Latency]) -> Latency:
    some = [each for each in parts if each.histogram.counts]
    return Latency(
        latency_sum_ns=sum(each.latency_sum_ns for each in parts),
        latency_min_ns=min((each.latency_min_ns for each in some), default=0),
        latency_max_ns=max((each.latency_max_ns for each in some), default=0),
        histogram=merged_histograms([each.histogram for each in parts]),
    )


def merged_gaps(parts: Sequence[tuple[Gaps, int]], error_ns: int) -> Gaps:
    """When none of several machines completed an I/O; each with the start of its window, of which two are known to
    `error_ns` of each other. A gap must be ten times as long for it to be listed."""
    listed_from_ns = max(10 * error_ns, *(gaps.listed_from_ns for gaps, _ in parts))
    common = _spans(*parts[0])
    for gaps, start_ns in parts[1:]:
        own = _spans(gaps, start_ns)
        both = [(max(a, c), min(b, d)) for a, b in common for c, d in own if min(b, d) - max(a, c) >= listed_from_ns]
        common = sorted(both)
    found = [(start_ns, end_ns - start_ns) for start_ns, end_ns in common if end_ns - start_ns >= listed_from_ns]
    bound_ns = min(listed_from_ns - 1, *(gaps.longest_ns for gaps, _ in parts))
    longest_ns = max((duration_ns for _, duration_ns in found), default=bound_ns)
    return Gaps(longest_ns=longest_ns, is_bound=not found, listed_from_ns=listed_from_ns, listed=found)


def _spans(gaps: Gaps, start_ns: int) -> list[tuple[int, int]]:
    return [(start_ns + at_ns, start_ns + at_ns + duration_ns) for at_ns, duration_ns in gaps.listed]


def _known(parts: Sequence[LatencyKnown]) -> LatencyKnown:
    if len(parts) == 1:
        return parts[0]
    if "none" in parts:
        return "none"
    return "histogram" if set(parts) <= {"histogram"} else "mean"
