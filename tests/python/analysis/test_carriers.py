"""Protocols whose carrier is emulated for one and real for another: no output gives a verdict unlike_carriers them."""

import pytest

from iotax.analysis import StudyData, Verdict, summarise
from iotax.analysis.change import level_changes
from iotax.analysis.verdict import Cause
from iotax.analysis.withheld import described, unlike_carriers
from iotax.cli.console import console
from iotax.cli.screen import screen
from iotax.records import Carrier
from iotax.report.page import Page
from iotax.report.sections import published
from iotax.wording import answer, verdicts
from iotax.wording.conditions import ENCRYPTED_BRIEF
from report.factory import Simulation, carried, encrypted, study, with_facts

TCP = Carrier(kind="software", usual="software", name="TCP")
FCOE = Carrier(kind="software", usual="hardware", name="software FCoE")
LOOP = Carrier(kind="loop", usual="hardware", name="a loop")
HBA = Carrier(kind="hardware", usual="hardware", name="Fibre Channel")
LOCAL = Carrier(kind="none", usual="none")


@pytest.mark.parametrize(
    ("arm", "baseline", "withheld"),
    [
        (TCP, TCP, False),
        (FCOE, TCP, True),
        (TCP, FCOE, True),
        (FCOE, LOOP, True),
        (FCOE, FCOE, False),
        (HBA, TCP, False),
        (HBA, FCOE, True),
        (LOCAL, TCP, False),
        (Carrier(), TCP, False),
        (Carrier(), LOOP, True),
    ],
)
def test_a_verdict_needs_two_carriers_that_are_the_real_ones_or_the_same(
    arm: Carrier, baseline: Carrier, withheld: bool
) -> None:
    assert (unlike_carriers(arm, baseline) is not None) is withheld


def test_an_emulated_carrier_says_what_it_stands_for() -> None:
    assert described(FCOE) == "software FCoE instead of hardware"
    assert described(TCP) == "TCP"


@pytest.fixture(scope="module")
def emulated():
    return carried(Simulation().data(study()), {"nfs3": FCOE})


def test_the_sentence_withholds_the_verdict_and_carries_the_reason(emulated: StudyData) -> None:
    summary = summarise(emulated)
    said = [each for each in verdicts(summary) if each.subject == "NFSv3" and each.response_key]
    assert said
    for each in said:
        assert "no verdict against iSCSI" in each.sentence
        assert "NFSv3: software FCoE instead of hardware; iSCSI: TCP" in each.sentence
        assert "95 % CI" in each.sentence
    assert {o.comparison.verdict for o in summary.overalls if o.arm == "nfs3"} == {None}
    assert all(o.comparison.withheld is None for o in summary.overalls if o.arm != "nfs3")
    for cell in summary.cells:
        for ratio in cell.ratios.values():
            assert (cell.arm == "nfs3") == (ratio.withheld is not None and ratio.withheld.cause is Cause.CARRIER)


def test_what_was_simulated_is_not_said_to_be_measured(emulated: StudyData) -> None:
    def said(data: StudyData) -> list[str]:
        return [each.sentence for each in verdicts(summarise(data)) if "no verdict against iSCSI" in each.sentence]

    simulated = with_facts(emulated, lab="sim")
    assert simulated.simulated
    assert said(emulated)
    assert all("; measured: " in each for each in said(emulated))
    assert said(simulated) == [each.replace("; measured: ", "; simulated: ") for each in said(emulated)]


def test_the_same_runs_over_real_carriers_are_judged() -> None:
    summary = summarise(Simulation().data(study()))
    assert {o.comparison.verdict for o in summary.overalls if o.arm == "nfs3"} & {Verdict.BETTER, Verdict.WORSE}


def test_a_tax_over_an_emulated_carrier_says_so(emulated: StudyData) -> None:
    taxed = {each.subject: each.sentence for each in verdicts(summarise(emulated)) if not each.response_key}
    assert "software FCoE instead of hardware" in taxed["NFSv3"]
    assert "instead of" not in taxed["iSCSI"]


def test_a_carrier_that_no_verdict_brings_up_is_named_beside_them(emulated: StudyData) -> None:
    def named(data: StudyData) -> list[str]:
        parts = {part.title: part.findings for part in answer(summarise(data))}
        return [each.text for each in parts.get("Transport used here", ())]

    assert named(emulated) == []  # the withheld verdict names it
    assert named(Simulation().data(study())) == []
    within = study(factors={"protocol": ["nfs3"], "outstanding": [1, 8]}, baseline={"outstanding": 1})
    assert named(carried(Simulation().data(within), {"nfs3": FCOE})) == [
        "runs over software FCoE instead of hardware: its figures are those of that carrier"
    ]


def test_two_levels_are_compared_without_a_verdict(emulated: StudyData) -> None:
    one, other = (emulated.study.level("protocol", name) for name in ("iscsi", "nfs3"))
    assert one is not None
    assert other is not None
    found = level_changes(emulated, "protocol", one, other, 5.0).found
    assert found
    assert {each.verdict for each in found} == {None}
    assert {each.withheld.cause for each in found if each.withheld} == {Cause.CARRIER}


def test_a_published_figure_is_not_said_to_agree_over_an_emulated_carrier() -> None:
    of = study(
        published=[
            {
                "source": "S",
                "response": "iops",
                "figures": [{"of": {"protocol": name}, "relative": 80} for name in ("nfs3", "nvme-tcp")],
            }
        ]
    )
    summary = summarise(carried(Simulation().data(of), {"nfs3": LOOP}))
    [source] = summary.sources
    assert [each.agreement == "carrier" for each in source.figures] == [True, False]
    assert "1 is not judged: here over a loop instead of hardware." in published.words(
        source, summary.doubt_of(summary.cells), "measured"
    )
    [row, _] = published.groups(source)[0].rows
    assert row.figures[-1].value == "not judged"


AES = "With IPsec, CPU per I/O counts instructions (250 are 1 µs), an AES instruction as one, so it is not a time."


def test_instructions_that_encrypt_are_compared_and_their_times_are_not() -> None:
    plain = with_facts(Simulation().data(study()), clock="instructions")
    summary = summarise(encrypted(plain, {"nfs3": "ipsec"}))
    of_nfs = {o.comparison.response.key: o.comparison for o in summary.overalls if o.arm == "nfs3"}
    causes = {key: each.withheld.cause for key, each in of_nfs.items() if each.withheld}
    assert {*causes.values()} == {Cause.ENCRYPTED}
    assert of_nfs["cpu"].verdict is not None
    assert {"iops", "latency"} <= {*causes}
    assert all(o.comparison.withheld is None for o in summary.overalls if o.arm != "nfs3")
    said = [each.sentence for each in verdicts(summary) if "no verdict against iSCSI" in each.sentence]
    assert said
    assert all("an instruction that encrypts counts as one, however long it takes" in each for each in said)
    # If all links are encrypted, the effect is the same for all.
    alike = summarise(encrypted(plain, dict.fromkeys(["nfs3", "iscsi", "nvme-tcp", "local"], "ipsec")))
    assert all(each.comparison.withheld is None for each in alike.overalls)


def test_what_counts_as_one_is_said_where_the_figure_is_shown() -> None:
    data = encrypted(Simulation().data(study()), {"nfs3": "ipsec"})
    summary = summarise(data)
    said = [finding.text for part in answer(summary) if part.title == "What counts here" for finding in part.findings]
    assert said == [AES.removesuffix(".")]
    # Below the charts of CPU per I/O, and on a terminal's first screen.
    page = Page(summary, "n.iotax")
    assert any(drawing.name.startswith("cpu-an-io") for drawing in page.drawings)
    assert page.html().count("an AES instruction as one, so it is not a time") >= 2
    assert ENCRYPTED_BRIEF in [str(line) for line in screen(console(), data, 40)]
    # If the guests' clock is time, CPU time includes what encryption really takes.
    timed = with_facts(data, clock="time")
    assert "What counts here" not in {part.title for part in answer(summarise(timed))}
    assert {o.comparison.withheld for o in summarise(timed).overalls} == {None}
