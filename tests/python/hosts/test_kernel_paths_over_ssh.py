"""Studies over paths that hosts bring up themselves: real SSH, the real engine, fake mounts."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import LabUnusable, TrialFailed
from iotax.notebook import Notebook, NotebookError
from iotax.records import NfsAgreed
from iotax.study.read import read_study
from waits import wait_for

from .namespaces import Network

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.lab import HostsLab

from .labs import opened_labs

MIB = 1 << 20
HOSTS = 2
FAKES = True
STUDY = """\
name: paths
question: What does the kernel's path cost?
lab: {{hosts: {{initiators: [{initiators}]}}}}
volume: {{size: 8MiB}}
factors: {{protocol: {{nfs: "kernel:nfs://10.0.0.5/export/data{{client}}?vers=4.1&nconnect=2", file: "local:{file}"}}}}
load: {{outstanding: 4, read: 75%, warmup: 100ms, runtime: {runtime}}}
design: {{replicates: {replicates}}}
baseline: {{protocol: nfs}}
"""
NAMES = ("h1", "h2")
NVME = "kernel:nvme-tcp://10.0.0.5/nqn.2014-08.org.example:vol{client}?ns=1"


@pytest.fixture
def fakes(network: Network) -> dict[str, Path]:
    """The folders of the hosts, with volumes of zeros."""
    folders = {name: network.folder / f"fake-{name}" for name in NAMES}
    for number, folder in enumerate(folders.values(), start=1):
        for name in (f"export/data{number}", "file"):
            (folder / name).unlink(missing_ok=True)
            with (folder / name).open("wb") as file:
                file.truncate(8 * MIB)
    return folders


def written(network: Network, fakes: dict[str, Path], runtime: str = "1s", replicates: int = 2) -> str:
    named = ", ".join(f"{{name: {name}, address: {network.address(name)}}}" for name in NAMES)
    # Each host keeps its file in its own folder; a link leads there.
    for number, folder in enumerate(fakes.values(), start=1):
        link = network.folder / f"file{number}"
        link.unlink(missing_ok=True)
        link.symlink_to(folder / "file")
    file = f"{network.folder}/file{{client}}"
    return STUDY.format(initiators=named, file=file, runtime=runtime, replicates=replicates)


Open = Callable[..., HostsLab]


@pytest.fixture
def opened(network: Network, real_engine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    with opened_labs(network, real_engine, monkeypatch) as open_lab:
        yield lambda text: open_lab(read_study("paths", text, Path()))
    wait_for(lambda: nothing_left(network), "everything to be taken down")


def nothing_left(network: Network) -> bool:
    mounts = [network.folder / f"fake-{name}" / "proc/self/mounts" for name in NAMES]
    journals = [entry for name in NAMES for entry in network.home(name).glob(".cache/iotax/path-*")]
    engines = [pid for name in NAMES for pid in network.processes(name, "engine-")]
    return not journals and not engines and not any(each.read_text() for each in mounts)


def quiet(_: object) -> None:
    pass


def trial_of(text: str, protocol: str):
    trials = make_plan(read_study("paths", text, Path())).trials
    return next(each for each in trials if each.treatment["protocol"] == protocol)


def test_paths_come_up_are_measured_by_the_machines_and_go(
    network: Network, fakes: dict[str, Path], opened: Open
) -> None:
    text = written(network, fakes)
    lab = opened(text)
    lab.prepare(quiet)
    lab.background(1)
    outcome = lab.run(trial_of(text, "nfs"), quiet)
    result = outcome.result
    assert [each.host for each in result.clients] == ["h1", "h2"]
    assert min(each.ios for each in result.clients) > 0
    assert result.verify is not None and result.verify.checked_blocks > 0 and result.verify.wrong_blocks == 0
    assert (result.facts.stack, result.facts.protocol, result.endpoint[:10]) == ("kernel", "nfs4.1", "kernel:nfs")
    assert outcome.connected is not None
    assert outcome.connected.negotiated == NfsAgreed(
        version="4.1", connections=2, read_bytes=1 << 20, write_bytes=1 << 20
    )
    # The path's cost includes more CPU than that of the load process.
    machines = [part for part in result.cpu if part.layer == "machine"]
    assert {(part.host, part.role) for part in machines} == {("h1", "initiator"), ("h2", "initiator")}
    assert all(part.background_ns is not None for part in machines)
    spent_ns = sum(part.busy_ns - (part.background_ns or 0) for part in machines)
    assert result.cpu_ns("initiator") == max(0, spent_ns)
    file = lab.run(trial_of(text, "file"), quiet).result
    assert (file.facts.stack, file.facts.served, file.verify and file.verify.wrong_blocks) == ("kernel", "unknown", 0)
    # The NFS path is down again: only one path is up at a time.
    assert not (network.folder / "fake-h1/proc/self/mounts").read_text()


def test_no_path_is_up_while_the_users_commands_run(network: Network, fakes: dict[str, Path], opened: Open) -> None:
    moments = (
        "before study",
        "before block",
        "before level",
        "before trial",
        "after trial",
        "after level",
        "after study",
    )
    log = network.folder / "mounts-seen"
    log.unlink(missing_ok=True)
    mounts = network.folder / "fake-h1/proc/self/mounts"
    hooks = ", ".join(
        f"{{at: {at}, host: h2, run: 'grep -c nfs {mounts} >>{log}; true'"
        f"{', levels: {protocol: nfs}' if at.endswith('level') else ''}}}"
        for at in moments
    )
    text = written(network, fakes).replace("lab: {hosts: {", f"lab: {{hosts: {{hooks: [{hooks}], ")
    lab = opened(text)
    lab.prepare(quiet)
    for _ in range(2):
        assert lab.run(trial_of(text, "nfs"), quiet).result.ios > 0
    lab.close()
    # Twice for the study, once for the block, 4 times for 2 trials, and 6 times for the level, which is also entered to
    # check and to fill the volume.
    assert set(log.read_text().split()) == {"0"}
    assert len(log.read_text().split()) == 13


def test_a_volume_that_is_there_for_its_level_alone_is_looked_at_and_filled_there(
    network: Network, fakes: dict[str, Path], opened: Open
) -> None:
    volume = fakes["h1"] / "export/data1"
    away = volume.with_name("unmapped")
    volume.rename(away)
    hooks = ", ".join(
        f"{{at: {at}, host: h1, levels: {{protocol: nfs}}, run: mv {source} {to}}}"
        for at, source, to in (("before level", away, volume), ("after level", volume, away))
    )
    text = written(network, fakes).replace("lab: {hosts: {", f"lab: {{hosts: {{hooks: [{hooks}], ")
    lab = opened(text)
    [found] = [each for each in lab.check() if each.kind != "ok"]
    assert (found.kind, "`iotax check` does not run them" in found.message) == ("warning", True)
    assert away.exists()
    lab.prepare(quiet)
    for protocol in ("file", "nfs", "file"):
        assert lab.run(trial_of(text, protocol), quiet).result.verify.wrong_blocks == 0
        assert (volume.exists(), away.exists()) == (protocol == "nfs", protocol == "file")
    lab.close()
    assert away.exists()


def test_the_volumes_of_all_hosts_are_preconditioned_over_their_paths(
    network: Network, fakes: dict[str, Path], opened: Open
) -> None:
    asked = "precondition: {passes: 1, round: 500ms, rounds_max: 5}"
    text = f"{written(network, fakes)}{asked}\n"
    lab = opened(text)
    lab.prepare(quiet)
    nfs = next(each for each in lab.volumes() if each.startswith("kernel:"))
    volumes = [folder / f"export/data{number}" for number, folder in enumerate(fakes.values(), start=1)]
    assert not any(any(each.read_bytes()) for each in volumes)
    assert lab.fill(nfs, quiet).bytes == 2 * 8 * MIB
    filled = [each.read_bytes() for each in volumes]
    assert all(any(each[-4096:]) for each in filled)
    round_ = lab.overwrite(nfs, 1, quiet)
    assert round_.rate_iops is not None
    assert round_.rate_iops > 0
    assert all(each.read_bytes() != before for each, before in zip(volumes, filled, strict=True))
    verify = lab.run(trial_of(text, "nfs"), quiet).result.verify
    assert verify is not None
    assert (verify.checked_blocks > 0, verify.wrong_blocks) == (True, 0)


def test_foreign_data_on_any_host_are_refused_and_stay(network: Network, fakes: dict[str, Path], opened: Open) -> None:
    precious = b"\0" * 5 * MIB + b"my thesis" + b"\0" * MIB
    (fakes["h2"] / "export/data2").write_bytes(precious.ljust(8 * MIB, b"\0"))
    with pytest.raises(LabUnusable, match="nfs on h2") as refused:
        opened(written(network, fakes)).prepare(quiet)
    assert refused.value.refused
    assert b"my thesis" in (fakes["h2"] / "export/data2").read_bytes()


def test_what_took_the_place_of_a_judged_file_is_refused_and_stays(
    network: Network, fakes: dict[str, Path], opened: Open
) -> None:
    text = written(network, fakes)
    lab = opened(text)
    lab.prepare(quiet)
    other = fakes["h2"] / "other"
    other.write_bytes(b"\0" * 8 * MIB)
    link = network.folder / "file2"
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(TrialFailed, match=r"h2: .*what was judged is inode") as failed:
        lab.run(trial_of(text, "file"), quiet)
    assert failed.value.permanent
    assert not any(other.read_bytes())


def test_two_studies_do_not_share_a_host(network: Network, fakes: dict[str, Path], opened: Open) -> None:
    text = written(network, fakes)
    first = opened(text)
    first.prepare(quiet)
    assert first.run(trial_of(text, "nfs"), quiet).result.ios > 0
    with pytest.raises(LabUnusable, match="another study of iotax uses this host"):
        opened(text).prepare(quiet)
    assert first.run(trial_of(text, "nfs"), quiet).result.ios > 0


@pytest.fixture
def command(
    network: Network, fakes: dict[str, Path], real_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """`iotax run` of both paths, into the notebook `n.iotax`."""
    del real_engine
    monkeypatch.setenv("HOME", str(network.folder / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    study = tmp_path / "paths.yaml"
    study.write_text(written(network, fakes, replicates=1))
    notebook = str(tmp_path / "n.iotax")
    return [sys.executable, "-m", "iotax", "run", str(study), "--notebook", notebook, "--no-report"]


def is_under_way(notebook: Path) -> bool:
    """Whether a trial has started and not ended."""
    try:
        with Notebook(notebook) as reader:
            return any(each.status == "running" for each in reader.attempts())
    except NotebookError:  # does not exist yet
        return False


def ended_in_a_trial(command: list[str], sent: signal.Signals, network: Network) -> tuple[int, str]:
    """Sends a signal to a run while a path is up and under load. Returns its exit status and its stderr."""
    notebook = Path(command[command.index("--notebook") + 1])
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: is_under_way(notebook) and len(network.processes("h1", " session")) > 1, "a trial")
        finally:
            process.send_signal(sent)
        _, said = process.communicate(timeout=180)
    return process.returncode, said


def goes_on(command: list[str], notebook: Path) -> bool:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    with Notebook(notebook) as reader:
        return len({each.trial.id for each in reader.attempts() if each.status == "done"}) == 2


@pytest.mark.slow
def test_a_killed_controller_leaves_nothing_on_hosts_and_the_study_goes_on(
    network: Network, command: list[str], tmp_path: Path
) -> None:
    ended_in_a_trial(command, signal.SIGKILL, network)
    wait_for(lambda: nothing_left(network), "the hosts to take everything down")
    assert goes_on(command, tmp_path / "n.iotax")
    assert nothing_left(network)


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
@pytest.mark.slow
def test_an_interrupted_controller_has_taken_everything_down_before_it_ends(
    network: Network, command: list[str], tmp_path: Path, sent: signal.Signals
) -> None:
    status, said = ended_in_a_trial(command, sent, network)
    assert nothing_left(network)
    assert status == 130, said
    assert "run the same command again to continue" in said
    assert goes_on(command, tmp_path / "n.iotax")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MiB on the controller."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", place]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.slow
def test_a_controller_whose_disk_fills_in_a_trial_has_taken_everything_down_before_it_ends(
    network: Network, command: list[str], small: Path
) -> None:
    notebook, ballast = small / "n.iotax", small / "ballast"
    command[command.index("--notebook") + 1] = str(notebook)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: is_under_way(notebook) and len(network.processes("h1", " session")) > 1, "a trial")
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(MIB)):
                    pass
        except BaseException:
            process.kill()
            raise
        _, said = process.communicate(timeout=180)
    assert process.returncode == 5, said
    assert "the disk is full; everything before this attempt is kept. Free some space and run the same command" in said
    assert nothing_left(network)
    ballast.unlink()
    assert goes_on(command, notebook)
    assert nothing_left(network)


@pytest.mark.machine
@pytest.mark.slow
def test_what_was_left_is_taken_down_by_the_next_start_and_by_clean(
    network: Network, fakes: dict[str, Path], opened: Open
) -> None:
    text = written(network, fakes)
    lab = opened(text)
    lab.prepare(quiet)
    lab.run(trial_of(text, "nfs"), quiet)
    assert not nothing_left(network)
    # As where a host's shells die with their SSH session, so that no process there takes the path down.
    for name in NAMES:
        network.kill(name, "paths-")
        network.kill(name, "engine-")
    assert (network.folder / "fake-h1/proc/self/mounts").read_text()
    assert opened(text).clean()["h1"].startswith("DOWN nfs ")
    assert not (network.folder / "fake-h1/proc/self/mounts").read_text()
    assert list((network.home("h1") / ".cache").rglob("*")) == []
    # The study brings its path up again.
    again = opened(text)
    again.prepare(quiet)
    assert again.run(trial_of(text, "nfs"), quiet).result.ios > 0


def test_what_cannot_be_taken_down_at_the_end_is_told_with_what_to_do(
    network: Network, fakes: dict[str, Path], opened: Open
) -> None:
    text = written(network, fakes)
    lab = opened(text)
    lab.prepare(quiet)
    lab.run(trial_of(text, "nfs"), quiet)
    busy = fakes["h2"] / "busy"
    busy.touch()
    lab.close()
    [fault] = lab.closing().faults
    assert fault.startswith("h2: unmounting ")
    assert fault.endswith("What is left there, the next run or `iotax lab hosts clean` takes down")
    busy.unlink()
    wait_for(lambda: not network.processes("h2", "paths-"), "the keeper's end")
    assert opened(text).clean()["h2"].startswith("DOWN nfs ")


def test_check_names_what_is_missing_or_forbidden_and_where(
    network: Network, fakes: dict[str, Path], opened: Open
) -> None:
    text = written(network, fakes).replace("kernel:nfs://10.0.0.5/export/data{client}?vers=4.1&nconnect=2", NVME)
    fake = fakes["h2"]
    (fake / "uid").write_text("1000\n")
    nvme = fake / "bin" / "nvme"
    nvme.rename(fake / "nvme")
    (fake / "sudoers").write_text("mount\n")
    try:
        lab = opened(text)
        first, second = lab.survey()
        assert (first.obstacles, first.link and first.link.mtu) == ((), None)
        assert second.obstacles[0] == "nvme is missing"
        assert second.obstacles[1].startswith("sudo -n engine-")
        findings = [each for each in lab.check() if each.kind == "error"]
        assert [each.subject for each in findings] == ["h2", "h2"]
        assert findings[0].message == "nvme is missing, and this study needs it there"
    finally:
        (fake / "uid").write_text("0\n")
        (fake / "nvme").rename(nvme)


def test_check_knows_the_way_to_the_target_and_what_disks_hold(
    network: Network, fakes: dict[str, Path], opened: Open
) -> None:
    text = written(network, fakes).replace("10.0.0.5", network.address("h2"))
    first, _ = opened(text).survey()
    assert first.link is not None
    assert (first.link.name, first.link.mtu) == ("eth0", 1500)
    assert all(": " in each for each in first.held)
