"""Events during a run: which ones are allowed, when they happen, and that every way out undoes them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.cli.app import app
from iotax.labs.armed import Freezer
from iotax.labs.base import TrialFailed
from iotax.labs.events import Flapping, Performer, freezes, together
from iotax.labs.load import run_document
from iotax.notebook import Notebook
from iotax.records import CpuUse
from iotax.study import Study
from iotax.study.events import Action, Happening, happenings
from iotax.study.read import read_study
from iotax.study.source import StudyError
from iotax.trial import Direction, Outstanding, TrialResult, Window
from waits import wait_for

MS = 1_000_000
FREEZE = {"at": ["1s", "1200ms"], "do": {"freeze": "target"}, "for": "500ms"}
PULL = FREEZE | {"do": {"fail": "path", "path": 1}}
REFUSE = FREEZE | {"do": {"access": "inaccessible", "path": 1}}
FLAP = FREEZE | {"do": {"flap": "path", "path": 1, "every": "400ms"}}
SLOW = FREEZE | {"do": {"slow": "path", "path": 1, "by": "20ms"}}
LOSE = FREEZE | {"do": {"lose": "0.5%", "path": 1}}
KILL = {"at": "2s", "do": {"kill": "target"}, "for": "1s"}
FROZEN = Action(freeze="target")
BASE: dict[str, Any] = {
    "name": "freeze",
    "question": "How long does I/O stop when a target stands still?",
    "lab": "loopback",
    "volume": {"size": "8MiB", "fill": "pattern"},
    "factors": {"protocol": ["nvme-tcp", "iscsi"]},
    "load": {"outstanding": 4, "read": "50%", "warmup": "500ms", "runtime": "5s"},
    "design": {"replicates": 1},
    "events": [FREEZE],
    "baseline": {"protocol": "iscsi"},
    "responses": ["iops", "longest_gap", "recovery_time"],
}


def read(**more: Any) -> Study:
    return read_study("study.yaml", yaml.safe_dump(BASE | more, sort_keys=False), Path())


def state(pid: int) -> str:
    """Process state from /proc: T is stopped. Empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0].replace("Z", "")
    except OSError:
        return ""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def is_frozen(pid: int) -> bool:
    return state(pid) == "T"


def goes_on(pid: int) -> bool:
    """It sleeps, or on a busy machine still waits for a processor to do so."""
    return state(pid) not in ("", "T")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"events": [FREEZE | {"at": "500ms"}]}, "events[1].at: throughput before it must be known; say 1s or later"),
        ({"events": [FREEZE | {"at": ["3s", "2s"]}]}, "events[1].at: the range ends before it starts"),
        ({"events": [FREEZE | {"at": "4s"}]}, "the window must last 1s beyond it, 5500ms at least"),
        ({"events": [FREEZE | {"for": "0s"}]}, "events[1].for: it is undone at once"),
        ({"events": [FREEZE, FREEZE | {"at": "2s"}]}, "events[2].at: the event before it may not be over"),
        ({"events": [FREEZE | {"do": {"freeze": "volume"}}]}, "events[1].do.freeze: found 'volume'"),
        ({"design": {"sessions": 2, "rounds": 2}}, "events: an event needs a run of its own"),
        ({"factors": {"protocol": ["local", "iscsi"]}}, "local has no target that could stand still"),
        (
            {"factors": {"protocol": {"a": "iscsi://h/iqn.2000-01.x:y/0", "b": "nvme-tcp://h/nqn.2000-01.x:y?ns=1"}}}
            | {"baseline": {"protocol": "a"}},
            "iotax did not start this target, and leaves it alone",
        ),
        ({"load": BASE["load"] | {"generator": "fio"}}, "only iotax's own load tells when its window starts"),
        ({"lab": "sim", "topology": {"link_rate": "1Gbit"}, "events": [SLOW]}, "keeps its delay and its losses"),
        (
            {"lab": "sim", "factors": {"protocol": ["fcp", "iscsi"]}, "events": [PULL]}
            | {"topology": {"link_rate": "1Gbit", "paths": 2, "path_policy": "fixed"}},
            "events[1].do: each connection of fcp uses all paths here; say `path_failures:`",
        ),
        (
            {"lab": {"sim": {"path_failures": [{"path": 1, "at": "1s", "back": "2s"}]}}}
            | {"topology": {"link_rate": "1Gbit", "paths": 2, "path_policy": "fixed"}},
            "lab.sim.path_failures: the events say what fails; leave one of the two out",
        ),
        (
            {"lab": {"vm": {"clock": "icount"}}},
            "lab.vm.clock: an event takes real time, and icount counts instructions",
        ),
        ({"lab": {"vm": {"guests": 1}}}, "events: both halves stand in one kernel (`guests: 1`)"),
        ({"lab": "vm", "load": BASE["load"] | {"clients": 2}}, "load.clients: events are for one initiator guest"),
        (
            {"lab": "vm", "topology": {"attach": "nvme"}},
            "`attach: nvme` the hypervisor reaches the target over no cable",
        ),
        (
            {"lab": "vm", "factors": {"protocol": ["fcp-loop", "iscsi"]}},
            "fcp-loop has no target of its own and no cable",
        ),
        (
            {"lab": "vm", "events": [PULL | {"do": {"fail": "path", "path": 2}}]},
            "there is no path 2: nvme-tcp has `paths: 1`",
        ),
        (
            {"events": [PULL | {"do": {"fail": "path", "path": 2}}]},
            "events[1].do: there is no path 2: nvme-tcp has `paths: 1`",
        ),
        ({"lab": "vm", "events": [PULL | {"do": {"fail": "path"}}]}, "`path: 1` says which path"),
        (
            {"lab": "vm", "topology": {"paths": 2, "path_policy": "round-robin"}, "events": [REFUSE]}
            | {"factors": {"protocol": ["fcp", "iscsi"]}},
            "events[1].do.access: fcp reports no access states in this lab: compare nvme-tcp, iscsi only",
        ),
        (
            {"lab": "vm", "topology": {"paths": 2, "path_policy": "round-robin"}}
            | {"events": [REFUSE | {"do": {"access": "non-optimized", "path": 1}}]},
            "dm-multipath without its daemon does not leave such a path",
        ),
        (
            {"topology": {"paths": 2, "path_policy": "fixed"}, "events": [REFUSE]}
            | {"factors": {"protocol": ["nfs3", "iscsi"]}},
            "nfs3 reports no access states in this lab: compare iscsi, nvme-tcp only, or say {fail: path, path: 1}",
        ),
        ({"events": [REFUSE]}, "events[1].do.access: with one path no other could carry the I/O; say `paths: 2`"),
        ({"events": [FREEZE | {"do": {"access": "lost", "path": 1}}]}, "events[1].do.access: found 'lost'"),
        (
            {"events": [FREEZE | {"do": {"access": "inaccessible"}}]},
            "which path fails, flaps, is slow, loses packets or has another `access:`",
        ),
        (
            {"events": [FREEZE | {"do": {"access": "inaccessible", "fail": "path", "path": 1}}]},
            "say what happens, one of",
        ),
        (
            {"events": [FREEZE | {"do": {}}]},
            "one of {freeze: target}, {kill: target}, {fail: path, path: 1}, {flap: path, path: 1, every: 2s}, {slow",
        ),
        ({"events": [FLAP | {"do": {"flap": "path", "path": 1}}]}, "`every: 2s` says how often a path fails"),
        ({"events": [PULL | {"do": PULL["do"] | {"every": "1s"}}]}, "`every: 2s` says how often a path fails"),
        ({"events": [FLAP | {"for": "300ms"}]}, "events[1].do.every: a path that flaps fails at least once"),
        ({"events": [FLAP | {"do": FLAP["do"] | {"every": "100ms"}}]}, "not more often than every 200ms"),
        ({"events": [SLOW | {"do": {"slow": "path", "path": 1}}]}, "`by: 20ms` says how much later"),
        ({"events": [SLOW]}, "events[1].do: no network lies between processes of one machine; say `lab: vm`"),
        ({"events": [LOSE]}, "events[1].do: no network lies between processes of one machine; say `lab: vm`"),
        ({"events": [LOSE | {"do": {"lose": "0%", "path": 1}}]}, "events[1].do.lose: "),
        (
            {"lab": "vm", "topology": {"link_delay": "1ms"}, "events": [SLOW]},
            "events: `link_rate` and `link_delay` shape the paths already; leave them out, or `slow:` and `lose:`",
        ),
        ({"events": [KILL]}, "events[1].do: only initiators with several paths connect again: say `paths: 2`"),
        (
            {"events": [KILL], "factors": {"protocol": ["nfs3", "iscsi"]}},
            "nfs3 does not survive it here: compare nfs4.1, iscsi, nvme-tcp only",
        ),
        (
            {"events": [KILL], "lab": "vm", "factors": {"protocol": ["fcp", "iscsi"]}},
            "fcp does not survive it here: compare nvme-tcp, iscsi, nfs3, nfs4.1 only",
        ),
        (
            {"events": [KILL], "lab": {"sim": {"paths_to": "partner", "controllers": 2}}}
            | {
                "topology": {"link_rate": "1Gbit", "paths": 2, "path_policy": "fixed"},
                "load": BASE["load"] | {"clients": 2},
            },
            "with `paths_to:` the connections of a path are not its own",
        ),
        ({"events": []}, "responses[3]: nothing happens to recover from; add `events:`"),
        ({"responses": ["recovery_time"]}, "recovery_time is compared by events, not by runs"),
    ],
)
def test_events_that_cannot_be_are_refused_with_the_reason(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(StudyError) as refused:
        read(**more)
    assert reason in str(refused.value)


def test_a_moment_is_drawn_from_the_seed_and_shared_within_a_block() -> None:
    events = read(events=[FREEZE | {"at": ["1s", "3s"]}]).events
    drawn = [happenings(events, 42, block, block)[0] for block in range(1, 40)]
    assert drawn == [happenings(events, 42, block, block)[0] for block in range(1, 40)]
    assert len({each.at_ns for each in drawn}) > 30
    assert all(1000 * MS <= each.at_ns <= 3000 * MS for each in drawn)
    assert drawn != [happenings(events, 43, block, block)[0] for block in range(1, 40)]
    assert happenings(read().events, 42, 1, 1)[0].lasts_ns == 500 * MS


def test_a_study_is_read_back_as_it_was_written() -> None:
    study = read(events=[FREEZE, FREEZE | {"at": "3s"}])
    again = Study.model_validate_json(study.model_dump_json())
    assert again == study
    assert again.events[1].at == (3000 * MS, 3000 * MS)
    assert again.digest() == study.digest() != read().digest()


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (FLAP, "flap path 1 every 400ms"),
        (SLOW, "slow path 1 by 20ms"),
        (LOSE, "lose 0.5 % on path 1"),
    ],
)
def test_what_happens_to_a_path_is_said_with_its_figure(event: dict[str, Any], words: str) -> None:
    [drawn] = happenings(read(lab="vm", events=[event]).events, 42, 1, 1)
    assert drawn.do.words == words
    assert Action.model_validate_json(drawn.do.model_dump_json()) == drawn.do


@dataclass
class Recorded:
    """An act that keeps what was asked of it, and fails once after `fails_after` times."""

    asked: list[str] = field(default_factory=list)
    fails_after: int | None = None
    has_failed: bool = False

    def begin(self) -> None:
        self._do("begin")

    def end(self) -> None:
        self._do("end")

    def close(self) -> None:
        self.asked.append("close")

    def _do(self, what: str) -> None:
        if len(self.asked) == self.fails_after and not self.has_failed:
            self.has_failed = True
            raise OSError("no such path")
        self.asked.append(what)


def test_what_flaps_happens_again_and_again_and_is_undone_at_last() -> None:
    path = Recorded()
    flapping = Flapping(path, 2 * MS)
    for _ in range(2):
        before = len(path.asked)
        flapping.begin()
        wait_for(lambda before=before: len(path.asked) >= before + 5, "the path to flap")
        flapping.end()
        asked = path.asked[before:]
        assert asked[:4] == ["begin", "end"] * 2
        assert asked[-1] == "end"
        assert all(one != other or one == "end" for one, other in pairwise(asked))
    flapping.begin()
    flapping.close()
    assert path.asked[-1] == "close"


def test_a_failure_between_two_flaps_is_the_events() -> None:
    path = Recorded(fails_after=3)
    flapping = Flapping(path, 2 * MS)
    flapping.begin()
    wait_for(lambda: path.has_failed, "the path to fail")
    with pytest.raises(OSError, match="no such path"):
        flapping.end()
    assert path.asked == ["begin", "end", "begin", "end"]


def test_what_happens_at_once_is_all_undone_though_one_part_cannot_be() -> None:
    first, second = Recorded(fails_after=1), Recorded()
    act = together([first, second])
    act.begin()
    with pytest.raises(OSError, match="no such path"):
        act.end()
    assert (first.asked, second.asked) == (["begin"], ["begin", "end"])
    act.close()
    assert (first.asked[-1], second.asked[-1]) == ("close", "close")
    assert together([first]) is first


def test_a_plan_says_what_happens_when(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(BASE), encoding="utf-8")
    done = CliRunner().invoke(app, ["plan", "--long", str(file)], env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    assert (
        "In each run's window, at a random moment from 1s to 1200ms (the same within a block): freeze target for "
        "500ms, then 3300ms of load at least, in which throughput may recover."
    ) in done.output
    assert (
        "Recovery times are compared event by event: 1 event of each treatment, and an interval takes 6."
    ) in done.output


def test_a_process_stands_still_and_goes_on(sleeper: subprocess.Popen[bytes]) -> None:
    with contextlib.closing(Freezer(sleeper.pid, 60)) as freezer:
        freezer.begin()
        wait_for(lambda: is_frozen(sleeper.pid), "a stop")
        freezer.end()
        wait_for(lambda: not is_frozen(sleeper.pid), "a thaw")
        freezer.begin()
        wait_for(lambda: is_frozen(sleeper.pid), "a second stop")
    wait_for(lambda: goes_on(sleeper.pid), "the end of it all")


def test_it_goes_on_when_whoever_stopped_it_is_killed(sleeper: subprocess.Popen[bytes]) -> None:
    code = (
        "import sys, time\nfrom iotax.labs.armed import Freezer\n"
        f"freezer = Freezer({sleeper.pid}, 600)\nfreezer.begin()\nprint('frozen', flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "frozen\n"
        wait_for(lambda: is_frozen(sleeper.pid), "a stop")
        controller.kill()
    wait_for(lambda: goes_on(sleeper.pid), "a thaw after kill -9")


def test_it_goes_on_when_its_lease_ends(sleeper: subprocess.Popen[bytes]) -> None:
    """The lease ends the stop although the controller lives. It counts from each stop: loads may start late."""
    with contextlib.closing(Freezer(sleeper.pid, 0.5)) as freezer:
        for _ in range(2):
            time.sleep(1)
            freezer.begin()
            wait_for(lambda: goes_on(sleeper.pid), "the end of its lease")


def test_nothing_is_stopped_that_nobody_would_undo(sleeper: subprocess.Popen[bytes]) -> None:
    with contextlib.closing(Freezer(sleeper.pid, 60)) as freezer:
        subprocess.run(["pkill", "-KILL", "-f", rf"armed\.py {sleeper.pid} "], check=True)

        def refused() -> bool:
            try:
                freezer.begin()
            except OSError:
                return True
            freezer.end()
            return False

        wait_for(refused, "the guard to be gone")
        assert goes_on(sleeper.pid)


def test_what_is_gone_is_not_armed() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(TrialFailed, match="cannot be undone safely, so it was not begun"):
        freezes([Happening(FROZEN, MS, MS)], process.pid)


def frozen(pid: int, *, at_ns: int, lasts_ns: int) -> Performer:
    happening = [Happening(FROZEN, at_ns, lasts_ns)]
    return Performer(happening, freezes(happening, pid))


def result() -> TrialResult:
    nothing = Direction(ios=0, bytes=0, latency_sum_ns=0, latency_min_ns=0, latency_max_ns=0)
    return TrialResult(
        engine_version="0",
        driver="",
        endpoint="",
        window=Window(start_unix_ns=time.time_ns(), start_ns=0, duration_ns=1000 * MS),
        read=nothing,
        write=nothing,
        cpu=CpuUse([]),
        outstanding=Outstanding(workers=1, per_worker=1, mean=1.0),
    )


def test_a_run_whose_load_ended_before_its_event_does_not_count(sleeper: subprocess.Popen[bytes]) -> None:
    with contextlib.closing(frozen(sleeper.pid, at_ns=600_000 * MS, lasts_ns=MS)) as performer:
        performer.window_starts(time.time_ns())
        with pytest.raises(TrialFailed, match="`freeze target` did not happen: the load ended before"):
            performer.told(result())
    assert goes_on(sleeper.pid)


def test_an_event_that_lasts_is_undone_at_once_when_the_run_ends(sleeper: subprocess.Popen[bytes]) -> None:
    with contextlib.closing(frozen(sleeper.pid, at_ns=0, lasts_ns=600_000 * MS)) as performer:
        performer.window_starts(time.time_ns())
        wait_for(lambda: is_frozen(sleeper.pid), "the event")
    assert goes_on(sleeper.pid)


def results_of(asked: dict[str, Any], folder: Path) -> list[TrialResult]:
    """Those of a run of the study: one for each of its two protocols."""
    file, out = folder / "study.yaml", folder / "out.iotax"
    file.write_text(yaml.safe_dump(asked), encoding="utf-8")
    run = CliRunner().invoke(app, ["run", str(file), str(out), "--no-report"])
    assert run.exit_code == 0, run.output
    with Notebook(out) as notebook:
        found = [each.result for each in notebook.each_attempt(1) if each.status == "done" and each.result]
    assert len(found) == 2
    return found


@pytest.mark.slow
def test_a_run_keeps_what_happened_when(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    for each in results_of(BASE, tmp_path):
        [event] = each.events
        assert (event.what, 1000 * MS <= event.asked_ns <= 1200 * MS) == ("freeze target", True)
        assert event.undone_ns - event.began_ns >= 500 * MS
        assert each.counted is not None
        assert (each.counted.interval_ns, len(each.counted.ios)) == (10 * MS, 500)
        assert sum(each.counted.ios) == each.ios
        assert each.verify is not None
        assert (each.verify.wrong_blocks, each.verify.read_back_blocks > 0) == (0, True)
        assert each.verify.checked_blocks > each.verify.read_back_blocks, "reads of the run are checked as well"


@pytest.mark.machine
@pytest.mark.slow
def test_a_target_that_stands_still_leaves_a_gap(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    file, out = tmp_path / "study.yaml", tmp_path / "out.iotax"
    file.write_text(yaml.safe_dump(BASE), encoding="utf-8")
    done = CliRunner().invoke(app, ["run", str(file), str(out), "--no-report"])
    assert done.exit_code == 0, done.output
    assert "Median time until throughput was back at 95 %: " in done.output
    with Notebook(out) as notebook:
        results = [each.result for each in notebook.each_attempt(1) if each.result is not None]
    assert results
    for each in results:
        assert each.gaps is not None
        [event] = each.events
        # I/Os that were in socket buffers when the target stopped may complete a little later.
        assert each.gaps.longest_ns > 0.8 * (event.undone_ns - event.began_ns)


@pytest.mark.slow
def test_a_path_that_falls_silent_is_given_up_and_used_again(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    asked = BASE | {
        "topology": {"paths": 2, "path_policy": "round-robin", "keep_alive": "1s"},
        "load": BASE["load"] | {"runtime": "7s"},
        "events": [PULL | {"for": "3s"}],
    }
    for result in results_of(asked, tmp_path):
        assert result.paths and result.gaps
        assert [each.what for each in result.events] == ["fail path 1"]
        first, second = result.paths.used
        assert first.losses >= 1 and first.lost > 0
        assert first.ios > 0 and second.ios > 0 and first.down_ns > 0
        assert result.gaps.longest_ns > 400 * MS
        assert result.verify and result.verify.read_back_blocks > 0


@pytest.mark.slow
def test_a_target_that_is_killed_is_used_again_once_it_is_back(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    asked = BASE | {
        "topology": {"paths": 2, "path_policy": "round-robin", "keep_alive": "1s"},
        "load": BASE["load"] | {"runtime": "8s"},
        "events": [KILL],
    }
    for result in results_of(asked, tmp_path):
        assert result.paths and result.gaps and result.counted
        [event] = result.events
        assert event.what == "kill target"
        assert all(each.losses >= 1 and each.ios > 0 for each in result.paths.used)
        # For a second, nothing completes but what the target answered before: a busy initiator reads that late. When
        # exactly it is back is known a little later.
        bin_ns = result.counted.interval_ns
        dead = slice(event.began_ns // bin_ns + 1, (event.began_ns + 1000 * MS) // bin_ns)
        assert sum(result.counted.ios[dead]) <= result.outstanding.workers * result.outstanding.per_worker
        assert sum(result.counted.ios[dead.stop :]) > 0
        assert result.verify and (result.verify.wrong_blocks, result.verify.read_back_blocks > 0) == (0, True)


@pytest.mark.slow
def test_a_path_that_flaps_is_used_again_each_time(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    asked = BASE | {
        "topology": {"paths": 2, "path_policy": "round-robin", "keep_alive": "1s"},
        "load": BASE["load"] | {"runtime": "10s"},
        "events": [FLAP | {"do": {"flap": "path", "path": 1, "every": "4s"}, "for": "7s"}],
    }
    for result in results_of(asked, tmp_path):
        assert result.paths
        assert [each.what for each in result.events] == ["flap path 1 every 4s"]
        first, second = result.paths.used
        assert first.losses >= 1 and second.ios > first.ios > 0
        assert result.verify and result.verify.read_back_blocks > 0


@pytest.mark.parametrize("protocol", ["iscsi", "nvme-tcp"])
@pytest.mark.slow
def test_a_path_that_becomes_inaccessible_is_left_without_a_gap_and_used_again(
    real_engine: Path, tmp_path: Path, protocol: str
) -> None:
    del real_engine
    asked = BASE | {
        "factors": {"path_policy": ["fixed", "round-robin"]},
        "baseline": {"path_policy": "fixed"},
        "connection": {"protocol": protocol},
        "topology": {"paths": 2, "keep_alive": "60s"},
        "load": BASE["load"] | {"runtime": "7s"},
        "events": [
            REFUSE | {"for": "1s"},
            REFUSE | {"at": "4s", "do": {"access": "non-optimized", "path": 1}, "for": "1s"},
        ],
    }
    for result in results_of(asked, tmp_path):
        assert result.paths and result.counted and result.verify
        assert [each.what for each in result.events] == ["make path 1 inaccessible", "make path 1 non-optimized"]
        first, second = result.paths.used
        assert (first.losses, second.losses, second.refused) == (0, 0, 0), "no connection was lost"
        assert first.ios > 0 and second.ios > 0
        assert first.refused <= 4, "only what was under way"
        assert (result.verify.wrong_blocks, result.verify.read_back_blocks > 0) == (0, True)


def test_commands_are_allowed_only_where_there_are_some(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(BASE), encoding="utf-8")
    run = CliRunner().invoke(app, ["run", str(file), str(tmp_path / "n.iotax"), "--disturb"])
    assert run.exit_code == 2
    assert "--disturb: no event of this study runs a command" in run.output


def test_what_was_written_is_read_back_where_it_is_known() -> None:
    def asked(**load: Any) -> bool:
        study = Study.model_validate(BASE | {"load": BASE["load"] | load})
        settings = study.settings({"protocol": "iscsi"})
        given = run_document(settings, "e", seed=1, driver="auto", cpus=[], watch_pids={}, events=True)
        assert given["count_ns"] == 10 * MS
        return given.get("read_back", False)

    assert asked()
    assert not asked(verify=False)
    assert not asked(shared=True, random=0)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"topology": {"paths": 2}}, "several paths need one of fixed, round-robin, queue-depth"),
        ({"topology": {"paths": 2, "path_policy": "numa"}}, "iotax's own initiators have fixed, round-robin"),
        ({"topology": {"path_policy": "fixed"}}, "one path leaves nothing to choose"),
        ({"topology": {"path_retry": "at-once"}}, "one path leaves nothing to choose"),
        ({"topology": {"keep_alive": "50ms"}}, "say 100ms or more"),
        (
            {"factors": {"protocol": ["nfs3", "iscsi"]}, "topology": {"paths": 2, "path_policy": "fixed"}},
            "iotax has several paths for nfs4.1, iscsi, nvme-tcp, not for nfs3",
        ),
        (
            {"factors": {"protocol": ["nfs3", "iscsi"]}, "topology": {"keep_alive": "1s"}},
            "nfs3 has none here; it belongs to nfs4.1, iscsi, nvme-tcp",
        ),
        (
            {"factors": {"protocol": {"a": "iscsi://h,i/iqn.2000-01.x:y/0"}}, "baseline": {"protocol": "a"}}
            | {"topology": {"paths": 2, "path_policy": "fixed"}},
            "an endpoint names its portals itself",
        ),
    ],
)
def test_paths_that_cannot_be_are_refused_with_the_reason(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(StudyError) as refused:
        read(**({"events": [], "responses": ["iops"]} | more))
    assert reason in str(refused.value)


def servers_of(pid: int) -> list[int]:
    """Engines with a server, among the children of this process."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().split(b"\0")
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if parent == pid and b"serve" in words:
            found.append(int(each.name))
    return found


def test_a_frozen_server_ends_when_iotax_is_killed(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    told = BASE | {"events": [FREEZE | {"at": "1s", "for": "600s"}], "load": BASE["load"] | {"runtime": "700s"}}
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    command = [sys.executable, "-m", "iotax", "run", str(file), str(tmp_path / "out.iotax"), "--no-report"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        try:
            frozen: list[int] = []

            def find() -> bool:
                assert run.poll() is None, "the run ended by itself"
                frozen[:] = [pid for pid in servers_of(run.pid) if is_frozen(pid)]
                return bool(frozen)

            wait_for(find, "the event", within_s=120)
        finally:
            run.kill()
    wait_for(lambda: not state(frozen[0]), "the end of the server")
