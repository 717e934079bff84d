"""Sends the metrics of `/metrics` to a collector by OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/#otlphttp).

With the extra `otlp`. Headers, certificates and compression are taken from the variables OTEL_EXPORTER_OTLP_*.
"""

from __future__ import annotations

import logging
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from iotax.live.board import Board
from iotax.live.metrics import Family, Labels
from iotax.version import __version__

PERIOD_S = 10.0
TIMEOUT_S = 5.0
GOODBYE_S = 2.0
"""Time limit for sending the last figures at the end."""
_PATH = "/v1/metrics"


class OtlpSender:
    """Sends from `start` to `close`, which sends once more. If the collector is away, it prints one warning and tries
    again."""

    def __init__(self, board: Board, url: str, warn: Callable[[str], None]) -> None:
        self._board, self._url, self._warn = board, url, warn
        self._began_ns = time.time_ns()
        self._exporter = OTLPMetricExporter(endpoint(url), timeout=TIMEOUT_S)
        self._away = False
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        # The library's messages about a missing collector are replaced by ours, since the terminal belongs to the run.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        logging.getLogger("opentelemetry").propagate = False

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Never waits long for a collector."""
        self._board.close()
        self._thread.join(GOODBYE_S)

    def _run(self) -> None:
        while self._board.rest(PERIOD_S):
            self._send()
        self._send()

    def _send(self) -> None:
        cost = Family("iotax_live_cpu_seconds_total", "counter", "CPU time of sending.", [({}, time.thread_time())])
        sent = self._exporter.export(data([*self._board.metrics(), cost], self._began_ns, time.time_ns()))
        away = sent is not MetricExportResult.SUCCESS
        if away and not self._away:
            self._warn(f"no metrics could be sent to {self._url}; this is tried again every {PERIOD_S:g} s")
        self._away = away


def endpoint(url: str) -> str:
    """The URL for metrics: a collector's address alone gets its usual path. Raises ValueError."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url}: not the address of a collector, such as http://localhost:4318")
    if parts.username or parts.password:
        # The command line is kept in the notebook.
        raise ValueError("has a user or a password in its URL: give them in OTEL_EXPORTER_OTLP_HEADERS")
    return urllib.parse.urlunsplit(parts._replace(path=_PATH)) if parts.path in ("", "/") else url


def data(families: Sequence[Family], began_ns: int, now_ns: int) -> MetricsData:
    """The same metrics with the same names; counts start at `began_ns`."""
    metrics = [Metric(each.name, each.words, "", _points(each, began_ns, now_ns)) for each in families]
    scope = ScopeMetrics(InstrumentationScope("iotax", __version__), metrics, "")
    resource = Resource({"service.name": "iotax", "service.version": __version__})
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _points(family: Family, began_ns: int, now_ns: int) -> Sum | Gauge | Histogram:
    if family.kind == "histogram":
        return Histogram(_histograms(family, began_ns, now_ns), AggregationTemporality.CUMULATIVE)
    points = [NumberDataPoint(labels, began_ns, now_ns, value) for labels, value, *_ in family.samples]
    if family.kind == "gauge":
        return Gauge(points)
    return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)


def _histograms(family: Family, began_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    """Prometheus's buckets count everything up to a bound, these the counts between two."""
    found: dict[tuple[tuple[str, str], ...], dict[str, list[tuple[Labels, float]]]] = {}
    for labels, value, *suffix in family.samples:
        key = tuple((name, each) for name, each in labels.items() if name != "le")
        found.setdefault(key, {}).setdefault(str(suffix[0]), []).append((labels, value))
    points = []
    for key, parts in found.items():
        buckets = [value for _, value in parts["_bucket"]]
        points.append(
            HistogramDataPoint(
                attributes=dict(key),
                start_time_unix_nano=began_ns,
                time_unix_nano=now_ns,
                count=int(parts["_count"][0][1]),
                sum=parts["_sum"][0][1],
                bucket_counts=[int(b - a) for a, b in zip([0.0, *buckets], buckets, strict=False)],
                explicit_bounds=[float(labels["le"]) for labels, _ in parts["_bucket"][:-1]],
                min=None,  # ty: ignore[invalid-argument-type] - optional on the wire
                max=None,  # ty: ignore[invalid-argument-type]
            )
        )
    return points
