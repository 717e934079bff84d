"""PostgreSQL in the guests: a short study over a block protocol and over NFS."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotax.notebook import Notebook

from .studies import start

STUDY = """\
name: database
question: Does a database run over a protocol?
lab: {vm: {accelerator: tcg}}
volume: {size: 160MiB, refill: block}
factors: {protocol: [nvme-tcp, nfs3]}
load: {generator: pgbench, workers: 2, working_set: 64MiB, warmup: 500ms, runtime: 2s}
design: {replicates: 1}
baseline: {protocol: nfs3}
responses: [transactions, latency, cpu_per_transaction, disk_iops]
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_database_commits_over_a_block_protocol_and_over_nfs(tmp_path: Path, engine: Path) -> None:
    with start(tmp_path, engine, STUDY) as study:
        said, _ = study.communicate(timeout=880)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        results = [each.result for each in notebook.attempts(1) if each.status == "done"]
    assert len(results) == 2
    for result in results:
        assert result is not None
        assert result.generator == "pgbench"
        assert result.ios > 0
        assert result.database is not None
        assert result.database.checkpoints > 0
        assert result.database.writes > 0
        assert result.cpu.initiator is not None
        assert result.cpu.initiator.net_ns > 0
        assert result.cpu.target is not None
        assert result.cpu.target.net_ns > 0
