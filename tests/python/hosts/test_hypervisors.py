"""CPU of hypervisors below virtual initiators, from esxtop's own format and from the processes of guests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import TrialFailed
from iotax.study.read import read_study
from waits import wait_for

from .namespaces import Network

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts import esxtop
from iotax.labs.hosts import lab as lab_module
from iotax.labs.hosts.lab import HostsLab

from .labs import opened_labs

pytestmark = pytest.mark.slow

HOSTS = 3
STUDY = """\
name: under
question: What does the hypervisor do?
lab:
  hosts:
    initiators: [{{name: h1, address: {h1}}}]
    targets: [{{name: h2, address: {h2}}}]
    hypervisors: [{{name: h3, address: {h3}{how}}}]
volume: {{size: 8MiB}}
factors: {{protocol: [iscsi]}}
load: {{warmup: 0, runtime: 1s}}
design: {{replicates: 1}}
baseline: {{protocol: iscsi}}
"""
ESXTOP = r"""#!/bin/sh
# esxtop -b -a -d SECONDS
[ "$1 $2 $3" = "-b -a -d" ] || exit 2
[ ! -e "$HOME/refuse" ] || { echo "esxtop: out of memory" >&2; exit 1; }
printf '%s\n' '"(PDH-CSV 4.0) (UTC)(0)","\\esx1\Group Cpu(1:vm)\% Used","\\esx1\Physical Cpu(0)\% Util Time","\\esx1\Physical Cpu(1)\% Util Time","\\esx1\Physical Cpu(_Total)\% Util Time"'
while :; do echo "\"11/22/2026 20:00:00\",\"9.0\",\"20.0\",\"40.0\",\"30.0\""; sleep "$4"; done
"""  # noqa: E501


@pytest.fixture
def opened(network: Network, real_engine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], HostsLab]]:
    monkeypatch.setattr(esxtop, "INTERVAL_S", 0.1)
    monkeypatch.setattr(lab_module, "_BACKGROUND_ESXI_NS", 300_000_000)
    with opened_labs(network, real_engine, monkeypatch) as open_lab:

        def make(how: str) -> HostsLab:
            addresses = {name: network.address(name) for name in network.names}
            return open_lab(read_study("under", STUDY.format(**addresses, how=how), Path()))

        yield make


@pytest.fixture
def esxi(network: Network, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a host that has esxtop."""
    home = network.home("h3")
    program = home / "esxtop"
    program.write_text(ESXTOP)
    program.chmod(0o755)
    # The search path of the login does not include that folder.
    start = esxtop.SshHost.process

    async def in_home(place: esxtop.SshHost, command: str):
        return await start(place, command.replace("esxtop ", f"{program} ", 1))

    monkeypatch.setattr(esxtop.SshHost, "process", in_home)
    (home / "refuse").unlink(missing_ok=True)
    return home


QEMUS_NAMES = ("CPU 0/KVM", "IO iothread1", "vhost-4711")
NAMED_THREADS = f"""
import threading, pathlib
def spin(name):
    pathlib.Path(f"/proc/self/task/{{threading.get_native_id()}}/comm").write_text(name)
    while True: pass
for name in {json.dumps(QEMUS_NAMES)}: threading.Thread(target=spin, args=(name,)).start()
"""


def threads_of(pid: int) -> list[str]:
    return [each.read_text().strip() for each in Path(f"/proc/{pid}/task").glob("*/comm")]


def quiet(_: object) -> None:
    pass


def test_esxtop_tells_the_cpu_of_an_esxi_host_over_the_window(
    network: Network, opened: Callable[[str], HostsLab], esxi: Path
) -> None:
    del esxi
    lab = opened(", kind: esxi")
    lab.connect()
    background = lab.background(1)
    [trial] = make_plan(lab.study).trials
    result = lab.run(trial, quiet).result
    [part] = [each for each in result.cpu if each.role == "hypervisor"]
    assert (part.host, part.layer, part.processors) == ("h3", "machine", 2)
    assert part.window_ns == result.window.duration_ns
    assert part.busy_ns == pytest.approx(0.30 * 2 * result.window.duration_ns)
    # h1 is its only initiator, so its only guest; the guest's time is what the guest measured.
    [guest] = [each for each in result.cpu if (each.host, each.layer) == ("h1", "guest")]
    assert part.guests_ns == guest.busy_ns
    idle = {each.host: each for each in background.cpu}
    idle_ns = idle["h3"].own_ns * result.window.duration_ns / background.duration_ns
    assert part.background_ns == pytest.approx(idle_ns, rel=1e-3)
    assert result.cpu_ns("hypervisor") == max(0, part.busy_ns - guest.busy_ns - part.background_ns)
    # h2 is a separate machine; h1 is counted as part of h3.
    assert {each.host for each in result.role("machine").parts} == {"h2", "h3"}
    wait_for(lambda: not network.processes("h3", "esxtop"), "esxtop to end")
    assert not network.processes("h3", "engine-")


def test_the_guests_of_an_esxi_host_are_those_that_it_names(opened: Callable[[str], HostsLab], esxi: Path) -> None:
    del esxi
    lab = opened(", kind: esxi, guests: [h1, h2]")
    lab.connect()
    [trial] = make_plan(lab.study).trials
    result = lab.run(trial, quiet).result
    guests = [each for each in result.cpu if each.layer == "guest"]
    assert {each.host for each in guests} == {"h1", "h2"}
    [part] = [each for each in result.cpu if each.role == "hypervisor"]
    assert part.guests_ns == sum(each.busy_ns for each in guests)
    assert [each.host for each in result.role("machine").parts] == ["h3"]


def test_an_esxtop_that_fails_ends_the_attempt_and_is_named(opened: Callable[[str], HostsLab], esxi: Path) -> None:
    (esxi / "refuse").touch()
    lab = opened(", kind: esxi")
    lab.connect()
    [trial] = make_plan(lab.study).trials
    with pytest.raises(TrialFailed, match="h3: esxtop there ended: esxtop: out of memory"):
        lab.run(trial, quiet)


def test_check_says_whether_an_esxi_host_has_esxtop(opened: Callable[[str], HostsLab]) -> None:
    *_, found = opened(", kind: esxi").survey()
    assert (found.host, found.role, found.obstacles) == ("h3", "hypervisor", ("esxtop is missing",))
    assert found.clock is None
    assert not found.fault


def test_the_processes_of_guests_are_read_one_by_one(network: Network, opened: Callable[[str], HostsLab]) -> None:
    # Each one spins, so it uses CPU of its own. The threads of the second have QEMU's names.
    spins = {"vm1": 'sh -c "while :; do :; done"', "vm2": f"{sys.executable} -c '{NAMED_THREADS}'"}
    guests = [
        subprocess.Popen(
            ["ip", "netns", "exec", network.namespace("h3"), "bash", "-c",
             f'exec -a "qemu-system-x86_64 -name guest={name},debug-threads=on -m 512" {spin}'],
        )
        for name, spin in spins.items()
    ]  # fmt: skip
    try:
        wait_for(lambda: len(network.processes("h3", "-name guest=vm")) == 2, "the guests")
        wait_for(lambda: set(QEMUS_NAMES) <= set(threads_of(network.processes("h3", "-name guest=vm2")[0])), "threads")
        lab = opened(", guests: [vm1, vm2]")
        lab.connect()
        [trial] = make_plan(lab.study).trials
        result = lab.run(trial, quiet).result
    finally:
        for each in guests:
            each.kill()
            each.wait()
    parts = {each.host: each for each in result.cpu if each.role == "hypervisor" and each.layer == "process"}
    assert set(parts) == {"h3: vm1", "h3: vm2"}
    assert all(each.busy_ns > 0 for each in parts.values())
    assert parts["h3: vm1"].threads is None
    threads = parts["h3: vm2"].threads
    assert threads is not None
    assert min(threads.processors_ns, threads.io_ns, threads.vhost_ns) > 0
    # None of them is a real guest: the kernel counts no guest time, so all time of the host is its own.
    [host] = [each for each in result.cpu if (each.role, each.layer) == ("hypervisor", "machine")]
    assert host.guests_ns == 0
    assert all(each.guests_ns == 0 for each in parts.values())
    assert result.cpu_ns("hypervisor") == host.busy_ns
    with pytest.raises(TrialFailed, match="h3: 0 processes of a guest vm1"):
        lab.run(trial, quiet)
