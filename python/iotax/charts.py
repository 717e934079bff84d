"""A report's charts as Altair objects, to be changed, joined and saved: what `Results.charts()` gives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from iotax.analysis import Summary
from iotax.report import palette
from iotax.report.page import Page
from iotax.version import how_to_install

if TYPE_CHECKING:
    import altair


def charts_of(summary: Summary) -> dict[str, altair.TopLevelMixin]:
    """File name in `iotax report --charts` → chart, in the report's order and its light colours.

    Raises ImportError, with what to install, where Altair is missing.
    """
    try:
        import altair  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(f"charts need Altair: {how_to_install('charts')}") from error

    found = {}
    for drawing in Page(summary, "").drawings:
        whole = json.loads(palette.to_light(json.dumps(drawing.draw(drawing.wide_px))))
        spec = {name: each for name, each in whole.items() if each is not None}  # no title
        spec["$schema"] = altair.SCHEMA_URL
        spec["config"]["background"] = palette.COLOURS["page"].light  # the page's own has none
        said = {"description": drawing.description} | ({"title": drawing.mark} if drawing.mark else {})
        found[drawing.name] = altair.Chart.from_dict(spec).properties(**said)
    return found
