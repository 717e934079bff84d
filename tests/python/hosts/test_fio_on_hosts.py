"""fio on hosts: real fio over real SSH on fake mounts, its script, and how its logs are cut to a window."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.base import TrialFailed
from iotax.labs.generators.base import HostJob
from iotax.labs.generators.fio.generator import FIO
from iotax.labs.generators.fio.histograms import Row, directions, step_ms
from iotax.labs.generators.fio.job import Group
from iotax.notebook import Notebook
from iotax.study import Study
from iotax.study.model import Access
from iotax.study.rules import broken_rules
from measurements import results_of
from needed import program
from waits import wait_for

from .controller import Controller
from .fake_host import FakeHost
from .namespaces import Network
from .test_kernel_paths import SCRIPT as PATHS_SH
from .test_kernel_paths_over_ssh import MIB, NAMES

HOSTS = 2
FAKES = True
STUDY = """\
name: fio
question: What does fio reach over the path?
lab: {{hosts: {{initiators: [{initiators}]}}}}
volume: {{size: 8MiB}}
factors: {{protocol: {{nfs: "kernel:nfs://10.0.0.5/export/{file}?vers=4.1"}}, rate_iops: [200, 400]}}
load: {{generator: fio, verify: false, workers: 2, outstanding: 4, read: 75%, warmup: 100ms, runtime: {runtime}}}
design: {{replicates: 1}}
baseline: {{protocol: nfs}}
"""


@pytest.fixture
def written(network: Network) -> str:
    """The study, with one volume on each host."""
    program("fio")
    for number, name in enumerate(NAMES, start=1):
        with (network.folder / f"fake-{name}/export/data{number}").open("wb") as file:
            file.truncate(8 * MIB)
    initiators = ", ".join(f"{{name: {name}, address: {network.address(name)}}}" for name in NAMES)
    return STUDY.format(initiators=initiators, file="data{client}", runtime="2s")


@pytest.fixture
def controller(network: Network, written: str, real_engine: Path, tmp_path: Path) -> Controller:
    return Controller(network, written, real_engine, tmp_path, "fio")


# Must start and end within a window of 2 s, on both hosts.
@pytest.mark.machine
@pytest.mark.slow
def test_fio_loads_every_host_in_the_window_that_engines_observe(
    controller: Controller, network: Network, tmp_path: Path
) -> None:
    with controller.start(controller.text) as running:
        said, _ = running.communicate(timeout=600)
    assert running.returncode == 0, said
    with Notebook(tmp_path / "fio.iotax") as notebook:
        results = results_of(notebook, 2)
    for each in results:
        assert (each.generator, each.engine_version[:4]) == ("fio", "fio-")
        assert [client.host for client in each.clients] == list(NAMES)
        assert each.open is not None
        # fio limits the rate of reads and of writes for each worker. A busy machine may do less, never more.
        assert 0 < each.ios <= 2 * 1.2 * each.open.rate_iops * each.window.duration_ns / 1e9
        assert each.read.ios > each.write.ios > 0
        assert each.read.bytes == 4096 * each.read.ios
        assert {(part.host, part.role) for part in each.cpu if part.layer == "machine"} >= {
            (name, "initiator") for name in NAMES
        }
    wait_for(lambda: controller.left("trigger-file", NAMES) == [], "the hosts to end fio")


@pytest.mark.slow
def test_a_controller_that_is_killed_leaves_no_fio_running(controller: Controller, network: Network) -> None:
    with controller.start(controller.text.replace("runtime: 2s", "runtime: 60s")) as running:
        wait_for(lambda: all(network.processes(name, "trigger-file") for name in NAMES), "fio to begin", 60)
        running.kill()
        running.communicate()
    wait_for(lambda: controller.left("trigger-file", NAMES) == [], "the hosts to end fio", 60)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FakeHost]:
    program("fio")
    made = FakeHost(tmp_path)
    (tmp_path / "home" / "fio.sh").write_text(FIO.host_script)
    with (tmp_path / "export/data").open("wb") as file:
        file.truncate(8 * MIB)
    assert made.run(PATHS_SH, "up", "nfs", "10.0.0.5", "2049", "/export", "data", "4.1", "").returncode == 0
    yield made
    made.run(PATHS_SH, "down")


def does(host: FakeHost, *words: object) -> list[str]:
    done = host.run(PATHS_SH, "with", str(host.home / "fio.sh"), *map(str, words))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


JOB = """\
[global]
thread=1
allow_file_create=0
ioengine=libaio
filename={device}
size=1m
time_based=1
runtime={runtime}
write_hist_log=h
log_hist_msec=500
log_unix_epoch=1
[load]
rw=randread
rate_iops=200
"""


def switches_of_fio(host: FakeHost) -> int:
    """Voluntary context switches of fio's threads. With a given rate a thread yields the CPU before each I/O."""
    found = subprocess.run(["pgrep", "-f", f"trigger-file={host.home}"], capture_output=True, text=True, check=False)
    switches = 0
    for process in found.stdout.split():
        for status in Path("/proc", process, "task").glob("*/status"):
            with contextlib.suppress(OSError):
                switches += int(status.read_text().rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return switches


def test_what_fio_logs_stands_in_the_hosts_own_time_and_nothing_is_left(host: FakeHost, tmp_path: Path) -> None:
    device = next((host.home / ".cache/iotax/mount").glob("*"))
    ready = dict(line.split() for line in does(host, "load_ready", device))
    assert ready["ENGINE"] in ("io_uring", "libaio")
    assert ready["DIRECT"] in ("0", "1")
    does(host, "load_begin", device, JOB.format(device=device, runtime="60s"))
    wait_for(lambda: switches_of_fio(host) > 400, "fio's thread to have waited for many I/Os", 60)
    begin_ms = time.time_ns() // 1_000_000
    end_ms = begin_ms + 1000
    # fio runs until its log covers the whole window.
    said = does(host, "load_end", begin_ms, end_ms)
    ended_ms = [int(line.split()[2]) for line in said if line.startswith("ROW ")]
    assert min(ended_ms) <= begin_ms < end_ms <= max(ended_ms) <= end_ms + 1000
    assert '"fio version"' in "\n".join(line for line in said if line.startswith("JSON "))
    assert list((host.home / ".cache/iotax").glob("*ing-*")) == list((host.home / ".cache/iotax").glob("fio-*")) == []


def test_whoever_takes_the_path_down_ends_fio_first(host: FakeHost) -> None:
    device = next((host.home / ".cache/iotax/mount").glob("*"))
    does(host, "load_begin", device, JOB.format(device=device, runtime="60s"))
    assert host.run(PATHS_SH, "down").stdout.startswith("DOWN nfs ")
    done = subprocess.run(["pgrep", "-f", f"trigger-file={host.home}"], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_a_fio_that_ends_before_the_window_says_why(host: FakeHost) -> None:
    device = next((host.home / ".cache/iotax/mount").glob("*"))
    does(host, "load_begin", device, JOB.format(device=device.with_name("missing"), runtime="60s"))
    wait_for(lambda: list((host.home / ".cache/iotax").glob("fio-*/ended")), "fio to end")
    done = host.run(PATHS_SH, "with", str(host.home / "fio.sh"), "load_end", "0", "1")
    assert done.stderr.startswith("fio ended before the window did: fio: ")


def test_a_host_without_fio_is_named(host: FakeHost) -> None:
    programs = host.folder / "few"
    programs.mkdir()
    for name in ("cat", "sh", "uname"):
        (programs / name).symlink_to(Path("/bin") / name)
    words = ["/bin/sh", PATHS_SH, "with", host.home / "fio.sh", "load_ready", "/srv/file"]
    environment = {**host.environment, "PATH": str(programs)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "missing fio is not installed on this host\n")


ONE_JOB = [Group(Access(name="", share=1, read=50, random=100, block_size=4096, shared=False), 1, 0)]


def test_clients_of_one_volume_have_parts_of_their_own() -> None:
    text = STUDY.format(initiators="{name: h1, address: 10.0.0.1}", file="data", runtime="2s")
    study = Study.model_validate(yaml.safe_load(text))
    settings = study.settings({"protocol": "nfs", "rate_iops": 400})
    settings = replace(settings, load=settings.load.model_copy(update={"working_set": 2 * MIB}))
    [job] = FIO.host_job(
        HostJob(
            settings, "/dev/a:b", {"ENGINE": "libaio", "DIRECT": "1"}, 7, offset_bytes=4 * MIB, longest_s=300, client=1
        )
    )
    lines = job.splitlines()
    assert {f"offset={4 * MIB}", f"offset_increment={MIB}", f"size={MIB}", "numjobs=2"} <= set(lines)
    assert {"filename=/dev/a\\:b", "ioengine=libaio", "direct=1", "randseed=7", "runtime=300s"} <= set(lines)
    assert "rate_iops=150,50" in lines
    assert not any(line.startswith(("ramp_time", "verify")) for line in lines)


def test_of_a_row_that_lies_in_the_window_in_part_that_part_counts() -> None:
    row = Row(1000, 1100, 4096, {5: 10, 7: 3, 9: 1})
    assert row.within(0, 2000) == {5: 10, 7: 3, 9: 1}
    assert row.within(1050, 2000).total() == 7
    assert row.within(1050, 2000)[5] == 5
    assert row.within(1000, 1010) == {5: 1}
    assert row.within(2000, 3000).total() == 0


def test_the_window_is_cut_out_of_what_fio_logged() -> None:
    lines = [
        "1 1000 0 4096 64:100",  # the first row: the start of its interval is unknown
        *("1 1100 0 4096 64:10 128:1", "1 1200 0 4096 64:20", "1 1300 0 4096 64:30"),
        *("1 1000 1 4096 64:100", "1 1150 1 4096 64:6", "1 1300 1 4096"),
    ]
    [(read, write)] = directions(lines, ONE_JOB, 1100, 1250)
    assert (read.ios, read.bytes, read.latency_sum_ns) == (35, 35 * 4096, 35 * 64)
    assert write.ios == 2
    assert read.histogram.counts == [(64, 35)]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["1 1000 0 4096 64:1", "1 1100 0 4096 64:1"], "fio's job 1 tells of nothing in the last 150 ms of the window"),
        (["1 1150 0 4096 64:1", "1 1300 0 4096 64:1"], "fio's job 1 began 50 ms after the window did"),
        ([], "fio's job 1 began 150 ms after the window did"),
        (["1 x"], "fio's histogram logs are in an unknown form"),
    ],
)
def test_a_log_that_does_not_cover_the_window_is_refused(lines: list[str], said: str) -> None:
    with pytest.raises(TrialFailed) as failed:
        directions(lines, ONE_JOB, 1100, 1250)
    assert failed.value.reason == said


def test_a_long_window_has_no_more_rows_than_a_short_one() -> None:
    assert [step_ms(seconds * 10**9) for seconds in (1, 5, 60, 600)] == [100, 100, 1200, 12_000]


@pytest.mark.parametrize(
    ("now", "then", "said"),
    [
        ("generator: fio", "generator: fio", ""),
        ("verify: false, ", "", "on hosts the data of fio are not checked; say `verify: false`"),
        (
            "kernel:nfs://10.0.0.5/export/data?vers=4.1",
            "nfs://10.0.0.5/export/data",
            "fio needs a path of the host's kernel",
        ),
        ("generator: fio, ", "", "give fio a study of its own"),
    ],
)
def test_what_fio_on_hosts_cannot_be_asked_is_refused(now: str, then: str, said: str) -> None:
    text = STUDY.format(initiators="{name: h1, address: 10.0.0.1}", file="data", runtime="2s").replace(now, then)
    if "generator" not in text:
        text = text.replace("rate_iops: [200, 400]", "generator: [iotax, fio]")
    study = Study.model_validate(yaml.safe_load(text))
    broken = [message for _, message in broken_rules(study)]
    assert [said in message for message in broken] == ([True] if said else [])
