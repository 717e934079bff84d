"""The user's commands around studies, blocks and trials, over real SSH."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import LabUnusable, TrialFailed
from iotax.notebook import Notebook
from iotax.study.read import read_study

from .namespaces import Network

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.lab import HostsLab

from .labs import opened_labs

pytestmark = pytest.mark.slow

HOSTS = 2
STUDY = """\
name: hooked
question: Is the array put back?
lab:
  hosts:
    initiators: [{{name: h1, address: {h1}}}]
    targets: [{{name: h2, address: {h2}}}]
    hooks:
{hooks}
volume: {{size: 8MiB}}
factors: {{protocol: [iscsi, nvme-tcp]}}
load: {{warmup: 0, runtime: 1s}}
design: {{replicates: 2}}
baseline: {{protocol: iscsi}}
"""


@pytest.fixture
def opened(
    network: Network, real_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[HostsLab, list]]]:
    """Opens a lab with these hooks; returns it with its trials in order."""
    for name in network.names:
        (network.home(name) / "log").unlink(missing_ok=True)
    with opened_labs(network, real_engine, monkeypatch) as open_lab:

        def make(*hooks: str) -> tuple[HostsLab, list]:
            lines = "\n".join(f"      - {{{each}}}" for each in hooks)
            text = STUDY.format(h1=network.address("h1"), h2=network.address("h2"), hooks=lines)
            study = read_study("hooked", text, Path())
            trials = make_plan(study).trials
            return open_lab(study), sorted(trials, key=lambda trial: (trial.block, trial.order))

        yield make


def quiet(_: object) -> None:
    pass


def logged(network: Network, name: str) -> list[str]:
    log = network.home(name) / "log"
    return log.read_text().split() if log.exists() else []


def test_commands_run_at_their_moments_and_for_their_levels(network: Network, opened: Callable) -> None:
    moments = ("before study", "after study", "before block", "after block")
    hooks = [f"at: {at}, host: h2, run: 'echo {at.replace(' ', '-')} >>log'" for at in moments]
    hooks += [
        "at: before trial, host: h2, levels: {protocol: nvme-tcp}, run: 'echo only-nvme >>log'",
        "at: after trial, host: h2, run: 'echo trial >>log; echo done here'",
    ]
    lab, trials = opened(*hooks)
    lab.prepare(quiet)
    outcomes = [lab.run(trial, quiet) for trial in trials]
    lab.close()
    said = logged(network, "h2")
    assert (said[0], said[-1]) == ("before-study", "after-study")
    assert said.count("only-nvme") == 2
    assert said.count("trial") == 4
    blocks = len({trial.block for trial in trials})
    assert (said.count("before-block"), said.count("after-block")) == (blocks, blocks)
    assert "h2: after trial: `echo trial >>log; echo done here`: exit status 0\nh2:   done here" in outcomes[-1].log


def test_commands_of_a_level_run_where_its_trials_begin_and_end(network: Network, opened: Callable) -> None:
    hooks = [
        f"at: {at} level, host: h2, levels: {{protocol: {protocol}}}, run: 'echo {at}-{protocol} >>log'"
        for protocol in ("iscsi", "nvme-tcp")
        for at in ("before", "after")
    ]
    lab, trials = opened(*hooks, "at: after block, host: h2, run: 'echo block >>log'")
    lab.prepare(quiet)
    blocks = {
        trial.block: [each.treatment["protocol"] for each in trials if each.block == trial.block] for trial in trials
    }
    for trial in trials:
        # The second of two trials at one level runs no commands of that level.
        for _ in range(2):
            lab.run(trial, quiet)
    lab.close()
    expected = [
        said
        for protocols in blocks.values()
        for said in (*(f"{at}-{protocol}" for protocol in protocols for at in ("before", "after")), "block")
    ]
    assert logged(network, "h2") == expected


def test_a_level_whose_command_fails_is_put_back_and_entered_again_by_the_next_trial(
    network: Network, opened: Callable
) -> None:
    lab, trials = opened(
        "at: before level, host: h2, levels: {protocol: iscsi}, run: 'echo mapped >>log; test -e there'",
        "at: after level, host: h2, levels: {protocol: iscsi}, run: 'echo unmapped >>log'",
    )
    lab.prepare(quiet)
    trial = next(each for each in trials if each.treatment["protocol"] == "iscsi")
    with pytest.raises(TrialFailed, match=r"h2: before level: .* failed with exit status 1"):
        lab.run(trial, quiet)
    assert logged(network, "h2") == ["mapped", "unmapped"]
    (network.home("h2") / "there").touch()
    try:
        lab.run(trial, quiet)
    finally:
        (network.home("h2") / "there").unlink()
    lab.close()
    assert logged(network, "h2") == ["mapped", "unmapped"] * 2


def test_a_command_that_fails_keeps_its_trial_from_running_and_is_named(network: Network, opened: Callable) -> None:
    lab, trials = opened("at: before trial, host: h2, run: 'echo no such snapshot >&2; exit 3'")
    lab.prepare(quiet)
    with pytest.raises(
        TrialFailed, match=r"h2: before trial: .* failed with exit status 3: no such snapshot"
    ) as failed:
        lab.run(trials[0], quiet)
    assert "exit status 3" in failed.value.log
    assert failed.value.host == "h2"
    refused, _ = opened("at: before study, host: h2, run: 'exit 1'", "at: after study, host: h2, run: 'echo x >>log'")
    with pytest.raises(LabUnusable, match="h2: before study: `exit 1` failed"):
        refused.prepare(quiet)
    refused.close()
    assert logged(network, "h2") == []


def test_a_command_without_end_is_given_up_after_its_time(network: Network, opened: Callable) -> None:
    del network
    lab, trials = opened("at: before block, host: h1, timeout: 300ms, run: 'sleep 30'")
    lab.prepare(quiet)
    with pytest.raises(TrialFailed, match=r"h1: before block: `sleep 30` did not end within 300 ?ms"):
        lab.run(trials[0], quiet)


def test_a_command_that_says_very_much_is_held_in_little_memory(network: Network, opened: Callable) -> None:
    del network
    lab, trials = opened("at: before trial, host: h1, run: 'yes | head -c 200000000; echo; echo the end'")
    lab.prepare(quiet)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = lab.run(trials[0], quiet)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100 << 10
    assert "h1:   the end" in outcome.log
    assert len(outcome.log) < 20_000


def test_what_ends_a_study_is_in_the_notebook_too(
    network: Network, real_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del real_engine
    monkeypatch.setenv("HOME", str(network.folder / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    hooks = '      - {at: after study, host: h2, run: "echo put back"}'
    path, notebook = tmp_path / "hooked.yaml", tmp_path / "n.iotax"
    path.write_text(STUDY.format(h1=network.address("h1"), h2=network.address("h2"), hooks=hooks))
    command = [sys.executable, "-m", "iotax", "run", str(path), "--notebook", str(notebook), "--no-report"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    assert "h2: after study: `echo put back`: exit status 0" in done.stdout + done.stderr
    with Notebook(notebook) as kept:
        [said] = kept.closings()
    assert said == "h2: after study: `echo put back`: exit status 0\nh2:   put back"
    shown = subprocess.run(
        [sys.executable, "-m", "iotax", "show", str(notebook), "--long"], check=True, capture_output=True, text=True
    )
    assert "After the last attempt:\n    h2: after study: `echo put back`: exit status 0" in shown.stdout


def test_secrets_reach_the_command_and_nothing_else(
    network: Network, opened: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRAY_PASSWORD", "it's secret")
    run = 'echo "$ARRAY_PASSWORD" | tee given; tr "\\\\0" " " </proc/$$/cmdline >>given'
    lab, trials = opened(f"at: before trial, host: h1, env: [ARRAY_PASSWORD], run: '{run}'")
    lab.prepare(quiet)
    outcome = lab.run(trials[0], quiet)
    given = (network.home("h1") / "given").read_text().splitlines()
    assert given[0] == "it's secret"
    assert "secret" not in given[1]
    assert "it's secret" not in outcome.log
    assert "‹hidden›" in outcome.log
    monkeypatch.delenv("ARRAY_PASSWORD")
    with pytest.raises(TrialFailed, match="ARRAY_PASSWORD is not set"):
        lab.run(trials[1], quiet)
