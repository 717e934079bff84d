"""What all charts share: size, axes, labels that do not collide, and the way to SVG."""

import html
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iotax.analysis import Summary
from iotax.report import font, palette, renderer
from iotax.report.charts.vega import FONT_PX, Spec, chosen, layer, number, word
from iotax.report.palette import Look, ref
from iotax.wording import figure, title

PANEL_PX = 336
"""Width of a panel: a third of the page's column, and the whole of a phone's."""
HALF_PX = 516
WIDE_PX = 1056
LINE_PX = 14
"""Space between two labels."""
_NAME_MAX = 14

FACTOR_TITLES = {
    "outstanding": "Outstanding I/Os for each worker",
    "workers": "Workers",
    "block_size": "Block size",
    "vms": "Virtual machines on each host",
    "read": "Share of reads",
    "random": "Share of random I/O",
    "rate_iops": "Offered rate (IOPS)",
}

_unique = itertools.count()


@dataclass(frozen=True)
class Drawing:
    """A chart at one or two widths. `draw` gives the specification for a width in pixels."""

    name: str
    """File name without extension."""
    title: str
    description: str
    """Text for readers who cannot see the chart."""
    draw: Callable[[int], Spec]
    wide_px: int = PANEL_PX
    mark: str = ""
    """A word in the corner of charts whose values were not measured."""
    _drawn: dict[int, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """SVG by width: the page and the chart's own file show the same picture."""

    @property
    def widths_px(self) -> tuple[int, ...]:
        return (self.wide_px, PANEL_PX) if self.wide_px != PANEL_PX else (PANEL_PX,)

    def svg(self, width_px: int) -> str:
        """The SVG from the chart library, with stand-ins for colours."""
        if width_px not in self._drawn:
            font.register()
            self._drawn[width_px] = self._marked(renderer.to_svg(self.draw(width_px)))
        return self._drawn[width_px]

    def _marked(self, svg: str) -> str:
        """The SVG with the mark at the right of its lower edge."""
        if not self.mark:
            return svg
        found = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', svg)
        width_px, height_px = (float(found[1]), float(found[2])) if found else (float(self.wide_px), 12.0)
        text = (
            f'<text x="{width_px - 2:g}" y="{height_px - 3:g}" text-anchor="end" font-size="10" font-style="italic" '
            f'fill="{palette.COLOURS["soft"].stand_in}">{html.escape(self.mark)}</text>'
        )
        return re.sub(r"</svg>\s*$", lambda _: f"{text}</svg>", svg, count=1)

    def inline(self) -> list[tuple[str, str]]:
        """(CSS class, SVG) for the page: one for every screen, or a wide and a narrow one."""
        kinds = ("wide", "narrow") if len(self.widths_px) == 2 else ("any",)
        return [(kind, self._inline(self.svg(w))) for kind, w in zip(kinds, self.widths_px, strict=True)]

    def file(self) -> str:
        """The SVG for a file of its own: light colours, a background, title, description and font inside."""
        svg = palette.to_light(_own_ids(self.svg(self.wide_px)))
        head = f"<title>{html.escape(self.title)}</title><desc>{html.escape(self.description)}</desc>"
        head += f"<style>{font.css()}</style>"
        head += f'<rect width="100%" height="100%" fill="{palette.COLOURS["page"].light}"/>'
        return re.sub(r"(<svg[^>]*>)", lambda found: found[1] + head, svg, count=1)

    def _inline(self, svg: str) -> str:
        label = html.escape(f"{self.title}. {self.description}", quote=True)
        svg = palette.to_variables(_own_ids(svg))
        return re.sub(r"<svg ", f'<svg role="img" aria-label="{label}" ', svg, count=1)


class Scale:
    """A linear or logarithmic axis with known ends and ticks, so that labels can be placed beside lines."""

    def __init__(self, values: Sequence[float], *, zero: bool = False, log: bool | None = None) -> None:
        known = [v for v in values if math.isfinite(v)] or [1.0]
        low, high = min(known), max(known)
        self.log = (low > 0 and high / low > 12) if log is None else log and low > 0
        if self.log:
            pad = (high / low) ** 0.04 if high > low else 1.5
            self.low, self.high = low / pad, high * pad
            self.ticks = _log_ticks(self.low, self.high)
        else:
            self.low = 0.0 if zero or low >= 0 else low
            self.high = high * 1.06 if high > 0 else 1.0
            self.ticks = _linear_ticks(self.low, self.high)

    @property
    def vega(self) -> Spec:
        kind = "log" if self.log else "linear"
        return {"type": kind, "domain": [self.low, self.high], "nice": False, "zero": False}

    def at(self, value: float) -> float:
        """The value's position: 0 at the low end, 1 at the high one."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, share: float) -> float:
        if self.log:
            return self.low * (self.high / self.low) ** share
        return self.low + share * (self.high - self.low)

    def spread(self, values: Sequence[float], height_px: float) -> list[float]:
        """Positions of labels for these values, as values on this axis, so that none covers another."""
        gap = LINE_PX / height_px
        order = sorted(range(len(values)), key=lambda i: values[i])
        places = [self.at(values[i]) for i in order]
        for _ in range(60):
            for a, b in itertools.pairwise(range(len(places))):
                overlap = gap - (places[b] - places[a])
                if overlap > 1e-9:
                    places[a] -= overlap / 2
                    places[b] += overlap / 2
            if places and places[0] < 0:
                places[0] = 0.0
            if places and places[-1] > 1:
                places[-1] = 1.0
        result = [0.0] * len(values)
        for i, place in zip(order, places, strict=True):
            result[i] = self.value(place)
        return result


def axis(name: str | None, scale: Scale, **more: Any) -> Spec:
    """An axis with our ticks; numbers short (`100k`, `0.5`)."""
    words = "abs(datum.value) < 1000 ? format(datum.value, ',~r') : format(datum.value, '~s')"
    return {"title": name, "values": scale.ticks, "labelExpr": words, **more}


def colour(looks: dict[str, Look], arms: Sequence[str]) -> Spec:
    return chosen("arm", arms, [looks[arm].colour.stand_in for arm in arms])


def shape(looks: dict[str, Look], arms: Sequence[str]) -> Spec:
    return chosen("arm", arms, [looks[arm].shape for arm in arms])


def dots(rows: Sequence[Spec], channels: Spec, size: int = 34) -> Spec:
    """Points with a rim in the page's colour, so that touching points stay distinct."""
    return layer("point", rows, channels, size=size, filled=True, opacity=0.8, stroke=ref("page"), strokeWidth=0.6)


def percents(values: Iterable[float]) -> tuple[float, Spec]:
    """How far an axis of percents reaches above and below 0, and its channel."""
    reach = max(2.0, *map(abs, values)) * 1.1
    scale = Scale([-reach, reach])
    scale.low, scale.high = -reach, reach
    words = "(datum.value > 0 ? '+' : '') + format(datum.value, '~r') + ' %'"
    return reach, number("y", scale.vega, axis(None, scale, labelExpr=words))


def boundaries(firsts: Mapping[str, int], top: float) -> tuple[list[Spec], list[Spec]]:
    """What separates the parts of a row of points, and their names at the `top`, by the place of each one's first."""
    labels = [{"x": first - 0.4, "y": top, "text": name} for name, first in firsts.items()]
    return [{"x": first - 0.5} for first in firsts.values() if first > 1], labels


def parted(edges: Sequence[Spec], labels: Sequence[Spec], x: Spec, y: Spec, width_px: int) -> list[Spec]:
    """Dashed lines that separate the parts of a row of points, and the parts' names if there is room."""
    layers = [layer("rule", edges, {"x": x}, color=ref("axis"), strokeDash=[3, 3])] if edges else []
    if len(labels) <= (12 if width_px > PANEL_PX else 5):
        style = {"align": "left", "baseline": "bottom", "dx": 2, "dy": -2, "fontSize": 11, "color": ref("soft")}
        layers.append(layer("text", labels, {"x": x, "y": y, "text": word("text")}, **style))
    return layers


def arm_titles(summary: Summary) -> dict[str, str]:
    return {arm: title(arm) for arm in summary.grid.arms}


def short(name: str) -> str:
    """A short name beside a line; the legend has the full name."""
    return name if len(name) <= _NAME_MAX else name[: _NAME_MAX - 1].rstrip() + "…"


def room_px(names: Iterable[str]) -> float:
    """Space at the right of a chart for the names beside its lines."""
    return 14 + max((font.width_px(short(name), FONT_PX, bold=True) for name in names), default=0)


def names_beside(
    rows: Sequence[Spec], arms: Sequence[str], names: Mapping[str, str], channels: Spec, scale: Scale, height_px: float
) -> Spec:
    """Each arm's name at the right end of its line, without overlap. `rows` are the points of the lines."""
    ends = [max((row for row in rows if row["arm"] == arm), key=lambda row: row["x"]) for arm in arms]
    places = scale.spread([each["y"] for each in ends], height_px)
    labels = [
        {"x": each["x"], "y": place, "arm": each["arm"], "name": short(names[each["arm"]])}
        for each, place in zip(ends, places, strict=True)
    ]
    return layer("text", labels, {**channels, "text": word("name")}, align="left", dx=9, fontWeight="bold")


def factor_title(name: str | None) -> str:
    return FACTOR_TITLES.get(name or "", (name or "").replace("_", " ").capitalize())


def say(value: float, unit: str) -> str:
    return f"{figure(value)} {unit}"


def brief(value: float) -> str:
    """Three significant figures, thousands as k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:
            return f"{figure(value / size)}{letter}"
    return figure(value)


def file_name(*parts: str) -> str:
    """A title's words as a file name."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


def _own_ids(svg: str) -> str:
    """Ids are unique only within one picture, but a page holds many."""
    mark = f"c{next(_unique)}-"
    svg = re.sub(r'\bid="', f'id="{mark}', svg)
    return re.sub(r"url\(#", f"url(#{mark}", svg)


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with 2 and 5 between them, or all digits, if there are few."""
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5, 7), tuple(range(1, 10)), tuple(x / 2 for x in range(2, 20))):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [d * 10.0**k for k in decades for d in digits if low <= d * 10.0**k <= high]
        if len(ticks) >= 4:
            break
    return ticks if len(ticks) >= 2 else _linear_ticks(low, high)


def _linear_ticks(low: float, high: float) -> list[float]:
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if (high - low) / (step * m) <= 6)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]
