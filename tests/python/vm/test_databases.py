"""PostgreSQL in the guests: short studies over a block protocol and over NFS, in one guest and in each of two."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotax.notebook import Notebook

from .studies import start

STUDY = """\
name: database
question: Does a database run over a protocol?
lab: {vm: {accelerator: tcg}}
volume: {size: 160MiB, refill: block, volumes: VOLUMES}
factors: {protocol: [nvme-tcp, nfs3]}
load: {generator: pgbench, workers: 2, clients: CLIENTS, working_set: 64MiB, warmup: 500ms, runtime: 2s}
design: {replicates: 1}
baseline: {protocol: nfs3}
responses: [transactions, latency, cpu_per_transaction, disk_iops]
"""


@pytest.mark.long
@pytest.mark.parametrize(("clients", "volumes"), [(1, "shared"), (2, "per client")])
def test_databases_commit_over_a_block_protocol_and_over_nfs(
    tmp_path: Path, engine: Path, clients: int, volumes: str
) -> None:
    asked = STUDY.replace("CLIENTS", str(clients)).replace("VOLUMES", volumes)
    with start(tmp_path, engine, asked) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        results = [each.result for each in notebook.attempts(1) if each.status == "done"]
    assert len(results) == 2
    for result in results:
        assert result is not None
        assert result.generator == "pgbench"
        assert result.ios > 0
        assert result.database is not None
        assert result.database.checkpoints >= clients
        assert result.database.writes > 0
        assert len([part for part in result.cpu if part.role == "initiator" and part.net_ns > 0]) == clients
        if clients > 1:
            assert [client.host for client in result.clients] == ["initiator 1", "initiator 2"]
            assert sum(client.ios for client in result.clients) == result.ios
            assert all(client.ios for client in result.clients)
        assert result.cpu.target is not None
        assert result.cpu.target.net_ns > 0
