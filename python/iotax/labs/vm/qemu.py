"""One virtual machine as a process of ours.

It cannot outlive us: the kernel kills it when this process ends, however that ends (`ending_with_us`), and a guest
whose control port closes turns itself off. `close` kills it by its pidfd. It has a process group of its own, so that a
Ctrl-C of the terminal reaches only us.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from iotax.engine import EngineError, counter_rate_hz, find_engine
from iotax.labs.proc import SETPRIV, ending_with_us
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.image import Image
from iotax.labs.vm.plugin import Plugin

PROGRAM = "qemu-system-x86_64"
Accelerator: TypeAlias = Literal["kvm", "tcg"]
Clock: TypeAlias = Literal["host", "icount"]

_COMMAND_LINE = (
    "console=ttyS0 quiet mitigations=off nokaslr no5lvl panic=-1 oops=panic tsc=reliable no_timer_check "
    "random.trust_cpu=on cryptomgr.notests=1 rdinit=/init"
)
"""The kernel's tests of its own ciphers would take two fifths of a boot's instructions."""
_CONSOLE_LINES = 12


@dataclass(frozen=True)
class Nic:
    """One end of an Ethernet link between two guests: a UNIX stream socket, which loses nothing and needs no port."""

    socket: str
    """Its name in the machines' folder."""
    listens: bool
    mac: str


@dataclass(frozen=True)
class Machine:
    """The parts of a virtual machine."""

    name: str
    memory_bytes: int
    accelerator: Accelerator
    clock: Clock = "host"
    cpus: int = 1
    links: tuple[Nic, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for QEMU beside our own, such as where its block drivers are."""
    devices: tuple[str, ...] = ()
    """Further arguments: devices that no protocol of the lab needs."""
    plugin: Plugin | None = None
    """Counts the guest's instructions (iotax.labs.vm.counted)."""


def require_qemu() -> str:
    """QEMU's version. Raises VmFault if it is not installed or does not start."""
    if shutil.which(PROGRAM) is None:
        raise VmFault("qemu", f"{PROGRAM} is not there: install it with `apt-get install qemu-system-x86`")
    if shutil.which(SETPRIV) is None:
        raise VmFault("qemu", f"{SETPRIV} is not there: install it with `apt-get install util-linux`")
    done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise VmFault("qemu", f"{PROGRAM} does not start: {done.stderr.strip()}")
    return done.stdout.splitlines()[0].removeprefix("QEMU emulator version ")


def arguments(machine: Machine, image: Image, folder: Path, short: Path) -> list[str]:
    """QEMU's command line. Sockets and the console's log stand in `folder`; `short` is its name for sockets."""
    args = [
        PROGRAM,
        *("-M", "pc,hpet=off", "-cpu", "host" if machine.accelerator == "kvm" else "max", "-smp", str(machine.cpus)),
        *("-m", str(machine.memory_bytes >> 20), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", _command_line(machine)),
        *("-serial", f"file:{console_file(machine, folder)}"),
        *("-device", "virtio-serial-pci"),
        *("-chardev", f"socket,id=control,path={control_socket(machine, short)},server=on,wait=off"),
        *("-device", "virtserialport,chardev=control,name=iotax"),
        *("-qmp", f"unix:{monitor_socket(machine, short)},server=on,wait=off"),
    ]
    if machine.clock == "icount":
        # Guest time counts instructions, 4 ns each; idle time passes at the host's pace.
        args += ["-accel", "tcg,thread=single", "-icount", "shift=2,sleep=on"]
    else:
        args += ["-accel", machine.accelerator]
    if machine.plugin:
        args += ["-plugin", machine.plugin.option(counts_file(machine, folder))]
    for index, link in enumerate(machine.links):
        role = "server=on" if link.listens else "server=off"
        args += ["-netdev", f"stream,id=net{index},{role},addr.type=unix,addr.path={short / link.socket}"]
        args += ["-device", f"virtio-net-pci,netdev=net{index},mac={link.mac},romfile="]
    return [*args, *machine.devices]


def _command_line(machine: Machine) -> str:
    """With the rate of the host's time stamp counter, which an emulated guest sees as its own. A kernel that measures
    the rate as it boots gets a wrong one on a busy host, and keeps it."""
    if machine.accelerator == "tcg" and machine.clock == "host":
        with contextlib.suppress(EngineError):
            if rate_hz := counter_rate_hz(find_engine()):
                return f"{_COMMAND_LINE} tsc_early_khz={round(rate_hz / 1000)}"
    return _COMMAND_LINE


def console_file(machine: Machine, folder: Path) -> Path:
    return folder / f"{machine.name}.console"


def counts_file(machine: Machine, folder: Path) -> Path:
    """File of the plugin's counts."""
    return folder / f"{machine.name}.counts"


def control_socket(machine: Machine, folder: Path) -> Path:
    return folder / f"{machine.name}.control"


def monitor_socket(machine: Machine, folder: Path) -> Path:
    return folder / f"{machine.name}.monitor"


class Process:
    """A running QEMU."""

    def __init__(self, machine: Machine, image: Image, folder: Path) -> None:
        self.machine = machine
        # A socket's path has 107 bytes at most (unix(7)), and TMPDIR may be longer: a descriptor has a short name.
        self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        short = Path(f"/proc/self/fd/{self._folder_fd}")
        self.control = control_socket(machine, short)
        self.monitor = monitor_socket(machine, short)
        self._console = console_file(machine, folder)
        self._errors = (folder / f"{machine.name}.stderr").open("w+b")
        self.started_s = time.monotonic()
        try:
            self._process = subprocess.Popen(
                ending_with_us(arguments(machine, image, folder, short)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                process_group=0,
                pass_fds=[self._folder_fd],
                env=os.environ | dict(machine.environment),
            )
        except OSError as error:
            os.close(self._folder_fd)
            raise VmFault("qemu", f"{PROGRAM} cannot be started: {error.strerror}") from error
        self._pidfd = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def ended(self, within_s: float) -> bool:
        """Whether it ends by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return not self.alive()

    def console(self) -> str:
        """The last output of the guest's kernel: from its panic on, if there was one."""
        lines = self._console_lines()
        for index, line in enumerate(lines):
            if "Kernel panic" in line:
                return "\n".join(lines[max(0, index - _CONSOLE_LINES) : index + _CONSOLE_LINES])
        return "\n".join(lines[-_CONSOLE_LINES:])

    def _console_lines(self) -> list[str]:
        try:
            return self._console.read_bytes().decode(errors="replace").replace("\r", "").splitlines()
        except OSError:
            return []

    def ending(self) -> str:
        """Why a machine is gone or does not answer: the kernel's last words first."""
        for line in self._console_lines():
            if "Kernel panic" in line:
                return f"the {self.machine.name} guest's kernel gave up: {line[line.index('Kernel panic') :]}"
        if self.alive():
            return f"the {self.machine.name} guest does not answer"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        code = self._process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"QEMU of the {self.machine.name} guest {how}{': ' + said[-1] if said else ''}"

    def close(self) -> None:
        """Once more does nothing: its descriptors may be others' by then."""
        if self._errors.closed:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._process.wait()
        os.close(self._pidfd)
        os.close(self._folder_fd)
        self._errors.close()
