"""Events in virtual time: what happens to iotax's own initiators when paths and targets fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from iotax.design import plan
from iotax.labs.sim.lab import SimLab, simulate_document
from iotax.study import Study
from iotax.study.events import happenings
from iotax.study.read import read_study
from iotax.trial import TrialResult

SECOND_NS = 1_000_000_000
BASE: dict[str, Any] = {
    "name": "simulated-events",
    "question": "How long does I/O stop?",
    "lab": {"sim": {"target_ports": 4}},
    "volume": {"size": "1MiB"},
    "factors": {"protocol": ["iscsi", "nvme-tcp"]},
    "topology": {"link_rate": "1Gbit", "paths": 4, "path_policy": "round-robin", "keep_alive": "1s"},
    "load": {"read": "70%", "rate_iops": 500, "outstanding": 16, "warmup": "100ms", "runtime": "8s"},
    "events": [{"at": ["1s", "2s"], "do": {"fail": "path", "path": [1, 2]}, "for": "4s"}],
    "design": {"replicates": 1},
    "baseline": {"protocol": "iscsi"},
    "responses": ["longest_gap", "recovery_time"],
}


def read(**more: Any) -> Study:
    return read_study("study.yaml", yaml.safe_dump(BASE | more, sort_keys=False), Path())


def results(study: Study, program: Path) -> dict[str, TrialResult]:
    """By protocol."""
    lab = SimLab(study, program)
    trials = plan(study).trials
    return {str(each.treatment["protocol"]): lab.run(each, lambda _: None).result for each in trials}


def test_two_of_four_paths_that_fail_stop_ios_for_a_keep_alive(real_engine: Path) -> None:
    study = read()
    for protocol, result in results(study, real_engine).items():
        assert result.gaps is not None and SECOND_NS / 2 < result.gaps.longest_ns < SECOND_NS * 3 / 2, protocol
        [event] = result.events
        assert (event.what, event.undone_ns - event.began_ns) == ("fail paths 1, 2", 4 * SECOND_NS)
        assert SECOND_NS <= event.asked_ns == event.began_ns <= 2 * SECOND_NS
        assert result.paths is not None and [path.losses for path in result.paths.used] == [1, 1, 0, 0]
        assert result.verify is not None and result.verify.read_back_blocks > 0 == result.verify.wrong_blocks


def test_a_killed_target_is_used_again_once_it_is_back_with_all_that_was_written(real_engine: Path) -> None:
    events = [BASE["events"][0] | {"do": {"kill": "target"}}]
    for protocol, result in results(read(events=events), real_engine).items():
        assert result.gaps is not None and 4 * SECOND_NS <= result.gaps.longest_ns < 5 * SECOND_NS, protocol
        assert result.paths is not None and all(path.losses >= 1 and path.ios > 0 for path in result.paths.used)
        assert result.verify is not None and result.verify.read_back_blocks > 0 == result.verify.wrong_blocks


def test_policy_that_counts_outstanding_ios_keeps_away_from_silent_paths(real_engine: Path) -> None:
    topology = BASE["topology"] | {"path_policy": "queue-depth"}
    for protocol, result in results(read(topology=topology), real_engine).items():
        assert result.gaps is not None and result.gaps.longest_ns < SECOND_NS / 10, protocol


def test_the_same_study_gives_the_same_figures_again(real_engine: Path) -> None:
    first, again = (results(read(), real_engine) for _ in range(2))
    assert first == again


def test_paths_without_events_have_connections_of_their_own(real_engine: Path) -> None:
    for protocol, result in results(read(events=[], responses=["iops"]), real_engine).items():
        assert result.paths is not None and result.paths.policy == "round-robin", protocol
        ios = [path.ios for path in result.paths.used]
        assert len(ios) == 4 and max(ios) - min(ios) <= len(ios), ios


@pytest.mark.parametrize(
    ("do", "what"),
    [
        ({"freeze": "target"}, [{"kind": "freeze"}]),
        ({"kill": "target"}, [{"kind": "kill"}]),
        ({"fail": "path", "path": 2}, [{"kind": "fail", "path": 2}]),
        ({"flap": "path", "path": 1, "every": "2s"}, [{"kind": "flap", "path": 1, "every_ns": 2 * SECOND_NS}]),
        (
            {"access": "inaccessible", "path": [1, 3]},
            [{"kind": "access", "path": path, "access": "inaccessible"} for path in (1, 3)],
        ),
    ],
)
def test_each_affected_path_stands_in_the_document(do: dict[str, Any], what: list[dict[str, Any]]) -> None:
    study = read(events=[BASE["events"][0] | {"do": do}])
    [trial, _] = plan(study).trials
    to_happen = happenings(study.events, study.design.seed, trial.block, trial.replicate)
    costs = {"initiator": {}, "target": {}}
    document = simulate_document(study, study.settings(trial.treatment), 1, costs, to_happen)
    assert [each["what"] for each in document["happenings"]] == what
    assert document["paths"]["portals"]
