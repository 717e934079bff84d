"""CPU time that the live view uses in the process that runs a study; docs/results/live.md has the figures.

`pytest -s tests/python/live/test_live_cost.py` prints them: it plays a minute of a run as fast as it can.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from faked import FakeEngine
from iotax.cli.display import PlainDisplay
from iotax.cli.run import measure
from iotax.design import plan
from iotax.labs.base import HostSample, Sample
from iotax.live import Board, LiveListener
from iotax.live.board import Seen
from iotax.live.metrics import exposition
from iotax.study.read import load_study

pytestmark = pytest.mark.machine


MINUTE_S = 60
SAMPLES = 2 * MINUTE_S
"""A load sends a sample twice a second."""
SHARE_MAX = 0.01
"""Share of a core."""


@pytest.fixture
def board(tiny: Path, tmp_path: Path, engine: FakeEngine) -> Board:
    """A run with points and a running trial."""
    del engine
    loaded = load_study(str(tiny))
    board = Board(loaded[0])
    path = tmp_path / "a.iotax"
    measure(*loaded, path, PlainDisplay(Console(file=io.StringIO())), LiveListener(board, path))
    board.start([plan(loaded[0]).trials[0]], 1)
    return board


def share(what: str, minute: Callable[[], None]) -> float:
    """The share of a core over one minute."""
    began_s = time.thread_time()
    minute()
    found = (time.thread_time() - began_s) / MINUTE_S
    print(f"{what}: {100 * found:.3f} % of a core")
    return found


def sample(at: int, hosts: int) -> Sample:
    told = tuple(HostSample(f"initiator-{host}", 60_000.0 + at, 18_000, 45_000) for host in range(hosts))
    return Sample("run", 500_000_000, 60_000.0 * max(1, hosts), 18_000, 45_000, hosts=told)


@pytest.mark.parametrize("hosts", [0, 2, 24])
def test_a_page_and_a_scrape_of_so_many_hosts_cost_less_than_a_hundredth_of_a_core(board: Board, hosts: int) -> None:
    def minute() -> None:
        seen = Seen()
        for at in range(SAMPLES):
            board.sample(sample(at, hosts))
            news, seen = board.news(seen)
            json.dumps(news)
            if at % 10 == 0:
                exposition(board.metrics())

    assert share(f"a page and a scrape every 5 s, {hosts} hosts", minute) < SHARE_MAX


@pytest.mark.parametrize("hosts", [0, 24])
def test_a_collector_costs_less_than_a_hundredth_of_a_core(board: Board, hosts: int) -> None:
    pytest.importorskip("opentelemetry.sdk.metrics", reason="the extra `otlp` is not installed")
    from otlp_collector import Collector

    from iotax.live import otlp

    collector = Collector()
    try:
        sender = otlp.OtlpSender(board, collector.url, pytest.fail)
        board.sample(sample(0, hosts))

        def minute() -> None:
            for _ in range(round(MINUTE_S / otlp.PERIOD_S)):
                sender._send()

        assert share(f"a collector, {hosts} hosts", minute) < SHARE_MAX
        assert len(collector.asked) == MINUTE_S / otlp.PERIOD_S and not sender._away
        told = collector.latest["iotax_iops"].gauge.data_points
        assert len(told) == 1 + hosts
    finally:
        collector.close()
