"""Throughput as a share of a link's capacity."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotax.analysis import StudyData
from iotax.analysis.link import DATA_BITS_PER_S, ceiling_bytes_per_s
from iotax.design import plan
from iotax.study import Study
from iotax.study.model import Link
from iotax.study.read import read_study
from iotax.study.source import StudyError
from iotax.trial import Attempt, TrialResult
from iotax.wording.conditions import of_links

STUDY = """\
name: links
question: Does IP carry what Fibre Channel does?
factors: {protocol: {fc: /dev/null, ip: /dev/zero}, block_size: [4KiB, 64KiB]}
links: {fc: {rate: 32GFC}, ip: {rate: 25GbE, mtu: 9000}}
design: {replicates: 2}
baseline: {protocol: fc}
"""


@pytest.mark.parametrize(
    ("link", "megabits_per_s"),
    [
        # What iperf3 measures on gigabit Ethernet, to the digit: 1448 of 1538 bytes.
        (Link(rate="1GbE"), 941.48),
        (Link(rate="1GbE", mtu=9000), 990.04),
        (Link(rate="25GbE", mtu=9000), 24751.05),
        (Link(rate="32GFC"), 27200 * 2112 / 2172),
    ],
)
def test_ceiling_is_what_frames_leave_of_the_line(link: Link, megabits_per_s: float) -> None:
    assert ceiling_bytes_per_s(link) * 8 / 1e6 == pytest.approx(megabits_per_s, abs=0.01)


def test_32gfc_carries_9_percent_more_data_than_25gbe() -> None:
    assert DATA_BITS_PER_S["32GFC"] / DATA_BITS_PER_S["25GbE"] == pytest.approx(1.088)


def measured(study: Study, shares: dict[tuple[object, object], float]) -> StudyData:
    """Runs whose reads use these shares of their links; writes use a tenth of that."""
    attempts = []
    for trial in plan(study).trials:
        protocol, block_bytes = trial.treatment["protocol"], trial.treatment["block_size"]
        carried = round(shares[protocol, block_bytes] * ceiling_bytes_per_s(study.links[str(protocol)]))
        stream = {"latency_sum_ns": 1, "latency_min_ns": 1, "latency_max_ns": 1}
        result = TrialResult.model_validate(
            {
                "engine_version": "0",
                "driver": "none",
                "endpoint": "local:/dev/null",
                "window": {"start_unix_ns": trial.order, "start_ns": 0, "duration_ns": 10**9},
                "read": {"ios": 1000, "bytes": carried, **stream},
                "write": {"ios": 100, "bytes": carried // 10, **stream},
                "cpu": {"initiator": None},
                "outstanding": {"workers": 1, "per_worker": 1, "mean": 1.0},
            }
        )
        attempts.append(
            Attempt(trial=trial, number=1, status="done", reason="", started_unix_ns=0, ended_unix_ns=1, result=result)
        )
    return StudyData(study, attempts)


def test_only_what_links_bound_is_told_as_shares_of_them() -> None:
    study = read_study("s", STUDY, Path("/"))
    small, large = 4096, 65536
    told = of_links(measured(study, {("fc", small): 0.3, ("ip", small): 0.4, ("fc", large): 0.96, ("ip", large): 0.98}))
    assert told[0] == "Capacity of the links, one way: fc 32GFC 3,306 MB/s, ip 25GbE 3,094 MB/s."
    # 0.98 × 3,094 relative to 0.96 × 3,306.
    assert told[1:] == [
        "ip · 64KiB: 96 of fc · 64KiB = 100 as measured; as shares of their links 98.0 % and 96.0 %, 102."
    ]


def test_several_links_of_a_protocol_carry_so_much_more() -> None:
    two = read_study("s", STUDY.replace("rate: 32GFC", "rate: 32GFC, count: 2"), Path("/"))
    one = read_study("s", STUDY, Path("/"))
    assert ceiling_bytes_per_s(two.links["fc"]) == 2 * ceiling_bytes_per_s(one.links["fc"])
    half = measured(two, {(protocol, size): 0.5 for protocol in ("fc", "ip") for size in (4096, 65536)})
    assert of_links(half)[0] == "Capacity of the links, one way: fc 2 × 32GFC 6,612 MB/s, ip 25GbE 3,094 MB/s."


def test_a_single_link_leaves_the_digest_of_a_study_as_it_was() -> None:
    single = read_study("s", STUDY.replace("rate: 32GFC", "rate: 32GFC, count: 1"), Path("/"))
    assert single.digest() == read_study("s", STUDY, Path("/")).digest()
    assert '"count"' not in single.model_dump_json()


def test_links_that_bound_nothing_are_owed_nothing() -> None:
    study = read_study("s", STUDY, Path("/"))
    told = of_links(measured(study, {(name, size): 0.5 for name in ("fc", "ip") for size in (4096, 65536)}))
    assert told[1] == "No comparison was limited by its links: in none did both sides reach 90 % of that."


def test_a_link_of_no_protocol_is_a_slip() -> None:
    with pytest.raises(StudyError, match="not a level of protocol; its levels are fc, ip"):
        read_study("s", STUDY.replace("links: {fc:", "links: {fcp:"), Path("/"))
