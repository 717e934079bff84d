"""Real kernels: a short study between two guests, and what is left when it ends or is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from iotax.labs.vm.cache import cache_root
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.packages import Store, kernel_of
from iotax.notebook import Notebook

from .studies import machines_of, start, with_machines_up

STUDY = """\
name: kernels
question: Do real kernels carry the load?
lab: {vm: {accelerator: tcg, clock: icount}}
volume: {size: 4MiB, refill: block}
factors: {protocol: [nvme-tcp, nfs3, iscsi, fcp-loop]}
load: {read: 75%, outstanding: 4, warmup: 200ms, runtime: 1s}
design: {replicates: 1}
baseline: {protocol: iscsi}
"""


TOPOLOGY = """\
name: topology
question: Does what is asked of links and paths take effect?
lab: {vm: {accelerator: tcg}}
volume: {size: 4MiB, refill: trial}
factors:
  protocol:
    fixed: {protocol: iscsi, paths: 2, path_policy: fixed, mtu: 9000}
    round-robin: {protocol: nvme-tcp, paths: 2, path_policy: round-robin, link_rate: 20Mbit, link_delay: 1ms}
    four: {protocol: iscsi, paths: 4, path_policy: round-robin}
    nconnect: {protocol: nfs3, nconnect: 2}
load: {read: 75%, outstanding: 4, warmup: 200ms, runtime: 1s}
design: {replicates: 1}
baseline: {protocol: fixed}
"""


OWN = """\
name: kernels
question: Does a kernel of one's own boot, and with its own modules?
lab: {vm: {accelerator: tcg, clock: icount, guests: 1}}
volume: {size: 4MiB}
topology: {kernel: ./tar-install}
factors: {protocol: [nvme-tcp]}
load: {read: 75%, outstanding: 4, warmup: 100ms, runtime: 500ms}
design: {replicates: 1}
baseline: {protocol: nvme-tcp}
"""


def test_a_kernel_of_ones_own_boots_from_its_folder(tmp_path: Path, engine: Path) -> None:
    store = Store(cache_root() / "packages")
    name = store.kernel_package()
    root = store.fetch([name])[name].root
    folder = tmp_path / "tar-install"
    folder.mkdir()
    for part in ("boot", "lib"):
        (folder / part).symlink_to(root / part)
    with start(tmp_path, engine, OWN) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        (attempt,) = notebook.attempts(1)
        environment = notebook.environment(1)
    assert attempt.status == "done"
    release = name.removeprefix("linux-image-")
    assert f"Linux {release}" in json.dumps(environment)
    assert attempt.connected is not None
    assert release in repr(attempt.connected)


@pytest.mark.smoke
def test_real_kernels_carry_verified_data_and_leave_nothing(tmp_path: Path, engine: Path) -> None:
    with start(tmp_path, engine, STUDY) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = list(notebook.attempts(1))
    assert {each.trial.treatment["protocol"] for each in attempts} == {"nvme-tcp", "nfs3", "iscsi", "fcp-loop"}
    for each in attempts:
        result, connected = each.result, each.connected
        assert result is not None
        assert connected is not None
        assert result.verify is not None
        assert result.verify.wrong_blocks == 0
        assert result.verify.checked_blocks > 0
        assert result.cpu.initiator is not None
        assert result.cpu.initiator.net_ns > 0
        # Without a transport, initiator and target run in one kernel.
        assert (result.cpu.target is None) == (each.trial.treatment["protocol"] == "fcp-loop")
        assert result.cpu.target is None or result.cpu.target.net_ns > 0
        assert result.facts.clock == "instructions"
    assert machines_of(tmp_path) == []
    assert list(tmp_path.glob("iotax-vm-*")) == []


def test_links_and_paths_are_as_asked(tmp_path: Path, engine: Path) -> None:
    with start(tmp_path, engine, TOPOLOGY) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = {str(each.trial.treatment["protocol"]): each for each in notebook.attempts(1)}
    facts = {name: each.connected.found for name, each in attempts.items() if each.connected}
    assert facts["fixed"]["mtu"] == "9000"
    assert facts["round-robin"]["link_rate"] == "20Mbit"
    assert facts["round-robin"]["link_delay"] == "1ms"
    shares: dict[str, list[float]] = {}
    for name, each in attempts.items():
        assert each.result is not None
        assert each.result.paths is not None
        ios = [path.ios for path in each.result.paths.used]
        shares[name] = [path / sum(ios) for path in ios]
    assert shares["fixed"] == [1.0, 0.0]
    assert shares["round-robin"] == pytest.approx([0.5, 0.5], abs=0.05)
    assert shares["four"] == pytest.approx([0.25] * 4, abs=0.05)
    assert shares["nconnect"] == pytest.approx([0.5, 0.5], abs=0.05)
    # 40 Mbit/s over both paths carry at most 5 MB/s of reads.
    result = attempts["round-robin"].result
    assert result is not None
    assert result.read.bytes / result.duration_s < 5.1e6


TARGETS = """\
name: targets
question: Does every target carry the load?
lab: {vm: {accelerator: tcg, clock: icount}}
volume: {size: 4MiB, refill: block}
factors:
  protocol:
    ganesha: {protocol: nfs3, target: ganesha}
    ganesha 4.1: {protocol: nfs4.1, target: ganesha}
    tgt: {protocol: iscsi, target: tgt}
    our NFS: {protocol: nfs3, target: iotax}
    our iSCSI: {protocol: iscsi, target: iotax}
    our NVMe: {protocol: nvme-tcp, target: iotax}
    knfsd: nfs3
load: {read: 75%, outstanding: 4, warmup: 200ms, runtime: 1s}
design: {replicates: 1}
baseline: {protocol: knfsd}
"""


@pytest.mark.long
def test_every_target_carries_verified_data_and_is_found_on_its_port(tmp_path: Path, engine: Path) -> None:
    with start(tmp_path, engine, TARGETS) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = {str(each.trial.treatment["protocol"]): each for each in notebook.attempts(1)}
    assert {name: each.connected.found["target"] for name, each in attempts.items() if each.connected} == {
        "ganesha": "ganesha",
        "ganesha 4.1": "ganesha",
        "tgt": "tgt",
        "our NFS": "iotax",
        "our iSCSI": "iotax",
        "our NVMe": "iotax",
        "knfsd": "kernel",
    }
    for each in attempts.values():
        result = each.result
        assert result is not None
        assert result.verify is not None
        assert result.verify.wrong_blocks == 0
        assert result.verify.checked_blocks > 0
        assert result.cpu.target is not None
        assert result.cpu.target.net_ns > 0


@pytest.mark.long
def test_a_target_that_the_user_built_carries_verified_data(tmp_path: Path, engine: Path) -> None:
    built = os.environ.get("IOTAX_BENCH_SPDK")
    if built is None:
        pytest.skip("IOTAX_BENCH_SPDK names no build of SPDK")
    labels = f"    spdk: {{protocol: nvme-tcp, target: {built}/bin/nvmf_tgt}}\n    knfsd: nfs3\n"
    asked = re.sub(r"(?m)^    \S.*\n", "", TARGETS).replace("  protocol:\n", f"  protocol:\n{labels}")
    with start(tmp_path, engine, asked) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = {str(each.trial.treatment["protocol"]): each for each in notebook.attempts(1)}
    found, result = attempts["spdk"].connected, attempts["spdk"].result
    assert found is not None
    assert found.found["target"] == "nvmf_tgt"
    assert result is not None
    assert result.verify is not None
    assert result.verify.wrong_blocks == 0
    assert result.verify.checked_blocks > 0


RELEASES = """name: releases
question: Does a newer kernel carry the load?
lab: {vm: {accelerator: tcg, clock: icount}}
volume: {size: 4MiB, refill: block}
factors:
  protocol: [nvme-tcp, iscsi]
  kernel: [stock, "6.12"]
load: {read: 75%, outstanding: 4, warmup: 200ms, runtime: 1s}
design: {replicates: 1, hard_to_change: [kernel]}
baseline: {protocol: iscsi, kernel: stock}
"""


@pytest.mark.long
def test_both_releases_of_a_study_run_and_tell_their_kernel(tmp_path: Path, engine: Path) -> None:
    try:
        kernel_of("6.12")
    except VmFault as fault:
        pytest.skip(str(fault))
    with start(tmp_path, engine, RELEASES) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = list(notebook.attempts(1))
    assert len(attempts) == 4
    for each in attempts:
        assert each.connected is not None
        newer = each.trial.treatment["kernel"] == "6.12"
        assert each.connected.found["kernel"].startswith("6.12.") == newer


@pytest.mark.long
def test_the_storage_may_have_a_newer_kernel_than_the_initiator(tmp_path: Path, engine: Path) -> None:
    try:
        kernel_of("6.12")
    except VmFault as fault:
        pytest.skip(str(fault))
    newer = STUDY.replace("factors:", 'topology: {target_kernel: "6.12"}\nfactors:').replace(", fcp-loop", "")
    with start(tmp_path, engine, newer) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = list(notebook.attempts(1))
    assert [each.status for each in attempts] == ["done"] * 3
    for each in attempts:
        assert each.connected is not None
        assert each.connected.found["kernel"].startswith("6.1.")
        assert each.connected.found["target_kernel"].startswith("6.12.")


def test_no_machine_outlives_a_study_that_is_killed(engine: Path) -> None:
    with with_machines_up(engine, STUDY) as (folder, study):
        study.send_signal(signal.SIGKILL)
        study.wait()
        deadline_s = time.monotonic() + 600
        while machines_of(folder) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        assert machines_of(folder) == []
