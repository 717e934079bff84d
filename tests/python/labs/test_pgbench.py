"""pgbench as a generator: how its log is cut to a window, and what a database study cannot request."""

from typing import Any

import pytest

from iotax.labs.base import TrialFailed
from iotax.labs.generators.pgbench import Measured, client_options, measured, result_of, server_options
from iotax.labs.hosts.clock import Offset
from iotax.labs.hosts.merge import Part, merged
from iotax.labs.vm.database import window
from iotax.records import CpuUse
from iotax.study import Settings, Study
from iotax.study.rules import broken_rules
from iotax.trial import TrialResult

BEGIN_US = 1_800_000_000_000_000
OWN = {"size": "160MiB", "volumes": "per client"}


def study(load: dict[str, Any] | None = None, **changes: Any) -> Study:
    document: dict[str, Any] = {
        "name": "database",
        "question": "?",
        "lab": "vm",
        "volume": {"size": "160MiB"},
        "factors": {"protocol": ["iscsi", "nfs3"]},
        "load": {"generator": "pgbench", "workers": 2, "working_set": "64MiB"} | (load or {}),
        "baseline": {"protocol": "iscsi"},
        "responses": ["transactions", "latency"],
    }
    return Study.model_validate(document | changes)


def settings(load: dict[str, Any] | None = None) -> Settings:
    return study(load).settings({"protocol": "iscsi"})


def line(ended_ms: int, latency_ms: int, lag_ms: int | None = None) -> str:
    at_us = BEGIN_US + ended_ms * 1000
    lag = "" if lag_ms is None else f" {lag_ms * 1000}"
    return f"0 1 {latency_ms * 1000} 0 {at_us // 1_000_000} {at_us % 1_000_000}{lag}"


def result(log: list[str], asked: Settings, *, checkpoints: int = 1) -> TrialResult:
    measured = Measured(
        begin_us=BEGIN_US, end_us=BEGIN_US + 1_000_000, log=log, version="15.20",
        reads=30, writes=70, read_bytes=1 << 20, write_bytes=2 << 20, checkpoints=checkpoints,
    )  # fmt: skip
    return result_of(measured, asked, endpoint="vm:iscsi", cpu=CpuUse([]), cpu_window_ns=1_000_000_000)


def test_what_ends_within_the_window_counts() -> None:
    found = result([line(-1, 5), line(0, 10), line(400, 20), line(999, 30), line(1000, 5)], settings())
    assert found.ios == 3
    assert found.rate_iops == 3
    assert found.latency_mean_ns == 20_000_000
    assert found.latency_max_ns == 30_000_000
    assert found.rate_unit == "transactions/s"
    assert [each.reads for each in found.series] == [2, 1]
    assert found.database is not None
    assert found.database.size_bytes == 2 * found.database.memory_bytes


def test_an_open_loop_has_latency_from_the_scheduled_start() -> None:
    asked = settings({"rate_iops": 4, "arrivals": "poisson"})
    found = result([line(100, 50, 40), line(300, 20, 0), line(1100, 200, 100)], asked)
    assert found.open is not None
    assert (found.open.offered, found.ios) == (3, 2)
    assert found.latency_mean_ns == 35_000_000
    assert found.service_mean_ns == 15_000_000
    assert "-R 4" in client_options(asked, 1)


def test_a_number_of_transactions_ends_the_window_in_place_of_time() -> None:
    begins, lasts, within_s = window(settings({"transactions": 250}).load, "/dev/sda", "2 '-j 1'")
    assert (begins, lasts) == ("counted_begin /dev/sda", "counted_window /dev/sda 250 2 '-j 1'")
    assert within_s >= 500
    by_time = window(settings({"runtime": "4s"}).load, "/dev/sda", "2 '-j 1'")
    assert by_time[:2] == ("window_begin /dev/sda 1", "timed_window /dev/sda 4")


def test_a_study_by_time_is_written_as_before_there_were_numbers_of_transactions() -> None:
    assert '"transactions"' not in study(responses=["latency"]).model_dump_json()
    assert Study.model_validate_json(study({"transactions": 9}).model_dump_json()).load.transactions == 9


def test_a_database_commits_durably_in_half_of_its_size() -> None:
    options = server_options(settings())
    assert "fsync=on" in options
    assert "shared_buffers=8192kB" in options


def test_a_window_without_a_checkpoint_is_no_result() -> None:
    with pytest.raises(TrialFailed, match="no checkpoint"):
        result([line(10, 5)], settings(), checkpoints=0)


def test_a_window_with_a_failed_transaction_is_no_result() -> None:
    failed = f"0 1 failed 0 {BEGIN_US // 1_000_000} 500"
    with pytest.raises(TrialFailed, match="failed"):
        result([line(10, 5), failed], settings())


@pytest.mark.parametrize(
    ("asked", "place", "reason"),
    [
        (study({"block_size": "8KiB"}), ("load", "block_size"), "PostgreSQL chooses its own I/Os"),
        (study({"outstanding": 2}), ("load", "outstanding"), "say `workers:` for more clients"),
        (study({"transactions": 9, "runtime": "3s"}), ("load", "runtime"), "ends with the last of its transactions"),
        (
            study({"generator": "iotax", "working_set": None, "transactions": 9}, responses=["iops"]),
            ("load", "transactions"),
            "only databases have it",
        ),
        (study({"rate_iops": 10}), ("load", "arrivals"), "say `arrivals: poisson`"),
        (study({"working_set": "32MiB"}), ("load", "working_set"), "a database is 64MiB at least"),
        (study({"workers": 8}), ("load", "working_set"), "8 clients take 48MiB of memory, so a database of 96MiB"),
        (study({"working_set": "128MiB"}), ("load", "working_set"), "needs a volume of 208MiB"),
        (study(responses=["latency", "iops"]), ("responses", 1), "a database counts transactions"),
        (study(lab="loopback"), ("load", "generator"), "say `lab: vm`"),
        (study({"generator": "iotax", "working_set": None}), ("responses", 0), "only databases have it"),
        (study({"generator": "fio", "working_set": None}), ("load", "verify"), "say `verify: false`"),
        (study({"clients": 2}), ("load", "clients"), "a database of its own; say `volumes: per client`"),
        (study({"clients": 2, "transactions": 9}, volume=OWN), ("load", "clients"), "say `runtime:`"),
    ],
)
def test_what_a_database_cannot_be_asked_is_refused_with_its_reason(asked: Study, place: tuple, reason: str) -> None:
    assert [(where, said) for where, said in broken_rules(asked) if where == place and reason in said]


@pytest.mark.parametrize("load", [{}, {"rate_iops": 10, "arrivals": "poisson"}])
def test_a_study_of_a_database_breaks_no_rule(load: dict[str, Any]) -> None:
    assert list(broken_rules(study(load))) == []
    assert list(broken_rules(study({"clients": 2}, volume=OWN))) == []


def test_databases_of_several_guests_add_up() -> None:
    parts = [
        Part(host, Offset(0, 2), result([line(400, latency_ms)] * ios, settings()))
        for host, latency_ms, ios in (("a", 10, 3), ("b", 30, 1))
    ]
    together = merged(parts, CpuUse([]))
    assert together.database is not None
    assert (together.ios, together.database.writes, together.database.checkpoints) == (4, 140, 2)
    assert together.database.size_bytes == 2 * (64 << 20)
    assert together.database.flushes is None
    assert together.latency_mean_ns == 15_000_000
    assert [(client.host, client.ios) for client in together.clients] == [("a", 3), ("b", 1)]


def test_a_script_that_does_not_say_what_it_measured_fails_the_trial() -> None:
    said = ["CHECKPOINTS 1", "LOG 0 1 2000 0 1800000000 5", "VERSION pgbench (PostgreSQL) 15.4"]
    found = measured(said, BEGIN_US, BEGIN_US + 1, (1, 2, 3, 4))
    assert (found.checkpoints, found.version, len(found.log)) == (1, "(PostgreSQL) 15.4", 1)
    assert (found.reads, found.read_bytes, found.writes, found.write_bytes) == (1, 2, 3, 4)
    for left_out in (0, 2):
        with pytest.raises(TrialFailed, match="the database did not say what it measured"):
            measured([*said[:left_out], *said[left_out + 1 :]], BEGIN_US, BEGIN_US + 1, (1, 2, 3, 4))
