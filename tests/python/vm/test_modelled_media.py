"""Modelled media behind iotax's own target in the storage guest, with the kernels' initiators."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iotax.labs.vm.topology import environment
from iotax.notebook import Notebook
from iotax.study.read import read_study
from iotax.study.source import StudyError

from .studies import start

STUDY = """\
name: disks
question: What do disks leave of the differences?
lab: {vm: {accelerator: tcg, clock: host}}
volume: {size: 4MiB, media: model, servers: 2, refill: trial}
topology: {target: TARGET}
factors: {protocol: [nvme-tcp, nfs3], service: [2ms, 8ms]}
load: {read: 50%, outstanding: 4, warmup: 200ms, runtime: 1s}
design: {replicates: 1}
baseline: {protocol: nvme-tcp}
"""


def test_only_a_target_of_our_own_has_media_that_are_a_model(tmp_path: Path) -> None:
    for target in ("kernel", "tgt"):
        with pytest.raises(StudyError, match=r"volume\.media: only iotax's own target .* say `target: iotax`"):
            read_study("s.yaml", STUDY.replace("TARGET", target).replace("nfs3", "iscsi"), tmp_path)
    beside = "{protocol: {ours: {protocol: iscsi, target: iotax}, LIO: iscsi}, media: [memory, model], service: [2ms]}"
    text = STUDY.replace("topology: {target: TARGET}\n", "").replace("media: model, ", "")
    text = text.replace("{protocol: [nvme-tcp, nfs3], service: [2ms, 8ms]}", beside).replace(": nvme-tcp}", ": LIO}")
    with pytest.raises(StudyError, match="only iotax's own target"):
        read_study("s.yaml", text, tmp_path)
    allowed = text.replace("replicates: 1}", "replicates: 1, exclude: [{protocol: LIO, media: model}]}")
    assert read_study("s.yaml", allowed, tmp_path).lab.vm is not None


def test_a_database_has_no_media_that_are_a_model(tmp_path: Path) -> None:
    text = STUDY.replace("TARGET", "iotax").replace("read: 50%, outstanding: 4", "generator: pgbench")
    with pytest.raises(StudyError, match="a database is laid out on a volume that no model holds"):
        read_study("s.yaml", text, tmp_path)


def test_the_server_is_told_of_its_media(tmp_path: Path) -> None:
    study = read_study("s.yaml", STUDY.replace("TARGET", "iotax"), tmp_path)
    told = environment(study.settings({"protocol": "nvme-tcp", "service": 2_000_000}), guests=2)
    [modelled] = [word for word in told.split("; ") if word.startswith("MODELLED=")]
    described = json.loads(modelled.removeprefix("MODELLED='").removesuffix("'"))
    assert (described["media"], described["size_bytes"], described["fill"]) == ("memory", 4 << 20, "pattern")
    assert (described["model"]["servers"], described["model"]["service_ns"]) == (2, 2_000_000)


def test_the_kernels_wait_for_the_media_of_our_target(tmp_path: Path, engine: Path) -> None:
    with start(tmp_path, engine, STUDY.replace("TARGET", "iotax")) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = notebook.attempts(1)
    # Each level has its own server, so the previous level's server is not in the way.
    assert [each.number for each in attempts] == [1] * 4
    for each in attempts:
        service_ns, result = int(each.trial.treatment["service"]), each.result
        assert result is not None
        assert result.verify is not None
        assert (result.verify.wrong_blocks, result.verify.checked_blocks > 0) == (0, True)
        assert result.media is not None
        assert result.media.busy_ns == service_ns * result.media.operations
        assert result.media.operations >= result.media.told >= result.ios > 0
        # No I/O is faster than its service time. Two servers complete two I/Os in that time, and four were outstanding
        # before. Each guest's kernel refines its counter's rate, by 1 % at most.
        assert result.latency_mean_ns >= 0.98 * service_ns
        assert result.ios <= 1.02 * (2 * (result.window.duration_ns / service_ns + 1) + 4)
