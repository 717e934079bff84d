"""Transactions of iotax's own engine: what a study can request, and what is reported."""

from pathlib import Path
from typing import Any

import pytest

from iotax.engine import find_engine
from iotax.labs.base import TrialFailed
from iotax.labs.generators.base import Job
from iotax.labs.generators.iotax import IOTAX
from iotax.labs.load import Permission, run_document
from iotax.rows import _transactions
from iotax.study import Settings, Study
from iotax.study.rules import broken_rules


def study(load: dict[str, Any] | None = None, **changes: Any) -> Study:
    document: dict[str, Any] = {
        "name": "oltp",
        "question": "?",
        "volume": {"size": "16MiB"},
        "factors": {"protocol": ["iscsi", "nfs3"]},
        "load": {"oltp": {"checkpoint": "100ms"}, "block_size": "8KiB", "workers": 4} | (load or {}),
        "baseline": {"protocol": "iscsi"},
        "responses": ["transactions", "latency"],
    }
    return Study.model_validate(document | changes)


def settings(load: dict[str, Any] | None = None) -> Settings:
    return study(load).settings({"protocol": "iscsi"})


def job(volume: Path, load: dict[str, Any]) -> Job:
    return Job(
        settings=settings(load),
        endpoint=f"local:{volume}",
        reached=f"local:{volume}",
        permission=Permission(),
        seed=1,
        driver="auto",
        cpus=[],
        watch_pids={},
        program=find_engine(),
    )


def test_a_trial_counts_transactions_and_what_they_did_on_the_volume(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.write_bytes(bytes(16 << 20))
    result = IOTAX.run(job(volume, {"warmup": "50ms", "runtime": "2s"}), lambda _: None).result
    database = result.database
    assert database is not None
    assert result.rate_unit == "transactions/s"
    assert result.outstanding.total == 4
    assert database.size_bytes == (16 << 20) * 7 // 8
    assert database.memory_bytes == 8 << 20
    assert database.checkpoints >= 1
    assert database.reads > 0
    assert database.log_writes is not None and 0 < database.log_writes < database.writes
    assert database.flushes is not None and database.flushes <= result.ios + database.checkpoints + 1
    assert result.verify is not None
    assert result.verify.checked_blocks >= database.reads * 16
    row = _transactions(result)
    assert row["transactions"] == result.ios
    assert row["disk_flushes"] == database.flushes


def test_a_window_without_a_checkpoint_is_no_result(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.write_bytes(bytes(16 << 20))
    with pytest.raises(TrialFailed, match="no checkpoint"):
        IOTAX.run(job(volume, {"oltp": {"checkpoint": "1h"}, "runtime": "2s", "warmup": 0}), lambda _: None)


def test_buffers_are_half_of_the_working_set_where_nothing_is_said() -> None:
    def asked(load: dict[str, Any]) -> Any:
        found = run_document(settings(load), "local:/x", seed=1, driver="auto", cpus=[], watch_pids={})
        return found["oltp"]

    assert asked({}) == {"memory_bytes": 8 << 20, "checkpoint_ns": 100_000_000}
    assert asked({"working_set": "8MiB"})["memory_bytes"] == 4 << 20
    assert asked({"oltp": {"memory": "1MiB"}}) == {"memory_bytes": 1 << 20, "checkpoint_ns": 1_000_000_000}


def test_a_load_of_transactions_writes() -> None:
    assert settings().load.writes
    assert settings().load.database


def test_a_study_without_transactions_is_written_as_before_there_were_any() -> None:
    assert '"oltp":' not in study({"oltp": None}, responses=["latency"]).model_dump_json()
    again = Study.model_validate_json(study().model_dump_json())
    assert again.load.oltp is not None and again.load.oltp.checkpoint == 100_000_000


@pytest.mark.parametrize(
    ("asked", "place", "reason"),
    [
        (study({"random": "50%"}), ("load", "random"), "transactions choose their own I/Os"),
        (study({"outstanding": 2}), ("load", "outstanding"), "a client has one"),
        (study({"threads": 2}), ("load", "threads"), "share one thread"),
        (study({"runtime": "50ms"}), ("load", "oltp", "checkpoint"), "the window is shorter"),
        (study(responses=["iops"]), ("responses", 0), "a database counts transactions"),
        (study({"oltp": None}), ("responses", 0), "only databases have it"),
        (study(design={"sessions": 3}), ("design", "rounds"), "a slice has no whole checkpoint"),
        (study(volume={"size": "2MiB"}), ("volume", "size"), "a database has 512 to"),
        (study({"oltp": {"memory": "64KiB"}}), ("load", "oltp", "memory"), "64 pages at least"),
        (study({"generator": "fio"}), ("load", "oltp"), "fio has no transactions"),
        (study(lab="vm"), ("load", "oltp"), "say `generator: pgbench`"),
        (study(lab="sim", topology={"link_rate": "10Gbit"}), ("load", "oltp"), "no database"),
    ],
)
def test_what_a_load_of_transactions_cannot_be_asked(asked: Study, place: tuple[str | int, ...], reason: str) -> None:
    found = dict(broken_rules(asked))
    assert reason in found[place], found
