"""A host that only another host reaches: by `via` in the study, and by OpenSSH's configuration."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import LabUnusable, TrialFailed
from iotax.study.read import read_study
from waits import wait_for

from .namespaces import Network, need

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from .labs import opened_labs

pytestmark = pytest.mark.slow

STUDY = """\
name: behind
question: Is a host behind a bastion like any other?
lab: {{hosts: {{initiators: [{initiator}], targets: [{{name: h1, address: {bastion}, data_address: {inside}}}]}}}}
volume: {{size: 32MiB}}
factors: {{protocol: [iscsi, nvme-tcp]}}
load: {{outstanding: 4, read: 75%, warmup: 100ms, runtime: {runtime}}}
design: {{replicates: 1}}
baseline: {{protocol: iscsi}}
"""


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Network]:
    """h1 is the bastion and the target; h2 is behind it."""
    need()
    network = Network(tmp_path, 2, behind={"h2": "h1"})
    yield network
    network.close()


def written(network: Network, initiator: str, runtime: str = "1s") -> str:
    given = {"bastion": network.address("h1"), "inside": network.address_towards("h2")}
    return STUDY.format(initiator=initiator, runtime=runtime, **given)


def quiet(_: object) -> None:
    pass


def test_without_the_bastion_it_is_out_of_reach(
    inside: Network, real_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iotax.places.ssh.CONNECT_S", 2.0)
    with opened_labs(inside, real_engine, monkeypatch) as opened:
        text = written(inside, f"{{name: h2, address: {inside.address('h2')}}}")
        with pytest.raises(LabUnusable, match="h2: no SSH connection"):
            opened(read_study("behind", text, Path())).prepare(quiet)


@pytest.mark.parametrize("how", ["inventory", "configuration"])
def test_a_host_behind_a_bastion_is_measured(
    inside: Network, real_engine: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    bastion, address = inside.address("h1"), inside.address("h2")
    named = f"{{name: h2, address: {address}, via: {bastion}}}"
    if how == "configuration":
        named = "h2"
        config = f"Host h2\n  HostName {address}\n  ProxyJump {bastion}\n"
        (inside.folder / "home" / ".ssh" / "config").write_text(config)
    text = written(inside, named)
    with opened_labs(inside, real_engine, monkeypatch) as opened:
        lab = opened(study := read_study("behind", text, Path()))
        lab.prepare(quiet)
        for trial in make_plan(study).trials:
            result = lab.run(trial, quiet).result
            assert [each.host for each in result.clients] == ["h2"]
            assert result.ios > 0
            assert result.verify is not None and result.verify.wrong_blocks == 0
        assert all(each.clock is not None and not each.fault for each in lab.survey())
        lab.clean()
        assert not (inside.home("h2") / ".cache" / "iotax").exists()
    wait_for(lambda: not any(inside.processes(name, "engine-") for name in inside.names), "engines to end")


def test_a_way_that_is_cut_fails_the_attempt_leaves_no_engine_and_is_found_again(
    inside: Network, real_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = f"{{name: h2, address: {inside.address('h2')}, via: {inside.address('h1')}}}"
    with opened_labs(inside, real_engine, monkeypatch) as opened:
        lab = opened(study := read_study("behind", written(inside, named, "60s"), Path()))
        lab.prepare(quiet)
        trial = next(iter(make_plan(study).trials))

        def cut() -> None:
            wait_for(lambda: inside.processes("h2", " session"), "the engine")
            inside.kill("h1", "sshd: root")

        cutter = threading.Thread(target=cut)
        cutter.start()
        # This cuts the controller's connection to the target on h1 too.
        with pytest.raises(TrialFailed, match=r"(^|then )h[12]: "):
            lab.run(trial, quiet)
        cutter.join()
        for name in inside.names:
            wait_for(lambda name=name: not inside.processes(name, " session"), "the lease's end")
        wait_for(lambda: lab.answers(trial), "the bastion to let us through again")
