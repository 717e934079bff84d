"""Which samples count, how they are paired, and how a ratio is computed."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bench import __main__ as bench_command
from bench import clocks, table
from bench.__main__ import main as bench_main
from bench.cases import Case, cases
from bench.clocks import Reading, ThreadTimes
from bench.disturbance import disturbance
from bench.document import Document
from bench.load import Load, Timing
from bench.page import page
from bench.process import FailedError, UnavailableError, running, wait_for_end, wait_until
from bench.results import Result, Side
from bench.sample import Figures, Sample, Usage
from bench.subjects.base import Place, Reached, Sides, up_beside
from bench.subjects.ours import OurInitiator, OurTarget
from bench.subjects.spdk import SpdkPerf
from bench.turns import Failure, Pair, ratio, take_alone, take_turns
from waits import wait_for

QUIET = Usage(window_s=2.0, initiator_cpu_s=1.0, target_cpu_s=1.5, run_queue_wait=0.05, foreign_load=0.1)
LOAD = Load("read", 32)
TIMING = Timing(0.5, 2.0)


def sample(rate_iops: float, **usage: float) -> Sample:
    return Sample(Figures(rate_iops, 50.0, 99.0), replace(QUIET, **usage))


class Played:
    """Returns the given samples, or fails with a reason in their place. Lists each turn in a shared list."""

    def __init__(self, name: str, samples: Sequence[Sample | str], turns: list[str]) -> None:
        self.name, self.samples, self.turns = name, iter(samples), turns

    def measure(self, load: Load, timing: Timing) -> Sample:
        assert (load, timing) == (LOAD, TIMING)
        self.turns.append(self.name)
        came = next(self.samples)
        if isinstance(came, str):
            raise FailedError(came)
        return came


def test_a_sample_at_the_limits_counts_and_one_beyond_does_not() -> None:
    assert disturbance(QUIET) is None
    assert "waited 0.06" in str(disturbance(replace(QUIET, run_queue_wait=0.06)))
    assert "0.11 cores" in str(disturbance(replace(QUIET, foreign_load=0.11)))


@pytest.mark.parametrize("rate_iops", [1.0, 1e9])
def test_the_rule_does_not_look_at_the_result(rate_iops: float) -> None:
    assert Pair(sample(rate_iops), sample(1.0)).disturbance is None
    assert Pair(sample(1.0), sample(rate_iops, foreign_load=1.0)).disturbance is not None


def test_sides_take_turns_until_enough_pairs_are_undisturbed() -> None:
    turns: list[str] = []
    ours = Played("A", [sample(300.0), sample(900.0, run_queue_wait=0.5), sample(300.0)], turns)
    theirs = Played("B", [sample(100.0), sample(100.0), sample(150.0)], turns)
    told: list[Pair | Sample | Failure] = []
    pairs = take_turns(ours, theirs, LOAD, TIMING, 2, told.append).pairs
    assert "".join(turns) == "ABABAB"
    assert told == pairs
    found = ratio(pairs)
    assert (found.pairs, found.disturbed, found.trusted) == (2, 1, True)
    assert (found.least, found.greatest) == (2.0, 3.0)
    assert found.mean == pytest.approx(6**0.5)


def test_a_sample_that_fails_is_told_and_leaves_the_others() -> None:
    turns: list[str] = []
    ours = Played("A", [sample(300.0), sample(300.0), "the engine: gone", sample(600.0)], turns)
    theirs = Played("B", [sample(100.0), "fio did not end within 23 s", sample(300.0)], turns)
    told: list[Pair | Sample | Failure] = []
    taken = take_turns(ours, theirs, LOAD, TIMING, 2, told.append)
    assert "".join(turns) == "ABABAAB"
    failures = [Failure("theirs", "fio did not end within 23 s"), Failure("ours", "the engine: gone")]
    assert taken.failures == failures and told[1:3] == failures
    assert [pair.ratio for pair in taken.pairs] == [3.0, 2.0]
    result = Result("nfs", str(LOAD), "iotax", "other", None, taken.pairs, [], failures=taken.failures)
    assert Result.from_json(result.to_json()) == result
    lines = table.failed([result])
    assert lines[0].endswith("1 of other failed: fio did not end within 23 s")
    assert lines[1].endswith("1 of iotax failed: the engine: gone")


def test_a_side_that_fails_again_and_again_is_left() -> None:
    turns: list[str] = []
    taken = take_turns(
        Played("A", [sample(1.0)] * 9, turns), Played("B", ["gone"] * 9, turns), LOAD, TIMING, 5, lambda _: None
    )
    assert "".join(turns) == "ABABAB"
    assert (taken.pairs, len(taken.failures)) == ([], 3)


def test_attempts_that_fail_count_as_tried() -> None:
    ours = Played("A", ["no"] + [sample(1.0, foreign_load=1.0)] * 9, [])
    taken = take_alone(ours, LOAD, TIMING, 2, lambda _: None)
    assert (len(taken.alone), len(taken.failures)) == (3, 1)


@dataclass(frozen=True)
class Stands:
    """A subject that is always up; its samples are given."""

    name: str
    samples: Callable[[], Sample]

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Stands]:
        del place
        yield self

    def measure(self, load: Load, timing: Timing) -> Sample:
        del load, timing
        return self.samples()


def test_a_run_that_was_cut_off_keeps_its_cases_and_the_same_command_goes_on(tmp_path, monkeypatch, capsys) -> None:
    file, measured = tmp_path / "run.json", []

    def chosen(cut: str) -> list[Case]:
        def subject(path: str) -> Stands:
            def taken() -> Sample:
                if path == cut:
                    raise KeyboardInterrupt
                measured.append(path)
                return sample(100.0)

            return Stands("iotax", taken)

        return [Case("nvme", path, LOAD, subject(path)) for path in ("one", "two", "three")]

    arguments = ["--only", "nvme", "--pairs", "2", "--json", str(file), "--folder", str(tmp_path)]
    monkeypatch.setattr(bench_command.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(bench_command, "cases", lambda _: chosen(cut="two"))
    with pytest.raises(KeyboardInterrupt):
        bench_main(arguments)
    left = Document.read(file)
    assert (left.complete, [result.load for result in left.results]) == (False, [f"one {LOAD}"])

    monkeypatch.setattr(bench_command, "cases", lambda _: chosen(cut=""))
    assert bench_main(arguments) == 0
    assert measured == ["one", "one", "two", "two", "three", "three"]
    assert f"going on with {file}, after 1 cases" in capsys.readouterr().out
    assert Document.read(file).complete

    assert bench_main(arguments) == 0
    assert len(measured) == 12, "one that is complete is begun anew"
    left.write(file)
    assert bench_main([*arguments, "--seconds", "1"]) == 0
    assert len(measured) == 18, "another command begins anew"


def test_a_program_that_does_not_end_is_ended_with_children_of_other_sessions(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    log, cpu = tmp_path / "log", min(os.sched_getaffinity(0))
    with running([sys.executable, "-c", script], cpu=cpu, log=log) as process:
        wait_until(lambda: log.read_text().endswith("\n"), process, log, "it said nothing")
        with pytest.raises(FailedError, match=r"it did not end within 0\.01 s"):
            wait_for_end(process, "it", 0.01)
    child = int(log.read_text())
    wait_for(lambda: not _runs(child), "the child's end")


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_machine_that_is_never_quiet_gives_a_ratio_that_is_marked() -> None:
    busy = [sample(200.0, foreign_load=1.0) for _ in range(4)]
    pairs = take_turns(Played("A", busy, []), Played("B", list(busy), []), LOAD, TIMING, 2, lambda _: None).pairs
    assert len(pairs) == 4
    found = ratio(pairs)
    assert (found.mean, found.disturbed, found.trusted) == (1.0, 4, False)
    result = Result("nvme", str(LOAD), "iotax", "other", 1.25, pairs, [])
    (ours, theirs) = table.rows([result])
    assert "[1.00" in ours[-2] and "all disturbed" in ours[-2]
    assert ours[-1] == "≥ 1.25" and theirs[1] == "other"


@pytest.mark.parametrize(("goal", "said"), [(2.0, "≥ 2: met"), (2.01, "≥ 2.01: not met"), (None, "")])
def test_a_goal_is_met_by_the_mean_of_pairs_that_count(goal: float | None, said: str) -> None:
    pairs = [Pair(sample(200.0), sample(100.0)), Pair(sample(900.0, foreign_load=1.0), sample(100.0))]
    assert table.rows([Result("nvme", str(LOAD), "iotax", "other", goal, pairs, [])])[0][-1] == said


def test_processor_time_of_both_sides_is_a_goal_of_its_own() -> None:
    def found(ours_initiator_s: float) -> str:
        pairs = [Pair(sample(100.0, initiator_cpu_s=ours_initiator_s), sample(100.0))]
        return table.rows([Result("nvme", str(LOAD), "iotax", "other", 1.25, pairs, [], cpu_goal=True)])[0][-1]

    assert found(1.0) == "≥ 1.25: not met, CPU ≤ theirs: met"
    assert found(1.1) == "≥ 1.25: not met, CPU ≤ theirs: not met"


def document() -> Document:
    pairs = [Pair(sample(200.0), sample(100.0)), Pair(sample(900.0, foreign_load=1.0), sample(100.0))]
    results = [
        Result("nvme", f"NVMe/TCP {LOAD}", "iotax", "other", 1.25, pairs, [], cpu_goal=True),
        Result("raw", f"iSCSI {LOAD}", "iotax", "raw limit", 3.0, pairs[:1], []),
        Result("scale", str(LOAD), "iotax, 2 + 2 cores", "iotax", 1.8, [], [], "4 processors are needed, 2 are there"),
    ]
    machine = {"cpu_model": "Some CPU", "cpus": 2, "kernel": "6.1"}
    accounting = {"recorder_ns": 20.0, "ledger_ns": 5.0}
    return Document("python -m bench", {"machine": machine}, None, {"fio": "3.39"}, accounting, results)


def test_a_page_is_the_same_from_the_file_of_its_run(tmp_path: Path) -> None:
    made = document()
    made.write(tmp_path / "run.json")
    assert page(Document.read(tmp_path / "run.json")) == page(made)


def test_a_page_tells_the_machine_the_rule_and_which_goals_are_met() -> None:
    told = page(document())
    assert "- machine: Some CPU, 2 processors; governor unknown" in told
    assert "more than 0.05 of its window" in told
    assert "accounting of an I/O: 20.0 ns" in told
    met, rest = told.split("Not met, 1:")
    missed, unknown = rest.split("Not measurable here, 1:")
    assert "(2.00 of ≥ 1.25)" in met and "CPU per I/O of either side" in met
    assert "(2.00 of ≥ 3)" in missed
    assert "2 + 2 cores" in unknown and "4 processors are needed" in met


def test_ours_alone_ends_after_twice_as_many_samples() -> None:
    busy = [sample(1.0, foreign_load=1.0) for _ in range(20)]
    assert len(take_alone(Played("A", busy, []), LOAD, TIMING, 3, lambda _: None).alone) == 6
    assert len(take_alone(Played("A", [sample(1.0)] * 20, []), LOAD, TIMING, 3, lambda _: None).alone) == 3


def test_medians_are_of_the_samples_that_count() -> None:
    samples = [sample(100.0), sample(5000.0, foreign_load=0.9), sample(200.0), sample(300.0)]
    side = Side.of("iotax", samples)
    assert side.rate_iops == 200.0
    assert side.initiator_cpu_us == pytest.approx(1.0 / 400 * 1e6)
    assert side.target_cpu_us == pytest.approx(1.5 / 400 * 1e6)


def test_cpu_time_counts_threads_that_began_within_the_window() -> None:
    def reading(at_s: float, threads: dict[int, ThreadTimes], target_s: float, busy_s: float) -> Reading:
        return Reading(at_s, threads, {7: ThreadTimes(target_s, 0.5, 9)}, {1: ThreadTimes(0.0, 0.0)}, busy_s)

    before = reading(10.0, {2: ThreadTimes(1.0, 0.0, 100)}, 3.0, 100.0)
    after = reading(12.0, {2: ThreadTimes(2.0, 0.1, 150), 3: ThreadTimes(0.5, 1.4, 7)}, 4.0, 102.7)
    used = clocks.usage(before, after)
    assert used.initiator_cpu_s == 1.5
    assert used.target_cpu_s == 1.0
    assert (used.initiator_sleeps, used.target_sleeps) == (57, 0)
    assert used.run_queue_wait == pytest.approx(0.2), "a second of the wait was its sibling's turn"
    assert used.foreign_load == pytest.approx(0.1)


def test_sleeps_are_switches_that_a_thread_made_by_itself() -> None:
    status = "Name:\ttgtd\nvoluntary_ctxt_switches:\t1234\nnonvoluntary_ctxt_switches:\t99\n"
    assert clocks.voluntary_switches(status) == 1234
    with pytest.raises(ValueError, match="does not count"):
        clocks.voluntary_switches("Name:\ttgtd\n")


def test_a_childs_cpu_time_counts_with_its_parents() -> None:
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    script = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {burn!r} + '\\ntime.sleep(100)'])\ntime.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", script], start_new_session=True) as process:
        try:
            before = clocks.read(process.pid, None)
            deadline = before.at_s + 60
            spent_s = 0.0
            while spent_s < 0.3:
                after = clocks.read(process.pid, None)
                assert after.at_s < deadline
                spent_s = clocks.usage(before, after).initiator_cpu_s
        finally:
            subprocess.run(["pkill", "-g", str(process.pid)], check=False)


def test_machine_time_leaves_interrupts_and_idleness_out() -> None:
    assert clocks.machine_busy_s("cpu  100 20 30 4000 50 60 70 80 9 9\ncpu0 1 1 1 1\n") == pytest.approx(1.5)


def test_every_case_has_a_way_to_the_volume_and_a_load(tmp_path) -> None:
    found = cases(tmp_path / "file")
    assert {case.group for case in found} == {
        "nvme",
        "nfs41",
        "iscsi",
        "nfs",
        "target",
        "initiator",
        "raw",
        "scale",
        "optimisations",
        "local",
        "verify",
    }
    assert len(
        {(case.path, str(case.load), case.ours.name, case.theirs and case.theirs.name) for case in found}
    ) == len(found)


def test_a_side_is_compared_with_the_same_one_opposite(tmp_path) -> None:
    for case in cases(tmp_path / "file"):
        if case.group in ("target", "initiator"):
            assert isinstance(case.ours, Sides) and isinstance(case.theirs, Sides)
            same, other = ("initiator", "target") if case.group == "target" else ("target", "initiator")
            assert getattr(case.ours, same) == getattr(case.theirs, same)
            assert getattr(case.ours, other).name == "iotax" != getattr(case.theirs, other).name


def test_both_initiators_of_one_target_have_it_up_once(tmp_path, monkeypatch) -> None:
    started = []

    @contextlib.contextmanager
    def up(target: OurTarget, place: Place):
        started.append(target.polling)
        yield Reached("nvme-tcp://127.0.0.1:1/x", None)

    monkeypatch.setattr(OurTarget, "up", up)
    monkeypatch.setattr(OurInitiator, "find", lambda _: tmp_path)
    monkeypatch.setattr(OurInitiator, "measure", lambda self, *_: sample(2.0 if self.verify else 1.0))
    ours, place = Sides(OurTarget("nvme-tcp"), OurInitiator()), Place(0, 1, tmp_path)
    same = Sides(OurTarget("nvme-tcp"), OurInitiator(verify=True))
    other = Sides(OurTarget("nvme-tcp", polling="always"), OurInitiator())
    with ours.up(place) as first, up_beside(first, same, place) as second, up_beside(first, other, place):
        assert [each.measure(LOAD, TIMING).figures.rate_iops for each in (first, second)] == [1.0, 2.0]
    assert started == ["never", "always"]


def test_a_target_is_not_started_for_an_initiator_that_is_not_there(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("IOTAX_BENCH_SPDK", raising=False)
    started = []
    monkeypatch.setattr(OurTarget, "up", lambda *_: started.append("up"))
    with (
        pytest.raises(UnavailableError, match="SPDK is not built"),
        Sides(OurTarget("nvme-tcp"), SpdkPerf()).up(Place(0, 1, tmp_path)),
    ):
        pass
    assert not started


def test_every_group_can_be_chosen(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        bench_main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    for group in {case.group for case in cases(tmp_path / "file")}:
        assert re.search(rf"--only GROUPS of [^()]*\b{group}\b", told), group
