"""Fibre Channel with all of its transport in software, and with none of it: a verdict must hold at both bounds."""

import re
from dataclasses import replace
from typing import Any

import pytest

from iotax.analysis import Comparison, Summary, Verdict, summarise
from iotax.analysis.compare import Overall
from iotax.analysis.estimate import Estimate
from iotax.analysis.model import correlations
from iotax.analysis.multiplicity import each_confidence
from iotax.analysis.responses import CPU, IOPS, LATENCY
from iotax.analysis.verdict import Cause, Withheld
from iotax.report.sections.published import words as published_words
from iotax.wording import verdicts
from iotax.wording.costs import priced
from iotax.wording.verdicts import against_baseline
from report.factory import COST, PATHS, Simulation, study

PATH = replace(PATHS["iscsi"], target_us=None)
VM = {"vm": {"clock": "icount", "guests": 1}}


def measured(baseline: str = "fcp", of: dict[str, Any] | None = None, **initiator_us: float) -> Summary:
    """A study of protocols with these CPU costs and no other difference."""
    paths = {name.replace("_", "-"): replace(PATH, initiator_us=us) for name, us in initiator_us.items()}
    factors = {"protocol": list(paths), "outstanding": [1, 8]} if of is None else of["factors"]
    changes = (of or {}) | {"factors": factors | {"protocol": list(paths)}}
    said = study(**changes | {"lab": VM, "baseline": {"protocol": baseline}, "responses": ["cpu_per_io"]})
    return summarise(Simulation(paths=paths).data(said))


ENDS = {"fcp": 20, "fcp_loop": 8, "nfs3": 30}


def overall(summary: Summary, arm: str) -> Comparison:
    return next(each.comparison for each in summary.overalls if each.arm == arm)


def sentence(summary: Summary, subject: str) -> str:
    return next(each.sentence for each in verdicts(summary) if each.subject == subject)


def test_a_verdict_against_fibre_channel_is_that_of_both_ends() -> None:
    summary = measured(fcp=20, fcp_loop=8, nfs3=30)
    found = overall(summary, "nfs3")
    assert found.verdict is Verdict.WORSE
    assert [end.carriers for end in found.ends] == [("software FCoE",), ("a loop within one kernel, without frames",)]
    for end, true in zip(found.ends, (30 / 20, 30 / 8), strict=True):
        assert end.verdict is Verdict.WORSE
        assert end.ratio.low < true < end.ratio.high
    assert found.ends[0].ratio == found.ratio
    assert re.search(
        r"^NFSv3 needs more .*CPU per I/O than FCP however much of the transport the adapter handles: "
        r"\d+ % more .*CPU per I/O \(95 % CI .*\) over software FCoE and "
        r"3\.\d+ times the .*CPU per I/O \(95 % CI .* times\) over a loop within one kernel, without frames\.$",
        sentence(summary, "NFSv3"),
    )


@pytest.mark.parametrize(
    ("published", "agreement", "said"),
    [
        (
            196,
            "between",
            r"For NFSv3 the published 196 \(FCP = 100\) lies between our two ends: 1[45]\d over software FCoE and 3",
        ),
        (
            120,
            "higher",
            r"For NFSv3 the published 120 \(FCP = 100\) lies below both of our ends: 1[45]\d over software FCoE",
        ),
        ([500, 600], "lower", "lies above both of our ends"),
    ],
)
def test_a_published_ratio_stands_beside_both_ends(published: Any, agreement: str, said: str) -> None:
    source = {
        "source": "Somebody, 2014",
        "response": "cpu_per_io",
        "figures": [{"of": {"protocol": "nfs3"}, "relative": published}, {"of": {"protocol": "fcp"}, "absolute": 41}],
    }
    summary = measured(of={"factors": {"protocol": [], "outstanding": [1, 8]}, "published": [source]}, **ENDS)
    [beside, _] = summary.sources[0].figures
    assert beside.agreement == agreement
    assert [ratio.value for _, ratio in beside.ends] == [pytest.approx(150, rel=0.05), pytest.approx(375, rel=0.05)]
    words = published_words(summary.sources[0], summary.doubt_of(summary.cells), "measured")
    assert re.search(said, words), words
    assert "A real adapter lies between the two. 1 is not judged: here over software FCoE instead of hardware." in words


def test_a_published_ratio_to_one_end_alone_is_not_judged() -> None:
    source = {"source": "S", "response": "cpu_per_io", "figures": [{"of": {"protocol": "nfs3"}, "relative": 196}]}
    of = {"factors": {"protocol": [], "outstanding": [1, 8]}, "published": [source]}
    [beside] = measured(of=of, fcp=20, nfs3=30).sources[0].figures
    assert (beside.agreement, beside.ends) == ("carrier", ())


def test_two_ends_that_disagree_give_no_verdict() -> None:
    summary = measured(fcp=20, fcp_loop=8, nfs3=12)
    found = overall(summary, "nfs3")
    assert found.verdict is None
    assert found.withheld is not None
    assert found.withheld.cause is Cause.ENDS
    assert {end.verdict for end in found.ends} == {Verdict.BETTER, Verdict.WORSE}
    said = sentence(summary, "NFSv3")
    assert "it depends on how much of the transport the adapter handles; measured: " in said
    assert "% less" in said
    assert "% more" in said


def test_an_arm_with_two_ends_is_judged_once_for_both() -> None:
    summary = measured(baseline="nfs3", fcp=20, fcp_loop=8, nfs3=30)
    found = overall(summary, "fcp")
    assert found.verdict is Verdict.BETTER
    assert len(found.ends) == 2
    other = overall(summary, "fcp-loop")
    assert other.withheld is not None
    assert other.withheld.cause is Cause.CARRIER
    assert not other.ends


def test_the_ends_are_not_compared_with_each_other() -> None:
    found = overall(measured(fcp=20, fcp_loop=8, nfs3=30), "fcp-loop")
    assert (found.verdict, found.ends) == (None, ())


@pytest.mark.parametrize("there", ["fcp", "fcp-loop"])
def test_one_end_alone_gives_no_verdict(there: str) -> None:
    found = overall(measured(baseline=there, **{there.replace("-", "_"): 20, "nfs3": 30}), "nfs3")
    assert found.withheld is not None
    assert found.withheld.cause is Cause.CARRIER


def test_another_emulated_carrier_is_not_made_good_by_the_ends_opposite() -> None:
    found = overall(measured(fcp=20, fcp_loop=8, fc_nvme=30), "fc-nvme")
    assert found.withheld is not None
    assert found.withheld.cause is Cause.CARRIER


def test_intervals_at_the_ends_hold_at_once_with_the_others() -> None:
    """Two arms against the baseline, one of them also against its other bound: three contrasts, not two."""
    summary = measured(fcp=20, fcp_loop=8, nfs3=30)
    model = summary.models["cpu"].model
    cells = model.layout.cells
    of = {arm: [cell for cell in cells if summary.grid.arm(cell) == arm] for arm in ("fcp", "fcp-loop", "nfs3")}
    pairs = [("fcp-loop", "fcp"), ("nfs3", "fcp"), ("nfs3", "fcp-loop")]
    contrasts = [dict.fromkeys(of[arm], 0.5) | dict.fromkeys(of[base], -0.5) for arm, base in pairs]
    confidence = each_confidence(correlations(model.layout, contrasts), float(model.layout.residual_df))
    wanted = [Estimate.ratio(model.contrast(each), confidence) for each in contrasts[1:]]
    found = [end.ratio for end in overall(summary, "nfs3").ends]
    assert [(each.low, each.high) for each in found] == [pytest.approx((each.low, each.high)) for each in wanted]


def test_by_load_both_ends_are_told() -> None:
    factors = {"outstanding": [1, 8], "block_size": ["4KiB", "64KiB"]}
    summary = measured(of={"factors": factors}, fcp=20, fcp_loop=8, nfs3=30)
    found = [c for c in summary.comparisons if c.arm == "nfs3" and c.response is CPU]
    assert len(found) == 4
    for each in found:
        assert each.verdict is Verdict.WORSE
        assert len(each.ends) == 2
    said = against_baseline(
        Overall(CPU, "nfs3", overall(summary, "nfs3"), 0.001, flips=False), found, "FCP", simulated=False
    ).text
    assert re.search(
        r"^more CPU per I/O than FCP under every load: from \d+ % more with .* over software FCoE \(", said
    )
    assert re.search(r" to 3\.\d+ times with .* over a loop within one kernel, without frames \(95 % CI", said)


def test_loads_without_a_verdict_are_not_among_those_under_which_it_holds() -> None:
    summary = measured(fcp=20, fcp_loop=8, nfs3=30)
    found = [c for c in summary.comparisons if c.arm == "nfs3" and c.response is CPU]
    open_ = replace(found[0], verdict=None, withheld=Withheld(Cause.ENDS))
    told = Overall(CPU, "nfs3", overall(summary, "nfs3"), 0.001, flips=False)
    many = [*found, replace(found[1], condition="outstanding 16"), open_]
    said = against_baseline(told, many, "FCP", simulated=False).text
    assert f"under {len(many) - 1} of {len(many)} loads" in said


def test_a_price_is_told_as_a_multiple_of_both_ends() -> None:
    summary = measured(of=COST, fcp=20, fcp_loop=8, nfs3=30)
    said = {finding.subject: finding.text for finding, _ in priced(summary)}
    assert re.search(
        r"times FCP’s over software FCoE \(.*\) and .* times FCP’s over a loop within one kernel", said["NFSv3"]
    )
    assert said["FCP (no transport)"].endswith("are bounds; a real adapter lies between them")


def test_a_price_beside_one_end_alone_says_that_the_carriers_differ() -> None:
    said = {finding.subject: finding.text for finding, _ in priced(measured(of=COST, fcp=20, nfs3=30))}
    assert said["NFSv3"].endswith(
        "; no verdict: the carriers differ (NFSv3: TCP; FCP: software FCoE instead of hardware)"
    )


def test_the_price_of_another_emulated_carrier_says_so_beside_both_ends() -> None:
    said = {f.subject: f.text for f, _ in priced(measured(of=COST, fcp=20, fcp_loop=8, fc_nvme=30, nfs3=30))}
    assert "no verdict: the carriers differ (FC-NVMe: " in said["FC-NVMe"]
    assert "no verdict" not in said["NFSv3"]


def two_machines(**changes: Any) -> Summary:
    """Three protocols: two between two machines, and one in a single machine without transport."""
    paths = {name: replace(PATH, initiator_us=us, target_us=us) for name, us in {"fcp": 20, "nfs3": 30}.items()}
    paths["fcp-loop"] = replace(PATH, initiator_us=16)
    asked = {
        "lab": "vm",
        "factors": {"protocol": list(paths), "outstanding": [1, 8]},
        "baseline": {"protocol": "fcp"},
        "responses": ["cpu_per_io", "iops", "latency"],
    }
    return summarise(Simulation(paths=paths).data(study(**asked | changes)))


def test_both_ends_in_one_machine_stand_for_cpu_and_not_for_speed() -> None:
    found = {each.response: each.comparison for each in two_machines().overalls if each.arm == "nfs3"}
    assert found[CPU].verdict is Verdict.WORSE
    assert len(found[CPU].ends) == 2
    for response in (IOPS, LATENCY):
        assert found[response].ends == ()
        assert found[response].withheld is not None
        assert found[response].withheld.cause is Cause.CARRIER


def test_several_paths_of_one_transport_are_compared_as_they_are_and_share_the_other_end() -> None:
    protocols = {
        "FC fixed": {"protocol": "fcp", "paths": 2, "path_policy": "fixed"},
        "FC round-robin": {"protocol": "fcp", "paths": 2, "path_policy": "round-robin"},
        "FC no transport": "fcp-loop",
        "NFS": "nfs3",
    }
    factors = {"protocol": protocols, "outstanding": [1, 8]}
    summary = two_machines(factors=factors, baseline={"protocol": "FC fixed"})
    ways, other = overall(summary, "FC round-robin"), overall(summary, "NFS")
    assert ways.verdict is not None
    assert ways.ends == ()
    assert [end.ratio.value for end in other.ends] == [pytest.approx(1.5, rel=0.1), pytest.approx(3.75, rel=0.1)]
    assert other.ends[0].ratio == other.ratio
