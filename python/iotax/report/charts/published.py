"""Published figures and ours: bars by load, with the published range as a band behind each."""

from collections.abc import Sequence
from dataclasses import dataclass

from iotax.analysis import Estimate
from iotax.analysis.published import Beside, Source
from iotax.report.charts.base import HALF_PX, PANEL_PX, Drawing, Scale, axis, factor_title, file_name
from iotax.report.charts.vega import Spec, end, layer, number, picture, quoted, word
from iotax.report.palette import COLOURS, Look, ref
from iotax.study.published import Span
from iotax.wording import figure, title
from iotax.wording.published import span_text

_ROW_PX = 38
"""Height of a bar below its name."""
_CLUSTERED_PX = 250
_AROUND_PX = 90
"""Height of heading, axis and labels."""
_WIDTH = 0.82
"""Share of a cluster's width that bars fill."""
_THIN = 0.006
"""Width of a published figure without a range, as a share of the axis."""


@dataclass(frozen=True)
class _Bar:
    """One published figure beside ours."""

    each: Beside
    theirs: Span
    ours: Estimate
    treatment: str
    load: str
    """The levels that vary within the source, except for what is compared; empty if none do."""

    @property
    def at_ends(self) -> Sequence[tuple[str, Estimate]]:
        return self.each.ends or (("", self.ours),)


def published_figures(
    sources: list[Source], looks: dict[str, Look], gained: str, compared: Sequence[str] = ()
) -> list[Drawing]:
    """Each source's relative figures and its absolute ones, if the runs have any too, which were `gained`: measured or
    simulated. `compared`: the factors that the study's baseline names."""
    found = []
    for place, source in enumerate(sources, start=1):
        for relative in (True, False):
            bars = _bars(source, relative, compared)
            if bars:
                found.append(_drawing(place, source, bars, relative, looks, gained))
    return found


def _bars(source: Source, relative: bool, compared: Sequence[str]) -> list[_Bar]:
    kept = [
        (each, theirs, ours)
        for each in source.figures
        for theirs, ours in [
            (each.published, each.measured) if relative else (each.published_absolute, each.measured_absolute)
        ]
        if theirs is not None and ours is not None
    ]
    levels = [dict(each.levels) for each, _, _ in kept]
    names = dict.fromkeys(name for each in levels for name in each)
    varied = [name for name in names if len({each.get(name) for each in levels}) > 1]
    loads = [name for name in varied if name not in compared]
    bars = []
    for (each, theirs, ours), own in zip(kept, levels, strict=True):
        load = " · ".join(own[name] if len(loads) == 1 else f"{name} {own[name]}" for name in loads if name in own)
        arms = [name for name in compared if name in own]
        named = [name for name in arms if name in varied] or arms or [name for name in own if name not in loads]
        treatment = title(" · ".join(own[name] for name in named))
        bars.append(_Bar(each, theirs, ours, treatment, load))
    # A figure over all loads has no place among clusters of single loads.
    if any(not bar.load for bar in bars):
        bars = [_Bar(bar.each, bar.theirs, bar.ours, title(bar.each.treatment), "") for bar in bars]
    return bars


def _drawing(
    place: int, source: Source, bars: list[_Bar], relative: bool, looks: dict[str, Look], gained: str
) -> Drawing:
    response = source.response
    unit = f"{title(source.baseline)} = 100" if relative else response.unit
    heading = f"{source.citation}, {unit}"
    said = "; ".join(
        f"{', '.join(filter(None, (bar.treatment, bar.load)))}: published {span_text(bar.theirs)}, "
        f"{gained} {figure(bar.ours.value)}"
        for bar in bars
    )
    return Drawing(
        file_name("published", str(place), response.key, "relative" if relative else "absolute"),
        heading,
        f"{response.title}. Bars are {gained}, with 95 % intervals; bands are published. {said}.",
        lambda width: _draw(bars, relative, looks, gained, width, heading),
        HALF_PX,
    )


def _draw(
    bars: list[_Bar],
    relative: bool,
    looks: dict[str, Look],
    gained: str,
    width_px: int,
    heading: str,
) -> Spec:
    ends = [end_of for bar in bars for end_of in (*bar.theirs, *(_reach(ours)[1] for _, ours in bar.at_ends))]
    scale = Scale([*ends, 100.0] if relative else ends, zero=True, log=False)
    scale.low = 0.0
    draw = _clustered if bars[0].load and len({bar.load for bar in bars}) > 1 else _listed
    return draw(bars, relative, looks, gained, width_px, heading, scale)


def _clustered(
    bars: list[_Bar],
    relative: bool,
    looks: dict[str, Look],
    gained: str,
    width_px: int,
    heading: str,
    scale: Scale,
) -> Spec:
    """Upright bars, a cluster for each load; the legend is in the page."""
    loads, treatments = list(dict.fromkeys(bar.load for bar in bars)), list(dict.fromkeys(b.treatment for b in bars))
    width = _WIDTH / len(treatments)
    bands: list[Spec] = []
    ours: list[Spec] = []
    reaches: list[Spec] = []
    names: list[Spec] = []
    for bar in bars:
        left = loads.index(bar.load) - _WIDTH / 2 + treatments.index(bar.treatment) * width
        place = {"x": left, "x2": left + width}
        bands.append({**place, **_band(bar, scale, "y"), "say": _theirs(bar)})
        names.append({"x": left + width / 2, "y": 0.02 * scale.high, "text": bar.treatment})
        for number_of, (carrier, estimate) in enumerate(bar.at_ends):
            part = width * 0.62 / len(bar.at_ends)
            start = left + width * 0.19 + number_of * part
            said = _ours(bar, carrier, estimate, gained)
            ours.append(
                {"x": start, "x2": start + part, "y": 0.0, "y2": estimate.value, "hue": _hue(bar, looks), "say": said}
            )
            low, high = _reach(estimate)
            reaches.append({"x": start + part / 2, "y": low, "y2": high, "say": said})
    totals = {bar.load: bar.each.outstanding for bar in bars}
    labels = [f"{load} ({totals[load][0]})" if len(totals[load]) == 1 else load for load in loads]
    words = "".join(f"datum.value == {at} ? {quoted(label)} : " for at, label in enumerate(labels)) + "''"
    known = any(len(each) == 1 for each in totals.values())
    x_axis = {
        "title": _load_title(bars) + (" (outstanding I/Os in total)" if known else ""),
        "values": list(range(len(loads))),
        "labelExpr": words,
        "labelOverlap": False,
        "labelLimit": 0,
        "labelColor": ref("ink"),
        "ticks": False,
    }
    x = number("x", {"domain": [-0.55, len(loads) - 0.45], "nice": False, "zero": False}, x_axis)
    y = number("y", scale.vega, axis(None, scale, grid=True))
    span = {"x": x, "x2": end("x2"), "y": y, "y2": end("y2")}
    layers = [
        layer("rect", ours, {**span, "color": word("hue", scale=None, legend=None)}, opacity=0.75),
        layer("rect", bands, span, color=ref("soft"), opacity=0.38),
        *([layer("rule", [{"y": 100}], {"y": y}, color=ref("axis"))] if relative else []),
        layer("rule", reaches, {"x": x, "y": y, "y2": end("y2")}, strokeWidth=2, color=ref("ink")),
    ]
    if len(treatments) > 1:
        style = {"angle": 270, "align": "left", "baseline": "middle", "fontSize": 10, "color": ref("page")}
        shortest = min(bar.ours.value for bar in bars) / scale.high
        limit = shortest * (_CLUSTERED_PX - _AROUND_PX) - 6
        layers.append(layer("text", names, {"x": x, "y": y, "text": word("text")}, limit=limit, **style))
    return picture(layers, width_px, _CLUSTERED_PX, heading)


def _listed(
    bars: list[_Bar],
    relative: bool,
    looks: dict[str, Look],
    gained: str,
    width_px: int,
    heading: str,
    scale: Scale,
) -> Spec:
    """Horizontal bars, each below its name, which has the whole width."""
    names: list[Spec] = []
    bands: list[Spec] = []
    ours: list[Spec] = []
    reaches: list[Spec] = []
    for at, bar in enumerate(bars):
        label = ", ".join(filter(None, (bar.treatment, bar.load)))
        names.append({"x": 0.0, "y": at - 0.24, "text": label})
        bands.append({"y": at - 0.05, "y2": at + 0.41, **_band(bar, scale, "x"), "say": _theirs(bar)})
        for number_of, (carrier, estimate) in enumerate(bar.at_ends):
            part = 0.3 / len(bar.at_ends)
            top = at + 0.03 + number_of * part
            said = _ours(bar, carrier, estimate, gained)
            ours.append(
                {"y": top, "y2": top + part, "x": 0.0, "x2": estimate.value, "hue": _hue(bar, looks), "say": said}
            )
            low, high = _reach(estimate)
            reaches.append({"y": top + part / 2, "x": low, "x2": high, "say": said})
    x = number("x", scale.vega, axis(None, scale, grid=True, labelOverlap=True))
    y = number("y", {"domain": [len(bars) - 0.5, -0.5], "nice": False, "zero": False}, {"title": None, "labels": False})
    span = {"x": x, "x2": end("x2"), "y": y, "y2": end("y2")}
    limit = width_px - (40 if width_px > PANEL_PX else 24)
    layers = [
        layer("rect", ours, {**span, "color": word("hue", scale=None, legend=None)}, opacity=0.75),
        layer("rect", bands, span, color=ref("soft"), opacity=0.38),
        *([layer("rule", [{"x": 100}], {"x": x}, color=ref("axis"))] if relative else []),
        layer("rule", reaches, {"x": x, "x2": end("x2"), "y": y}, strokeWidth=2, color=ref("ink")),
        layer("text", names, {"x": x, "y": y, "text": word("text")}, align="left", baseline="middle", limit=limit),
    ]
    return picture(layers, width_px, 52 + _ROW_PX * len(bars), heading)


def _load_title(bars: list[_Bar]) -> str:
    """Title of the x axis: the one factor that varies, else empty."""
    levels = [dict(bar.each.levels) for bar in bars]
    names = [name for name in levels[0] if {each.get(name) for each in levels} == {bar.load for bar in bars}]
    return factor_title(names[0]) if names else ""


def _band(bar: _Bar, scale: Scale, way: str) -> Spec:
    low, high = bar.theirs
    least = _THIN * (scale.high - scale.low)
    middle, half = (low + high) / 2, max(high - low, least) / 2
    return {way: middle - half, f"{way}2": middle + half}


def _hue(bar: _Bar, looks: dict[str, Look]) -> str:
    shown = looks[bar.each.arm].colour if bar.each.arm in looks else COLOURS["blue"]
    return shown.stand_in


def _reach(ours: Estimate) -> tuple[float, float]:
    return (
        ours.value if ours.low is None else ours.low,
        ours.value if ours.high is None else ours.high,
    )


def _theirs(bar: _Bar) -> str:
    called = f" as {bar.each.called}" if bar.each.called else ""
    named = ", ".join(filter(None, (bar.treatment, bar.load)))
    return f"{named}, published{called}: {span_text(bar.theirs)}"


def _ours(bar: _Bar, carrier: str, estimate: Estimate, gained: str) -> str:
    low, high = _reach(estimate)
    named = ", ".join(filter(None, (bar.treatment, bar.load)))
    over = f" over {carrier}" if carrier else ""
    return f"{named}{over}, {gained}: {figure(estimate.value)} ({figure(low)} to {figure(high)})"
