"""Effects of a slice on the next one: found if present, not reported if absent."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import kruskal

from iotax.analysis.carryover import carry_over, kruskal_p
from iotax.analysis.responses import IOPS, P99
from iotax.design.rounds import rounds_of
from iotax.wording.trust import _carried_over

GRID: Any = SimpleNamespace(cell=lambda trial: (trial.name,), hard_levels=lambda _: ())


def runs(
    rng: np.random.Generator, effect: float, *, groups: Sequence[int] = (6,), sessions: int = 4, rounds: int = 6
) -> list:
    """Heavy-tailed slices; those after treatment 2 are higher by `effect`."""
    found = []
    for session in range(1, sessions + 1):
        parts: dict[int, list[Any]] = {}
        place, before = 0, -1
        for number, row in enumerate(rounds_of(groups, rounds, session, 42), start=1):
            off = rng.normal(0, 0.1)
            for each in row:
                place += 1
                log = 8 + each + off + rng.standard_t(3) * 0.04 + (effect if before == 2 else 0)
                parts.setdefault(each, []).append(
                    SimpleNamespace(
                        round=number, place=place, ios=float(np.exp(log)), duration_ns=10**9, mean_outstanding=None
                    )
                )
                before = each
        for each, slices in parts.items():
            found.append(
                SimpleNamespace(
                    trial=SimpleNamespace(name=f"t{each}", block=session), result=SimpleNamespace(slices=slices)
                )
            )
    return found


def test_rank_test_is_that_of_kruskal_and_wallis() -> None:
    rng = np.random.default_rng(1)
    groups = [np.round(rng.normal(at, 2, 9), 1).tolist() for at in (0, 0.5, 1)]
    assert kruskal_p(groups) == pytest.approx(kruskal(*groups).pvalue, rel=1e-9)
    assert kruskal_p([[1.0, 1.0], [1.0, 1.0]]) == 1.0


def test_carry_over_is_found_with_its_treatment_and_size() -> None:
    found = carry_over(runs(np.random.default_rng(2), 0.1, sessions=12, rounds=12), GRID, IOPS)
    assert found is not None
    assert found.p < 0.001
    assert found.after == "t2"
    assert found.percent == pytest.approx(9, abs=3)
    said = _carried_over(found).text
    assert "The preceding slice changes throughput" in said
    assert "after t2" in said


@pytest.mark.parametrize("groups", [(6,), (3, 3), (2, 2, 2)])
def test_without_carry_over_one_in_twenty_is_an_alarm(groups: Sequence[int]) -> None:
    rng = np.random.default_rng(3)
    some = [carry_over(runs(rng, 0.0, groups=groups), GRID, IOPS) for _ in range(300)]
    alarms = sum(each is not None and each.p < 0.05 for each in some)
    assert alarms / 300 <= 0.05 + 0.03
    calm = next(each for each in some if each is not None and each.p >= 0.05)
    assert _carried_over(calm).text.startswith("No significant effect on throughput of the preceding slice")


def test_too_few_slices_and_responses_without_slices_say_nothing() -> None:
    few = runs(np.random.default_rng(4), 0.0, sessions=1, rounds=2)
    assert carry_over(few, GRID, IOPS) is None
    assert carry_over(runs(np.random.default_rng(5), 0.0), GRID, P99) is None
