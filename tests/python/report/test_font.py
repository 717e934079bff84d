"""Page and charts embed their own typeface, so the fonts of a machine make no difference."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from string import printable

import pytest
from fontTools.ttLib import TTFont

from iotax import report
from iotax.notebook import Notebook
from iotax.report import font
from report import chromium
from report.factory import Simulation, study, write_notebook

pytestmark = pytest.mark.slow

FACES = sorted(Path(font.__file__).with_name("fonts").glob("*.otf"))
WORDS = f"{printable[:95]}×±−–—·…“”‘’→≤≥≈§µμσΔ²▲●○■◆"
# Bounds of each text in the charts and on the page.
PLACES = """
document.querySelectorAll('details').forEach(d => d.open = true);
await document.fonts.ready;
return [...document.querySelectorAll("svg text, h1, h2, .lead, th, td, figcaption")].map(e => {
  const box = e.getBoundingClientRect();
  return [e.textContent.slice(0, 20), box.left, box.right, box.top, box.bottom].join(" ");
});
"""
DRAW = "import sys; from pathlib import Path; from iotax import report; from iotax.notebook import Notebook; \
report.write(Notebook(Path(sys.argv[1])), Path(sys.argv[2]) / 'page.html', Path(sys.argv[2]))"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("font")
    return write_notebook(folder / "quick.iotax", Simulation().data(study()))


@pytest.fixture(scope="module")
def systems(tmp_path_factory) -> dict[str, dict[str, str]]:
    """Environments of machines with no font, or with a single family that is far narrower or wider than usual."""
    configurations = {
        name: only_family(tmp_path_factory.mktemp(name), name.capitalize(), stretch)
        for name, stretch in {"narrow": 0.6, "wide": 1.6}.items()
    }
    configurations["none"] = configured(tmp_path_factory.mktemp("none"))
    return {name: {"FONTCONFIG_FILE": str(path)} for name, path in configurations.items()}


def only_family(folder: Path, family: str, stretch: float) -> Path:
    """A fontconfig configuration with one family, whose letter widths are multiplied by `stretch`."""
    with TTFont(FACES[0]) as made:
        made["hmtx"].metrics = {g: (round(w * stretch), left) for g, (w, left) in made["hmtx"].metrics.items()}
        for number in (1, 3, 4, 16):
            made["name"].setName(family, number, 3, 1, 0x409)
        (folder / "fonts").mkdir()
        made.save(folder / "fonts" / "only.otf")
    aliases = "".join(
        f"<alias binding='same'><family>{each}</family><prefer><family>{family}</family></prefer></alias>"
        for each in ("sans-serif", "Arial", "Liberation Sans", "monospace")
    )
    return configured(folder, f"<dir>{folder / 'fonts'}</dir>{aliases}")


def configured(folder: Path, says: str = "") -> Path:
    configuration = folder / "fonts.conf"
    configuration.write_text(
        f"<?xml version='1.0'?><!DOCTYPE fontconfig SYSTEM 'urn:fontconfig:fonts.dtd'><fontconfig>"
        f"{says}<cachedir>{folder / 'cache'}</cachedir></fontconfig>"
    )
    return configuration


@pytest.mark.long
def test_page_and_charts_are_the_same_bytes_whatever_fonts_are_installed(notebook, systems, tmp_path):
    digests = []
    for name, environment in systems.items():
        (tmp_path / name).mkdir()
        command = [sys.executable, "-c", DRAW, str(notebook), str(tmp_path / name)]
        subprocess.run(command, check=True, env={**os.environ, **environment})
        made = sorted((tmp_path / name).iterdir())
        assert {each.suffix for each in made} == {".html", ".svg", ".png"}
        digests.append({each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in made})
    assert digests == 3 * [digests[0]]


@pytest.mark.parametrize("width_px", [1280, 390])
def test_every_word_stands_at_the_same_place_whatever_fonts_are_installed(notebook, systems, tmp_path, width_px):
    with Notebook(notebook) as opened:
        page = report.write(opened, tmp_path / "page.html")
    found = []
    for name in ("narrow", "wide"):  # without any font, Chromium draws no text at all, not even in embedded fonts
        environment = systems[name]
        browser = chromium.start(tmp_path / name, environment)
        try:
            chromium.set_screen(browser, width_px)
            browser.get(page.as_uri())
            found.append(browser.execute_script(PLACES))
        finally:
            browser.quit()
    assert len(found[0]) > 300
    assert found == 2 * [found[0]]


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.stem)
def test_each_face_has_what_reports_say_and_figures_of_one_width(path):
    with TTFont(path) as face:
        names, widths = face.getBestCmap(), face["hmtx"]
        assert {letter for letter in WORDS if ord(letter) not in names} == set()
        em = face["head"].unitsPerEm  # ty: ignore[missing-attribute]
        figures = [widths[names[ord(digit)]][0] / em for digit in "0123456789"]
        assert max(figures) - min(figures) < 0.002  # 0.024 px at a size of 12 px
        assert face["name"].getBestFamilyName() == font.FAMILY


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.stem)
def test_page_pictures_and_measure_have_the_same_letters(path):
    bold = path.stem.endswith("semibold")
    with TTFont(path) as drawn, TTFont(path.with_suffix(".woff2")) as packed:
        em, widths, names = drawn["head"].unitsPerEm, drawn["hmtx"], drawn.getBestCmap()  # ty: ignore[missing-attribute]
        assert packed.getBestCmap() == names
        assert packed["hmtx"].metrics == widths.metrics
        measured = {chr(code): font.width_px(chr(code), 1, bold) for code in names}
        assert measured == pytest.approx({chr(code): widths[name][0] / em for code, name in names.items()}, abs=1e-4)
    assert font.width_px("漢", 1, bold) == 1


def test_measured_widths_are_those_of_the_browser(tmp_path):
    words = {"outstanding 32": False, "+100 %": False, "NVMe/TCP · jumbo": True, "0.75 µs − 1.4 µs": False}
    lines = "".join(
        f"<p><span style='font:{600 if bold else 400} 12px \"{font.FAMILY}\";font-kerning:none'>{word}</span></p>"
        for word, bold in words.items()
    )
    page = tmp_path / "words.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><style>{font.css()}</style>{lines}")
    browser = chromium.start(tmp_path / "profile")
    try:
        browser.get(page.as_uri())
        seen = browser.execute_script(
            "await document.fonts.ready;"
            "return [...document.querySelectorAll('span')].map(s => s.getBoundingClientRect().width)"
        )
    finally:
        browser.quit()
    assert [font.width_px(word, 12, bold) for word, bold in words.items()] == pytest.approx(seen, abs=0.6)
