"""What a user types and reads: four clients over real SSH, from the study file to the report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.notebook import Notebook
from waits import wait_for

from .namespaces import Network

pytestmark = pytest.mark.slow

HOSTS = 5
STUDY = """\
name: clients
question: Does it scale?
lab: {{hosts: {{initiators: [{initiators}], targets: [{target}]}}}}
volume: {{size: 32MiB}}
factors: {{protocol: [iscsi, nvme-tcp], clients: [1, 4]}}
load: {{outstanding: 4, read: 75%, warmup: 100ms, runtime: 1s}}
design: {{replicates: 2}}
baseline: {{protocol: iscsi}}
"""


def test_four_clients_run_to_a_report_that_names_them_their_totals_and_cpu_by_role(
    network: Network, real_engine: Path, tmp_path: Path
) -> None:
    named = [f"{{name: {name}, address: {network.address(name)}}}" for name in network.names]
    (tmp_path / "clients.yaml").write_text(STUDY.format(initiators=", ".join(named[:4]), target=named[4]))
    environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    environment |= {"HOME": str(network.folder / "home"), "IOTAX_ENGINE": str(real_engine)}
    words = [sys.executable, "-m", "iotax", "run", "clients.yaml", "-n", "clients.iotax", "--long"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with Notebook(tmp_path / "clients.iotax") as notebook:
        attempts = [each for each in notebook.attempts() if each.status == "done"]
    assert len(attempts) == 8
    for each in attempts:
        result = each.result
        assert result is not None
        assert [client.host for client in result.clients] == network.names[: int(each.trial.treatment["clients"])]
        assert sum(client.ios for client in result.clients) == result.ios > 0
    assert "iSCSI: 4 clients (h1, h2, h3, h4)" in done.stdout
    assert "NVMe/TCP: 1 client (h1)" in done.stdout
    assert "µs on initiators" in done.stdout
    assert "µs on targets" in done.stdout
    page = (tmp_path / "clients.html").read_text()
    first_screen = page.partition('<section id="verdict">')[2].partition("</section>")[0]
    assert "1 client: h1." in first_screen
    assert "4 clients: h1, h2, h3, h4." in first_screen
    for column in ("Total", "Least", "Most", "Fairness", "Initiators", "Targets"):
        assert f">{column}<small>" in first_screen
    wait_for(lambda: not any(network.processes(name, "engine-") for name in network.names), "engines to end")
