"""The first screen: what each command prints at its end fits 24 lines of 80 columns, for every study."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from command_line import ran
from imports.import_samples import fio_campaign
from iotax.analysis import StudyData, summarise
from iotax.cli import console
from iotax.cli.exits import Exit
from iotax.study.read import builtin_studies, load_study
from iotax.wording import brief
from report.factory import PATHS, Costs, Simulation, planned, study, write_notebook

LINES, COLUMNS = 24, 80
QUICK = ("quick", "kernel-exact", "sim-quick", "database", "kernel-path-loss")
"""Studies whose screens `make test` looks at; `make test-all` looks at the others too."""


class AnyPath(Mapping[str, Costs]):
    """Different costs for every protocol and label."""

    def __getitem__(self, name: str) -> Costs:
        if name == "local":
            return Costs(0.9, 0.0, 0.9, None)
        weight = 1 + sum(map(ord, name)) % 17
        return Costs(4.0 + weight, 20.0 + 2 * weight, 3.0 + weight, 4.0 + weight)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


def of_built_in(name: str) -> StudyData:
    """A result for each trial that the study plans."""
    of = load_study(name)[0]
    # More replicates make intervals narrower, but not the screen longer.
    fewer = of.design.model_copy(update={"replicates": min(2, of.design.replicates)})
    of = of.model_copy(update={"design": fewer})
    simulation = Simulation(seed=5, paths=AnyPath(), samples=4, drawn_max=60)
    return simulation.searched(of) if of.search else simulation.data(of, planned(of))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output as a terminal of 80 columns without colours."""
    monkeypatch.setattr(console, "PIPE_COLUMNS", COLUMNS)
    monkeypatch.setattr(console._Screen, "is_terminal", True)
    for name, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": str(COLUMNS)}.items():
        monkeypatch.setenv(name, value)


def lines_of(*words: object) -> list[str]:
    done = ran(*words)
    assert done.exit_code == Exit.OK, done.output
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stdout).splitlines()


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    "name",
    [
        # patterns-full takes 14 s of CPU time, ip-vs-fc-full 12 s.
        pytest.param(
            name, marks=pytest.mark.long if name.endswith("-full") else () if name in QUICK else pytest.mark.slow
        )
        for name in sorted(builtin_studies())
    ],
)
def test_the_first_screen_of_every_built_in_study_fits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_notebook(Path(f"{name}.iotax"), of_built_in(name))
    lines = lines_of("show", f"{name}.iotax")

    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert any(line.startswith("Validity:") for line in lines)
    assert not any("…" in line for line in lines)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("name", sorted(builtin_studies()))
def test_the_plan_of_every_built_in_study_fits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = lines_of("plan", name)

    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert [line.split()[0] for line in lines if line[:1].isalpha()].count("Takes") == 1
    assert not any("…" in line for line in lines)


@pytest.mark.usefixtures("terminal")
def test_a_verdict_has_its_interval_in_one_line_and_sentences_are_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_notebook(Path("n.iotax"), Simulation(seed=3).data(study()))
    lines = lines_of("show", "n.iotax")
    assert any(re.fullmatch(r"NVMe/TCP  CPU per I/O +−\d+ %(  |.*% )\[−\d+, −\d+\] +less *", line) for line in lines)
    assert not any("needs less CPU" in line for line in lines)
    assert any("less CPU per I/O than iSCSI" in line for line in lines_of("show", "n.iotax", "--long"))


@pytest.mark.usefixtures("terminal")
def test_a_study_of_interruptions_shows_slow_ios_in_place_of_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    two: dict[str, Any] = {"factors": {"protocol": ["nfs3", "iscsi"]}}
    for responses, shown, left_out in (
        (["longest_gap", "slow_ios"], "over 1 s", "CPU"),
        (["cpu_per_io", "slow_ios"], "CPU", "no such column"),
        (["iops"], "CPU", "over 1 s"),
    ):
        write_notebook(Path("n.iotax"), Simulation(seed=3).data(study(responses=responses, **two)))
        table = "\n".join(lines_of("show", "n.iotax")[:8])
        assert shown in table and left_out not in table, responses
        Path("n.iotax").unlink()


@pytest.mark.usefixtures("terminal")
def test_differences_come_before_the_rest_and_large_ones_first() -> None:
    found = brief.lines(summarise(Simulation(seed=3).data(study())))
    assert [line.rank for line in found] == sorted(line.rank for line in found)
    differing = [line.size for line in found if line.rank == 0]
    assert len(differing) > 2
    assert differing == sorted(differing, reverse=True)


@pytest.mark.usefixtures("terminal")
def test_a_difference_that_depends_on_the_load_names_loads_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # NFSv3 is slower with one outstanding I/O, and faster with 32.
    flips = {**PATHS, "nfs3": Costs(2.0, 120.0, 4.0, 4.0)}
    write_notebook(Path("n.iotax"), Simulation(seed=3, paths=flips).data(study(responses=["iops"])))
    lines = lines_of("show", "n.iotax")
    [at] = [number for number, line in enumerate(lines) if re.match(r"NFSv3 +IOPS .* by load", line)]
    assert re.match(r" +outstanding 1 +−\d+ % +\[.*\] +less", lines[at + 1])
    assert re.match(r" +outstanding 32 +2\.\d+× +\[.*\] +more", lines[at + 2])
    assert len(lines) <= LINES


@pytest.mark.usefixtures("terminal")
def test_disturbed_runs_are_said_first_and_verdicts_are_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    of = study()
    waiting = [trial.id for trial in Simulation(seed=3).data(of).planned][:20]
    write_notebook(Path("n.iotax"), Simulation(seed=3, waiting=waiting).data(of))
    lines = lines_of("show", "n.iotax")
    assert lines[1] == "20 of 36 trials were disturbed by other work; repeat on a quiet machine."
    assert "Verdicts of disturbed trials are doubtful: see --long." in lines
    assert not any(line.endswith(("more", "less")) for line in lines)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("disturbed", [True, False])
def test_role_that_was_asked_for_and_not_read_is_said_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, disturbed: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    of = study(responses=["iops", "cpu_hypervisor", "cpu_utilisation_hypervisor"])
    waiting = [trial.id for trial in Simulation(seed=3).data(of).planned] if disturbed else []
    write_notebook(Path("n.iotax"), Simulation(seed=3, waiting=waiting).data(of))
    lines = lines_of("show", "n.iotax")
    assert lines.count("No CPU time of the hypervisor: none was read, see --long.") == 1
    assert ("Verdicts of disturbed trials are doubtful: see --long." in lines) == disturbed


@pytest.mark.usefixtures("terminal")
def test_doubtful_verdicts_have_a_mark_and_one_line_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    of = study()
    wrong = [trial.id for trial in Simulation(seed=3).data(of).planned]
    write_notebook(Path("n.iotax"), Simulation(seed=3, wrong_data=wrong).data(of))
    lines = lines_of("show", "n.iotax")
    assert sum(line.rstrip().endswith(" ?") for line in lines) == 6
    assert sum(line.startswith("? doubtful") for line in lines) == 1


@pytest.mark.usefixtures("terminal", "engine", "tiny")
@pytest.mark.parametrize(
    "words",
    [
        "run tiny.yaml run.iotax",
        "vs local iscsi --time 30s --size 1m --notebook vs.iotax",
        "compare nfs3 iscsi -n quick.iotax",
        "compare quick.iotax other.iotax",
        "size --iops 100k quick.iotax",
        "size --iops 70k --cpu-us nfs=81:78-84 --cpu-us fc=50:48-52",
        "import fio campaign --name-pattern {protocol}-{bs}-r{replicate}.json -n import.iotax",
    ],
)
def test_the_first_screen_of_other_commands_fits(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, name in ((3, "quick"), (4, "other")):
        write_notebook(Path(f"{name}.iotax"), Simulation(seed=seed).data(study()))
    fio_campaign(Path("campaign"))
    lines = lines_of(*words.split())
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
