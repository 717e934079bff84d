"""The parts of the first screen: absolute figures before relative ones, each verdict in its own part."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from scipy.stats import nct, t

from iotax.analysis import Summary, Verdict, summarise
from iotax.analysis.precision import detectable_percent
from iotax.analysis.sessions import for_width
from iotax.design.power import POWER
from iotax.wording import answer, precision, verdicts
from report.factory import PATHS, Simulation, study


def summary(seed: int = 1, **how: object) -> Summary:
    return summarise(Simulation(seed=seed, **how).data(study()))


def parts(of: Summary) -> dict[str, list[str]]:
    return {part.title: [finding.sentence for finding in part.findings] for part in answer(of)}


def test_what_protocols_add_comes_first_by_side_with_intervals() -> None:
    first = answer(summary())[0]
    assert first.title == "What each protocol adds to an I/O"
    said = [finding.sentence for finding in first.findings]
    assert [sentence.partition(" ")[0] for sentence in said] == ["NFSv3", "iSCSI", "NVMe/TCP"]
    for sentence in said:
        assert sentence.endswith(", compared with the same volume reached locally with 1 outstanding I/O."), sentence
        for what in ("latency", "initiator CPU", "target CPU"):
            assert re.search(rf"[\d.,]+ µs \(95 % CI [\d.,]+ to [\d.,]+\) of {what}", sentence), (what, sentence)
        assert re.search(r"loses [\d.]+ % \(95 % CI .*\) of the throughput", sentence), sentence


def test_both_sides_add_what_they_spend_beyond_local() -> None:
    found = summary()
    cells = {(cell.arm, cell.condition): cell.values for cell in found.cells}
    for tax in found.taxes:
        own, local = cells[tax.arm, tax.condition], cells["local", tax.condition]
        assert tax.initiator_us is not None
        assert tax.target_us is not None
        added = own["cpu_initiator"].value - local["cpu_initiator"].value
        assert tax.initiator_us.value == pytest.approx(added, rel=0.05)
        assert tax.target_us.value == own["cpu_target"].value


def test_every_verdict_stands_in_one_part() -> None:
    same = dict.fromkeys(("nfs3", "iscsi"), PATHS["iscsi"]) | {
        "local": PATHS["local"],
        "nvme-tcp": replace(PATHS["nvme-tcp"]),
    }
    for found in (summary(2), summary(2, paths=same), summary(2, paths=same, run_cv=0.2)):
        said = parts(found)
        judged = [each for title, some in said.items() if not title.startswith("What each") for each in some]
        assert len(judged) == len(found.overalls)
        verdicts = {o.comparison.verdict for o in found.overalls if not o.depends}
        assert ("Not settled" in said) >= (Verdict.INCONCLUSIVE in verdicts)
        assert ("No difference beyond the margin of 5 %" in said) >= (Verdict.EQUIVALENT in verdicts)


def test_every_part_says_its_doubt_and_the_reason_stands_once() -> None:
    every = [f"{p}/{n}/r{r}" for p in ("nfs3", "nvme-tcp") for n in (1, 8, 32) for r in (1, 2, 3)]
    base = [f"{p}/{n}/r{r}" for p in ("local", "iscsi") for n in (1, 8, 32) for r in (1, 2, 3)]
    said = parts(summary(unsteady=[*every, *base]))
    reasons = said.pop("Why doubtful")
    for sentence in (each for some in said.values() for each in some):
        assert re.search(r"; doubtful\.($| To settle it: )", sentence), sentence
    assert reasons == [
        "NFSv3 and NVMe/TCP, each against iSCSI: all 18 runs (steady state).",
        "NFSv3, iSCSI and NVMe/TCP, each against Local: all 6 runs (steady state).",
    ]
    calm = parts(summary())
    assert "Why doubtful" not in calm
    assert not any("doubtful" in each for some in calm.values() for each in some)


def test_what_protocols_add_is_doubtful_only_by_its_own_runs() -> None:
    # The protocol's tax is measured with one outstanding I/O; there, runs of both sides count.
    found = summary(unsteady=[f"{p}/1/r{r}" for p in ("nfs3", "local") for r in (1, 2, 3)])
    said = {each.subject: each.text for each in verdicts(found) if not each.response_key}
    assert said["NFSv3"].endswith("; but all 6 runs are doubtful (steady state)")
    assert "doubtful" not in said["iSCSI"]
    loaded = summary(unsteady=[f"{p}/32/r{r}" for p in ("nfs3", "local") for r in (1, 2, 3)])
    assert not any("doubtful" in each.text for each in verdicts(loaded) if not each.response_key)


def test_what_is_not_settled_says_what_it_takes() -> None:
    same = dict.fromkeys(("nfs3", "iscsi"), PATHS["iscsi"]) | {"local": PATHS["local"]}
    found = summarise(
        Simulation(seed=4, paths=same, run_cv=0.08).data(
            study(factors={"protocol": ["local", "nfs3", "iscsi"], "outstanding": [1, 8]})
        )
    )
    said = parts(found)["Not settled"]
    assert said
    assert all(
        re.search(r"\. To settle it: a new run, with another seed, of (about \d+|more than 1000) replicates", each)
        for each in said
    ), said


def test_smallest_difference_is_that_of_90_percent_power() -> None:
    """Checked with the noncentral t distribution: the half-width is t(0.975) standard errors."""
    for sessions in (4, 6, 20):
        told = detectable_percent(3.0, sessions)
        assert told is not None
        limit = t.ppf(0.975, sessions - 1)
        assert nct.sf(limit, sessions - 1, told / (3.0 / limit)) == pytest.approx(POWER, abs=1e-6)
    assert detectable_percent(3.0, 1) is None


def test_sessions_for_a_width_fall_to_it_and_no_further() -> None:
    assert for_width(6, 1.0) == 6
    assert for_width(6, 0.5) == 17
    assert for_width(3, 1e-6) is None


def test_precision_is_said_of_the_primary_response() -> None:
    found = precision(summary())
    assert found is not None
    assert re.fullmatch(
        r"Throughput: ratios are known to ±[\d.]+ % over all loads and ±[\d.]+ % under one load "
        r"\(median; worst ±[\d.]+ %\); minimum detectable difference \(90 % power\) over all loads [\d.]+ %; "
        r"half of it takes a run of about \d+ replicates.*\.",
        found.text,
    ), found.text
    assert precision(summarise(Simulation().data(study(design={"replicates": 1})))) is None


def test_two_wild_replicates_are_not_known_to_a_tenth_of_a_percent() -> None:
    found = precision(summarise(Simulation(seed=1, run_cv=0.5).data(study(design={"replicates": 2}))))
    assert found is not None
    assert "under one load (median; worst more than ±100 %)" in found.text or "more than ±100 % under" in found.text
    assert not re.search(r"\d{4,}", found.text)


def test_runs_that_came_out_alike_have_no_interval_and_say_so() -> None:
    found = summary(run_cv=0.0, block_cv=0.0)
    text = precision(found)
    assert text is not None
    assert text.text == "Throughput: ratios have no interval: all runs alike."
    said = [*(each for some in parts(found).values() for each in some), *(each.sentence for each in verdicts(found))]
    assert any("no interval: all runs alike" in each or "no intervals: all runs alike" in each for each in said)
    assert not any(re.search(r"95 % CI (\S+)( %)? to \1( |\))|±0", each) for each in said), said
