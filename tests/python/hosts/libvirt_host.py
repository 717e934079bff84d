"""A real libvirt for tests: this machine as the hypervisor, with one emulated guest; both are reached over SSH.

The daemon has folders of its own, in a mount namespace, so a libvirt of the machine is not touched.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from engine_process import ready, started
from iotax.labs.vm.image import CpioWriter, build
from needed import missing, program
from vm.kernel.machine import free_ports
from waits import wait_for

from .guest_hosts import with_ssh
from .namespaces import SSHD

GUEST, HYPERVISOR = "guest1", "kvm1"
VOLUME_BYTES = 8 << 20
_MAC, _ADDRESS = "52:54:00:00:02:31", "10.0.9.15"
# Takes the place of the vm lab's agent: these guests obey SSH only.
_AGENT = f""". /lab/lib.sh
. /lab/controllers.sh
load virtio_blk
forwarding_up {_MAC} {_ADDRESS}
hostname {GUEST}
mkdir -p -m 755 /run/sshd
/usr/sbin/sshd -f /etc/ssh/sshd_config
while :; do sleep 3600; done
"""
_COMMAND_LINE = "console=ttyS0 quiet mitigations=off tsc=reliable no_timer_check random.trust_cpu=on rdinit=/init"
_DOMAIN = """<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name><memory unit='MiB'>768</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{kernel}</kernel><initrd>{initramfs}</initrd><cmdline>{command_line}</cmdline></os>
  <features><acpi/></features><cpu mode='maximum'/>
  <devices><emulator>{emulator}</emulator>
    <serial type='file'><source path='{console}'/></serial><controller type='usb' model='none'/></devices>
  <qemu:commandline>
    <qemu:arg value='-netdev'/>
    <qemu:arg value='user,id=ssh,net=10.0.9.0/24,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:{port}-{address}:22'/>
    <qemu:arg value='-device'/>
    <qemu:arg value='virtio-net-pci,netdev=ssh,mac={mac},romfile=,addr=0x10'/>
  </qemu:commandline>
</domain>
"""
_DISK = """<disk type='{type}' device='disk'><driver name='qemu' type='raw' cache='none'/>{source}
<target dev='{device}' bus='virtio'/><serial>{serial}</serial></disk>
"""
_QEMU_CONF = 'user = "root"\ngroup = "root"\nsecurity_driver = "none"\nstdio_handler = "file"\nnamespaces = []\n'
_FOLDERS = ("/etc/libvirt", "/var/lib/libvirt", "/var/log/libvirt", "/var/cache/libvirt", "/run/libvirt")


class LibvirtHost:
    """libvirtd with the running guest, which has no disk yet; `disks` are two datastores, a file and an iSCSI LUN,
    each with the file that describes its disk to `virsh attach-device`. `home` has the controller's SSH keys."""

    def __init__(self, engine: Path, folder: Path) -> None:
        daemon, self._virsh = program("libvirtd", "libvirt-daemon"), program("virsh", "libvirt-clients")
        emulator = program("qemu-system-x86_64", "qemu-system-x86")
        if not SSHD:
            missing("sshd is not installed (Debian package openssh-server)")
        self.folder, self._undo = folder, contextlib.ExitStack()
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        for key in (self.home / ".ssh/id_ed25519", folder / "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        self.ports = dict(zip((GUEST, HYPERVISOR), free_ports(2), strict=True))
        host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
        known = "".join(f"[127.0.0.1]:{port} {host_key}\n" for port in self.ports.values())
        (self.home / ".ssh/known_hosts").write_text(known)
        try:
            self._undo.enter_context(_daemon(daemon, folder))
            self._undo.enter_context(_sshd(folder, self.ports[HYPERVISOR]))
            self._undo.enter_context(self._guest(engine, emulator))
            self.disks = self._datastores(engine)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._undo.close()

    @property
    def virsh(self) -> str:
        """The command up to its first word."""
        return f"{self._virsh} --quiet --connect 'qemu+unix:///system?socket={self.folder}/libvirt-sock'"

    def host(self, name: str) -> str:
        """The start of the host's entry in a study file."""
        return f"name: {name}, address: 127.0.0.1, port: {self.ports[name]}, user: root"

    def attached(self) -> list[str]:
        """Names of the guest's disks, as libvirt lists them."""
        said = _run(f"{self.virsh} domblklist {GUEST}")
        return [line.split()[0] for line in said.splitlines() if line.split()]

    @contextlib.contextmanager
    def _guest(self, engine: Path, emulator: str) -> Iterator[None]:
        image = with_ssh(build(engine, lambda _: None), self.folder, {}, multipath=False)
        with image.initramfs.open("ab") as out:
            archive = CpioWriter(out)
            archive.file("lab/agent.sh", _AGENT.encode())
            archive.close()
        console, described = self.folder / "console", self.folder / "guest.xml"
        described.write_text(
            _DOMAIN.format(
                name=GUEST, kernel=image.kernel, initramfs=image.initramfs, command_line=_COMMAND_LINE,
                emulator=emulator, console=console, port=self.ports[GUEST], address=_ADDRESS, mac=_MAC,
            )
        )  # fmt: skip
        _run(f"{self.virsh} create {described}")
        try:
            wait_for(lambda: self._answers(GUEST), f"the guest to answer; console: {console}")
            yield
        finally:
            _run(f"{self.virsh} destroy {GUEST}")

    def _answers(self, name: str) -> bool:
        words = ["ssh", "-F", "none", "-o", f"UserKnownHostsFile={self.home}/.ssh/known_hosts", "-o", "BatchMode=yes"]
        words += ["-o", "ConnectTimeout=10", "-i", f"{self.home}/.ssh/id_ed25519", "-p", str(self.ports[name])]
        return subprocess.run([*words, "root@127.0.0.1", "true"], capture_output=True, check=False).returncode == 0

    def _datastores(self, engine: Path) -> Mapping[str, Path]:
        volume = self.folder / "file.raw"
        with volume.open("wb") as file:
            file.truncate(VOLUME_BYTES)
        server = started(
            engine,
            "serve",
            {
                "volumes": [{"name": "v0", "media": "memory", "size_bytes": VOLUME_BYTES}],
                "exports": [{"protocol": "iscsi", "listen": "127.0.0.1:0", "volume": "v0"}],
            },
        )
        self._undo.enter_context(server)
        self._undo.callback(server.terminate)
        endpoint = ready(server)["portals"][0]["endpoint"]
        host, _, path = endpoint.removeprefix("iscsi://").partition("/")
        address, _, port = host.rpartition(":")
        lun = f"<source protocol='iscsi' name='{path}'><host name='{address}' port='{port}'/></source>"
        sources = {"file": ("file", f"<source file='{volume}'/>", "vdb"), "iscsi": ("network", lun, "vdc")}
        found = {}
        for name, (kind, source, device) in sources.items():
            found[name] = self.folder / f"{name}.xml"
            found[name].write_text(_DISK.format(type=kind, source=source, device=device, serial=f"{name}1"))
        return found


@contextlib.contextmanager
def _daemon(program_path: str, folder: Path) -> Iterator[None]:
    config, log = folder / "libvirtd.conf", folder / "libvirtd.log"
    config.write_text(
        f'unix_sock_dir = "{folder}"\nauth_unix_rw = "none"\nlog_outputs = "1:file:{log}"\nlog_level = 3\n'
    )
    mounts = []
    for number, place in enumerate(_FOLDERS):
        Path(place).mkdir(parents=True, exist_ok=True)
        own = folder / f"libvirt-{number}"
        own.mkdir()
        mounts.append(f"mount --bind {own} {place}")
    (folder / "libvirt-0/qemu.conf").write_text(_QEMU_CONF)
    # Debian's driver looks for this user, whatever its configuration says; a package that is not needed here makes it.
    for place, line in (("passwd", "libvirt-qemu:x:64055:64055::/:/bin/false"), ("group", "libvirt-qemu:x:64055:")):
        (folder / place).write_text(f"{Path('/etc', place).read_text()}{line}\n")
        mounts.append(f"mount --bind {folder / place} /etc/{place}")
    command = f"{' && '.join(mounts)} && exec {program_path} --config {config} --pid-file {folder}/libvirtd.pid"
    process = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", command])
    try:
        wait_for(lambda: (folder / "libvirt-sock").exists() or process.poll() is not None, "libvirtd")
        if process.poll() is not None:
            missing(f"libvirtd does not run here: {log.read_text() if log.exists() else process.returncode}")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextlib.contextmanager
def _sshd(folder: Path, port: int) -> Iterator[None]:
    """The hypervisor's logins: this machine."""
    config = folder / "sshd_config"
    config.write_text(
        f"HostKey {folder}/host_key\nAuthorizedKeysFile {folder}/home/.ssh/id_ed25519.pub\nPermitRootLogin yes\n"
        f"ListenAddress 127.0.0.1:{port}\nUsePAM no\nStrictModes no\nPidFile none\nSubsystem sftp internal-sftp\n"
        f"SetEnv HOME={folder}/home-{HYPERVISOR}\n"
    )
    (folder / f"home-{HYPERVISOR}").mkdir()
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-f", config], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _run(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
