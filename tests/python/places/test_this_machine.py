"""The local machine as a place; it stands for the requirements on every place."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from iotax.engine import EngineError
from iotax.places.agent import started
from iotax.places.base import Binary, HostFault
from iotax.places.here import HERE, LocalHost
from iotax.places.waiting import wait_for
from iotax.study.hosts import Host
from waits import wait_for as until


def said(command: str, **how: object) -> str:
    return wait_for(HERE.run(command, **how))


def test_a_short_command_gives_its_output_and_is_given_its_input() -> None:
    assert said("tr a-z A-Z; echo done", given="some words\n") == "SOME WORDS\ndone\n"


def test_a_short_command_that_fails_is_told_by_its_last_words() -> None:
    with pytest.raises(EngineError, match=r"^echo failed: no such device$") as failed:
        said("echo mounting; echo no such device >&2; exit 32")
    assert failed.value.kind == "io"
    with pytest.raises(EngineError, match=r"^false failed: 1$"):
        said("false")


def test_a_short_command_without_end_is_given_up_with_what_it_started(tmp_path: Path) -> None:
    # A busy machine may take longer to start it than the time that it is given.
    for within_s in (0.5, 5, 60):
        with pytest.raises(EngineError, match=r"^sleep: no answer in time$") as failed:
            said(f"sleep 1000 & echo $! >{tmp_path}/child; wait", within_s=within_s)
        assert failed.value.kind == "lost"
        if (number := (tmp_path / "child")).is_file() and number.read_text().endswith("\n"):
            break
    child = Path("/proc") / (tmp_path / "child").read_text().strip()
    until(lambda: not child.exists() or "State:\tZ" in (child / "status").read_text(), "the child's end")


def test_a_task_hears_what_it_is_sent_and_its_lease_is_renewed() -> None:
    echoing = """while read -r line; do printf '{"event": "heard", "line": %s}\\n' "$line"; done"""

    async def heard() -> list[object]:
        task = await HERE.start(f"sh -c {shlex.quote(echoing)}", {"lease_ns": 100_000_000})
        try:
            task.send({"command": "stop"})
            return [(await task.expect("heard", 10))["line"] for _ in range(4)]
        finally:
            await task.end()
            await task.end()

    renewed = {"command": "renew"}
    assert wait_for(heard()) == [{"lease_ns": 100_000_000}, {"command": "stop"}, renewed, renewed]


def test_a_task_that_closes_its_output_and_goes_on_is_told_of_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iotax.places.piped.STOP_S", 0.2)
    monkeypatch.setattr("iotax.places.here.STOP_S", 0.2)

    async def alone() -> bool:
        task = await HERE.start("sh -c 'exec >&- 2>&-; sleep 1000'", {})
        with pytest.raises(EngineError, match="closed its output without ending"):
            await task.event(10)
        alive = await task.alive()
        await task.end()
        assert not await task.alive()
        return alive

    assert wait_for(alone())


def test_an_interrupt_ends_the_work_before_it_goes_on() -> None:
    begun, ended = threading.Event(), []

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0)
            ended.append("ended")

    def interrupt() -> None:
        begun.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        wait_for(work())
    assert ended == ["ended"]
    interrupting.join()


INTERRUPTED = """\
import asyncio, random, signal, sys
from iotax.places.waiting import wait_for
from iotax.study.hosts import Host

def interrupt(*_):
    raise KeyboardInterrupt

# An interrupt before the wait begins leaves work that never did, which Python says.
sys.unraisablehook = lambda _: None
signal.signal(signal.SIGALRM, interrupt)
instants = random.Random(1)
for _ in range(6000):
    try:
        signal.setitimer(signal.ITIMER_REAL, instants.uniform(5e-6, 200e-6))
        wait_for(asyncio.sleep(50e-6))
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
"""

# A process's first wait starts the thread that all waits share. This interrupts it at each of its lines.
INTERRUPTED_AT_FIRST = """
import asyncio, os, sys
from iotax.places.waiting import wait_for
from iotax.study.hosts import Host

def interrupted_at(last):
    lines = 0
    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        if lines == last:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace
    return trace

def first_wait(last):
    sys.unraisablehook = lambda _: None
    sys.settrace(interrupted_at(last))
    try:
        wait_for(asyncio.sleep(50e-6))
    except KeyboardInterrupt:
        wait_for(asyncio.sleep(0))
        return 1
    sys.settrace(None)
    return 0

last = 0
going_on = True
while going_on:
    last += 1
    if not os.fork():
        status = 2
        try:
            status = first_wait(last)
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.wait()[1])
    if ended == 2:
        sys.exit(f"a first wait interrupted at its line {last} ended otherwise")
    going_on = ended == 1
print(last)
"""


def test_an_interrupt_at_any_instant_ends_the_wait() -> None:
    """Including the instants at which waiting starts and ends; a lock of its own would stay locked then."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", INTERRUPTED], check=True, timeout=600)


def test_an_interrupt_of_the_first_wait_ends_it() -> None:
    words = [sys.executable, "-W", "ignore", "-c", INTERRUPTED_AT_FIRST]
    lines = int(subprocess.run(words, check=True, timeout=600, stdout=subprocess.PIPE, text=True).stdout)
    assert lines > 50, "the thread's beginning is among them"


def test_a_process_is_reaped_with_its_group_and_signalled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it was reaped before, its process id may belong to another process when the signal is sent."""
    sent: list[int] = []
    killpg = os.killpg
    monkeypatch.setattr("iotax.places.agent.os.killpg", lambda pid, number: (sent.append(pid), killpg(pid, number)))

    async def work() -> None:
        child = await started("sleep 1000 >&- 2>&- & exit 3")
        assert not isinstance(child, str)
        assert await child.process.wait() == 3
        state = Path(f"/proc/{child.process.pid}/status").read_text()
        assert "State:\tZ" in state, "it waits to be reaped, and keeps its number"
        child.kill()
        child.kill()
        child.process.end()
        child.process.let_go()
        assert child.process.returncode == 3
        assert not Path(f"/proc/{child.process.pid}").exists()

    wait_for(work())
    assert len(sent) == 1


def test_this_machine_is_a_host_in_our_home_without_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    program = tmp_path / "program"
    program.write_text("""#!/bin/sh
[ "$1" = --version ] && { echo iotax-engine 1; exit; }
read -r line
printf '{"event": "heard", "line": %s, "secret": "%s"}\\n' "$line" "$IT"
""")
    program.chmod(0o755)
    host = LocalHost(Host(name="localhost"))

    async def work() -> tuple[str, object, tuple[int | None, str]]:
        command = await host.install(Binary(program))
        assert (tmp_path / command).read_bytes() == program.read_bytes()
        task = await host.start(command, {"a": 1}, secrets={"IT": "hidden"})
        try:
            heard = await task.expect("heard", 30)
        finally:
            await task.end()
        return await host.run("pwd"), heard, await host.ask("echo no; exit 3", "", 30, 100)

    folder, heard, asked = wait_for(work())
    assert folder.strip() == str(tmp_path)
    assert heard == {"event": "heard", "line": {"a": 1}, "secret": "hidden"}
    assert asked == (3, "no\n")


def test_a_task_that_fails_on_this_machine_as_a_host_is_that_hosts_fault() -> None:
    host = LocalHost(Host(name="localhost"))

    async def work() -> None:
        task = await host.start("sh -c 'exit 7'", {})
        try:
            await task.event(30)
        finally:
            await task.end()

    with pytest.raises(HostFault, match=r"^localhost: the engine there ended with exit code 7") as failed:
        wait_for(work())
    assert failed.value.host == "localhost"
    with pytest.raises(HostFault, match=r"^localhost: false failed: 1$"):
        wait_for(host.run("false"))


def test_what_a_host_takes_down_at_its_end_is_not_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    script = "trap '' HUP PIPE; cat >/dev/null; sleep 4; touch down"

    async def work() -> None:
        task = await LocalHost(Host(name="localhost")).start(f"sh -c {shlex.quote(script)}", {})
        await task.end()

    wait_for(work())
    assert (tmp_path / "down").exists()


def test_localhost_is_this_machine_unless_a_way_to_it_is_said() -> None:
    assert Host(name="localhost").is_here
    assert not any(Host(name="localhost", **more).is_here for more in ({"port": 2222}, {"user": "joe"}, {"via": "h"}))
    assert not Host(name="h1").is_here
