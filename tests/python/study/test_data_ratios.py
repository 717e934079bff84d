"""Reducible data: how a study sets the ratios, which program gets them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from iotax.labs.generators.fio.job import Target, run_job
from iotax.labs.load import run_document
from iotax.labs.server import serve_document
from iotax.study import Study
from iotax.study.asked import asked
from iotax.study.rules import broken_rules


def study(volume: dict[str, Any], **more: Any) -> Study:
    told: dict[str, Any] = {
        "name": "x",
        "question": "?",
        "volume": {"size": "1MiB"} | volume,
        "factors": {"protocol": ["iscsi", "nvme-tcp"]},
        "baseline": {"protocol": "iscsi"},
    }
    return Study.model_validate(told | more)


def test_server_and_load_are_told_the_same_ratios() -> None:
    settings = study({"compress": "2.5:1", "dedupe": 3, "dedupe_block": "4KiB"}).settings({"protocol": "iscsi"})
    data = {"compress": 2.5, "dedupe": 3.0, "block_size_bytes": 4096}
    assert run_document(settings, "e", seed=1, driver="auto", cpus=[], watch_pids={})["data"] == data
    assert serve_document(settings.volume, driver="auto", threads=1, cpus=[])["volumes"][0]["data"] == data


def test_a_study_without_them_is_as_it_was() -> None:
    plain, same = study({}), study({"compress": 1, "dedupe": 1.0})
    assert plain.digest() == same.digest()
    settings = plain.settings({"protocol": "iscsi"})
    assert "data" not in run_document(settings, "e", seed=1, driver="auto", cpus=[], watch_pids={})
    dumped = study({"compress": 2}).model_dump(mode="json")
    assert dumped["volume"]["compress"] == "2:1"
    assert Study.model_validate(dumped).volume.compress == 2.0


def test_a_reader_is_told_the_ratios() -> None:
    [volume] = [line for line in asked(study({"compress": "2:1", "dedupe": 3})) if line.startswith("Volume")]
    assert "data that compress 2:1; blocks of 4KiB that repeat 3:1" in volume


def test_fio_is_told_in_its_own_percentages() -> None:
    some = study({"compress": 2, "dedupe": 4}, load={"generator": "fio", "verify": False, "read": 0})
    lines = run_job(some.settings({"protocol": "iscsi"}), Target("libaio", ()), seed=1, cpus=[]).splitlines()
    assert {"buffer_compress_percentage=50", "dedupe_percentage=75"} <= set(lines)


REFUSED = [
    ({"compress": 2, "fill": "zeros"}, {"verify": False}, "compress", "nothing is written"),
    ({"dedupe_block": "8KiB"}, {}, "dedupe_block", "no block repeats"),
    (
        {"dedupe": 2, "dedupe_block": "8KiB"},
        {"read": 50},
        "dedupe_block",
        "writes of 4KiB are not a multiple of blocks of",
    ),
    ({"dedupe": 2}, {"oltp": {"checkpoint": "200ms"}}, "dedupe", "a database's pages all differ"),
    ({"compress": 2}, {"generator": "fio"}, "compress", "what fio verifies, it wrote before"),
]


@pytest.mark.parametrize(("volume", "load", "field", "reason"), REFUSED)
def test_ratios_that_nothing_would_have_are_refused(
    volume: dict[str, Any], load: dict[str, Any], field: str, reason: str
) -> None:
    found = [said for place, said in broken_rules(study(volume, load=load)) if place == ("volume", field)]
    assert any(said.startswith(reason) for said in found), found


@pytest.mark.parametrize("value", [0.5, 9, "2:3", "two", True])
def test_what_is_no_ratio_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="compress"):
        study({"compress": value})
