"""How the measurements of several hosts and their clocks merge into one result."""

from __future__ import annotations

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.base import Sample
from iotax.labs.hosts.clock import Offset, off_by_ns, offset_of
from iotax.labs.hosts.intervals import Intervals
from iotax.labs.hosts.merge import HostSeries, Part, merged
from iotax.labs.load import zone_bytes
from iotax.records import CpuTime, CpuUse
from iotax.study import Study
from iotax.trial import TrialResult

MS = 1_000_000


def result(start_ns: int, latencies: dict[int, int], **more: object) -> TrialResult:
    ios = sum(latencies.values())
    stream = {
        "ios": ios,
        "bytes": ios * 4096,
        "latency_sum_ns": sum(value * count for value, count in latencies.items()),
        "latency_min_ns": min(latencies, default=0),
        "latency_max_ns": max(latencies, default=0),
        "histogram": {"counts": sorted(latencies.items())},
    }
    nothing = {"ios": 0, "bytes": 0, "latency_sum_ns": 0, "latency_min_ns": 0, "latency_max_ns": 0}
    return TrialResult.model_validate(
        {
            "engine_version": "1",
            "driver": "epoll",
            "endpoint": "e",
            "window": {"start_unix_ns": start_ns, "start_ns": 0, "duration_ns": 1000 * MS},
            "read": stream,
            "write": nothing,
            "cpu": [],
            "series": [
                {"at_ns": 0, "duration_ns": 500 * MS, "reads": ios, "writes": 0, "read_bytes": 1, "write_bytes": 0}
            ],
            "outstanding": {"workers": 2, "per_worker": 4, "mean": 7.5},
            **more,
        }
    )


def test_counts_and_histograms_are_added_and_percentiles_are_those_of_all() -> None:
    fast, slow = result(0, {100: 99, 200: 1}), result(0, {5000: 100})
    together = merged([Part("a", Offset(0, 2), fast), Part("b", Offset(0, 2), slow)], CpuUse([]))
    assert (together.ios, together.read.bytes) == (200, 200 * 4096)
    assert together.read.histogram.counts == [(100, 99), (200, 1), (5000, 100)]
    # The median over all I/Os, not the mean of 100 and 5000.
    assert together.latency_ns(50) == 200
    assert (together.read.latency_min_ns, together.read.latency_max_ns) == (100, 5000)
    assert together.write.latency_min_ns == 0
    assert (together.outstanding.workers, together.outstanding.mean) == (4, 15.0)
    assert together.series[0].reads == 200
    assert together.series[0].latency_p50_ns is None
    # The intervals show which client worked for a shorter part of the window than the others.
    assert [each.intervals for each in together.clients] == [((0, 100),), ((0, 100),)]
    assert [(each.host, each.ios, each.latency_p50_ns) for each in together.clients] == [
        ("a", 100, 100),
        ("b", 100, 5000),
    ]


SLICE = {
    "round": 1,
    "place": 1,
    "start_ns": 0,
    "duration_ns": 1000 * MS,
    "ios": 50,
    "bytes": 50 * 4096,
    "latency_sum_ns": 50 * 100,
    "latency_p50_ns": 100,
    "latency_p99_ns": 100,
    "cpu_window_ns": 1000 * MS,
    "initiator_cpu_ns": 1,
    "machine_busy_ns": 1,
    "run_queue_wait_ns": 0,
}


def test_busy_processors_of_all_hosts_are_told_by_role_while_a_window_goes_on() -> None:
    told: list[Sample] = []
    observed = [
        HostSeries("a", (), {"initiator": "observer"}),
        HostSeries("b", (), {"initiator": "machine"}, virtual=True),
        HostSeries("t", (), {"target": "target"}),
        HostSeries("kvm", (), {}, hypervisor=True),
    ]
    heard = Intervals(["a", "b"], observed, lambda each: told.append(each) if isinstance(each, Sample) else None)

    def busy(host: str, guest_ms: int = 0, **busy_ms: int) -> None:
        busy_ns = {role: ms * MS for role, ms in busy_ms.items()}
        at = {"at_ns": 0, "duration_ns": 1000 * MS, "guest_ns": guest_ms * MS}
        heard.hear(host, {"event": "cpu", **at, "busy_ns": busy_ns, "initiators": None, "ios": None})

    def sample() -> Sample:
        for host in ("a", "b"):
            heard.hear(host, {"event": "sample", "at_ns": 1, "phase": "run", "iops": 10.0})
        return told.pop()

    busy("a", observer=100, machine=400)
    busy("b", observer=50, machine=300)
    busy("t", observer=1, target=200, machine=250)
    # No figures until every host has reported.
    assert sample().cores == {}
    busy("kvm", observer=1, machine=900, guest_ms=300)
    cores = sample().cores
    # Guest time is part of the time of the hypervisor's host.
    assert cores == pytest.approx({"initiator": 0.4, "target": 0.2, "hypervisor": 0.6, "machine": 0.4 + 0.25 + 0.9})
    busy("a", observer=700, machine=800)
    assert sample().cores["initiator"] == pytest.approx(1.0)


def test_the_slice_of_one_host_never_stands_for_all() -> None:
    parts = [Part(name, Offset(0, 2), result(0, {100: 50}, slices=[SLICE])) for name in ("a", "b")]
    together = merged(parts, CpuUse([]))
    assert (together.ios, together.slices) == (100, ())


def test_starts_are_compared_by_each_hosts_own_clock() -> None:
    # b's clock is 3 s ahead of the controller's: b started 4 ms later, not 3.004 s.
    parts = [
        Part("a", Offset(0, 200), result(10_000 * MS, {1: 1})),
        Part("b", Offset(3000 * MS, 300), result(13_004 * MS, {1: 1})),
    ]
    together = merged(parts, CpuUse([]))
    assert together.checks.start_skew_ns == 4 * MS
    assert together.window.start_unix_ns == 10_000 * MS
    assert [(each.started_after_ns, each.clock_error_ns) for each in together.clients] == [(0, 100), (4 * MS, 150)]


def test_an_offset_lies_in_the_middle_of_its_round_trip() -> None:
    found = offset_of(1000, 5600, 1200)
    assert (found.ahead_ns, found.round_trip_ns, found.error_ns) == (4500, 200, 100)


@pytest.mark.parametrize(
    ("left_ns", "off_ns"),
    [
        # Sent at 1000 for a start at 5000, answered at 1400: between 3600 and 4000 may have been left.
        (4000, 0),
        (3600, 0),
        (4300, 300),
        (3000, -600),
    ],
)
def test_a_start_at_another_time_is_known_as_far_as_the_round_trip_lets(left_ns: int, off_ns: int) -> None:
    assert off_by_ns(5000, left_ns, 1000, 1400) == off_ns


def test_the_same_part_of_several_hosts_is_one_part_together() -> None:
    def part(host: str, busy_ns: int, background_ns: int | None) -> CpuTime:
        return CpuTime(
            host=host, role="initiator", layer="process", busy_ns=busy_ns, background_ns=background_ns, processors=2
        )

    known = CpuUse([part("a", 10, 1), part("b", 30, 2)]).initiator
    assert known is not None
    assert (known.busy_ns, known.background_ns, known.processors, known.host) == (40, 3, 4, "")
    unknown = CpuUse([part("a", 10, 1), part("b", 30, None)]).initiator
    assert unknown is not None and unknown.background_ns is None
    alone = CpuUse([part("a", 10, 1)]).initiator
    assert alone is not None and alone.host == "a"


def test_clients_of_a_shared_volume_have_zones_that_do_not_overlap() -> None:
    document = {
        "name": "x", "question": "?", "volume": {"size": "10MiB"}, "factors": {"protocol": ["iscsi", "nvme-tcp"]},
        "baseline": {"protocol": "iscsi"},
    }  # fmt: skip
    settings = Study.model_validate(document).settings({"protocol": "iscsi"})
    assert zone_bytes(settings, 3) == 3 << 20
    assert 3 * zone_bytes(settings, 3) <= settings.volume.size
    own = Study.model_validate(document | {"load": {"working_set": "2MiB"}}).settings({"protocol": "iscsi"})
    assert zone_bytes(own, 3) == zone_bytes(own, 1) == 2 << 20


def gaps(longest_ns: int, *listed: tuple[int, int]) -> dict[str, object]:
    return {"gaps": {"longest_ns": longest_ns, "listed_from_ns": MS, "listed": listed}}


def test_a_gap_of_all_clients_is_where_each_has_one_by_one_clock() -> None:
    """The second client started 10 ms later, on a clock that is 5 s ahead."""
    one = result(0, {100: 10}, **gaps(300 * MS, (100 * MS, 300 * MS), (600 * MS, 50 * MS)))
    two = result(5010 * MS, {100: 10}, **gaps(400 * MS, (190 * MS, 400 * MS), (700 * MS, 20 * MS)))
    parts = [Part("a", Offset(0, MS // 10), one), Part("b", Offset(5000 * MS, MS // 10), two)]
    together = merged(parts, CpuUse([]))
    assert together.gaps is not None
    assert (together.gaps.longest_ns, together.gaps.listed) == (200 * MS, [(200 * MS, 200 * MS)])
    assert (together.gaps.is_bound, together.gaps.of) == (False, "all")
    assert [each.longest_gap_ns for each in together.clients] == [300 * MS, 400 * MS]


def test_clocks_that_are_known_badly_find_long_gaps_only() -> None:
    found = gaps(30 * MS, (100 * MS, 30 * MS))
    parts = [Part(name, Offset(0, 4 * MS), result(0, {100: 10}, **found)) for name in "ab"]
    together = merged(parts, CpuUse([])).gaps
    assert together is not None
    assert (together.longest_ns, together.is_bound, together.listed_from_ns) == (30 * MS, True, 40 * MS)


def test_gaps_of_clients_whose_clocks_have_paces_are_those_of_one_client() -> None:
    parts = [
        Part(name, Offset(0, 0), result(0, {100: 10}, **gaps(ms * MS, (100 * MS, ms * MS))), pace=0.9)
        for name, ms in (("a", 30), ("b", 70))
    ]
    together = merged(parts, CpuUse([])).gaps
    assert together is not None
    assert (together.longest_ns, together.of) == (70 * MS, "client")


def test_one_client_keeps_its_own_gaps_and_none_of_all_is_known_where_one_measured_none() -> None:
    known = result(0, {100: 10}, **gaps(MS // 2))
    assert merged([Part("a", Offset(0, 7), known)], CpuUse([])).gaps == known.gaps
    parts = [Part("a", Offset(0, 7), known), Part("b", Offset(0, 7), result(0, {100: 10}))]
    assert merged(parts, CpuUse([])).gaps is None


def test_flushes_of_all_hosts_are_added_and_percentiles_of_one_host_are_not_those_of_all() -> None:
    flushes = {"ios": 3, "bytes": 0, "latency_sum_ns": 30, "latency_min_ns": 10, "latency_max_ns": 10}
    one, other = (result(0, {100: 10}, sync=flushes, percentiles=[(99, value)]) for value in (5, 7))
    together = merged([Part("a", Offset(0, 2), one), Part("b", Offset(0, 2), other)], CpuUse([]))
    assert together.sync is not None
    assert (together.sync.ios, together.sync.latency_sum_ns) == (6, 60)
    assert together.percentiles == []
    alone = merged([Part("a", Offset(0, 2), one)], CpuUse([]))
    assert alone.percentiles == [(99, 5)]
