"""Metrics sent to a collector: what it receives, and that an unreachable collector blocks nothing."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faked import FakeEngine
from iotax.live.board import Board
from iotax.live.metrics import exposition
from iotax.notebook import Notebook
from iotax.study.read import load_study
from waits import wait_for

pytest.importorskip("opentelemetry.sdk.metrics", reason="the extra `otlp` is not installed")

from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from otlp_collector import Collector

from iotax.live import otlp


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def labels(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


def test_a_run_reaches_the_collector_with_the_figures_of_its_notebook(
    tiny: Path, tmp_path: Path, iotax: Any, engine: FakeEngine, collector: Collector
) -> None:
    del engine
    iotax("run", tiny, tmp_path / "a.iotax", "--otlp", collector.url)
    with Notebook(tmp_path / "a.iotax") as notebook:
        results = [attempt.result for attempt in notebook.attempts() if attempt.result]
    assert set(collector.asked) == {"/v1/metrics"}
    assert collector.resource["service.name"] == "iotax"
    ios = collector.latest["iotax_ios_total"].sum
    assert ios.is_monotonic and ios.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    assert sum(point.as_double or point.as_int for point in ios.data_points) == sum(result.ios for result in results)
    assert {labels(point)["protocol"] for point in ios.data_points} == {"iscsi", "local"}
    (done,) = collector.latest["iotax_trials_done"].gauge.data_points
    assert done.as_double or done.as_int == len(results)
    assert done.start_time_unix_nano < done.time_unix_nano
    for point in collector.latest["iotax_latency_seconds"].histogram.data_points:
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert sum(point.bucket_counts) == point.count > 0
        assert not point.HasField("min")


def test_the_collector_is_told_what_metrics_tell(tiny: Path, tmp_path: Path, engine: FakeEngine) -> None:
    del tmp_path, engine
    board = Board(load_study(str(tiny))[0])
    sent = otlp.data(board.metrics(), 1, 2).resource_metrics[0].scope_metrics[0].metrics
    told = [line.split()[2] for line in exposition(board.metrics()).splitlines() if line.startswith("# TYPE")]
    assert [metric.name for metric in sent] == told != []


def test_a_collector_that_is_away_is_told_of_once_and_holds_nothing_up(tiny: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        warned: list[str] = []
        board = Board(load_study(str(tiny))[0])
        sender = otlp.OtlpSender(board, f"http://127.0.0.1:{nobody.getsockname()[1]}", warned.append)
        sender._send()
        sender._send()
    assert len(warned) == 1 and "no metrics could be sent to http://127.0.0.1:" in warned[0]
    sender.start()
    sender.close()


def test_a_collector_that_comes_back_is_told_again(tiny: Path, collector: Collector) -> None:
    warned: list[str] = []
    sender = otlp.OtlpSender(Board(load_study(str(tiny))[0]), collector.url, warned.append)
    sender._away = True
    sender._send()
    assert not warned and not sender._away and collector.asked == ["/v1/metrics"]
    sender.start()
    sender.close()
    wait_for(lambda: len(collector.asked) == 2, "the last figures")


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://c:4318", "http://c:4318/v1/metrics"),
        ("https://c/", "https://c/v1/metrics"),
        ("http://c/otlp/v1/metrics", "http://c/otlp/v1/metrics"),
    ],
)
def test_the_usual_path_is_added_to_an_address_alone(url: str, asked: str) -> None:
    assert otlp.endpoint(url) == asked


def test_what_is_no_collector_ends_before_the_first_trial(
    tiny: Path, tmp_path: Path, iotax: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iotax("run", tiny, tmp_path / "a.iotax", "--otlp", "localhost:4318", code=2).output
    assert "localhost:4318: not the address of a collector" in said
    said = iotax("run", tiny, tmp_path / "a.iotax", "--otlp", "http://ann:hidden@c:4318", code=2).output
    assert "OTEL_EXPORTER_OTLP_HEADERS" in said and "hidden" not in said
    monkeypatch.setitem(sys.modules, "iotax.live.otlp", None)
    said = iotax("run", tiny, tmp_path / "a.iotax", "--otlp", "http://localhost:4318", code=2).output
    assert "pip install 'iotax[otlp]'" in said
    assert not (tmp_path / "a.iotax").exists()
