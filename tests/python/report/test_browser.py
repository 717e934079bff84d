"""The report in a real browser: Chromium at desktop and phone width, light and dark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from iotax import report
from iotax.notebook import Notebook
from report import chromium
from report.factory import (
    BEST,
    COST,
    GENERATORS,
    KNEE,
    LINKS,
    OPEN,
    SWEEP,
    Simulation,
    study,
    write_notebook,
)

SIZES = [
    ("quick", *size)
    for size in [(1280, "light"), (1280, "dark"), (820, "light"), (390, "light"), (390, "dark"), (360, "light")]
]
SECTIONS = {
    "quick": 14,
    "cost": 14,
    "sweep": 13,
    "open": 14,
    "knee": 14,
    "best": 14,
    "links": 14,
    "generators": 15,
}
SIZES += [(name, *size) for name in SECTIONS if name != "quick" for size in [(1280, "light"), (390, "dark")]]

ONE_BY_ONE = {"indirect": True, "ids": str, "scope": "module"}

# Elements beyond the page's right edge that are not in a container with its own scrolling.
BEYOND = """
return [...document.querySelectorAll("body *")].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && box.right > document.documentElement.clientWidth + 1 && !e.closest(".scroll, nav, pre, svg");
}).map(e => e.tagName + "." + e.className);
"""
# Texts that extend beyond their chart.
CLIPPED = """
return [...document.querySelectorAll("svg[role=img]")].filter(s => s.getBoundingClientRect().width).flatMap(s => {
  const all = s.getBoundingClientRect();
  return [...s.querySelectorAll("text")].filter(t => {
    const box = t.getBoundingClientRect();
    return box.width && (box.left < all.left - 2 || box.right > all.right + 2 ||
                         box.top < all.top - 3 || box.bottom > all.bottom + 3);
  }).map(t => s.getAttribute("aria-label").slice(0, 40) + ": " + t.textContent);
});
"""
# Texts in a chart of latency against throughput that cover a point.
DOTTED = """
return [...document.querySelectorAll("svg[aria-label*='against throughput']")].filter(
  s => s.getBoundingClientRect().width).flatMap(s => {
  const dots = [...s.querySelectorAll("[aria-roledescription=point]")].map(p => p.getBoundingClientRect());
  return [...s.querySelectorAll(".mark-text.role-mark text")].filter(t => {
    const box = t.getBoundingClientRect();
    return dots.some(d => Math.min(d.right, box.right) - Math.max(d.left, box.left) > 3 &&
                          Math.min(d.bottom, box.bottom) - Math.max(d.top, box.top) > 5);
  }).map(t => t.textContent);
});
"""
# Tables that are wider than their container.
SCROLLING = """
return [...document.querySelectorAll(".scroll")].filter(s => s.scrollWidth > s.clientWidth + 1)
  .map(s => s.getAttribute("aria-label"));
"""
# Pairs of texts in one chart that overlap.
COVERED = """
return [...document.querySelectorAll("svg[role=img]")].filter(s => s.getBoundingClientRect().width).flatMap(s => {
  const words = [...s.querySelectorAll("text")].filter(t => t.textContent.trim() &&
    getComputedStyle(t).opacity !== "0" && t.getAttribute("opacity") !== "0");
  const boxes = words.map(t => t.getBoundingClientRect());
  const found = [];
  for (let i = 0; i < words.length; i++) for (let j = i + 1; j < words.length; j++) {
    const a = boxes[i], b = boxes[j];
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 3 && high > 5)
      found.push([s.getAttribute("aria-label").slice(0, 40), words[i].textContent, words[j].textContent].join(" / "));
  }
  return found;
});
"""


# All pages are drawn at once, while other tests run.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("browser")
    simulated = {
        "quick": Simulation(failed=["iscsi/8/r2"], unsteady=["nfs3/8/r1"]).data(study()),
        "cost": Simulation(block_cv=0.01).data(study(**COST)),
        "sweep": Simulation().data(study(**SWEEP)),
        "open": Simulation().data(study(**OPEN)),
        "knee": Simulation().searched(study(**KNEE)),
        "best": Simulation().searched(study(**BEST)),
        "links": Simulation(run_cv=0.005, block_cv=0.005).data(study(**LINKS)),
        "generators": Simulation().data(study(**GENERATORS)),
    }
    written = {}
    for name, data in simulated.items():
        with Notebook(write_notebook(folder / f"{name}.iotax", data)) as opened:
            written[name] = report.write(opened, folder / f"{name}.html")
    return written


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator["chromium.webdriver.Chrome"]:
    opened = chromium.start(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.quit()


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: "-".join(map(str, size)))
def asked(request) -> tuple[str, int, str]:
    """Page name, width, colour scheme. Each page is loaded once for all tests."""
    return request.param


@pytest.fixture(scope="module")
def page(asked, pages) -> Path:
    return pages[asked[0]]


@pytest.fixture(scope="module")
def shown(asked, browser, page) -> "chromium.webdriver.Chrome":
    _, width, scheme = asked
    chromium.set_screen(browser, width, scheme)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    return browser


def test_nothing_reaches_beyond_the_page(shown):
    assert shown.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert shown.execute_script(BEYOND) == []


def test_no_word_of_a_chart_is_clipped_or_covered(shown):
    assert shown.execute_script(CLIPPED) == []
    assert shown.execute_script(COVERED) == []


@pytest.mark.parametrize(
    "asked", [("quick", 1280, "light"), ("quick", 390, "light")], indirect=True, ids=str, scope="module"
)
def test_labels_of_latency_against_throughput_leave_the_points_free(shown):
    assert (
        shown.execute_script("return document.querySelectorAll(\"svg[aria-label*='against throughput']\").length") == 4
    )
    assert shown.execute_script(DOTTED) == []


@pytest.mark.parametrize(
    "asked", [("quick", 1280, "light"), ("open", 1280, "light")], indirect=True, ids=str, scope="module"
)
def test_a_desktop_shows_whole_tables(shown):
    assert shown.execute_script("return document.querySelectorAll('.matrix').length") == 1
    assert shown.execute_script(SCROLLING) == []


def test_every_section_and_chart_can_be_seen(shown, page):
    heights = shown.execute_script("return [...document.querySelectorAll('section')].map(s => s.offsetHeight)")
    assert len(heights) == SECTIONS[page.stem]
    assert min(heights) > 50
    seen = shown.execute_script(
        "return [...document.querySelectorAll('.panel')].map(p => [...p.children].filter(c => c.offsetHeight).length)"
    )
    assert set(seen) == {1}


def test_nothing_is_asked_of_the_network_and_the_console_is_silent(shown, page):
    sent = [entry["message"] for entry in shown.get_log("performance") if "requestWillBeSent" in entry["message"]]
    assert sent
    assert all(page.as_uri() in message or '"url":"data:,"' in message for message in sent)
    assert shown.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert shown.get_log("browser") == []


def test_text_stands_out_from_the_page(shown):
    colours = shown.execute_script(
        "const s = getComputedStyle(document.body);"
        "return [s.color, s.backgroundColor].map(c => c.match(/\\d+/g).map(Number))"
    )
    assert contrast(*colours) > 10


def test_a_mark_says_what_it_stands_for(shown):
    said = shown.execute_script(
        """
        const mark = [...document.querySelectorAll("#load svg [aria-label]")]
          .find(m => m.getAttribute("aria-label").includes("block ") && m.getBoundingClientRect().width);
        mark.scrollIntoView({block: "center"});
        mark.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
        const box = document.getElementById("hover");
        const at = box.getBoundingClientRect();
        return [box.hidden, box.textContent, at.left >= 0 && at.right <= innerWidth && at.top >= 0];
        """
    )
    assert said[0] is False
    assert "block " in said[1]
    assert said[2] is True


def contrast(one: list[int], other: list[int]) -> float:
    """Contrast ratio from relative luminance (WCAG 2.2)."""

    def luminance(rgb: list[int]) -> float:
        parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb[:3]]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
