"""fio as the load generator in a guest, over the kernel's initiator."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotax.notebook import Notebook

from .studies import machines_of, start

STUDY = """\
name: kernels
question: Does fio load a volume in a guest?
lab: {vm: {accelerator: tcg, clock: icount}}
volume: {size: 4MiB}
factors:
  protocol: [iscsi]
  streams:
    random: {all: {block_size: 4KiB, read: 75%, random: 100%}}
    two: {a: {block_size: 8KiB, read: 100%}, b: {block_size: 64KiB, read: 0%, random: 0%}}
load: {generator: fio, workers: 8, outstanding: 4, verify: false, warmup: 200ms, runtime: 1s}
design: {replicates: 1}
baseline: {protocol: iscsi}
"""


@pytest.mark.long
def test_fio_loads_a_volume_in_a_guest_and_each_part_tells_its_cpu(tmp_path: Path, engine: Path) -> None:
    with start(tmp_path, engine, STUDY) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        results = {str(each.trial.treatment["streams"]): each.result for each in notebook.attempts(1) if each.result}
    assert set(results) == {"random", "two"}, said
    for result in results.values():
        assert result is not None
        assert result.generator == "fio"
        assert result.read.ios > 0 < result.write.ios
        assert result.verify is None
        # CPU of the guest, including the target, and of fio within the guest.
        guest, fio = (
            next(each for each in result.cpu if each.role == "initiator" and each.layer == layer)
            for layer in ("guest", "process")
        )
        assert 0 < fio.busy_ns < guest.busy_ns
        assert result.cpu.target is not None
        assert result.cpu.target.net_ns > 0
    two = results["two"]
    assert two is not None
    assert [stream.name for stream in two.streams] == ["a", "b"]
    assert two.read.bytes == pytest.approx(8192 * two.read.ios, rel=0.01)
    assert two.write.bytes == pytest.approx(65536 * two.write.ios, rel=0.01)
    assert machines_of(tmp_path) == []
