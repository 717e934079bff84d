"""Response time over the utilisation of the cores, and how much the storage's own time reduces the difference."""

from collections.abc import Sequence

from iotax.analysis.capacity import STORAGE_US, rate_at, response_us
from iotax.analysis.cost import ServiceCost
from iotax.report.charts.base import Drawing, Scale, axis, colour
from iotax.report.charts.vega import Spec, end, layer, number, picture, word
from iotax.report.palette import Look
from iotax.wording import figure, title

_HEIGHT_PX = 280
_UTILISATIONS = [i / 40 for i in range(39)]
"""Up to 95 %: above that, a mean says little about what users experience."""


def response_curves(costs: Sequence[ServiceCost], looks: dict[str, Look], cores: int) -> list[Drawing]:
    """One panel without storage time, and one for each storage time."""
    return [
        Drawing(
            f"sizing-response-storage-{storage_us:g}us",
            f"Mean response, {_storage(storage_us)}",
            f"Mean response time of an I/O over the utilisation of {cores} cores, M/M/{cores}. Bands span the interval "
            "of the CPU cost.",
            lambda width, storage_us=storage_us: _draw(costs, looks, cores, storage_us, width),
        )
        for storage_us in STORAGE_US
    ]


def _storage(storage_us: float) -> str:
    return f"storage {storage_us:g} µs" if storage_us else "cores alone"


def _draw(costs: Sequence[ServiceCost], looks: dict[str, Look], cores: int, storage_us: float, width_px: int) -> Spec:
    lines: list[Spec] = []
    bands: list[Spec] = []
    for cost in costs:
        us = cost.cost_us
        for busy in _UTILISATIONS:
            y = response_us(us.value, cores, busy, storage_us)
            rate = figure(rate_at(us.value, cores, busy))
            text = f"{title(cost.arm)}, {100 * busy:.0f} % busy ({rate} IOPS): {figure(y)} µs"
            lines.append({"x": 100 * busy, "y": y, "arm": cost.arm, "say": text})
            if us.low is not None and us.high is not None:
                low, high = (response_us(max(each, 1e-3), cores, busy, storage_us) for each in (us.low, us.high))
                bands.append({"x": 100 * busy, "low": low, "high": high, "arm": cost.arm})
    arms = [cost.arm for cost in costs]
    scale = Scale([0.0, *(row["y"] for row in lines), *(row["high"] for row in bands)], zero=True, log=False)
    x_scale = Scale([0.0, 95.0], zero=True, log=False)
    x = number("x", x_scale.vega, axis("Utilisation of the cores (%)", x_scale, titleAnchor="start"))
    hue = colour(looks, arms)
    layers = [
        layer(
            "line",
            lines,
            {"x": x, "y": number("y", scale.vega, axis("µs", scale)), "color": hue, "detail": word("arm")},
            strokeWidth=2,
        )
    ]
    if bands:
        low = number("low", scale.vega, axis("µs", scale))
        layers.insert(0, layer("area", bands, {"x": x, "y": low, "y2": end("high"), "color": hue}, opacity=0.22))
    heading = _storage(storage_us)
    return picture(layers, width_px, _HEIGHT_PX, heading[:1].upper() + heading[1:])
