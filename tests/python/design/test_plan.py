"""Randomised complete blocks, identical on every machine."""

import itertools
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iotax.design import plan
from iotax.design.plan import GUESTS_NS, RECONNECT_NS, trial_seed
from iotax.design.random import derive_seed, shuffled
from iotax.study import Study, model
from iotax.study.read import load_study


def study(outstanding: list[int], replicates: int, seed: int, blocks: str = "replicate") -> Study:
    return Study.model_validate(
        {
            "name": "s",
            "question": "?",
            "factors": {"protocol": ["local", "nfs3", "iscsi"], "outstanding": outstanding},
            "design": {"replicates": replicates, "seed": seed, "blocks": blocks},
            "baseline": {"protocol": "iscsi"},
        }
    )


STUDIES = st.builds(
    study,
    st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True),
    st.integers(1, 5),
    st.integers(0, (1 << 63) - 1),
    st.sampled_from(["replicate", "none"]),
)


@given(STUDIES)
def test_every_treatment_runs_once_in_every_replicate(study: Study) -> None:
    trials = plan(study).trials
    treatments = list(itertools.product(*([level.value for level in levels] for levels in study.levels().values())))
    seen = Counter((tuple(trial.treatment.values()), trial.replicate) for trial in trials)
    assert seen == Counter({(t, r): 1 for t in treatments for r in range(1, study.design.replicates + 1)})


@given(STUDIES)
def test_ids_are_unique_and_orders_count_up(study: Study) -> None:
    trials = plan(study).trials
    assert len({trial.id for trial in trials}) == len(trials)
    assert [trial.order for trial in trials] == list(range(1, len(trials) + 1))
    assert [trial.block for trial in trials] == sorted(trial.block for trial in trials)


@given(STUDIES)
def test_complete_blocks_hold_every_treatment_once(study: Study) -> None:
    made = plan(study)
    if study.design.blocks == "none":
        assert made.blocks == 1
        return
    for block in range(1, made.blocks + 1):
        members = [tuple(trial.treatment.values()) for trial in made.trials if trial.block == block]
        assert len(members) == len(set(members)) == len(made.trials) // made.blocks


@given(STUDIES)
def test_the_same_study_gives_the_same_plan(study: Study) -> None:
    assert plan(study) == plan(Study.model_validate_json(study.model_dump_json()))


def test_another_seed_gives_another_order() -> None:
    orders = {tuple(trial.id for trial in plan(study([1, 8, 32], 2, seed)).trials) for seed in range(20)}
    assert len(orders) == 20


def test_blocks_of_a_plan_differ_in_order() -> None:
    made = plan(study([1, 8, 32], 4, 42))
    orders = {tuple(t.treatment.values() for t in made.trials if t.block == block) for block in range(1, 5)}
    assert len(orders) == 4


def test_replicates_added_later_leave_the_earlier_blocks_alone() -> None:
    few, many = plan(study([1, 8], 2, 5)).trials, plan(study([1, 8], 4, 5)).trials
    assert many[: len(few)] == few


def test_the_generator_is_pinned() -> None:
    """The seed is that of `printf 42/block/1 | sha256sum`. Another order would break plans that are partly done."""
    assert derive_seed(42, "block", 1) == 0x21DBB4E664B3393D
    assert [trial.id for trial in plan(load_study("quick")[0]).trials[:6]] == [
        "nfs3/1/r1",
        "nvme-tcp/1/r1",
        "iscsi/1/r1",
        "iscsi/8/r1",
        "local/8/r1",
        "nfs3/32/r1",
    ]


def test_every_order_is_drawn_evenly() -> None:
    """Chi-square over the 24 orders of four items, 2400 draws, 23 df: above 49.7 once in 1000. The seed is fixed."""
    counts = Counter(tuple(shuffled("abcd", 1, "even", index)) for index in range(2400))
    assert len(counts) == 24
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 49.7


def test_treatments_of_a_replicate_are_asked_the_same_addresses() -> None:
    asked = study([1, 8], 3, 9)
    seeds = {trial.replicate: {trial_seed(asked, t) for t in plan(asked).trials if t.replicate == trial.replicate}
             for trial in plan(asked).trials}  # fmt: skip
    assert [len(each) for each in seeds.values()] == [1, 1, 1]
    assert len(set.union(*seeds.values())) == 3


def test_quick_takes_at_most_three_minutes_and_mostly_measures() -> None:
    quick, _ = load_study("quick")
    made = plan(quick)
    slices = quick.design.slices
    assert slices is not None
    assert made.duration_ns < 170e9
    assert len(made.trials) * slices.rounds * slices.slice_ns / made.duration_ns > 0.88
    assert (made.blocks, len(made.trials)) == (6, 72)


@pytest.mark.parametrize("refill", ["never", "trial"])
def test_refilling_before_each_trial_counts_as_time(refill: str, tiny: Path) -> None:
    text = tiny.read_text().replace("1MiB", f"1GiB, refill: {refill}")
    tiny.write_text(text)
    per_trial_s = plan(load_study(str(tiny))[0]).trial_ns["local/1/r1"] / 1e9
    assert (per_trial_s > 0.5) == (refill == "trial")


def test_levels_are_written_by_types_that_were_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python compiles a section's type hints at each lookup, and a plan writes each level of each trial."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("type hints asked for again")

    monkeypatch.setattr(model, "get_type_hints", refuse)
    assert plan(load_study("grid")[0]).trials[0].treatment["block_size"]


def test_a_plan_counts_the_boots_of_guests_and_each_change_of_what_they_are_connected_by() -> None:
    exact = load_study("kernel-exact")[0]
    study = exact.model_copy(update={"lab": load_study("kernel-quick")[0].lab})
    made = plan(study)
    loads = {name for name in study.levels() if name in ("outstanding", "workers", "block_size", "read")}
    wanted = [{k: v for k, v in trial.treatment.items() if k not in loads} for trial in made.trials]
    changes = 1 + sum(one != other for one, other in itertools.pairwise(wanted))
    here = plan(study.model_copy(update={"lab": load_study("quick")[0].lab}))
    assert 1 < changes <= len(made.trials)
    assert made.duration_ns - here.duration_ns == GUESTS_NS + changes * RECONNECT_NS
    assert sum(made.trial_ns.values()) - sum(here.trial_ns.values()) == changes * RECONNECT_NS
    assert plan(load_study("quick")[0]).setup_ns == 0
