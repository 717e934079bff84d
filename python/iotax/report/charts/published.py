"""Published figures and measured ones, a row for each treatment."""

from typing import Any

from iotax.analysis import Estimate
from iotax.analysis.published import Beside, Source
from iotax.report.charts.base import HALF_PX, PANEL_PX, Drawing, Scale, axis, file_name
from iotax.report.charts.vega import Spec, end, layer, number, picture, quoted, word
from iotax.report.palette import COLOURS, Look, ref
from iotax.study.published import Span
from iotax.wording import figure, title

_ROW_PX = 34
_APART = 0.22
"""Of a row: published above the middle, measured below."""


def published_figures(sources: list[Source], looks: dict[str, Look], gained: str) -> list[Drawing]:
    """For each source its relative figures and its absolute ones, where the runs have any too, which were `gained`:
    measured or simulated."""
    found = []
    for place, source in enumerate(sources, start=1):
        for relative in (True, False):
            rows = [(each, *_pair(each, relative)) for each in source.figures]
            both = [(each, theirs, ours) for each, theirs, ours in rows if theirs is not None and ours is not None]
            if both:
                found.append(_drawing(place, source, both, relative, looks, gained))
    return found


def _pair(each: Beside, relative: bool) -> tuple[Span | None, Estimate | None]:
    return (each.published, each.measured) if relative else (each.published_absolute, each.measured_absolute)


def _drawing(
    place: int,
    source: Source,
    rows: list[tuple[Beside, Span, Estimate]],
    relative: bool,
    looks: dict[str, Look],
    gained: str,
) -> Drawing:
    response = source.response
    unit = f"{title(source.baseline)} = 100" if relative else response.unit
    heading = f"{response.short}, {unit}"
    said = "; ".join(
        f"{title(each.treatment)}: published {span_text(theirs)}, {gained} {figure(ours.value)}"
        for each, theirs, ours in rows
    )
    return Drawing(
        file_name("published", str(place), response.key, "relative" if relative else "absolute"),
        heading,
        f"Open diamonds are published, filled points {gained} with 95 % intervals. {said}.",
        lambda width: _draw(rows, relative, looks, gained, width, heading),
        HALF_PX,
    )


def _draw(
    rows: list[tuple[Beside, Span, Estimate]],
    relative: bool,
    looks: dict[str, Look],
    gained: str,
    width_px: int,
    heading: str,
) -> Spec:
    theirs_rows: list[Spec] = []
    ours_rows: list[Spec] = []
    for place, (each, theirs, ours) in enumerate(rows):
        name = title(each.treatment)
        shown = looks[each.arm].colour if each.arm in looks else COLOURS["ink"]
        theirs_rows.append(
            {
                "y": place - _APART,
                "x": (theirs[0] * theirs[1]) ** 0.5,
                "low": theirs[0],
                "high": theirs[1],
                "say": f"{name}, published{f' as {each.called}' if each.called else ''}: {span_text(theirs)}",
            }
        )
        at_ends = each.ends if relative and each.ends else (("", ours),)
        ours_rows += [
            _row(place, ratio, shown.stand_in, f"{name}{f' over {carrier}' if carrier else ''}, {gained}")
            for carrier, ratio in at_ends
        ]
    ends = [r[key] for r in (*theirs_rows, *ours_rows) for key in ("low", "high")]
    scale = Scale([*ends, 100.0] if relative else ends, log=True)
    x = number("x", scale.vega, axis(None, scale, grid=True, labelOverlap=True))
    names = [title(each.treatment) for each, _, _ in rows]
    said = "".join(f"datum.value == {place} ? {quoted(name)} : " for place, name in enumerate(names)) + "''"
    y_axis = {
        "title": None,
        "values": list(range(len(rows))),
        "labelExpr": said,
        "labelColor": ref("ink"),
        "labelLimit": 210 if width_px > PANEL_PX else 130,
        "grid": False,
        "labelOverlap": False,
    }
    y = number("y", {"domain": [len(rows) - 0.4, -0.6], "nice": False, "zero": False}, y_axis)
    span = {"x": number("low", scale.vega, None), "x2": end("high"), "y": y}
    hue = word("hue", scale=None, legend=None)
    layers = [
        *([layer("rule", [{"x": 100}], {"x": x}, color=ref("axis"))] if relative else []),
        layer("rule", theirs_rows, span, strokeWidth=2.2, strokeCap="round", color=ref("soft")),
        layer("rule", ours_rows, {**span, "color": hue}, strokeWidth=2.5, strokeCap="round"),
        layer(
            "point",
            theirs_rows,
            {"x": x, "y": y},
            shape="diamond",
            filled=True,
            size=90,
            fill=ref("page"),
            stroke=ref("soft"),
            strokeWidth=1.8,
            opacity=1,
        ),
        layer("point", ours_rows, {"x": x, "y": y, "color": hue}, filled=True, size=62, opacity=1),
    ]
    return picture(layers, width_px, 62 + _ROW_PX * len(rows), heading)


def _row(place: int, ours: Estimate, hue: str, said: str) -> dict[str, Any]:
    low = ours.value if ours.low is None else ours.low
    high = ours.value if ours.high is None else ours.high
    text = f"{said}: {figure(ours.value)} ({figure(low)} to {figure(high)})"
    return {"y": place + _APART, "x": ours.value, "low": low, "high": high, "hue": hue, "say": text}


def span_text(span: Span) -> str:
    low, high = span
    return figure(low) if low == high else f"{figure(low)} to {figure(high)}"
