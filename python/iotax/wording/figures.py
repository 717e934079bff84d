"""What all sentences are made of: findings, figures, shares and intervals, and names as the field writes them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from iotax.analysis.estimate import Estimate
from iotax.protocols import titles

Tone: TypeAlias = Literal["better", "worse", "equivalent", "inconclusive", "plain", "warning"]


@dataclass(frozen=True)
class Finding:
    subject: str
    """The arm of the finding; empty for all."""
    text: str
    tone: Tone = "plain"
    details: tuple[str, ...] = ()
    response_key: str = ""
    """The response of the finding; empty for all."""
    verb: str = ""

    @property
    def sentence(self) -> str:
        return f"{' '.join(filter(None, (self.subject, self.verb, self.text)))}."


PERCENT_RATIO_MAX = 10.0
"""Above this, percentages are hard to read."""
TIMES_RATIO_MIN = 1.995
"""From here on, a ratio is written as "2.0 times" instead of "100 % more"."""
FACTOR_MAX = 1000.0
"""Above this, and below its inverse, an end of an uninformative interval is written as "over 1,000"."""
_DIGITS_MAX = 3
"""Percentages: ends that agree to this many decimals need no more."""
_UNKNOWN = 1e6
"""If an interval's high end is this many times its low end, the ends are not informative."""

NOTHING = 1e-9
"""In any unit, and as a share: smaller values are rounding errors and written as 0."""

_POWER_BELOW = 1e-3

ALIKE = "no interval: all runs alike"
"""Used when all figures are identical: an interval without width says nothing about precision."""


def figure(value: float) -> str:
    """Three significant figures, thousands separated; below a thousandth with a power of ten."""
    if not math.isfinite(value):
        return "–"
    if abs(value) < NOTHING:
        return "0"
    if abs(value) < _POWER_BELOW:
        return f"{'−' if value < 0 else ''}{abs(value):.2e}"
    rounded = float(f"{value:.3g}")
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    """ "4.1 %", "34 %"."""
    value = 100 * share
    if 100 * NOTHING <= value < 0.05:
        return f"{float(f'{value:.1g}'):.{_digits(value)}f} %"
    return f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"


def indexed(ratio: float, digits: int = 0) -> str:
    """A ratio with the baseline at 100. A ratio other than 100 is never written as 100, so that an interval agrees with
    its verdict."""
    value = 100 * ratio
    if abs(value - 100) >= 100 * NOTHING and float(f"{value:.{digits}f}") == 100:
        digits = max(digits, _digits(abs(value - 100)))
    return f"{value:,.{digits}f}"


def indexed_ends(ratio: Estimate, shown: Callable[[float], str] = indexed) -> tuple[str, str]:
    """The ends of an interval, written as `shown` writes a ratio."""
    assert ratio.low is not None and ratio.high is not None
    over = ratio.high > max(FACTOR_MAX, _UNKNOWN * ratio.low)
    return shown(ratio.low), f"over {100 * FACTOR_MAX:,.0f}" if over else shown(ratio.high)


def points(ratio: float) -> str:
    """A ratio as percentage points without their sign, "+4.1"; "+0.03", never "+0.0", if there is a difference."""
    value = 100 * (ratio - 1)
    if abs(value) < 100 * NOTHING:
        value = 0.0
    digits = 1 if value == 0 or abs(value) >= 0.05 else _digits(abs(value))
    return f"{value:+.{digits}f}".replace("-", "−")


def _digits(value: float) -> int:
    """Decimals that show the first figure of a small number."""
    return min(9, max(0, -math.floor(math.log10(value)) if value > 0 else 0))


def signed(share: float) -> str:
    """ "+4.1 %", "−34 %"; "−99.9 %", never "−100 %", if something is left."""
    if -1 < share < -0.995:
        return _signed_with(share, _digits(100 * (1 + share)))
    return ("+" if share > -NOTHING else "−") + percent(abs(share))


def interval(estimate: Estimate, none: str = "no interval") -> str:
    """The interval of a figure that is not written as a change: "95 % CI 4.1 to 5.2"."""
    if estimate.low is None or estimate.high is None:
        return none
    return ALIKE if estimate.alike else f"95 % CI {figure(estimate.low)} to {figure(estimate.high)}"


def span(ratio: Estimate) -> str:
    """A ratio's interval: "95 % CI −4.0 % to +14 %", "95 % CI 1.9 to 2.2 times"."""
    if ratio.low is None or ratio.high is None:
        return "no interval"
    if ratio.alike:
        return ALIKE
    return f"95 % CI {ends(ratio.low, ratio.high, times=ratio.value >= TIMES_RATIO_MIN)}"


def ends(low: float, high: float, *, times: bool = False) -> str:
    """Two ratios as changes, or as factors if a percentage would mislead."""
    if times or high > PERCENT_RATIO_MAX:
        shown = _bounded if high > _UNKNOWN * low else figure
        return f"{shown(low)} to {shown(high)} times"
    return _apart(low - 1, high - 1)


def _apart(low: float, high: float) -> str:
    """Two changes with enough decimals to differ: "−89.4 % to −89.1 %", not "−89 % to −89 %"."""
    for digits in range(_DIGITS_MAX + 1):
        said = [signed(each) if digits == 0 else _signed_with(each, digits) for each in (low, high)]
        if said[0] != said[1]:
            return " to ".join(said)
    return f"{signed(low)} to {signed(high)}"


def _signed_with(share: float, digits: int) -> str:
    return f"{100 * share:+.{digits}f} %".replace("-", "−")


def _bounded(ratio: float) -> str:
    if ratio > FACTOR_MAX:
        return f"over {FACTOR_MAX:,.0f}"
    return f"under {1 / FACTOR_MAX:g}" if ratio < 1 / FACTOR_MAX else figure(ratio)


def listed(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


PROTOCOL_TITLES = titles()


def title(label: str) -> str:
    """A level's name as the field writes it."""
    return " · ".join(PROTOCOL_TITLES.get(part, part) for part in label.split(" · "))


def inside(heading: str) -> str:
    """A heading as part of a sentence: "mean latency", but "CPU per I/O" and "Little's law" unchanged."""
    if heading.startswith("Little"):
        return heading
    return heading[:1].lower() + heading[1:] if heading[1:2].islower() else heading
