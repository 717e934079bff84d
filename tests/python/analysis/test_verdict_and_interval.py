"""A verdict always follows from the interval that is printed next to it."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from cell_models import OneModel, design, draw

from iotax.analysis import Estimate, Verdict, summarise
from iotax.analysis.change import changes
from iotax.analysis.compare import _judge
from iotax.analysis.multiplicity import dunnett, each_confidence, sidak, sidak_confidence
from iotax.analysis.responses import CPU, IOPS
from iotax.wording import verdicts
from iotax.wording.figures import indexed
from iotax.wording.verdicts import change
from report.factory import Simulation, study

MARGIN = 1.05


def reading(ratio: Estimate, more_is_better: bool, margin: float = MARGIN) -> Verdict:
    """The verdict that a reader derives from an interval."""
    assert ratio.low is not None
    assert ratio.high is not None
    if 1 / margin < ratio.low and ratio.high < margin:
        return Verdict.EQUIVALENT
    if ratio.low <= 1 <= ratio.high:
        return Verdict.INCONCLUSIVE
    return Verdict.BETTER if (ratio.low > 1) == more_is_better else Verdict.WORSE


@pytest.fixture(scope="module")
def families():
    """Comparisons of many small studies, with effects around zero and around the margin."""
    rng = np.random.default_rng(11)
    found = []
    for arms, blocks in ((2, 2), (3, 3), (4, 5), (7, 3)):
        layout = design(arms, blocks)
        family = [{cell: 1.0, 0: -1.0} for cell in range(1, arms)]
        for _ in range(60):
            means = np.concatenate(([0.0], rng.normal(0, 0.05, arms - 1)))
            stub = OneModel(draw(layout, blocks, means, np.full(arms, rng.choice([0.005, 0.02, 0.05])), rng))
            found.append(_judge(stub, family, 5))
    return found


def test_every_verdict_follows_from_its_interval(families):
    said = [c for family in families for c in family]
    assert {c.verdict for c in said} == set(Verdict)
    for comparison in said:
        assert comparison.verdict is reading(comparison.ratio, more_is_better=True)


def test_an_adjusted_p_value_and_its_interval_agree(families):
    for comparison in (c for family in families for c in family):
        differs = not comparison.ratio.low <= 1 <= comparison.ratio.high
        assert differs == (comparison.p_difference < 0.05)


@pytest.mark.parametrize("k", [2, 5, 40, 250])
def test_confidences_are_the_counterparts_of_adjusted_p_values(k):
    correlation = np.full((k, k), 0.5) + 0.5 * np.eye(k)
    at = 1 - each_confidence(correlation, 12)
    assert 0.05 / k <= at * (1 + 1e-9)
    assert at < 0.05
    assert dunnett([at * 1.01] * k, correlation, 12)[0] >= 0.05
    assert dunnett([at * 0.99] * k, correlation, 12)[0] < 0.05
    alone = 1 - sidak_confidence(k)
    assert sidak([alone] * k) == pytest.approx([0.05] * k)


def test_a_published_critical_value_is_met():
    """Dunnett 1955, two-sided 5 %: three treatments and a control, 12 degrees of freedom: 2.68."""
    from scipy.stats import t

    correlation = np.full((3, 3), 0.5) + 0.5 * np.eye(3)
    confidence = each_confidence(correlation, 12)
    assert t.isf((1 - confidence) / 2, 12) == pytest.approx(2.68, abs=0.01)


def test_whole_studies_print_what_their_intervals_say():
    said = 0
    for seed in range(4):
        data = Simulation(seed=seed, run_cv=0.05).data(study())
        summary = summarise(data)
        for c in [*summary.comparisons, *(o.comparison for o in summary.overalls)]:
            if c.verdict is not None:
                said += 1
                assert c.verdict is reading(c.ratio, c.response.more_is_better)
        other = Simulation(seed=seed + 100, run_cv=0.05).data(study())
        for each in changes(data, other, 5).found:
            said += 1
            assert each.verdict is reading(each.ratio, each.response.more_is_better)
    assert said > 200


PERCENT = re.compile(r"95 % CI ([+−][\d.]+) % to ([+−][\d.]+) %")


def test_sentences_show_the_interval_that_they_follow():
    of = study(factors={"protocol": ["nfs3", "iscsi", "nvme-tcp"], "outstanding": [8]})
    words = {"no significant difference": lambda low, high: low <= 0 <= high, "equivalent": lambda low, high: True}
    seen = set()
    for seed in range(12):
        for finding in verdicts(summarise(Simulation(seed=seed, run_cv=0.15).data(of))):
            found = PERCENT.search(finding.text)
            if found is None:
                assert "times" in finding.text
                continue
            low, high = (float(end.replace("−", "-")) for end in found.groups())
            word = next((w for w in words if w in finding.text), "differs")
            seen.add(word)
            assert words.get(word, lambda low, high: low > 0 or high < 0)(low, high), finding.sentence
    assert {"differs", "no significant difference"} <= seen


@pytest.mark.parametrize("ratio", [0.9996, 0.99999, 1.00002, 1.0004, 1.004])
def test_rounding_does_not_move_an_end_across_no_difference(ratio):
    """An interval that excludes 100 is not printed as if it ended there."""
    assert float(indexed(ratio)) != 100
    assert "0.0 %" not in change(IOPS, ratio)


def test_a_withheld_verdict_keeps_its_interval_and_says_why():
    from iotax.analysis.verdict import Cause, Withheld
    from iotax.wording.verdicts import against_baseline

    of = study(factors={"protocol": ["nfs3", "iscsi"], "outstanding": [8]})
    overall = next(o for o in summarise(Simulation().data(of)).overalls if o.response is CPU)
    loop = Withheld(Cause.CARRIER, "loop", "hardware")
    withheld = replace(overall, comparison=replace(overall.comparison, verdict=None, withheld=loop))
    finding = against_baseline(withheld, [], "iSCSI", simulated=False)
    assert finding.sentence.startswith(
        "NFSv3 gets no verdict against iSCSI in CPU per I/O: the carriers differ (NFSv3: loop; iSCSI: hardware)"
    )
    assert "95 % CI" in finding.text
    assert finding.tone == "plain"


def held_together(arms: int, blocks: int, draws: int, seed: int) -> float:
    """How often all intervals of a family contain the true value at once."""
    rng, layout = np.random.default_rng(seed), design(arms, blocks)
    family = [{cell: 1.0, 0: -1.0} for cell in range(1, arms)]
    means = np.linspace(0, 0.3, arms)
    hits = 0
    for _ in range(draws):
        stub = OneModel(draw(layout, blocks, means, np.full(arms, 0.03), rng))
        found = _judge(stub, family, 5)
        hits += all(math.log(c.ratio.low) <= means[i + 1] <= math.log(c.ratio.high) for i, c in enumerate(found))
    return hits / draws


def test_intervals_of_a_family_hold_at_once():
    assert held_together(4, 5, 150, seed=1) >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 150)


@pytest.mark.long
@pytest.mark.parametrize(("arms", "blocks"), [(3, 3), (4, 5), (7, 3), (4, 10)])
def test_intervals_of_a_family_hold_at_once_as_often_as_they_say(arms, blocks):
    found = held_together(arms, blocks, 10_000, seed=2)
    print(arms, blocks, found)
    assert 0.94 <= found <= 0.99
