"""Several initiator guests on one storage guest: one start, shared or separate volumes, a report that names them."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from iotax.analysis import Run
from iotax.analysis.responses import CPU_GENERATOR, CPU_GUEST, CPU_INITIATOR_KERNEL, CPU_TARGET_KERNEL
from iotax.notebook import Notebook

from .studies import machines_of, start

STUDY = """\
name: kernels
question: Does it scale?
lab: {vm: {accelerator: tcg}}
volume: {size: 4MiB, refill: block}
factors:
  protocol: [PROTOCOLS]
  clients: [2]
  volumes: [shared, per client]
load: {read: 75%, outstanding: 4, warmup: 300ms, runtime: 1500ms}
design: {replicates: 1}
baseline: {protocol: iscsi}
"""


@pytest.mark.parametrize(
    "protocols",
    [("iscsi", "nfs4.1"), pytest.param(("iscsi", "nvme-tcp", "nfs3", "nfs4.1"), marks=pytest.mark.long)],
    ids=["two", "all"],
)
def test_two_guests_put_load_on_one_volume_or_two_over_each_protocol_to_totals_of_each_and_both(
    tmp_path: Path, engine: Path, protocols: tuple[str, ...]
) -> None:
    with start(tmp_path, engine, STUDY.replace("PROTOCOLS", ", ".join(protocols))) as study:
        said, _ = study.communicate(timeout=1100)
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = [each for each in notebook.attempts(1) if each.status == "done"]
    volumes = ("shared", "per client")
    found = {(each.trial.treatment["protocol"], each.trial.treatment["volumes"]) for each in attempts}
    assert found == set(itertools.product(protocols, volumes)), said
    for each in attempts:
        result = each.result
        assert result is not None
        assert [client.host for client in result.clients] == ["initiator 1", "initiator 2"]
        assert all(client.ios for client in result.clients)
        assert sum(client.ios for client in result.clients) == result.ios
        assert result.verify is not None
        assert result.verify.wrong_blocks == result.verify.never_written_blocks == 0
        # All guests use this host's clock, so they share one window.
        assert (result.facts.clock, result.facts.clients) == ("time", 2)
        assert result.facts.volumes == (2 if each.trial.treatment["volumes"] == "per client" else None)
        assert [client.pace for client in result.clients] == [None, None]
        # CPU of each layer of the path.
        assert result.facts.target_stack == "kernel"
        run = Run(each.trial, result)
        generator, kernel, guest, target = (
            response.of(run) for response in (CPU_GENERATOR, CPU_INITIATOR_KERNEL, CPU_GUEST, CPU_TARGET_KERNEL)
        )
        assert generator and kernel and guest and target
        assert generator + kernel == pytest.approx(guest)
        guests = [part.host for part in result.cpu if part.layer == "guest"]
        assert guests == ["initiator 1 guest", "initiator 2 guest", "storage guest"]
    words = [sys.executable, "-m", "iotax", "show", "kernels.iotax", "--long"]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600).stdout
    assert "2 clients (initiator 1, initiator 2), each on its own volume" in " ".join(said.split())
    assert "µs on initiators" in said
    assert "µs on targets" in said
    assert machines_of(tmp_path) == []
