"""Hosts without a C library: they can run only the static engine that is copied to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotax import engine
from iotax.notebook import Notebook
from iotax.places.fits import needs_of
from iotax.version import __version__
from measurements import results_of

from .namespaces import Network, need

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

STATIC = Path(engine.__file__).resolve().parents[2] / "target" / "static" / "iotax-engine"
STUDY = """\
name: bare
question: Does it run on a host without a C library?
lab: {{hosts: {{initiators: [{{name: h1, address: {h1}}}], targets: [{{name: h2, address: {h2}}}]}}}}
volume: {{size: 32MiB}}
factors: {{protocol: [nfs3, nvme-tcp]}}
load: {{outstanding: 4, read: 75%, warmup: 100ms, runtime: 1s}}
design: {{replicates: 1}}
baseline: {{protocol: nfs3}}
"""


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Network]:
    """Two hosts whose file system contains busybox and nothing else."""
    need()
    busybox = shutil.which("busybox")
    if busybox is None or needs_of(Path(busybox)).loader:
        pytest.skip("busybox is not installed as a static program (Debian package busybox-static)")
    names = ("h1", "h2")
    roots = {name: tmp_path / f"root-{name}" for name in names}
    mounted = []
    try:
        for root in roots.values():
            for folder in ("bin", "home", "proc", "dev", "sys", "etc"):
                (root / folder).mkdir(parents=True)
            shutil.copy(busybox, root / "bin" / "busybox")
            subprocess.run([root / "bin" / "busybox", "--install", "-s", root / "bin"], check=True)
            for link in (root / "bin").iterdir():
                if link.is_symlink():
                    link.unlink()
                    link.symlink_to("busybox")
            for folder in ("proc", "dev", "sys"):
                subprocess.run(["mount", "--rbind", f"/{folder}", root / folder], check=True)
                subprocess.run(["mount", "--make-rslave", root / folder], check=True)
                mounted.append(root / folder)
        network = Network(tmp_path, 2, roots=roots)
        yield network
        network.close()
    finally:
        for place in mounted:
            subprocess.run(["umount", "--recursive", "--lazy", place], check=False)


def test_a_study_runs_on_hosts_without_a_c_library(bare: Network, tmp_path: Path) -> None:
    if not os.access(STATIC, os.X_OK):
        pytest.skip("the static engine is not built (make engine-static)")
    study = tmp_path / "bare.yaml"
    study.write_text(STUDY.format(h1=bare.address("h1"), h2=bare.address("h2")))
    environment = {name: value for name, value in os.environ.items() if name != "IOTAX_ENGINE"}
    environment |= {"HOME": str(tmp_path / "home"), "COLUMNS": "400"}

    def run(*words: str, host_engine: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "iotax", *words],
            env=environment | {"IOTAX_HOST_ENGINE": str(host_engine)},
            cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    refused = run("run", str(study), "refused.iotax", host_engine=engine.find_engine())
    assert refused.returncode != 0
    assert "which this host has not" in refused.stderr + refused.stdout
    assert "make engine-static" in refused.stderr + refused.stdout
    done = run("run", str(study), "bare.iotax", host_engine=STATIC)
    assert done.returncode == 0, done.stderr
    with Notebook(tmp_path / "bare.iotax") as notebook:
        results = results_of(notebook, 2)
    assert {each.engine_version for each in results} == {f"{__version__}+static"}
