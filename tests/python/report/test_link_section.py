"""Raw throughput and link shares are shown side by side only if links limit both."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.test_link import STUDY, measured
from iotax.analysis import Summary, summarise
from iotax.analysis.responses import BANDWIDTH
from iotax.report.page import Page
from iotax.report.sections import links
from iotax.study.read import read_study
from report.factory import ENVIRONMENT, Simulation, study

SMALL, LARGE = 4096, 65536
SHARES = {("fc", SMALL): 0.3, ("ip", SMALL): 0.4, ("fc", LARGE): 0.96, ("ip", LARGE): 0.98}


@pytest.fixture(scope="module")
def bound() -> Summary:
    data = measured(read_study("s", STUDY, Path("/")), SHARES)
    return summarise(type(data)(data.study, data.attempts, environment=ENVIRONMENT))


def test_raw_stands_beside_shares_of_links(bound: Summary) -> None:
    [small, large] = links.groups(bound)
    assert [group.condition for group in (small, large)] == ["Block size 4KiB", "Block size 64KiB"]
    assert [figure.value for figure in small.rows[1].figures] == ["1,360", "125", "40.0 %", "–"]
    # 0.98 × 3,094 over 0.96 × 3,306 MB/s, then 0.98 over 0.96.
    assert [figure.value for figure in large.rows[1].figures] == ["3,340", "95.5", "98.0 %", "102"]
    assert all(len(row.figures) == len(links.columns(bound)) for row in small.rows + large.rows)
    assert links.note(bound).startswith("In 1 comparison both links carried 90 % of that or more")
    assert links.ceilings(bound) == "fc 32GFC 3,310 MB/s, ip 25GbE with MTU\u00a09000 3,090 MB/s"


def test_a_treatment_that_moved_nothing_has_no_share(bound: Summary) -> None:
    cell = next(each for each in bound.cells if each.arm != bound.grid.baseline_arm)
    idle = replace(cell, values={key: value for key, value in cell.values.items() if key != BANDWIDTH.key})
    idle_summary = summarise(bound.data)
    idle_summary.__dict__["cells"] = [idle if each is cell else each for each in bound.cells]
    figures = [figure.value for group in links.groups(idle_summary) for row in group.rows for figure in row.figures]
    assert figures.count("–") == 4


def test_the_page_has_the_section_and_the_checklist_says_so(bound: Summary) -> None:
    page = Page(bound, "n.iotax").html()
    assert '<a href="#links">' in page
    assert re.search(r"the study names each link, and its ceiling", page)
    without = summarise(Simulation().data(study()))
    page = Page(without, "n.iotax").html()
    assert "#links" not in page
    assert "Closed loop of 1, 8, 32 I/Os" in page


def test_what_a_link_cannot_carry_is_called_so() -> None:
    data = measured(read_study("s", STUDY, Path("/")), {each: 1.5 * share for each, share in SHARES.items()})
    summary = summarise(type(data)(data.study, data.attempts, environment=ENVIRONMENT))
    assert links.note(summary).startswith("2 treatments carried more than their link can")
    page = Page(summary, "n.iotax").html()
    assert "A treatment carried more than its link can." in page
