"""How a study says to reach its hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotax.study.read import read_study
from iotax.study.source import StudyError

STUDY = """\
name: clients
question: Does it scale?
lab: {{hosts: {{initiators: [h1], targets: [{{name: h2, address: 10.0.0.2}}]{cluster}}}}}
factors: {{protocol: [iscsi, nvme-tcp]}}
baseline: {{protocol: iscsi}}
"""
TLS = "tls: {ca: ca.pem, cert: me.pem, key: me-key.pem}"


def dumped(cluster: str) -> dict[str, object]:
    study = read_study("clients", STUDY.format(cluster=f", cluster: {cluster}" if cluster else ""), Path())
    return study.model_dump(mode="json")["lab"]["hosts"]


def test_a_study_over_ssh_is_written_as_it_was_before_there_was_anything_else() -> None:
    assert "cluster" not in dumped("")
    assert dumped("ssh") == dumped("")


@pytest.mark.parametrize("given", ["{scheduler: 'tcp://10.0.0.1:8786'}", f"{{scheduler: 'tls://s:8786', {TLS}}}"])
def test_a_scheduler_is_kept_in_the_notebook(given: str) -> None:
    kept = dumped(given)["cluster"]
    assert isinstance(kept, dict) and kept["scheduler"] in given


def test_how_slurm_is_asked_is_kept_in_the_notebook() -> None:
    kept = dumped("{slurm: {options: [--partition=bench]}}")["cluster"]
    assert isinstance(kept, dict) and kept["slurm"]["options"] == ["--partition=bench"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("dask", "lab.hosts.cluster: found 'dask'; one of ssh is expected"),
        ("{slurm: {options: [bench]}}", "lab.hosts.cluster.slurm.options"),
        ("{slurm: {}, scheduler: 'tcp://s:8786'}", "lab.hosts.cluster.scheduler"),
        ("{scheduler: '10.0.0.1:8786'}", "write it as tcp://HOST:PORT or tls://HOST:PORT"),
        ("{scheduler: 'tls://s:8786'}", "belongs to a scheduler at tls://"),
        (f"{{scheduler: 'tcp://s:8786', {TLS}}}", "belongs to a scheduler at tls://"),
    ],
)
def test_what_is_no_cluster_is_refused_with_its_place(given: str, said: str) -> None:
    with pytest.raises(StudyError, match=said) as refused:
        dumped(given)
    assert len(refused.value.lines()) == 1


def test_relays_are_kept_in_the_notebook_and_unsaid_ones_are_not_written() -> None:
    assert "relays" not in dumped("")
    kept = dumped("ssh, relays: {scheduler: 'tcp://10.0.0.1:8786'}")["relays"]
    assert isinstance(kept, dict) and kept["scheduler"] == "tcp://10.0.0.1:8786"


def test_relays_beside_workers_on_the_hosts_are_refused() -> None:
    both = "{scheduler: 'tcp://s:8786'}, relays: {scheduler: 'tcp://s:8787'}"
    with pytest.raises(StudyError, match="`relays` hold SSH connections, and `cluster` needs none"):
        dumped(both)


def test_secrets_take_relays_at_tls() -> None:
    text = STUDY.format(cluster=", relays: {scheduler: 'tcp://s:8786'}").replace(
        "[iscsi, nvme-tcp]", "{iscsi: {protocol: 'iscsi://10.0.0.5/iqn.x:v/0', chap: {user: me, secret_env: KEY}}}"
    )
    with pytest.raises(StudyError, match="over `relays:` it takes a scheduler at tls://"):
        read_study("clients", text, Path())
    tls = f"{{scheduler: 'tls://s:8786', {TLS}}}"
    assert read_study("clients", text.replace("{scheduler: 'tcp://s:8786'}", tls), Path())
