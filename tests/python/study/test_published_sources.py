"""Each published figure in the built-in studies, compared with its source."""

from __future__ import annotations

import re

import pytest

from iotax.study import Study
from iotax.study.published import Published
from iotax.study.read import load_study

FIGURE = re.compile(r"TR-3808 figure (\d+) of 24: (.*)")
RELEASES = {"iops": (95, 105)}
"""B relative to A: the source says comparable, taken as within 5 %."""
A_TO_B = {
    1: ("FC", "4KiB", "iops", (100, 105)),
    2: ("FC", "4KiB", "cpu_utilisation_initiator", (89, 91)),
    3: ("NFS", "4KiB", "iops", (95, 105)),
    4: ("NFS", "4KiB", "cpu_utilisation_initiator", (86, 94)),
    5: ("iSCSI", "4KiB", "iops", (95, 105)),
    6: ("iSCSI", "4KiB", "cpu_utilisation_initiator", (64, 66)),
    7: ("FC", "8KiB", "iops", (95, 105)),
    8: ("FC", "8KiB", "cpu_utilisation_initiator", (92, 97)),
    9: ("NFS", "8KiB", "iops", (95, 105)),
    10: ("NFS", "8KiB", "cpu_utilisation_initiator", (77, 88)),
    11: ("iSCSI", "8KiB", "iops", (95, 105)),
    12: ("iSCSI", "8KiB", "cpu_utilisation_initiator", (57, 60)),
}
"""Figure → protocol, block size, response, range of B relative to A."""
AGAINST_FC = {
    13: ("4KiB", "1GbE", "iops", (91, 109)),
    14: ("4KiB", "1GbE", "cpu_utilisation_initiator", (110, 143)),
    15: ("4KiB", "1GbE", "latency", (91, 109)),
    16: ("8KiB", "1GbE", "iops", (91, 109)),
    17: ("8KiB", "1GbE", "cpu_utilisation_initiator", (110, 145)),
    18: ("8KiB", "1GbE", "latency", (92, 108)),
    19: ("4KiB", "10GbE", "iops", (91, 109)),
    20: ("4KiB", "10GbE", "cpu_utilisation_initiator", (112, 140)),
    21: ("4KiB", "10GbE", "latency", (90, 110)),
    22: ("8KiB", "10GbE", "iops", (89, 111)),
    23: ("8KiB", "10GbE", "cpu_utilisation_initiator", (112, 147)),
    24: ("8KiB", "10GbE", "latency", (95, 105)),
}
"""Figure → block size, link, response, range of NFS and iSCSI relative to FC fixed."""


@pytest.fixture(scope="module")
def tr() -> Study:
    return load_study("tr-3808-full")[0]


@pytest.fixture(scope="module")
def figures(tr: Study) -> dict[int, Published]:
    return {int(found[1]): each for each in tr.published if (found := FIGURE.match(each.source))}


def test_there_are_24_in_the_order_of_the_source(tr: Study, figures: dict[int, Published]) -> None:
    assert list(figures) == list(range(1, 25))
    assert [each.source for each in tr.published[:24]] == [each.source for each in figures.values()]
    assert sum(len(each.figures) for each in figures.values()) == 167


@pytest.mark.parametrize(("number", "expected"), A_TO_B.items())
def test_a_figure_of_the_releases(figures: dict[int, Published], number: int, expected: tuple) -> None:
    protocol, size, response, relative = expected
    found = figures[number]
    assert (found.response, found.baseline) == (response, {"costs": "esx-3.5"})
    assert {str(each.of["protocol"]).split()[0] for each in found.figures} == {protocol}
    assert {each.of["costs"] for each in found.figures} == {"vsphere-4.0"}
    assert {each.of["block_size"] for each in found.figures} == {size}
    assert [each.of["vms"] for each in found.figures] == [4, 12, 20]
    assert {each.relative for each in found.figures} == {relative}


@pytest.mark.parametrize(("number", "expected"), AGAINST_FC.items())
def test_a_figure_of_the_protocols(figures: dict[int, Published], number: int, expected: tuple) -> None:
    size, link, response, relative = expected
    found = figures[number]
    assert (found.response, found.baseline) == (response, None)
    assert {each.of["block_size"] for each in found.figures} == {size}
    arms = {str(each.of["protocol"]) for each in found.figures}
    assert all(arm.endswith(link) for arm in arms - {"FC round-robin"})
    # FC round-robin was measured only together with 1 GbE.
    assert ("FC round-robin" in arms) == (link == "1GbE")
    ranges = {each.relative for each in found.figures if each.of["protocol"] != "FC round-robin"}
    assert ranges == {relative}


@pytest.mark.parametrize("number", [15, 18])
def test_fc_fixed_has_slightly_lower_latency_than_round_robin(figures: dict[int, Published], number: int) -> None:
    round_robin = [each for each in figures[number].figures if each.of["protocol"] == "FC round-robin"]
    assert [each.relative for each in round_robin] == [(100, 105)] * 3


def test_what_the_source_leaves_out_is_no_bar(figures: dict[int, Published]) -> None:
    """The source leaves out iSCSI with jumbo frames at 8 KiB: throughput at 128 outstanding I/Os, and latency."""
    jumbo = "iSCSI jumbo 1GbE"
    assert [each.of["vms"] for each in figures[16].figures if each.of["protocol"] == jumbo] == [12, 20]
    for number in (18, 24):
        assert not any("iSCSI jumbo" in str(each.of["protocol"]) for each in figures[number].figures)


@pytest.mark.parametrize(
    ("source", "response", "ranges"),
    [
        ("jumbo frames on iSCSI over 1GbE, throughput", "iops", {(94, 96), (91, 97)}),
        ("jumbo frames on iSCSI over 10GbE, throughput", "iops", {(93, 95), (91, 94)}),
        ("jumbo frames on NFS over 1GbE, throughput", "iops", {(95, 105)}),
        ("jumbo frames on NFS over 10GbE, latency", "latency", {(95, 105)}),
        ("jumbo frames on iSCSI over 10GbE, latency", "latency", {(105, 108), (106, 110)}),
        ("jumbo frames on iSCSI over 10GbE, host CPU", "cpu_utilisation_initiator", {(80, 88)}),
        ("jumbo frames on NFS over 1GbE, host CPU", "cpu_utilisation_initiator", {(80, 94)}),
        ("iSCSI against NFS in each release, host CPU", "cpu_utilisation_initiator", {(126, 142), (94, 95)}),
    ],
)
def test_what_the_text_says_is_compared_too(tr: Study, source: str, response: str, ranges: set) -> None:
    [found] = [each for each in tr.published if each.source == f"TR-3808, of the text: {source}"]
    assert found.response == response
    assert {each.relative for each in found.figures} == ranges


@pytest.mark.parametrize("name", ["ip-vs-fc-full", "ip-vs-fc", "datastores"])
def test_the_integrators_means_are_made_as_it_made_them(name: str) -> None:
    study = load_study(name)[0]
    throughput = [each for each in study.published if each.response == "iops"]
    assert {each.statistic for each in throughput} == {"ratio of means"}
    guest = [f for each in throughput for f in each.figures if f.relative == (117.6, 117.6)]
    assert len(guest) == 1


@pytest.mark.parametrize("name", ["fcp-vs-fc-nvme-full", "fcp-vs-fc-nvme", "block-size", "block-size-full"])
def test_120_outstanding_are_120_in_all(name: str) -> None:
    study = load_study(name)[0]
    settings = study.settings({factor: levels[0].value for factor, levels in study.levels().items()})
    machines = (settings.load.clients or 1) * (settings.sim.vms if settings.sim else 1)
    assert machines * settings.load.workers * settings.load.outstanding == 120


def test_every_source_that_may_differ_says_the_likely_reason() -> None:
    for name in ("tr-3808-full", "ip-vs-fc-full", "fcp-vs-fc-nvme-full", "nfs-vs-fc-cpu-full"):
        for each in load_study(name)[0].published:
            assert each.reason, (name, each.source)
