"""Commands of the user's as load generators on hosts: over real SSH on fake mounts, the script, the result."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.imports.formats import FORMATS
from iotax.labs.base import TrialFailed
from iotax.labs.generators.base import HostJob
from iotax.labs.generators.command.generator import COMMAND, scaled
from iotax.notebook import Notebook
from iotax.records import CpuUse
from iotax.study import Study
from iotax.study.asked import asked
from iotax.study.command import PLACEHOLDERS, Command, ResultFormat
from iotax.study.rules import broken_rules
from iotax.trial import Direction, Histogram, Window
from measurements import results_of
from waits import wait_for

from .controller import Controller
from .fake_host import FakeHost
from .namespaces import Network
from .test_kernel_paths import SCRIPT as PATHS_SH
from .test_kernel_paths_over_ssh import MIB, NAMES

HOSTS = 2
FAKES = True
TABLE = "iops;seconds;ms\n"
STUDY = """\
name: commands
question: What does a generator of our own reach?
lab: {hosts: {initiators: [INITIATORS]}}
volume: {size: 8MiB}
factors: {protocol: {nfs: "kernel:nfs://10.0.0.5/export/FILE?vers=4.1"}, workers: [2, 4]}
load:
  generator: command
  command:
    run: |
      echo "iops;seconds;ms" >rows.csv
      dd if={device} of=/dev/null bs=64k count=1 2>/dev/null
      sleep {seconds}
      echo "{workers}00;{seconds};1.5" >>rows.csv
    format: table
    result: rows.csv
    columns: {iops: iops, duration_s: seconds, latency_ms: ms}
  verify: false
  warmup: 1s
  runtime: 3s
design: {replicates: 1}
baseline: {protocol: nfs, workers: 2}
"""


def study(text: str = STUDY, **changes: Any) -> Study:
    document = yaml.safe_load(text.replace("INITIATORS", "h1, h2").replace("FILE", "data"))
    command = {**document["load"]["command"], **changes.pop("command", {})}
    document["load"] = {**document["load"], "command": command, **changes.pop("load", {})}
    if "run" in command and command["format"] != "table":
        document["load"]["command"].pop("columns", None)
    return Study.model_validate({**document, **changes})


@pytest.fixture
def written(network: Network) -> str:
    """The study, with one volume on each host."""
    for number, name in enumerate(NAMES, start=1):
        with (network.folder / f"fake-{name}/export/data{number}").open("wb") as file:
            file.truncate(8 * MIB)
    initiators = ", ".join(f"{{name: {name}, address: {network.address(name)}}}" for name in NAMES)
    return STUDY.replace("INITIATORS", initiators).replace("FILE", "data{client}")


@pytest.fixture
def controller(network: Network, written: str, real_engine: Path, tmp_path: Path) -> Controller:
    return Controller(network, written, real_engine, tmp_path, "commands")


def wait_for_the_end(controller: Controller) -> None:
    def left() -> list[object]:
        return controller.left("command-", NAMES)

    wait_for(lambda: left() == [], "the hosts to end the commands", seen=left)


# The command must start with the window on both hosts.
@pytest.mark.machine
@pytest.mark.slow
def test_a_command_loads_every_host_in_the_window_that_engines_observe(
    controller: Controller, network: Network, tmp_path: Path
) -> None:
    with controller.start(controller.text) as running:
        said, _ = running.communicate(timeout=600)
    assert running.returncode == 0, said
    with Notebook(tmp_path / "commands.iotax") as notebook:
        results = results_of(notebook, 2)
    for each in results:
        assert each.generator == "table"
        assert [client.host for client in each.clients] == list(NAMES)
        # Each host reached 100 IOPS per worker; the command said so of 4 s, and the window has 3 s of them.
        assert each.ios / (each.window.duration_ns / 1e9) == pytest.approx(200 * each.outstanding.workers / 2, rel=0.01)
        assert each.window.duration_ns == pytest.approx(3e9, rel=0.02)
        assert each.read.latency_sum_ns / each.ios == pytest.approx(1.5e6, rel=0.01)
        assert {(part.host, part.role) for part in each.cpu if part.layer == "machine"} >= {
            (name, "initiator") for name in NAMES
        }
    assert sorted(each.outstanding.workers or 0 for each in results) == [4, 8]
    wait_for_the_end(controller)


@pytest.mark.slow
def test_a_command_that_fails_is_told_with_its_last_words_and_leaves_nothing(
    controller: Controller, network: Network
) -> None:
    failing = controller.text.replace("sleep {seconds}", "sleep {seconds}; echo no license >&2; exit 7")
    said = controller.fails(failing)
    assert "the command failed with status 7: no license" in said
    wait_for_the_end(controller)


@pytest.mark.slow
def test_a_controller_that_is_killed_leaves_no_command_running(controller: Controller, network: Network) -> None:
    with controller.start(controller.text.replace("runtime: 3s", "runtime: 60s")) as running:
        wait_for(
            lambda: all(network.processes(name, "sleep 61", whole=True) for name in NAMES), "the commands to begin"
        )
        running.kill()
        running.communicate()
    wait_for_the_end(controller)
    assert [pid for name in NAMES for pid in network.processes(name, "sleep 61", whole=True)] == []


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FakeHost]:
    made = FakeHost(tmp_path)
    (tmp_path / "home" / "command.sh").write_text(COMMAND.host_script)
    with (tmp_path / "export/data").open("wb") as file:
        file.truncate(8 * MIB)
    assert made.run(PATHS_SH, "up", "nfs", "10.0.0.5", "2049", "/export", "data", "4.1", "").returncode == 0
    yield made
    made.run(PATHS_SH, "down")


def does(host: FakeHost, *words: object) -> list[str]:
    done = host.run(PATHS_SH, "with", str(host.home / "command.sh"), *map(str, words))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def begun(host: FakeHost, command: str, result: str = "") -> Path:
    """The folder of a command that waits."""
    device = next((host.home / ".cache/iotax/mount").glob("*"))
    [said] = does(host, "load_ready", device)
    does(host, "load_begin", device, command, result)
    return Path(said.removeprefix("RUN "))


def release(folder: Path) -> None:
    (folder / "start").write_text("\n")


def group_of(folder: Path) -> str:
    return (folder / "pid").read_text().strip()


def running(group: str) -> list[str]:
    """Processes of a group, without those that nobody has waited for yet."""
    found = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    words = [line.split(None, 2) for line in found.splitlines()]
    return [args for of, state, args in words if of == group and not state.startswith("Z")]


def test_a_command_waits_until_it_is_released_and_says_how_long_it_ran(host: FakeHost) -> None:
    folder = begun(host, "echo one; echo; echo two; sleep 1")
    assert not (folder / "said").exists()
    release(folder)
    wait_for((folder / "ended").exists, "the command to end")
    ran, *said = does(host, "load_end", 0, 1)
    assert float(ran.removeprefix("RAN ")) >= 1
    assert said == ["RESULT one", "RESULT ", "RESULT two"]
    assert (
        list((host.home / ".cache/iotax").glob("*ing-*")) == list((host.home / ".cache/iotax").glob("command-*")) == []
    )


def test_the_result_is_read_from_the_file_that_the_study_names(host: FakeHost) -> None:
    folder = begun(host, "mkdir out; echo noise; echo figures >out/rows.csv", "out/rows.csv")
    release(folder)
    assert does(host, "load_end", 0, 1)[1:] == ["RESULT figures"]


@pytest.mark.parametrize(
    ("command", "result", "said"),
    [
        ("echo why >&2; exit 3", "", "the command failed with status 3: why\n"),
        ("true", "rows.csv", "the command wrote no file rows.csv; \n"),
        ("head -c 17m /dev/zero", "", "the command's result is larger than 16 MiB\n"),
    ],
)
def test_a_command_without_a_result_says_why(host: FakeHost, command: str, result: str, said: str) -> None:
    release(begun(host, command, result))
    done = host.run(PATHS_SH, "with", str(host.home / "command.sh"), "load_end", "0", "1")
    assert (done.returncode, done.stderr) == (1, said)


def test_whoever_takes_the_path_down_ends_the_command_and_its_children_first(host: FakeHost) -> None:
    folder = begun(host, "trap '' TERM; sleep 500 & sleep 600")
    release(folder)
    group = group_of(folder)
    wait_for(lambda: {"sleep 500", "sleep 600"} <= {*running(group)}, "the command to run")
    assert host.run(PATHS_SH, "down").stdout.startswith("DOWN nfs ")
    assert not folder.exists()
    assert running(group) == []


def test_who_waits_for_a_command_that_is_ended_with_its_path_stops_waiting(host: FakeHost) -> None:
    """As when another host fails first: its trial ends, and nobody reads what this script says."""
    release(begun(host, "sleep 600"))
    words = ["/bin/sh", PATHS_SH, "with", host.home / "command.sh", "load_end", "0", "1"]
    with subprocess.Popen(words, env=host.environment, stderr=subprocess.PIPE, text=True) as waiting:
        assert host.run(PATHS_SH, "down").stdout.startswith("DOWN nfs ")
        _, said = waiting.communicate(timeout=180)
    assert (waiting.returncode, said) == (1, "the command was ended with its path\n")


def job(of: Study, **values: Any) -> HostJob:
    settings = of.settings({"protocol": "nfs", "workers": 4})
    settings = replace(settings, load=settings.load.model_copy(update={"working_set": 2 * MIB}))
    given = {"path": "/dev/my disk", "found": {}, "seed": 7, "offset_bytes": MIB, "longest_s": 300, "client": 2}
    return HostJob(**{"settings": settings, **given, **values})


def test_a_command_is_given_the_values_of_its_trial() -> None:
    names = " ".join(f"{name}={{{name}}}" for name in PLACEHOLDERS)
    given = study(command={"run": names + " awk '{{print}}' ${HOME}"}, load={"rate_iops": 500, "runtime": "2500ms"})
    text, result = COMMAND.host_job(job(given))
    assert result == "rows.csv"
    values = dict(word.split("=") for word in text.replace("'/dev/my disk'", "quoted").split() if "=" in word)
    assert values == {
        "device": "quoted", "seconds": "4", "warmup": "1", "runtime": "2.5", "block_size": "4096", "read": "100",
        "random": "100", "outstanding": "1", "workers": "4", "threads": "1", "rate_iops": "500", "size": str(2 * MIB),
        "offset": str(MIB), "client": "2", "seed": "7",
    }  # fmt: skip
    assert text.endswith("awk '{print}' ${HOME}")


ROWS = ["RESULT iops;seconds;ms", "RESULT 1000;4;1.5"]


def result(said: list[str], of: Study | None = None) -> Any:
    settings = (of or study()).settings({"protocol": "nfs", "workers": 4})
    return COMMAND.host_result(
        said,
        settings,
        endpoint="local:/dev/x",
        cpu=CpuUse([]),
        window=Window(start_unix_ns=5, start_ns=0, duration_ns=3_000_000_000),
    )


def test_what_a_command_measured_is_scaled_to_the_window() -> None:
    found = result(["RAN 4.02", *ROWS])
    assert (found.ios, found.window.start_unix_ns, found.window.duration_ns) == (3000, 5, 3_000_000_000)
    assert found.checks.cpu_window_ns == 3_000_000_000
    assert found.outstanding.workers == 4


def test_a_scaled_histogram_has_as_many_ios_as_its_direction() -> None:
    counts = [(value, 3) for value in range(1, 1000)]
    direction = Direction(
        ios=2997, bytes=2997 * 512, latency_sum_ns=10, latency_min_ns=1, latency_max_ns=999,
        histogram=Histogram(counts=counts),
    )  # fmt: skip
    for share in (0.123, 0.75, 1.0):
        found = scaled(direction, share)
        assert sum(count for _, count in found.histogram.counts) == found.ios == round(2997 * share)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["RAN 3.5", *ROWS], "the command ended 0.5 s before the window did; let it run for {seconds} s"),
        (["RAN 6.5", *ROWS], "so it may have begun 1.5 s after the window did; give it a longer `warmup:`"),
        (["RAN 4.0", "RESULT iops;seconds;ms"], "the command's result: rows.csv: no row below the titles"),
        (["RAN 4.0", *ROWS, ROWS[1]], "the command's result holds 2 runs, and a trial is one"),
        (["RAN 4.0"], "the command's result: rows.csv: it is empty"),
    ],
)
def test_a_result_that_is_not_of_the_window_is_refused(said: list[str], why: str) -> None:
    with pytest.raises(TrialFailed) as failed:
        result(said)
    assert why in failed.value.reason


def test_transactions_are_not_taken_for_ios() -> None:
    of = study(command={"columns": {"tps": "iops", "duration_s": "seconds", "latency_ms": "ms"}})
    with pytest.raises(TrialFailed, match="counts transactions, not I/Os"):
        result(["RAN 4.0", *ROWS], of)


def test_every_format_of_a_command_can_be_imported() -> None:
    assert set(ResultFormat.__args__) <= set(FORMATS)


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        ({}, "", ""),
        ({"lab": {"loopback": {}}}, "command", "a command loads paths of hosts"),
        ({"load": {"verify": True}}, "verify", "on hosts the data of a command are not checked; say `verify: false`"),
        ({"load": {"outstanding": 8}}, "outstanding", "the command has no {outstanding}, so this would change nothing"),
        ({"load": {"read": "50%"}}, "read", "the command has no {read}, so this would change nothing"),
        ({"load": {"durable": True, "generator": "command"}}, "durable", "a command of your own takes no such setting"),
        ({"load": {"generator": "iotax"}}, "command", "it needs `generator: command`"),
        ({"command": {"run": "x {device} {workers} {runtime}"}}, "run", "it has no {seconds}"),
        ({"command": {"run": "x {device} {workers} {runtime} {warmup}"}}, "", ""),
        ({"search": {"latency_max": "5ms", "rate_max": 5000}}, "rate_max", "cannot hold the rates of a search"),
        ({"design": {"sessions": 3, "rounds": 3}}, "rounds", "a command starts anew for each trial"),
        (
            {"factors": {"protocol": {"nfs": "nfs://10.0.0.5/export/data"}, "workers": [2, 4]}},
            "protocol",
            "a command needs a path of the host's kernel",
        ),
    ],
)
def test_what_a_command_cannot_be_asked_is_refused(changes: dict[str, Any], place: str, said: str) -> None:
    broken = list(broken_rules(study(**changes)))
    if not said:
        assert broken == []
    assert [where[-1] for where, message in broken if said in message] == ([place] if said else [])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"run": "x {devices}", "format": "fio"}, "{devices} in `run:` stands for nothing"),
        ({"run": "x", "format": "fio"}, "`run:` has no {device}"),
        ({"run": "x {device} \0", "format": "fio"}, "no shell takes a command with a zero byte"),
        ({"run": " \n", "format": "fio"}, "an empty command loads nothing"),
        ({"run": "x {device}", "format": "fio", "result": "/etc/passwd"}, "is outside of the command's folder"),
        ({"run": "x {device}", "format": "fio", "result": "a/../../b"}, "is outside of the command's folder"),
        ({"run": "x {device}", "format": "table"}, "`columns:` belongs to `format: table`"),
        ({"run": "x {device}", "format": "pgbench"}, "Input should be"),
    ],
)
def test_a_command_that_cannot_work_is_refused(command: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r".") as failed:
        Command.model_validate(command)
    assert said in str(failed.value)


def test_every_volume_under_a_command_counts_as_written() -> None:
    assert study().settings({"protocol": "nfs", "workers": 2}).writes


def test_a_plan_says_what_is_started() -> None:
    [load] = [line for line in asked(study()) if line.startswith("Load")]
    assert load == (
        'Load: a command, echo "iops;seconds;ms" >rows.csv, whose result is read as table; workers 2 or 4; '
        "warm-up 1s, measured 3s."
    )
    assert not any(line.startswith("Mix") for line in asked(study()))
