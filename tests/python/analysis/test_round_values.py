"""Results of sessions in slices: robust values, intervals whose sample is the session, and the sources of scatter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from iotax.analysis.model import CellModel, Layout
from iotax.analysis.rounds import SLICED, hodges_lehmann, polished, scatter
from iotax.analysis.sessions import arm_rounds, session_scatter
from iotax.analysis.summary import summarise
from iotax.records import CpuTime, CpuUse
from iotax.report.charts import rounds as draw_rounds
from iotax.trial import Open, Slice, TrialResult
from iotax.wording import trust
from report.factory import Simulation, study

Noise = Callable[[np.random.Generator, int], np.ndarray]


def test_hodges_lehmann_is_the_published_pseudomedian() -> None:
    # Hollander and Wolfe (1973), page 29: depression scale factors before and after, as in R's help of wilcox.test.
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    assert hodges_lehmann(np.subtract(before, after).tolist()) == pytest.approx(0.46)
    assert hodges_lehmann([3.0]) == 3.0


def test_what_a_round_has_in_common_is_taken_off() -> None:
    rounds = {1: 0.0, 2: 0.7, 3: -0.4, 4: 0.1}
    logs = {
        name: {at: level + off for at, off in rounds.items()} for name, level in [("a", 1.0), ("b", 2.0), ("c", 5.0)]
    }
    found = polished(logs)
    assert found["b"] - found["a"] == pytest.approx(1.0, abs=1e-12)
    assert found["c"] - found["b"] == pytest.approx(3.0, abs=1e-12)


def test_few_disturbed_slices_do_not_move_a_value() -> None:
    calm = {name: {at: level + 0.001 * at for at in range(10)} for name, level in [("a", 1.0), ("b", 2.0), ("c", 3.0)]}
    bursts = {name: dict(rounds) for name, rounds in calm.items()}
    bursts["b"][3] -= 2.0
    bursts["b"][7] -= 1.0
    assert abs(polished(bursts)["b"] - polished(calm)["b"]) < 0.005


def finished() -> TrialResult:
    """A result of a user-space stack in a closed loop."""
    return Simulation().data(study()).runs[0].result


def slice_of(**known: float | None) -> Slice:
    """A slice of 50 ms in which 23 I/Os of 2.1 ms completed one at a time; its edges cut two more."""
    values = {
        "duration_ns": 50_000_000,
        "ios": 23,
        "bytes": 23 * 4096,
        "latency_sum_ns": 23 * 2_100_000,
        "mean_outstanding": 1.0,
        "initiator_cpu_ns": 500_000,
        "target_cpu_ns": 500_000,
    }
    others = dict.fromkeys(
        ("round", "place", "start_ns", "latency_p50_ns", "latency_p99_ns", "cpu_window_ns", "machine_busy_ns"), 1
    )
    return Slice.model_validate({**others, **values, **known})


def test_ios_that_the_edges_of_a_slice_cut_count_in_part() -> None:
    result, part = finished(), slice_of()
    done = 50 / 2.1
    assert SLICED["iops"](result, part) == pytest.approx(done / 0.05)
    assert SLICED["bandwidth"](result, part) == pytest.approx(done * 4096 / 0.05 / (1 << 20))
    assert SLICED["latency"](result, part) == pytest.approx(2100)
    assert SLICED["cpu"](result, part) == pytest.approx(1000 / done)


@pytest.mark.parametrize(
    ("resolution_ns", "both", "initiator", "target"), [(0, 21.0, 18.0, 3.0), (10_000_000, None, None, None)]
)
def test_a_kernels_path_is_judged_by_its_guest_where_that_is_read_exactly(
    resolution_ns: int, both: float | None, initiator: float | None, target: float | None
) -> None:
    guest = CpuTime(
        role="initiator",
        layer="guest",
        busy_ns=1,
        background_ns=40_000,
        window_ns=100_000_000,
        resolution_ns=resolution_ns,
    )
    result = finished()
    result = result.model_copy(
        update={"cpu": CpuUse([guest]), "facts": result.facts.model_copy(update={"stack": "kernel", "served": "lab"})}
    )
    done = 50 / 2.1
    # 20 of the guest's 450 µs are background.
    part = slice_of(machine_busy_ns=round(18_000 * done) + 20_000, target_cpu_ns=round(3_000 * done))
    for name, value in [("cpu", both), ("cpu_initiator", initiator), ("cpu_target", target)]:
        assert SLICED[name](result, part) == (None if value is None else pytest.approx(value, rel=1e-5))


def test_where_both_ends_are_one_guest_its_cpu_is_theirs_together() -> None:
    guest = CpuTime(role="both", layer="guest", busy_ns=1, background_ns=0, window_ns=50_000_000)
    result = finished()
    result = result.model_copy(
        update={"cpu": CpuUse([guest]), "facts": result.facts.model_copy(update={"stack": "kernel", "served": "lab"})}
    )
    part = slice_of(machine_busy_ns=round(18_000 * 50 / 2.1), target_cpu_ns=None)
    assert SLICED["cpu"](result, part) == pytest.approx(18.0, rel=1e-5)
    assert SLICED["cpu_initiator"](result, part) is None
    assert SLICED["cpu_target"](result, part) is None


def test_whole_ios_count_in_slices_of_earlier_versions_and_of_open_loops() -> None:
    assert SLICED["iops"](finished(), slice_of(mean_outstanding=None)) == pytest.approx(23 / 0.05)
    open_loop = finished().model_copy(update={"open": Open.model_construct(rate_iops=460)})
    assert SLICED["iops"](open_loop, slice_of()) == pytest.approx(23 / 0.05)


def test_a_slice_in_which_nothing_completed_has_a_rate_of_zero_and_no_cost() -> None:
    none = slice_of(ios=0, bytes=0, latency_sum_ns=0)
    assert SLICED["iops"](finished(), none) == 0
    assert SLICED["latency"](finished(), none) is None
    assert SLICED["cpu"](finished(), none) is None


def normal(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.normal(0, 0.08, count)


def heavy(rng: np.random.Generator, count: int) -> np.ndarray:
    """A tenth of the slices is disturbed, by up to a factor of ten."""
    return rng.normal(0, 0.06, count) - np.where(rng.random(count) < 0.1, rng.exponential(0.5, count), 0)


def drifting(rng: np.random.Generator, count: int) -> np.ndarray:
    """Slices are correlated with the previous one: correlation 0.8."""
    found, last = np.empty(count), 0.0
    for at, fresh in enumerate(rng.standard_t(4, count) * 0.04):
        last = 0.8 * last + fresh
        found[at] = last
    return found


def covered(noise: Noise, *, treatments: int, sessions: int, rounds: int, draws: int, seed: int) -> float:
    """How often a ratio's interval contains the true value if each new session changes a treatment by 2 %."""
    rng = np.random.default_rng(seed)
    cells = np.tile(np.arange(treatments), sessions).tolist()
    layout = Layout(cells, np.repeat(np.arange(sessions), treatments).tolist())
    hits = 0
    for _ in range(draws):
        values = []
        for _session in range(sessions):
            fresh = rng.normal(0, 0.02, treatments) + rng.normal(0, 0.05)
            logs = noise(rng, treatments * rounds).reshape(rounds, treatments)
            order = np.array([rng.permutation(treatments) for _ in range(rounds)])
            placed = np.take_along_axis(logs, np.argsort(order, axis=1), axis=1)
            found = polished({str(t): dict(enumerate(placed[:, t] + fresh[t])) for t in range(treatments)})
            values += [found[str(t)] for t in range(treatments)]
        low, high = CellModel(layout, np.array(values)).contrast({1: 1.0, 0: -1.0}).interval()
        hits += low <= 0 <= high
    return hits / draws


@pytest.mark.parametrize("noise", [normal, heavy, drifting])
def test_interval_of_a_ratio_covers_under_the_noise_of_slices(noise: Noise) -> None:
    assert 0.91 <= covered(noise, treatments=4, sessions=6, rounds=10, draws=300, seed=5) <= 0.99


@pytest.mark.long
@pytest.mark.parametrize("noise", [normal, heavy, drifting])
@pytest.mark.parametrize(("treatments", "sessions", "rounds"), [(4, 4, 10), (4, 8, 6), (12, 6, 10)])
def test_interval_of_a_ratio_covers_in_every_design(noise: Noise, treatments: int, sessions: int, rounds: int) -> None:
    share = covered(noise, treatments=treatments, sessions=sessions, rounds=rounds, draws=2000, seed=11)
    assert 0.93 <= share <= 0.975


@pytest.mark.parametrize(
    ("fresh", "slices", "low", "high"), [(0.05, 0.02, 0.9, 1.0), (0.0, 0.2, 0.0, 0.35), (0.03, 0.09, 0.3, 0.75)]
)
def test_scatter_is_split_between_sessions_and_slices(fresh: float, slices: float, low: float, high: float) -> None:
    rng = np.random.default_rng(3)
    shares = []
    for _ in range(40):
        found = scatter([(rng.normal(0, fresh) + rng.normal(0, slices, 10)).tolist() for _ in range(12)])
        assert found is not None
        shares.append(found.share_of_sessions)
    assert low <= float(np.mean(shares)) <= high


def test_one_session_or_one_round_cannot_be_split() -> None:
    assert scatter([[0.1, 0.2, 0.3]]) is None
    assert scatter([[0.1], [0.2]]) is None


def sliced(**design: Any):
    """The factory's study measured in rounds: each run has five slices, one of them disturbed."""
    whole = Simulation().data(study(design={"sessions": 3, "rounds": 5, "slice": "100ms"} | design))
    rng = np.random.default_rng(8)

    def cut(attempt, place: int):
        result = attempt.result
        if result is None:
            return attempt
        cpu = {part.role: part.busy_ns for part in result.cpu if part.layer == "process"}
        shares = rng.normal(1, 0.02, 5)
        shares[place % 5] *= 0.4
        parts = tuple(
            Slice(
                round=at + 1,
                place=at * 12 + place % 12 + 1,
                start_ns=at,
                duration_ns=100_000_000,
                ios=max(1, round(result.rate_iops * 0.1 * share)),
                bytes=4096,
                latency_sum_ns=round(result.latency_mean_ns * result.rate_iops * 0.1),
                latency_p50_ns=1,
                latency_p99_ns=1,
                cpu_window_ns=100_000_000,
                initiator_cpu_ns=round(cpu["initiator"] * 0.1 / result.duration_s),
                target_cpu_ns=round(cpu["target"] * 0.1 / result.duration_s) if "target" in cpu else None,
                machine_busy_ns=1,
            )
            for at, share in enumerate(shares)
        )
        return attempt.model_copy(update={"result": result.model_copy(update={"slices": parts})})

    attempts = [cut(attempt, place) for place, attempt in enumerate(whole.attempts)]
    return summarise(replace(whole, attempts=attempts, wall_ns=60_000_000_000))


def test_report_of_rounds_shows_each_session_and_says_what_scatters() -> None:
    summary = sliced()
    arms = arm_rounds(summary.data.runs, summary.grid, summary.responses[0])
    assert [arm.arm for arm in arms] == ["nfs3", "nvme-tcp"]
    assert all([len(session) for session in arm.by_session] == [5, 5, 5] for arm in arms)
    found = session_scatter(summary.data.runs, summary.grid, summary.responses[0])
    assert found is not None
    assert found.sessions == 3
    [said] = [each.text for each in trust(summary) if each.text.startswith("Most of the scatter")]
    assert "Intervals half as wide take about 5 sessions (1 min 40 s)" in said
    drawing = draw_rounds(summary, {}, summary.responses[0])
    assert drawing is not None
    assert "ratio to iSCSI, round by round" in drawing.title


def test_slices_of_two_whole_plots_are_compared_session_by_session_and_never_round_by_round() -> None:
    whole, split = sliced(), sliced(hard_to_change=["protocol"])
    assert arm_rounds(split.data.runs, split.grid, split.responses[0]) == []
    assert session_scatter(split.data.runs, split.grid, split.responses[0]) is None
    # Effects of a round are shared within a session. Here each treatment of a plot has its session for itself.
    name = whole.data.runs[0].trial.id
    [one], [other] = ([run for run in each.data.runs if run.trial.id == name] for each in (whole, split))
    assert one.by_slices["iops"] == pytest.approx(other.by_slices["iops"], rel=0.05)
    assert one.by_slices["iops"] != other.by_slices["iops"]
    assert split.models["iops"].split


def test_value_of_a_treatment_is_that_of_its_undisturbed_slices() -> None:
    summary = sliced()
    run = next(run for run in summary.data.runs if run.trial.treatment["protocol"] == "iscsi")
    iops = summary.responses[0]
    assert iops.of(run) == run.by_slices["iops"]
    assert math.isclose(run.by_slices["iops"], run.result.rate_iops, rel_tol=0.05)
