"""Command lines, the control port, faults and CPU accounts of the vm lab. QEMU is a script of the test."""

from __future__ import annotations

import base64
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from iotax.engine import counter_rate_hz
from iotax.labs.vm import accelerator
from iotax.labs.vm.counters import LoadCost, Reading, busy_ns_of
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import Guest
from iotax.labs.vm.image import Image
from iotax.labs.vm.preflight import findings
from iotax.labs.vm.qemu import PROGRAM, Machine, Nic, Process, arguments, require_qemu
from iotax.places import guest as guest_place
from iotax.places.guest import GuestLost, Port, StepFailed
from iotax.places.waiting import wait_for
from iotax.records import Core
from iotax.study import Settings
from iotax.study.endpoint import Endpoint
from iotax.study.model import Connection, Load, Topology, Volume

from .fakes import answer_lines, write_program

PANIC = "[    1.5] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100"


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path / "vmlinuz", tmp_path / "initramfs", "6.1.0", {}, {})


def words(machine: Machine, image: Image, tmp_path: Path) -> str:
    return " ".join(arguments(machine, image, tmp_path, tmp_path))


def test_an_exact_clock_counts_instructions(image: Image, tmp_path: Path) -> None:
    said = words(Machine("storage", 512 << 20, "tcg", "icount"), image, tmp_path)
    assert "-accel tcg,thread=single -icount shift=2,sleep=on" in said
    assert "-m 512 " in said


def test_a_link_is_a_unix_socket_that_one_end_listens_on(image: Image, tmp_path: Path) -> None:
    link = Nic("link", listens=True, mac="52:54:00:00:00:01")
    said = words(Machine("storage", 512 << 20, "tcg", links=(link,)), image, tmp_path)
    assert f"stream,id=net0,server=on,addr.type=unix,addr.path={tmp_path}/link" in said
    assert "virtio-net-pci,netdev=net0,mac=52:54:00:00:00:01,romfile=" in said


def test_kvm_shows_the_guest_the_hosts_processor(image: Image, tmp_path: Path) -> None:
    assert "-cpu host" in words(Machine("storage", 512 << 20, "kvm"), image, tmp_path)
    assert "-cpu max" in words(Machine("storage", 512 << 20, "tcg"), image, tmp_path)


def test_an_emulated_kernel_is_told_the_rate_of_the_hosts_counter(image: Image, tmp_path: Path, engine: Path) -> None:
    rate_hz = counter_rate_hz(engine)
    assert rate_hz is not None
    assert rate_hz > 100_000_000
    said = words(Machine("storage", 512 << 20, "tcg"), image, tmp_path)
    [told] = re.findall(r"tsc_early_khz=(\d+)", said)
    assert abs(int(told) * 1000 - rate_hz) < rate_hz / 1000
    # KVM's guests use KVM's clock. With a clock that counts instructions, the kernel measures the rate in that clock's
    # time.
    for other in (Machine("storage", 512 << 20, "kvm"), Machine("storage", 512 << 20, "tcg", "icount")):
        assert "tsc_early_khz" not in words(other, image, tmp_path)


CONSOLE = 'for word; do case "$word" in file:*) console="${word#file:}" ;; esac; done'


def test_a_machine_without_qemu_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path))
    with pytest.raises(VmFault, match="apt-get install qemu-system-x86"):
        require_qemu()
    assert [each.kind for each in findings([], 1 << 20) if each.subject == "qemu"] == ["error"]


def test_a_machine_without_apt_is_told_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path))
    asked = Settings(Load(), Volume(), Connection(), Endpoint("iscsi"), Topology())
    told = [each for each in findings([asked], 1 << 20) if each.subject in ("packages", "kernel")]
    assert [each.kind for each in told] == ["error"]
    assert "so it runs on Debian, Ubuntu, or in a container of one of them" in told[0].message


def test_a_folder_with_a_long_name_has_room_for_sockets(programs: Path, image: Image, tmp_path: Path) -> None:
    """Paths of UNIX sockets have at most 107 bytes, whatever TMPDIR is."""
    folder = tmp_path / ("long" * 20) / ("name" * 20)
    folder.mkdir(parents=True)
    listen = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); s.accept()"
    find = 'for word; do case "$word" in socket,id=control,*) path="${word#*path=}" ;; esac; done'
    write_program(programs / PROGRAM, f'{find}; exec {sys.executable} -c "{listen}" "${{path%%,*}}"')
    machine = Process(Machine("storage", 512 << 20, "tcg"), image, folder)
    try:
        wait_for(wait_for(Port.connect("guest", machine.control, 60)).close())
    finally:
        machine.close()
        machine.close()
    assert (folder / "storage.control").is_socket()


def test_a_kernel_that_panics_is_quoted(programs: Path, image: Image, tmp_path: Path) -> None:
    write_program(programs / PROGRAM, f"{CONSOLE}; echo '{PANIC}' >\"$console\"; exit 0")
    guest = Guest(Machine("storage", 512 << 20, "tcg"), image, tmp_path)
    try:
        with pytest.raises(VmFault, match="Kernel panic - not syncing: Attempted to kill init!") as caught:
            guest.boot(time.monotonic() + 1)
    finally:
        guest.close()
    assert PANIC in caught.value.console


def test_a_qemu_that_ends_is_quoted(programs: Path, image: Image, tmp_path: Path) -> None:
    write_program(programs / PROGRAM, "echo 'qemu: failed to set MSR 0x345' >&2; exit 1")
    guest = Guest(Machine("storage", 512 << 20, "tcg"), image, tmp_path)
    try:
        with pytest.raises(VmFault, match="ended with exit code 1: qemu: failed to set MSR 0x345"):
            guest.boot(time.monotonic() + 1)
    finally:
        guest.close()


def test_a_kvm_that_hangs_is_given_up_and_remembered(
    programs: Path, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(programs / PROGRAM, f"echo started >>{tmp_path}/starts; exec sleep 60")
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(accelerator, "_DEVICE", Path("/dev/null"))
    monkeypatch.setattr(accelerator, "_PROBE_S", 0.5)
    for _ in range(2):
        chosen, why = accelerator.choose(image, "auto", "7.2")
        assert chosen == "tcg"
        assert "a kernel does not boot in KVM" in why
    assert (tmp_path / "starts").read_text() == "started\n"
    with pytest.raises(VmFault, match="say `accelerator: tcg`"):
        accelerator.choose(image, "kvm", "7.2")


def test_without_a_device_there_is_no_kvm(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "_DEVICE", tmp_path / "kvm")
    assert accelerator.choose(image, "auto", "7.2") == ("tcg", "emulation, since there is no /dev/kvm")


def answering(path: Path, answer: Callable[[str, str], bytes]) -> None:
    """The guest's side of the control port; `answer` receives each script's number and text."""

    def answer_script(line: bytes) -> bytes:
        number, _, script = line.decode().strip().partition(" ")
        return answer(number, script if script.startswith("@") else base64.b64decode(script).decode())

    answer_lines(path, b"@ready 6.1.0\n", answer_script)


def test_a_script_gives_its_lines_and_its_last_words(tmp_path: Path) -> None:
    def answer(number: str, script: str) -> bytes:
        said = base64.b64encode(b"mount: refused\n").decode()
        return f"{script}\n\n@end {number} {int('bad' in script)} {said}\n".encode()

    answering(tmp_path / "port", answer)
    port = wait_for(Port.connect("guest", tmp_path / "port", 60))
    assert wait_for(port.ready(60)) == "6.1.0"
    assert wait_for(port.run("echo good", within_s=60)) == "echo good\n"
    with pytest.raises(StepFailed, match="mount: refused"):
        wait_for(port.run("bad", within_s=60))
    wait_for(port.close())


def test_a_guest_that_sleeps_is_nudged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_place, "_NUDGE_S", 0.05)
    heard: list[str] = []

    def answer(number: str, script: str) -> bytes:
        heard.append(script)
        return b"" if len(heard) == 1 else b"\n@end 1 0 \n"

    answering(tmp_path / "port", answer)
    port = wait_for(Port.connect("guest", tmp_path / "port", 60))
    wait_for(port.ready(60))
    assert wait_for(port.run("sleep 1", within_s=60)) == ""
    assert heard[:2] == ["sleep 1", ""]
    wait_for(port.close())


def test_an_engine_has_ended_only_when_what_ends_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine may end before the kill does. A kill that came late would hit the next engine."""
    monkeypatch.setattr(guest_place, "_NUDGE_S", 0.05)
    heard: list[str] = []

    def answer(number: str, script: str) -> bytes:
        heard.append(script.partition(" ")[0])
        ends = {"kill": b"\n@end 1 0 \n", "": b"\n@end 2 0 \n"}
        return ends.get(heard[-1], b"")

    answering(tmp_path / "port", answer)
    port = wait_for(Port.connect("guest", tmp_path / "port", 60))
    wait_for(port.ready(60))
    engine = wait_for(port.start("load", {}))
    wait_for(engine.end())
    assert heard[:3] == ["rm", "kill", ""]
    wait_for(port.close())


def test_a_guest_that_says_nothing_is_lost(tmp_path: Path) -> None:
    answering(tmp_path / "port", lambda _number, _script: b"")
    port = wait_for(Port.connect("guest", tmp_path / "port", 60))
    wait_for(port.ready(60))
    with pytest.raises(GuestLost, match="no answer in time"):
        wait_for(port.run("sleep 100", within_s=0.2))
    wait_for(port.close())


def reading(uptime_s: float, idle: int, iowait: int = 0, steal: int = 0, cpus: int = 1) -> Reading:
    return Reading.parse(f"COUNTERS {uptime_s} cpu 1 2 3 {idle} {iowait} 4 5 {steal} 0 0", cpus)


def test_busy_is_what_is_neither_idle_nor_waiting_nor_stolen() -> None:
    assert reading(10.0, 500).busy_ns(reading(12.0, 600, iowait=20, steal=30)) == 500_000_000


def test_a_targets_cost_leaves_out_what_it_spends_idle() -> None:
    cost = LoadCost(reading(10.0, 0), reading(12.0, 100), moved=1_000)
    assert cost.cpu_ns(500, idle_cores=0.0) == 500_000_000
    assert cost.cpu_ns(500, idle_cores=0.1) == 400_000_000
    assert LoadCost(reading(10.0, 0), reading(12.0, 100), moved=0).cpu_ns(500, 0.0) is None


def test_a_machines_ticks_are_not_trusted_but_its_idle_time_is() -> None:
    core = Core(
        cpu=0, user_ns=1, nice_ns=0, system_ns=2, irq_ns=0, softirq_ns=3, steal_ns=10, idle_ns=500, iowait_ns=90
    )
    assert busy_ns_of([core], 1_000) == 400


def test_of_two_processors_each_may_be_busy() -> None:
    assert reading(10.0, 1000, cpus=2).busy_ns(reading(12.0, 1150, cpus=2)) == 2_500_000_000
