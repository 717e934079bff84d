"""An open loop over real sockets with a server that limits the rate: 2 ms per I/O, at most four outstanding."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from iotax.analysis.responses import Run
from iotax.analysis.validity import Severity, check_run
from iotax.notebook import Notebook

STUDY = """\
name: open
question: What does a rate beyond the capacity look like?
volume: {size: 16MiB, delay: 2ms}
factors: {protocol: [nfs3, iscsi], rate_iops: [0, 200, 8000]}
load: {workers: 2, outstanding: 2, backlog: 100, read: 100%, warmup: 100ms, runtime: 1s}
design: {replicates: 1}
baseline: {protocol: iscsi}
"""


@pytest.mark.machine
@pytest.mark.usefixtures("real_engine")
@pytest.mark.slow
def test_an_overload_is_flagged_and_its_backlog_bounded_and_counted(
    tmp_path: Path, iotax: Callable[..., Result]
) -> None:
    (tmp_path / "s.yaml").write_text(STUDY)
    done = iotax("run", "s.yaml", "--notebook", "n.iotax", "--no-report", "--long")
    assert re.search(r"Rate held: \d+ of \d+ runs? flagged", done.stdout)
    with Notebook(tmp_path / "n.iotax") as notebook:
        attempts = notebook.attempts()
    for each in attempts:
        result, asked = each.result, each.trial.treatment["rate_iops"]
        assert result is not None
        assert result.open is not None
        # Totals of both workers.
        assert (result.open.rate_iops, result.outstanding.workers) == (asked, 2)
        assert result.open.offered == pytest.approx(asked, rel=0.02)
        if asked == 0:
            assert result.ios == 0
        if asked == 8000:
            # Four outstanding I/Os of 2 ms each are 2,000 I/Os per second.
            assert result.ios <= 2100
            assert result.open.achieved < 0.99
            assert 0 < result.open.backlog_peak <= 100
            assert result.open.dropped > 5000
            checks = {check.key: check.level for check in check_run(Run(each.trial, result))}
            assert checks["achieved"] is Severity.DOUBTFUL
    written = iotax("export", "n.iotax", "--format", "csv")
    rows = [row for row in csv.DictReader(written.stdout.splitlines()) if row["factor_rate_iops"] != "0"]
    assert len(rows) == 4
    for row in rows:
        assert float(row["latency_mean_ns"]) >= float(row["service_mean_ns"]) >= 2e6
        assert float(row["rate_iops"]) <= 2100
