"""The sim lab: simulated trials, from a study file to a report that says they are simulated."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from typer.testing import CliRunner

import iotax
from iotax.analysis import responses
from iotax.analysis.responses import Run
from iotax.analysis.validity import foreign_cores
from iotax.cli.app import app
from iotax.cli.export_asv import export_asv
from iotax.design import plan
from iotax.engine import EngineError
from iotax.labs import outcomes
from iotax.labs.base import TrialFailed
from iotax.labs.choice import open_lab
from iotax.labs.sim.lab import SimLab, simulate
from iotax.live import Board
from iotax.live.metrics import exposition
from iotax.live.server import Page
from iotax.notebook import Notebook
from iotax.rows import series_rows
from iotax.study import Study, sim
from iotax.study.read import load_study
from iotax.study.rules import broken_rules
from iotax.study.sim import CostsError, read_costs
from iotax.study.source import StudyError
from iotax.trial import TrialResult
from iotax.wording import SIMULATED
from iotax.wording.trust import SIMULATED_BRIEF

LOOPBACK = Path(sim.__file__).with_name("costs") / "loopback.yaml"
SMALL: dict[str, Any] = {
    "name": "small",
    "question": "What is simulated?",
    "lab": {"sim": {"cores": 1, "target_cores": 1}},
    "volume": {"size": "1MiB"},
    "factors": {"protocol": ["nfs3", "iscsi", "nvme-tcp"], "link_rate": ["1Gbit", "25Gbit"]},
    "load": {"read": "75%", "outstanding": 8, "warmup": "1ms", "runtime": "5ms"},
    "topology": {"link_delay": "10us"},
    "design": {"replicates": 2},
    "baseline": {"protocol": "iscsi"},
}


def study(**changes: Any) -> Study:
    return Study.model_validate(yaml.safe_load(yaml.safe_dump(SMALL | changes)))


def run(of: Study) -> dict[str, TrialResult]:
    planned = plan(of)
    lab = open_lab(of, planned, [])
    assert isinstance(lab, SimLab)
    return {trial.id: lab.run(trial, lambda _: None).result for trial in planned.trials}


@pytest.fixture
def simulated(real_engine: Path, tmp_path: Path) -> Path:
    """The notebook of the small study, run as a user would run it; its report is in the same folder."""
    del real_engine
    file, notebook = tmp_path / "small.yaml", tmp_path / "small.iotax"
    file.write_text(yaml.safe_dump(SMALL), encoding="utf-8")
    done = CliRunner().invoke(app, ["run", str(file), str(notebook)])
    assert done.exit_code == 0, done.output
    assert SIMULATED_BRIEF in done.output
    return notebook


def test_the_same_study_gives_the_same_results_and_another_seed_others(real_engine: Path) -> None:
    del real_engine
    first = run(study())
    assert first == run(study())
    other = run(study(design={"replicates": 2, "seed": 7}))
    assert any(first[name].read != other[name].read for name in first)


def test_a_result_says_that_it_is_simulated_and_what_its_processors_spent(real_engine: Path) -> None:
    del real_engine
    for name, result in run(study(lab={"sim": {"cores": 1, "target_cores": 1, "vms": 2}})).items():
        assert (result.facts.lab, result.facts.simulated, result.facts.clock) == ("sim", True, "virtual"), name
        assert (result.facts.link.kind, result.facts.clients) == ("simulated", 2)
        assert result.verify is not None
        assert result.verify.wrong_blocks == 0
        assert result.outstanding.total == 16
        costs = read_costs("loopback").protocols[result.facts.protocol]
        for role, side in (("initiator", costs.initiator), ("target", costs.target)):
            spent_ns = result.cpu_per_io_ns(role)
            assert spent_ns is not None
            # At least the cost of the I/O and of 4 KiB. At most also a wake, 4 turns with a send each, and 2 KiB more.
            assert side.io.ns + 4 * side.kib.ns <= spent_ns * 1.02
            assert spent_ns <= side.io.ns + side.wake.ns + 4 * (side.turn.ns + side.send.ns) + 6 * side.kib.ns
            part = result.cpu.part(role)
            assert part is not None
            assert (part.busy_share or 0) <= 1.01
        assert result.simulated is not None
        assert result.simulated.media_busy_ns is None
        for work in (result.simulated.initiators, result.simulated.target):
            # A wake at the end of the window may have its turn after it.
            assert work.wakes - 2 <= work.turns <= 4 * result.ios
            assert 0 < work.sends <= 4 * result.ios
            # Each byte of the window's I/Os plus headers, except for I/Os outstanding at its ends.
            moved = result.read.bytes + result.write.bytes
            assert moved - 16 * 4096 < work.bytes < 1.5 * moved
            assert work.segments >= work.bytes // 1448
            assert 0 < max(work.sent_ns, work.received_ns) <= 1.05 * result.window.duration_ns
        assert result.simulated.initiators.bytes == pytest.approx(result.simulated.target.bytes, rel=0.2)


def test_a_thin_link_bounds_what_is_simulated(real_engine: Path) -> None:
    del real_engine
    for name, result in run(study(load={"outstanding": 64, "warmup": "5ms", "runtime": "20ms"})).items():
        thin = "1Gbit" in name.split("/")
        share = 8 * result.read.bytes / 0.02 / (1e9 if thin else 25e9)
        assert (0.85 if thin else 0.0) < share < 1448 / 1538, name


def test_media_with_one_server_serve_no_faster_than_it(real_engine: Path) -> None:
    del real_engine
    media = {"servers": 1, "service": "100us", "distribution": "exponential"}
    slow = study(lab={"sim": {"media": media}}, load={"outstanding": 8, "warmup": "10ms", "runtime": "200ms"})
    for name, result in run(slow).items():
        # 2,000 exponential service times of 100 µs take 200 ms, with a standard deviation of 4.5 ms.
        assert 1780 < result.ios < 2220, name


DISKS = {"servers": 4, "seek": "3ms", "rpm": 15000}


def test_disks_that_turn_are_as_fast_as_a_seek_and_half_a_turn_allow(real_engine: Path) -> None:
    del real_engine
    load = {"clients": 2, "outstanding": 32, "warmup": "100ms", "runtime": "2s"}
    factors = {"protocol": ["iscsi", "fcp"], "vms": [1]}

    def rates(**media: Any) -> list[float]:
        lab = {"sim": {"controllers": 2, "media": DISKS | media, "costs": "vsphere-4.0"}}
        asked = study(lab=lab, load=load, factors=factors, topology={"link_rate": "10Gbit"}, design={"replicates": 1})
        return [result.ios / 2 for result in run(asked).values()]

    # 8 disks, 5 ms per I/O. With 32 outstanding I/Os each disk is idle for a few per mille of the time.
    for rate in rates():
        assert 1480 < rate < 1660
    for rate in rates(cache="1GiB", data="2GiB"):
        assert 2900 < rate < 3350


def test_parity_has_a_write_turn_on_every_disk_that_it_touches(real_engine: Path) -> None:
    """Theory: 4 disks with a seek of 3 ms and a revolution of 4 ms do 800 I/Os per second. With parity a write takes
    one more revolution, on 2 disks for single parity and on 3 for double parity."""
    del real_engine
    load = {"outstanding": 64, "read": "0%", "warmup": "200ms", "runtime": "4s"}

    def rate(**media: Any) -> float:
        lab = {"sim": {"media": DISKS | media, "costs": "vsphere-4.0"}}
        asked = study(lab=lab, load=load, factors={"protocol": ["iscsi"]}, topology={"link_rate": "10Gbit"})
        result = next(iter(run(asked).values()))
        return result.ios / 4

    assert rate() == pytest.approx(800, rel=0.06)
    assert rate(parity=1) == pytest.approx(4 / (2 * 9e-3), rel=0.06)
    assert rate(parity=2, raid_group=4) == pytest.approx(4 / (3 * 9e-3), rel=0.06)


def test_virtual_machines_and_tables_of_costs_are_factors(real_engine: Path) -> None:
    del real_engine
    factors = {"protocol": ["iscsi"], "vms": [1, 3], "costs": ["esx-3.5", "vsphere-4.0"]}
    asked = study(factors=factors, topology={"link_rate": "10Gbit"}, design={"replicates": 1})
    found = run(asked)
    assert {name: result.outstanding.total for name, result in found.items()} == {
        f"{costs}/iscsi/{vms}/r1": vms * 8 for vms in (1, 3) for costs in ("esx-3.5", "vsphere-4.0")
    }
    cost = {name: result.cpu_per_io_ns("initiator") or 0.0 for name, result in found.items()}
    # 33.9 µs more for each I/O, except for those outstanding at the window's ends.
    assert cost["esx-3.5/iscsi/1/r1"] - cost["vsphere-4.0/iscsi/1/r1"] == pytest.approx(33_900, rel=0.15)
    assert (
        asked.digest()
        != study(
            factors=factors | {"costs": ["esx-3.5"]}, topology={"link_rate": "10Gbit"}, design={"replicates": 1}
        ).digest()
    )


@pytest.mark.parametrize("protocol", ["iscsi", "fcp", "nfs3"])
def test_a_hypervisors_part_is_told_apart_and_is_what_its_costs_say(real_engine: Path, protocol: str) -> None:
    del real_engine
    asked = study(
        lab={"sim": {"costs": "esxi-7", "cores": 8, "target_cores": 8, "threads": 2}},
        factors={"protocol": [protocol], "block_size": ["4KiB", "64KiB"]},
        topology={"link_rate": "25Gbit"},
        volume={"size": "16MiB"},
        load={"read": "50%", "workers": 2, "outstanding": 4, "warmup": "5ms", "runtime": "50ms"},
        design={"replicates": 1},
        baseline={"protocol": protocol},
    )
    sides = read_costs("esxi-7").protocols[protocol]
    assert sides.hypervisor is not None
    for name, result in run(asked).items():
        hypervisor, work = result.cpu.hypervisor, result.simulated
        assert hypervisor is not None
        assert work is not None
        # Except for I/Os outstanding at the window's ends.
        guest_ns = result.cpu_per_io_ns("initiator") or 0.0
        assert guest_ns == pytest.approx(sides.initiator.io.ns, rel=0.1), name
        bytes_ns = work.initiators.bytes / 1024 * sides.hypervisor.kib.ns
        segments_ns = work.initiators.segments * sides.hypervisor.segment.ns
        assert hypervisor.busy_ns == pytest.approx(result.ios * sides.hypervisor.io.ns + bytes_ns + segments_ns)
        one = Run(trial=plan(asked).trials[0], result=result)
        together_ns = (responses.CPU.of(one) or 0.0) * 1e3
        parts_ns = [result.cpu_per_io_ns(part) or 0.0 for part in ("initiator", "hypervisor", "target")]
        assert together_ns == pytest.approx(sum(parts_ns))
        assert (foreign_cores(one) or 0.0) < 0.01


def test_a_table_needs_no_costs_of_what_the_design_leaves_out() -> None:
    factors = {"protocol": ["fcp", "iscsi"], "costs": ["esxi-7", "esxi-7-guest"]}
    world = {"factors": factors, "topology": {"link_rate": "25Gbit"}, "baseline": {"protocol": "iscsi"}}
    reason = (
        "esxi-7-guest has no costs of fcp; it has iscsi, nvme-tcp; `exclude:` under design leaves a combination out"
    )
    assert list(broken_rules(study(**world))) == [(("factors", "protocol", "fcp"), reason)]
    left_out = {"exclude": [{"protocol": "fcp", "costs": "esxi-7-guest"}]}
    assert list(broken_rules(study(**world, design=left_out))) == []


REFUSED = [
    ({"topology": {}, "factors": {"protocol": ["iscsi"]}}, "topology", "a simulated link has a rate"),
    ({"lab": {"sim": {"costs": "nowhere"}}}, "costs", "there is no file nowhere"),
    ({"lab": {"sim": {"media": {"service": 0}}}}, "service", "takes no time is memory"),
    ({"lab": {"sim": {"cores": 0}}}, "cores", "1 is the least"),
    ({"factors": {"protocol": ["local", "iscsi"], "link_rate": ["1Gbit"]}}, "protocol", "does not serve local"),
    ({"factors": {"protocol": {"a": "iscsi://h/iqn.2000-01.x:y/0", "b": "iscsi"}, "link_rate": ["1Gbit"]},
      "baseline": {"protocol": "b"}}, "a", "reaches no endpoint outside"),
    ({"design": {"sessions": 2}}, "design", "each trial on its own"),
    ({"topology": {"paths": 2, "path_policy": "fixed"}}, "paths", "goes to one address"),
    ({"topology": {"paths": 2}, "factors": {"protocol": ["iscsi"], "link_rate": ["1Gbit"]}}, "topology",
      "several paths need one of fixed, round-robin"),
    ({"topology": {"paths": 0}}, "paths", "1 is the least"),
    ({"lab": {"sim": {"controllers": 4}}, "load": {"clients": 3}}, "controllers", "one would have none"),
    ({"lab": {"sim": {"target_ports": 0}}}, "target_ports", "1 is the least"),
    ({"lab": {"sim": {"media": {"servers": 8}}}}, "media", "say how long an operation takes"),
    ({"lab": {"sim": {"media": {"seek": "3ms"}}}}, "seek", "have a speed"),
    ({"lab": {"sim": {"media": {"service": "1ms", "destage": 20}}}}, "destage", "belongs to rotating disks"),
    ({"lab": {"sim": {"media": {"service": "1ms", "parity": 1}}}}, "parity", "belongs to rotating disks"),
    ({"lab": {"sim": {"media": DISKS | {"raid_group": 2}}}}, "raid_group", "groups matter for parity alone"),
    ({"lab": {"sim": {"media": DISKS | {"parity": 2, "raid_group": 2}}}}, "parity", "no disk left for data"),
    ({"lab": {"sim": {"media": DISKS | {"parity": 1, "raid_group": 3}}}}, "raid_group", "not whole groups of 3"),
    ({"lab": {"sim": {"media": {"seek": "3ms", "rpm": 15000, "cache": "8GiB"}}}}, "cache", "say `data:` too"),
    ({"lab": {"sim": {"vms": 2}}, "factors": {"protocol": ["iscsi"], "link_rate": ["1Gbit"], "vms": [1, 2]}}, "vms",
      "this is a factor too"),
    ({"lab": "loopback", "topology": {}, "factors": {"protocol": ["iscsi"], "vms": [1, 2]}}, "vms",
      "belongs to simulated machines"),
    ({"factors": {"protocol": ["iscsi"], "link_rate": ["1Gbit"], "costs": ["loopback", "nowhere"]}}, "costs",
      "there is no file nowhere"),
    ({"lab": {"sim": {}, "vm": {}}}, "vm", "a study runs in one lab"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "where", "reason"), REFUSED)
def test_a_world_that_cannot_be_is_refused_with_its_line(
    changes: dict[str, Any], where: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.yaml"
    text = yaml.safe_dump(SMALL | changes, sort_keys=False)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(StudyError) as refused:
        load_study(str(file))
    [line] = [line for line in refused.value.lines() if reason in line]
    number = int(re.findall(r":(\d+)", line)[0])
    assert where in text.splitlines()[number - 1], line


def test_costs_of_a_protocol_that_are_missing_are_named(tmp_path: Path) -> None:
    table = yaml.safe_load(LOOPBACK.read_text("utf-8"))
    del table["protocols"]["nfs3"]
    path = tmp_path / "costs.yaml"
    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    found = list(broken_rules(study(lab={"sim": {"costs": str(path)}})))
    assert found == [(("factors", "protocol", "nfs3"), f"{path} has no costs of nfs3; it has iscsi, nfs4.1, nvme-tcp")]
    del table["protocols"]["iscsi"]["target"]["kib"]["source"]
    path = tmp_path / "unsourced.yaml"
    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    with pytest.raises(CostsError, match=r"protocols\.iscsi\.target\.kib\.source: Field required"):
        read_costs(str(path))


def test_versions_of_nfs_are_nearly_as_fast(real_engine: Path) -> None:
    """A READ of v4.1 is a few words longer than one of v3, and costs the initiator a few more instructions."""
    del real_engine
    factors = {"protocol": ["nfs3", "nfs4.1"]}
    asked = {"factors": factors, "topology": {"link_rate": "10Gbit"}, "baseline": {"protocol": "nfs3"}}
    found = run(study(lab="sim", **asked))
    v3, v41 = (sum(result.ios for name, result in found.items() if version in name) for version in factors["protocol"])
    assert v41 == pytest.approx(v3, rel=0.05)
    assert v41 < v3


def test_every_surface_says_that_it_is_simulated(simulated: Path) -> None:
    page = simulated.with_suffix(".html").read_text(encoding="utf-8")
    assert "<title>Simulated: small" in page
    assert "simulated, not measured" in page
    verdict = page.partition('<section id="verdict">')[2]
    assert '<dl class="answer">' in verdict
    assert page.count(SIMULATED) == 1
    assert SIMULATED in verdict.partition("<dl")[0]
    charts = re.findall(r'<svg role="img" aria-label="([^"]*)"', page)
    assert charts
    assert all("Simulated." in label for label in charts)
    assert page.count(">simulated</text>") == len(charts)

    def said(*arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == 0, done.output
        return done.output

    first = said("show", str(simulated))
    assert first.index(SIMULATED_BRIEF) < first.index("What each I/O costs")
    shown = " ".join(said("show", str(simulated), "--long").split())
    assert shown.count(SIMULATED) == 1
    assert shown.index(SIMULATED) < shown.index("Relative:")
    assert json.loads(said("show", str(simulated), "--json", "-"))["simulated"] is True
    rows = simulated.with_suffix(".csv")
    said("export", str(simulated), "--output", str(rows))
    assert {row["simulated"] for row in csv.DictReader(rows.read_text(encoding="utf-8").splitlines())} == {"True"}


def test_exports_for_other_programs_say_it_where_they_can(simulated: Path, tmp_path: Path) -> None:
    def exported(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["export", str(simulated), *arguments])
        assert done.exit_code == 0, done.output
        return done.output

    attempts = json.loads(exported("--format", "json"))["attempts"]
    assert [each["simulated"] for each in attempts] == [True] * 12
    assert all(name.startswith("simulated/small/") for name in json.loads(exported("--format", "bencher")))
    with Notebook(simulated) as notebook:
        labelled = replace(notebook.run(None), label="a" * 40)
        assert {row["simulated"] for row in series_rows(notebook, labelled)} <= {True}
        export_asv(notebook, [labelled], tmp_path / "asv")
    listed = json.loads((tmp_path / "asv" / "benchmarks.json").read_text(encoding="utf-8"))
    assert len(listed) > 1
    assert all(name.startswith("simulated.small.") for name in listed if name != "version")


def test_a_size_from_simulated_costs_says_so_first(simulated: Path) -> None:
    def sized(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["size", "--iops", "70000", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    text = " ".join(sized(str(simulated)).split())
    assert SIMULATED in text
    assert text.index(SIMULATED) < text.index("cores")
    assert json.loads(sized(str(simulated), "--json", "-"))["simulated"] is True
    assert SIMULATED not in sized("--cpu-us", "81")
    assert json.loads(sized("--cpu-us", "81", "--json", "-"))["simulated"] is False


def test_the_noise_floor_of_a_simulation_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["aa", "sim-quick", str(tmp_path / "aa.iotax")])
    assert done.exit_code == 2
    assert "sim-quick is simulated" in " ".join(done.output.split())
    assert not (tmp_path / "aa.iotax").exists()


def test_frames_say_that_they_are_simulated(simulated: Path) -> None:
    results = iotax.open(simulated)
    assert results.simulated
    assert "12 trials, simulated" in repr(results)
    for frame in (results.cells(), results.runs(), results.compare(), results.size(70_000)):
        assert len(frame)
        assert frame["simulated"].all()
    between = results.compare(iotax.open(measured_copy(simulated)))
    assert between["before_simulated"].all()
    assert not between["after_simulated"].any()


@pytest.mark.slow
def test_charts_to_be_changed_say_that_they_are_simulated(simulated: Path) -> None:
    pytest.importorskip("altair")
    charts = iotax.open(simulated).charts().values()
    assert len(charts)
    assert all(each.to_dict()["title"] == "simulated" for each in charts)


def test_the_live_page_and_its_metrics_say_that_they_are_simulated(simulated: Path) -> None:
    marked, plain = Board(study()), Board(study(lab="loopback"))
    with Notebook(simulated) as notebook:
        for attempt in notebook.attempts():
            marked.end_attempt(attempt)
            plain.end_attempt(attempt)
    page = Page(marked.study()).html.decode()
    assert "<title>Simulated: small</title>" in page
    assert "small · simulated" in page
    assert page.index(SIMULATED) < page.index("Runs so far")
    assert SIMULATED not in Page(plain.study()).html.decode()
    lines = [line for line in exposition(marked.metrics()).splitlines() if not line.startswith("#")]
    assert len(lines) > 10
    assert all('simulated="true"' in line for line in lines)
    assert "simulated" not in exposition(plain.metrics())


def measured_copy(simulated: Path) -> Path:
    """The same results, as if a lab with machines had measured them."""
    measured = simulated.with_name("measured.iotax")
    measured.write_bytes(simulated.read_bytes())
    with closing(sqlite3.connect(measured)) as database, database:  # its triggers make it append-only
        for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        changed = database.execute("""UPDATE results SET result = replace(result, '"lab":"sim"', '"lab":"vm"')""")
        assert changed.rowcount == 12
    return measured


def test_a_comparison_of_a_simulation_and_a_measurement_says_so_first(simulated: Path, tmp_path: Path) -> None:
    measured = measured_copy(simulated)
    done = CliRunner().invoke(app, ["compare", str(simulated), str(measured)])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "was simulated and" in text
    assert text.index("between a simulation and a measurement") < text.index("verdict")
    for name in ("change.md", "change.html", "change.json"):
        option = "--json" if name.endswith("json") else "--output"
        done = CliRunner().invoke(app, ["compare", str(measured), str(simulated), option, str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    for name in ("change.md", "change.html"):
        page = (tmp_path / name).read_text(encoding="utf-8")
        assert page.index("between a simulation and a measurement") < page.index("regression")
    said = json.loads((tmp_path / "change.json").read_text(encoding="utf-8"))
    assert (said["before_simulated"], said["after_simulated"]) == (False, True)


def test_a_comparison_of_simulations_says_so_first(simulated: Path) -> None:
    done = CliRunner().invoke(app, ["compare", "nfs3", "iscsi", str(simulated)])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert text.index(SIMULATED) < text.index("verdict")


class Simulating:
    """A slow engine: it simulates a tenth in each half second."""

    log = ""
    deadlines_s: list[float] = []  # noqa: RUF012 - of one test

    def __init__(self, *_: object, **__: object) -> None:
        self._left = [{"event": "simulating", "at_ns": at * 10_000_000, "until_ns": 100_000_000} for at in range(1, 10)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def event(self, deadline_s: float) -> dict[str, Any]:
        self.deadlines_s.append(deadline_s)
        if not self._left:
            raise EngineError("died", "enough")
        NOW[0] += 0.5
        return self._left.pop(0)


NOW = [1000.0]


def test_a_simulation_says_how_far_it_is_and_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "Engine", Simulating)
    monkeypatch.setattr(outcomes.time, "monotonic", lambda: NOW[0])
    said: list[Any] = []
    with pytest.raises(TrialFailed, match="enough"):
        simulate(Path("engine"), {}, said.append)
    assert [round(step.fraction, 3) for step in said] == [tenths / 10 for tenths in range(1, 10)]
    assert said[0].text == "simulated 10.0 ms of 100 ms, 4 s left"
    assert said[4].text == "simulated 50.0 ms of 100 ms, 2 s left"
    # The deadline moves as long as the engine reports progress.
    first, *others = Simulating.deadlines_s
    assert [deadline - first for deadline in others] == [0.5 * number for number in range(1, 10)]


def test_the_built_in_study_runs_in_seconds() -> None:
    assert plan(load_study("sim-quick")[0]).duration_ns < 60e9


@pytest.mark.parametrize("protocol", ["nvme-tcp", pytest.param("nfs3", marks=pytest.mark.long)])
@pytest.mark.slow
def test_ten_thousand_connections_take_less_than_four_gib(tmp_path: Path, real_engine: Path, protocol: str) -> None:
    document = SMALL | {
        "lab": {"sim": {"vms": 100}},
        "volume": {"size": "512MiB"},
        "factors": {"protocol": [protocol]},
        "load": {"read": "75%", "workers": 100, "outstanding": 1, "warmup": "20ms", "runtime": "60ms"},
        "topology": {"link_rate": "25Gbit"},
        "design": {"replicates": 1},
        "baseline": {"protocol": protocol},
    }
    (tmp_path / "many.yaml").write_text(yaml.safe_dump(document))
    words = [sys.executable, "-m", "iotax", "run", "many.yaml", "-n", "many.iotax", "--no-report"]
    subprocess.run(words, cwd=tmp_path, env=os.environ | {"IOTAX_ENGINE": str(real_engine)}, check=True)
    with Notebook(tmp_path / "many.iotax") as notebook:
        [ran] = [each for each in notebook.attempts() if each.result is not None]
    assert ran.result is not None
    assert ran.result.ios > 10_000
    # The largest memory use of any child process, in KiB.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 4 << 20
