"""Modelled media: how a study describes them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from iotax.labs.server import serve_document
from iotax.study import Study
from iotax.study.rules import broken_rules


def study(volume: dict[str, Any], factors: dict[str, Any] | None = None, **more: Any) -> Study:
    factors = factors or {"protocol": ["iscsi", "nvme-tcp"]}
    baseline = {name: levels[0] for name, levels in factors.items()}
    told = {"name": "x", "question": "?", "volume": {"size": "1MiB"} | volume, "factors": factors, "baseline": baseline}
    return Study.model_validate(told | more)


def served(of: Study, treatment: dict[str, Any]) -> dict[str, Any]:
    document = serve_document(of.settings(treatment).volume, driver="auto", threads=1, cpus=[])
    return document["volumes"][0]


REFUSED = [
    ({"media": "model"}, "media", "say how long an operation takes"),
    ({"media": "model", "service": "0s"}, "service", "an operation that takes no time is memory"),
    ({"media": "model", "service": "1ms", "rpm": 7200}, "rpm", "it belongs to rotating disks"),
    ({"media": "model", "service": "1ms", "cache": "64KiB"}, "cache", "it belongs to rotating disks"),
    ({"media": "model", "service": "1ms", "seek": "3ms", "rpm": 7200}, "service", "rotating disks take a seek"),
    ({"media": "model", "seek": "3ms"}, "seek", "rotating disks have a speed"),
    ({"service": "1ms"}, "service", "it belongs to media that are a model"),
    ({"servers": 4, "media": "null"}, "servers", "it belongs to media that are a model"),
    ({"media": "model", "service": "1ms", "path": "/srv/v"}, "path", "nothing is kept there"),
]


@pytest.mark.parametrize(("volume", "field", "reason"), REFUSED)
def test_media_that_cannot_be_are_refused_with_their_reason(volume: dict[str, Any], field: str, reason: str) -> None:
    found = [said for place, said in broken_rules(study(volume)) if place == ("volume", field)]
    assert any(said.startswith(reason) for said in found), found


def test_local_reaches_past_the_model_and_is_refused_beside_it() -> None:
    of = study({"media": "model", "service": "1ms"}, {"protocol": ["local", "iscsi"]})
    assert list(broken_rules(of)) == [
        (("volume", "media"), "`local` reaches the memory below the model; leave one of them out")
    ]


def test_what_the_media_are_may_be_a_factor() -> None:
    factors = {"service": ["100us", "1ms"], "servers": [1, 8], "media": ["model", "memory"]}
    of = study({}, factors, connection={"protocol": "iscsi"})
    assert list(broken_rules(of)) == []
    told = served(of, {"service": 1_000_000, "servers": 8, "media": "model"})
    assert (told["media"], told["model"]) == (
        "memory",
        {"servers": 8, "service_ns": 1_000_000, "distribution": "constant"},
    )
    assert "model" not in served(of, {"service": 1_000_000, "servers": 8, "media": "memory"})


def test_disks_that_turn_have_the_share_of_the_volume_that_their_cache_holds() -> None:
    of = study({"size": "4MiB", "media": "model", "seek": "3ms", "rpm": 15000, "cache": "1MiB", "destage": "25%"})
    assert list(broken_rules(of)) == []
    assert served(of, {})["model"]["spindles"] == {
        "seek_ns": 3_000_000, "turn_ns": 4_000_000, "read_hits_ppm": 250_000, "destage_ppm": 250_000,
    }  # fmt: skip


def test_disks_of_raid_groups_have_parity() -> None:
    media = {"media": "model", "seek": "3ms", "rpm": 15000, "servers": 16}
    for told, group in (({"parity": 2}, 16), ({"parity": 2, "raid_group": 8}, 8)):
        of = study({"size": "4MiB"} | media | told)
        assert list(broken_rules(of)) == []
        assert served(of, {})["model"]["spindles"]["parity"] == {"group": group, "disks": 2}


def test_a_study_of_other_media_is_written_as_before() -> None:
    written = study({}).model_dump(mode="json")["volume"]
    assert list(written) == ["size", "media", "path", "fill", "refill", "delay", "burn"]
    of = study({"media": "model", "service": "1ms"})
    assert of.model_dump(mode="json")["volume"]["service"] == "1ms"
    assert Study.model_validate(of.model_dump(mode="json")) == of
