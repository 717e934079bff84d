"""Initiators behind relays: Dask workers with iotax, each of which holds the SSH connections to some stub hosts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import LabUnusable, Sample, Step, TrialFailed
from iotax.labs.hosts.clock import Offset, Turns
from iotax.places import Binary
from iotax.places.waiting import wait_for as awaited
from iotax.study.hosts import Host
from iotax.trial import Trial
from waits import wait_for

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")
pytest.importorskip("distributed", reason="the extra `cluster` is not installed")

from iotax.labs.hosts import relay as on_relay
from iotax.labs.hosts.lab import HostsLab
from iotax.labs.hosts.measure import Answer, Job, Turn, Window
from iotax.labs.hosts.relay import Relay
from iotax.labs.hosts.relayed import ByRelay, Held, Relayed
from iotax.places.workers import Agent, Worker

from .dask_hosts import DaskHosts
from .many import stub_hosts, study_of

pytestmark = pytest.mark.slow

RELAYS = ["r1", "r2"]
Started = Callable[..., HostsLab]


@pytest.fixture
def relays(tmp_path: Path) -> Iterator[DaskHosts]:
    found = DaskHosts(tmp_path, RELAYS, with_iotax=True)
    yield found
    found.close()


@pytest.fixture
def started(relays: DaskHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """A lab of stub hosts behind two relays. Only the relays know the host keys."""
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    engine = tmp_path / "engine"
    engine.write_text("stub")
    (tmp_path / "digest").write_text(Binary(engine).digest)
    left = []

    def start(
        count: int, *, late: int = 0, set_ns: int = 0, runtime: str = "1s", connection: dict[str, Any] | None = None
    ) -> HostsLab:
        stubs, ports = stub_hosts(tmp_path, count, late, set_ns)
        for name in RELAYS:
            (relays.home(name) / ".ssh").mkdir(mode=0o700, exist_ok=True)
            (relays.home(name) / ".ssh" / "known_hosts").write_text((tmp_path / "known_hosts").read_text())
        study = study_of(ports, runtime, connection, relays={"scheduler": relays.address})
        left.append((HostsLab(study, make_plan(study), engine), stubs))
        return left[-1][0]

    yield start
    for lab, stubs in left:
        lab.close()
        stubs.communicate()


def trial_of(lab: HostsLab) -> Trial:
    return next(iter(make_plan(lab.study).trials))


def test_hosts_behind_two_relays_are_one_trial(started: Started) -> None:
    lab = started(6, runtime="2s")
    heard: list[Sample | Step] = []
    result = lab.run(trial_of(lab), heard.append).result
    assert [client.host for client in result.clients] == [f"h{number}" for number in range(1, 7)]
    assert result.ios == sum(client.ios for client in result.clients) == 6 * 400 * 50
    # All share one clock: the error covers the uncertainty on the way to the relay and from there to the host.
    assert max(client.clock_error_ns for client in result.clients) < 1_000_000_000


def test_the_table_of_hosts_says_which_relay_holds_each(started: Started) -> None:
    rows = started(5).survey()
    assert [each.relay.partition(" ")[0] for each in rows] == ["r1", "r1", "r1", "r2", "r2"]


def test_a_relay_is_handed_all_that_a_host_does_in_a_session() -> None:
    turns = Turn({"a": {"endpoint": "x"}}, [[0, None]])
    job = Job(Relayed(Host(name="h1"), cast(Any, None)), "engine", watch_pids={"target": 7}, turns=turns)
    called: list[Any] = []

    class Relaying:
        async def call(self, method: str, *given: Any, within_s: float) -> None:
            called.append((method, *given))

    window = Window(1, 2, 3)
    awaited(ByRelay(cast(Any, Relaying()), [job], window, Turns()).arm())
    [(method, [handed], told)] = called
    assert (method, told) == ("arm", window)
    assert handed.pop("place") == "h1"
    assert handed == {name: of for name, of in vars(job).items() if name != "place"}


def test_errors_of_two_clocks_add_up() -> None:
    relay, host = Offset(5_000, 40, None, 90), Offset(-2_000, 10, 7, 30)
    both = relay.then(host)
    assert (both.ahead_ns, both.error_ns, both.longest_ns, both.kernel_error_ns) == (3_000, 25, 120, 7)
    assert both.error_ns >= relay.error_ns + host.error_ns


def test_a_host_that_fails_behind_a_relay_is_named(started: Started) -> None:
    lab = started(4, late=1)
    with pytest.raises(TrialFailed, match=r"^h1: the start was over when it was heard") as failed:
        lab.run(trial_of(lab), lambda _: None)
    assert (failed.value.kind, failed.value.host) == ("late", "h1")


def test_a_host_whose_clock_is_set_behind_a_relay_is_named(started: Started) -> None:
    lab = started(4, set_ns=600_000_000)
    with pytest.raises(TrialFailed, match=r"^h4: its clock was set .* ms earlier than the others"):
        lab.run(trial_of(lab), lambda _: None)


def test_a_relay_killed_in_a_trial_is_named_with_its_hosts_and_the_next_attempt_goes_by_the_other(
    started: Started, relays: DaskHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = started(5, runtime="4s")
    measuring = threading.Event()
    answers = ByRelay.answers

    async def noted(group: ByRelay, hear: Any) -> Any:
        measuring.set()
        return await answers(group, hear)

    monkeypatch.setattr(ByRelay, "answers", noted)
    killing = threading.Thread(target=lambda: measuring.wait(60) and relays.kill("r1"))
    killing.start()
    with pytest.raises(
        TrialFailed, match=r"^r1: its relay, r1 \(.*\), was lost, and with it the way to h1, h2, h3$"
    ) as failed:
        lab.run(trial_of(lab), lambda _: None)
    killing.join()
    assert (failed.value.kind, failed.value.away) == ("lost", True)
    lab.without_lost_hosts = True
    assert not lab.leave_out(failed.value), "hosts behind it may be well"
    awaited(lab._ask_all())
    assert len(lab.run(trial_of(lab), lambda _: None).result.clients) == 5


def test_commands_and_tasks_go_through_a_relay_one_by_one(started: Started) -> None:
    lab = started(2)
    lab.connect()
    [place, _] = lab._initiators
    assert isinstance(place, Relayed)

    async def spoken() -> tuple[str, tuple[int | None, str], str, bool]:
        ran, asked = await place.run("engine --version"), await place.ask("engine --version", "", 10.0, 5)
        document = {"settle_ns": 0, "slice_ns": 1, "loads": []}
        task = await place.start("engine session", document, secrets={"KEY": "of nobody"})
        armed = await task.expect("armed", 10.0)
        task.send({"command": "clock"})
        await task.expect("clock", 10.0)
        await task.end()
        return ran, asked, armed["engine_version"], await task.alive()

    assert awaited(spoken()) == ("iotax-engine stub\n", (0, "stub\n"), "stub", False)


def test_no_secret_is_in_what_relays_and_their_scheduler_write(
    started: Started, relays: DaskHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_KEY", secret := "DHHC-1:00:c2VjcmV0b2Zub2JvZHlhdGFsbGluYW55bG9n:")
    lab = started(2, late=1, connection={"dhchap": {"secret_env": "HOST_KEY"}})
    with pytest.raises(TrialFailed, match=r"^h1: ") as failed:
        lab.run(trial_of(lab), lambda _: None)
    assert secret not in f"{failed.value} {failed.value.log}"
    relays.kill("r2")
    written = {name: (relays.folder / f"{name}.log").read_text() for name in ("scheduler", *RELAYS)}
    assert all(written.values())
    assert [name for name, text in written.items() if secret in text] == []


async def renewed_anew(relay: Relay) -> None:
    """Renews the lease, and has the relay watch it from now on."""
    assert relay._watching is not None
    relay._watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await relay._watching
    await relay.renew()


def test_a_relay_that_hears_nothing_for_a_lease_lets_go_of_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "digest").write_text("-")
    stubs, ports = stub_hosts(tmp_path, 1, 0, 0)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "known_hosts").write_text((tmp_path / "known_hosts").read_text())
    host = Host(name="h1", address="127.0.0.1", port=ports[0], user="bench")
    relay = Relay()
    try:
        assert awaited(relay.run_on(host, "engine --version", "", 10.0)) == "iotax-engine stub\n"
        connection = awaited(relay._places["h1"].connection())
        # The lease is short only now: a slow machine may take longer to connect.
        monkeypatch.setattr(on_relay, "LEASE_NS", 300_000_000)
        awaited(renewed_anew(relay))
        wait_for(lambda: not relay._places and connection.is_closed(), "the relay to let go")
    finally:
        stubs.communicate()


def test_relays_that_share_a_home_are_given_the_engine_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "engine").write_bytes(b"engine" * 1_000_000)
    binary = Binary(tmp_path / "engine")

    class Direct:
        """Calls the relay as Dask does: other tasks may run first."""

        lost = False

        def __init__(self) -> None:
            self.relay = Relay()

        async def call(self, method: str, *given: Any, within_s: float) -> Any:
            await asyncio.sleep(0)
            return await getattr(self.relay, method)(*given)

    async def give() -> None:
        relays = [Held(Worker("tcp://127.0.0.1:1", "r", "", ""), cast("Agent", Direct())) for _ in range(3)]
        try:
            await asyncio.gather(*(each.have(binary) for each in relays))
        finally:
            for each in relays:
                await each.close()

    awaited(give())
    [there] = (tmp_path / "home" / binary.remote).parent.iterdir()
    assert there.read_bytes() == binary.path.read_bytes()


def test_without_a_relay_every_host_is_named_and_nothing_starts(started: Started, relays: DaskHosts) -> None:
    lab = started(2)
    for name in RELAYS:
        relays.kill(name)
    with pytest.raises(LabUnusable) as unusable:
        lab.prepare(lambda _: None)
    assert [each.subject for each in unusable.value.findings] == ["h1", "h2"]
    assert "has no worker to relay" in str(unusable.value)


@pytest.mark.long
@pytest.mark.parametrize("relayed", [False, True])
def test_two_hundred_hosts_behind_two_relays_cost_the_controller_less(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relayed: bool
) -> None:
    """Prints the figures of docs/results/hosts.md, with relays and without."""
    lab = started(200)
    if not relayed:
        ports = [host.port or 0 for host in lab.study.lab.hosts.initiator_hosts()] if lab.study.lab.hosts else []
        (tmp_path / "here" / ".ssh").mkdir(mode=0o700, parents=True)
        (tmp_path / "here" / ".ssh" / "known_hosts").write_text((tmp_path / "known_hosts").read_text())
        study = study_of(ports)
        lab = HostsLab(study, make_plan(study), tmp_path / "engine")
    cpu_s, began_s = time.process_time(), time.monotonic()
    lab.connect()
    connect_cpu_s, connected_s = time.process_time() - cpu_s, time.monotonic() - began_s
    trials, aheads = [], []
    measured_by = lab._measured

    def noted(*given: Any, **named: Any) -> list[Answer]:
        answers = measured_by(*given, **named)
        aheads.append([answer.offset.ahead_ns for answer in answers])
        return answers

    monkeypatch.setattr(lab, "_measured", noted)
    for _ in range(3):
        cpu_s, began_s = time.process_time(), time.monotonic()
        result = lab.run(trial_of(lab), lambda _: None).result
        trials.append((time.process_time() - cpu_s, time.monotonic() - began_s, result))
    lab.close()
    measured = {
        "relayed": relayed,
        "connected_s": round(connected_s, 2),
        "connect_cpu_ms_per_host": round(connect_cpu_s * 1e3 / 200, 2),
        "trial_cpu_ms_per_host": [round(cpu_s * 1e3 / 200, 2) for cpu_s, _, _ in trials],
        "trial_s": [round(took_s, 2) for _, took_s, _ in trials],
        "clock_error_ms": [
            round(max(each.clock_error_ns for each in result.clients) / 1e6, 2) for *_, result in trials
        ],
        # All hosts share one clock: the spread of their offsets is the spread of their starts.
        "start_skew_ms": [round((max(ahead) - min(ahead)) / 1e6, 2) for ahead in aheads],
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }
    print(json.dumps(measured))
    assert all(len(result.clients) == 200 for *_, result in trials)
