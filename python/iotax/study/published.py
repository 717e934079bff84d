"""Published figures for a question, shown beside the measured ones."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from iotax.study.fields import PublishedResponse, Section


def _span(value: object) -> object:
    """A number, or the two ends of a range, as a pair."""
    ends = value if isinstance(value, list | tuple) else [value, value]
    if len(ends) != 2 or any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
        raise ValueError("give a number, or two as [low, high]")
    low, high = map(float, ends)
    if not (0 < low <= high and math.isfinite(high)):
        raise ValueError("figures are above 0, and a range begins with its lower end")
    return low, high


Span: TypeAlias = Annotated[
    tuple[float, float],
    BeforeValidator(_span),
    PlainSerializer(lambda span: span[0] if span[0] == span[1] else list(span), when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {
                    "type": "array",
                    "items": {"type": "number", "exclusiveMinimum": 0},
                    "minItems": 2,
                    "maxItems": 2,
                },
            ],
            "examples": [196, [91, 109]],
        }
    ),
]
"""Both ends; equal if one number was published."""
Statistic: TypeAlias = Literal["geometric mean", "mean of ratios", "ratio of means"]


def rounding(value: float) -> float:
    """Half a unit of the last printed digit: 0.5 for 196, 0.005 for 180.82."""
    decimals = f"{value:.10g}".partition(".")[2]
    return 0.5 * 10.0 ** -len(decimals)


class PublishedFigure(Section):
    """The source's figure for one treatment: `relative`, `absolute`, or both."""

    of: Annotated[dict[str, bool | int | float | str], Field(min_length=1)]
    """The treatment, by levels of this study's factors; the mean over factors not named."""
    relative: Span | None = None
    """Relative to the baseline = 100: a number, or [low, high]."""
    absolute: Span | None = None
    """In IOPS, MiB/s, µs, ms or percent: a number, or [low, high]."""
    cores: Annotated[int, Field(gt=0)] | None = None
    """Cores that the source gives for `rate_iops`, at the cost in `absolute`."""
    called: str = ""
    """What the source measured, if the study's treatment only represents it."""


class Published(Section):
    """Figures of one source for one response."""

    source: str
    """Who published it, when, under which title."""
    response: PublishedResponse
    """Response: iops, bandwidth (MiB/s), latency (mean, µs), latency_p99 (µs), cpu_per_io (initiator and target, µs), \
cpu_initiator, cpu_target, cpu_hypervisor and cpu_machine (µs per I/O), cpu_utilisation_initiator, \
cpu_utilisation_target, cpu_utilisation_hypervisor and cpu_utilisation_machine (percent of the role's processors; \
relative figures are judged only where rates are equal); of databases transactions (a second) and disk_iops; \
longest_gap (ms)."""
    figures: Annotated[list[PublishedFigure], Field(min_length=1)]
    """One entry for each treatment that the source covers."""
    statistic: Statistic = "geometric mean"
    """How the source averages several treatments into one number; ours are averaged in the same way: geometric mean \
(of the ratios),
    mean of \
ratios (arithmetic), or ratio of means (arithmetic means of the values, as of IOPS over all block sizes)."""
    reason: str = ""
    """The likely reason if our result differs, for the summary."""
    rate_iops: Annotated[int, Field(gt=0)] | None = None
    """The rate to which `cores` applies."""
    baseline: dict[str, bool | int | float | str] | None = None
    """The source's baseline (100); default: the study's baseline."""
    remarks: str = ""
    """How the source measured, and why its figures may differ from ours."""


class PublishedPart(Section):
    """The only field of such a study file."""

    published: list[Published]
