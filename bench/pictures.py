"""`make pictures`: the README's charts and pictures, from runs of the current commit.

Runs `kernel-exact` (five to twenty minutes), `cpu-cost` (six minutes) and `sim-quick` into out/pictures/COMMIT if they
are not there yet. Draws the instructions per I/O of each kernel protocol, and takes pictures of the reports with
Chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from iotax.analysis import Summary, summarise
from iotax.analysis.profile import cell_profiles
from iotax.collected import study_data
from iotax.notebook import Notebook
from iotax.report import font, palette, renderer, write
from iotax.report.charts.layers import FAMILY_COLOURS
from iotax.report.pdf import PROGRAMS
from iotax.wording import title
from iotax.wording.profile import families

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
INSTRUCTIONS_PER_US = 250
"""The exact clock counts 4 ns per instruction."""
PAGE_PX = (1180, 1010)
SECTIONS = {
    "cpu-cost": {"cpu": ("cpu-roles", (1180, 1000)), "cost": ("cpu-cost", (1180, 1060))},
    "sim-quick": {"load": ("sim-links", (1180, 850))},
}
"""Study → sections of its report: the name and the size of their pictures."""
_PANEL_PX = 330


def rows(summary: Summary) -> list[dict[str, Any]]:
    """Thousands of instructions per I/O, of initiator and target together. Each family of layers has a row; the rows of
    a bar are contiguous. The total is a row without a family, with its 95 % interval."""
    found = []
    profiles = {(each.arm, each.condition): each for each in cell_profiles(summary.cells)}
    for cell in summary.cells:
        cpu, profile = cell.values.get("cpu"), profiles.get((cell.arm, cell.condition))
        if cpu is None or profile is None:
            continue
        bar = {"protocol": title(cell.arm), "load": f"{cell.condition.rpartition(' ')[2]} outstanding"}
        low, high = (cpu.value if end is None else end for end in (cpu.low, cpu.high))
        total, low, high = (us * INSTRUCTIONS_PER_US / 1e3 for us in (cpu.value, low, high))
        found.append({**bar, "family": None, "x": low, "x2": high})
        # A profile counts up to 0.7 % more than the figure with the interval, so its parts are shown as shares of that
        # figure.
        spent, begin = families(profile), 0.0
        for family, count in spent.items():
            end = begin + total * count / profile.instructions
            found.append({**bar, "family": family, "x": begin, "x2": end})
            begin = end
    return found


def chart(data: list[dict[str, Any]], scheme: str) -> dict[str, Any]:
    """Bars by protocol, stacked by layer, with error bars, in one panel per number of outstanding I/Os."""
    colour = {name: getattr(each, scheme) for name, each in palette.COLOURS.items()}
    kinds = [(name, shade) for name, shade in FAMILY_COLOURS if any(row["family"] == name for row in data)]
    order = list(dict.fromkeys(row["protocol"] for row in data))
    y = {"field": "protocol", "type": "nominal", "sort": order, "title": None, "axis": {"labelFontSize": 13}}
    x = {"field": "x", "type": "quantitative", "title": "thousands of instructions per 4 KiB I/O"}
    shades = {
        "field": "family",
        "type": "nominal",
        "title": None,
        "scale": {"domain": [name for name, _ in kinds], "range": [colour[shade] for _, shade in kinds]},
        "legend": {"orient": "top", "columns": 4, "symbolType": "square", "labelLimit": 260},
    }
    text = {
        "labelColor": colour["ink"],
        "titleColor": colour["ink"],
        "gridColor": colour["grid"],
        "domainColor": colour["axis"],
        "tickColor": colour["axis"],
    }
    places = {"y": y, "x": x, "x2": {"field": "x2"}}
    parts = {"transform": [{"filter": "datum.family !== null"}], "mark": {"type": "bar", "height": 15}}
    ends = {
        "transform": [{"filter": "datum.family === null"}],
        "mark": {"type": "rule", "color": colour["ink"], "strokeWidth": 2},
        "encoding": places,
    }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "padding": 8,
        "background": colour["page"],
        "data": {"values": data},
        "facet": {"column": {"field": "load", "title": None, "header": {"labelColor": colour["ink"]}}},
        "spec": {
            "width": _PANEL_PX,
            "height": {"step": 22},
            "layer": [{**parts, "encoding": {**places, "color": shades}}, ends],
        },
        "config": {
            "font": font.FAMILY,
            "axis": text,
            "legend": text | {"labelFontSize": 13},
            "header": {"labelFontSize": 13},
            "view": {"stroke": None},
        },
    }


def only(page: Path, section: str) -> Path:
    """A copy of a report that shows one section alone."""
    # A report's own policy lets no other style in, so what is not shown is taken out.
    others = rf'<header\b.*?</header>|<nav\b.*?</nav>|<section id="(?!{section}").*?</section>'
    output = page.with_name(f"{page.stem}-{section}.html")
    output.write_text(re.sub(others, "", page.read_text(), flags=re.DOTALL))
    return output


def photograph(page: Path, output: Path, size_px: tuple[int, int], *, dark: bool) -> None:
    """Saves the top of a page as PNG. Exits with the reason if no browser is installed."""
    browser = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("bench.pictures: Chromium is not installed; the report's picture was not taken")
    width, height = size_px
    with tempfile.TemporaryDirectory(prefix="iotax-pictures-") as profile:
        subprocess.run(
            [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--force-device-scale-factor=1.5",
                *(["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []),
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                f"--screenshot={output}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=300,
        )


def measured(study: str, folder: Path) -> Path:
    """The notebook of a finished run; an unfinished run is resumed."""
    notebook = folder / f"{study}.iotax"
    subprocess.run([sys.executable, "-m", "iotax", "run", study, notebook, "--no-report"], check=True, cwd=ROOT)
    return notebook


def commit() -> str:
    asked = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--notebooks", type=Path, metavar="DIR", help="where the runs are kept, out/pictures/COMMIT")
    parser.add_argument("--output", type=Path, default=IMAGES, metavar="DIR", help="where the pictures go, docs/images")
    given = parser.parse_args()
    folder = given.notebooks or ROOT / "out" / "pictures" / commit()
    folder.mkdir(parents=True, exist_ok=True)
    font.register()
    with Notebook(measured("kernel-exact", folder)) as notebook:
        data = rows(summarise(study_data(notebook)))
        page = write(notebook, (folder / "kernel-exact.html").resolve())
    for study, sections in SECTIONS.items():
        with Notebook(measured(study, folder)) as notebook:
            whole = write(notebook, (folder / f"{study}.html").resolve())
        for section, (name, size_px) in sections.items():
            for scheme in ("light", "dark"):
                photograph(only(whole, section), given.output / f"{name}-{scheme}.png", size_px, dark=scheme == "dark")
    for scheme in ("light", "dark"):
        svg = renderer.to_svg(chart(data, scheme))
        (given.output / f"instructions-{scheme}.png").write_bytes(renderer.to_png(svg))
        photograph(page, given.output / f"report-{scheme}.png", PAGE_PX, dark=scheme == "dark")


if __name__ == "__main__":
    main()
