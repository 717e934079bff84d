"""Hosts for tests that are virtual machines: the two guests of the vm lab, each with an sshd.

Their programs come from Debian packages: OpenSSH, nvme-cli, open-iscsi and mount. With several links they also have
multipathd and udev.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import get_args

from iotax.labs.vm import accelerator
from iotax.labs.vm.cache import cache_root
from iotax.labs.vm.guests import Guests, Role
from iotax.labs.vm.image import Contents, CpioWriter, Image, build
from iotax.labs.vm.libraries import package_closure
from iotax.labs.vm.modules import ModuleTree
from iotax.labs.vm.packages import Package, Store
from iotax.labs.vm.qemu import require_qemu
from vm.kernel.overlay import add_modules

MIB = 1 << 20
VOLUME_BYTES = 16 * MIB
ROLES: tuple[Role, ...] = get_args(Role)
_PROGRAMS = (
    ("openssh-server", "usr/sbin/sshd"),
    ("nvme-cli", "usr/sbin/nvme"),
    ("mount", "bin/mount"),
    ("mount", "bin/umount"),
    ("util-linux", "usr/bin/flock"),
    ("dash", "bin/dash"),
    ("iproute2", "bin/ip"),
    ("iputils-ping", "bin/ping"),
)
_MULTIPATH = (
    ("multipath-tools", "sbin/multipathd"),
    ("multipath-tools", "sbin/multipath"),
    ("multipath-tools", "lib/multipath/libchecktur.so"),
    ("multipath-tools", "lib/multipath/libprioconst.so"),
    ("udev", "bin/udevadm"),
    ("udev", "lib/udev/scsi_id"),
)
_RULES = (
    ("udev", "60-persistent-storage.rules"),
    ("dmsetup", "55-dm.rules"),
    ("dmsetup", "95-dm-notify.rules"),
    ("multipath-tools", "56-dm-mpath.rules"),
    ("multipath-tools", "60-multipath.rules"),
)
# The image's kernel has only two path selectors, and no ALUA handler, which multipathd would choose for this target by
# default.
_MULTIPATH_CONF = """defaults {
    find_multipaths no
    path_selector "queue-length 0"
}
blacklist {
    device {
        vendor "QEMU"
    }
}
devices {
    device {
        vendor "LIO-ORG"
        product "FILEIO"
        path_grouping_policy multibus
        detect_prio no
        prio const
        hardware_handler "0"
        no_path_retry fail
    }
}
"""
_MULTIPATH_UP = (
    "load dm_multipath dm_round_robin dm_queue_length; mkdir -p /run/udev; /usr/lib/systemd/systemd-udevd --daemon; "
    "udevadm trigger --subsystem-match=block --action=add; udevadm settle; multipathd; "
    "until_true 20 sh -c 'multipathd show daemon >/dev/null 2>&1' || die 'multipathd does not come up'"
)
_SSHD = """HostKey /etc/ssh/host_key
AuthorizedKeysFile /root/.ssh/authorized_keys
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
UseDNS no
PidFile none
Subsystem sftp internal-sftp
SetEnv PATH=/opt/host:/usr/sbin:/usr/bin:/sbin:/bin
"""
_PASSWD = """root:x:0:0:root:/root:/opt/host/sh
sshd:x:102:65534::/run/sshd:/bin/false
_rpc:x:101:65534::/run/rpcbind:/bin/false
postgres:x:103:103::/:/bin/sh
"""
_HOST_ID = "6f746178-0000-4000-8000-000000000002"
_ATTACHED = (
    "ls -d /root/.cache/iotax/path-* /sys/class/nvme/nvme* /sys/class/iscsi_session/session* 2>/dev/null; "
    "grep /.cache/iotax/ /proc/mounts; for each in /proc/[0-9]*/exe; do readlink $each; done | grep engine-; :"
)
NOTHING_LEFT_S = 120.0
"""Covers a lease of 15 s and the time in which an emulated machine takes a path down."""


class GuestHosts:
    """The guests `storage` and `initiator` on the network 10.0.0.0/24.

    The storage guest's kernel serves the volume over every protocol. With several links it serves the volume over each
    of them, 10.0.N.0/24. `home` is the controller's home folder with its SSH keys.
    """

    def __init__(
        self,
        engine: Path,
        folder: Path,
        *,
        links: int = 1,
        files: Mapping[str, bytes] | None = None,
        database: bool = False,
        volume_bytes: int = VOLUME_BYTES,
    ) -> None:
        """`files` go below /test of both guests, with the kernel modules that tests of the vm lab's kernels use. With
        `database`, both guests have PostgreSQL."""
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        for key in (self.home / ".ssh/id_ed25519", folder / "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        image = build(engine, lambda _: None, contents=Contents(database=database))
        image = with_ssh(image, folder, files or {}, multipath=links > 1)
        kind, _ = accelerator.choose(image, "auto", require_qemu())
        self.guests = Guests(image, accelerator=kind, clock="host", volume_bytes=4 * volume_bytes, links=links)
        try:
            self.ports = {role: self._reachable(role) for role in ROLES}
            host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
            known = "".join(f"[127.0.0.1]:{port} {host_key}\n" for port in self.ports.values())
            (self.home / ".ssh/known_hosts").write_text(known)
            self.guests["storage"].run(f"volume_up {volume_bytes}")
            for protocol in ("nvme-tcp", "iscsi", "nfs4.1"):
                self.guests["storage"].run(f"PATHS={links} step {protocol} target_up")
            # Debian's unit of iscsid loads its transport module as well. The lab has to load the other modules.
            self.guests["initiator"].run(
                f"PATHS={links} net_up 2; load iscsi_tcp; . /lab/iscsi_common.sh; iscsid_with </dev/null"
            )
            if links > 1:
                self.guests["initiator"].run(_MULTIPATH_UP)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.guests.close()

    def host(self, role: Role) -> str:
        """The host entry of a study file."""
        address = {"storage": "10.0.0.1", "initiator": "10.0.0.2"}[role]
        return f"{{name: {role}, address: 127.0.0.1, port: {self.ports[role]}, user: root, data_address: {address}}}"

    def attached(self) -> list[str]:
        """What a study left or still holds on the initiator: paths, mounts, journal entries and engines."""
        return [line for line in self.guests["initiator"].run(_ATTACHED) if line]

    def until(self, condition: Callable[[list[str]], object], what: str) -> None:
        until_s = time.monotonic() + NOTHING_LEFT_S
        while not condition(found := self.attached()):
            assert time.monotonic() < until_s, f"waited too long for {what}: {found}"

    def _reachable(self, role: Role) -> int:
        """Adds a network device to the guest. Returns the local port that forwards to the guest's sshd."""
        guest, mac, address = self.guests[role], f"52:54:00:00:02:{len(role):02x}", "10.0.9.15"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        user = {"type": "user", "id": "ssh", "net": "10.0.9.0/24", "restrict": True, "ipv6": False}
        user["hostfwd"] = [{"str": f"tcp:127.0.0.1:{port}-{address}:22"}]
        guest.monitor.execute("netdev_add", user, timeout_s=20)
        device = {"driver": "virtio-net-pci", "netdev": "ssh", "id": "ssh", "mac": mac, "romfile": ""}
        guest.monitor.execute("device_add", device, timeout_s=20)
        guest.run(f". /lab/controllers.sh; forwarding_up {mac} {address}")
        guest.run(f"hostname {role}; mkdir -p -m 755 /run/sshd; /usr/sbin/sshd -f /etc/ssh/sshd_config")
        return port


def with_ssh(image: Image, folder: Path, files: Mapping[str, bytes], *, multipath: bool) -> Image:
    """Appends a second archive to the image; the kernel unpacks both."""
    store, asked = Store(cache_root() / "packages"), (*_PROGRAMS, *(_MULTIPATH if multipath else ()))
    packages = store.fetch([*(name for name, _ in asked), "dmsetup"])
    programs = [(packages[name], packages[name].root / path) for name, path in asked]
    made = folder / "initramfs"
    with made.open("wb") as out:
        out.write(image.initramfs.read_bytes())
        archive = CpioWriter(out)
        for package, path in programs:
            place = str(path.relative_to(package.root)).removeprefix("usr/")
            archive.file(f"usr/{place}", path.read_bytes(), 0o755)
        # busybox's shell prefers busybox's own commands, whatever PATH says; so this uses dash.
        archive.file("opt/host/sh", (packages["dash"].root / "bin/dash").read_bytes(), 0o755)
        for target, (_, path) in package_closure(store, programs).items():
            archive.file(target, path.read_bytes(), 0o755)
        archive.file("root/.ssh/authorized_keys", (folder / "home/.ssh/id_ed25519.pub").read_bytes(), 0o600)
        archive.file("etc/ssh/host_key", (folder / "host_key").read_bytes(), 0o600)
        archive.file("etc/ssh/sshd_config", _SSHD.encode())
        archive.file("etc/passwd", _PASSWD.encode())
        archive.file("etc/nvme/hostnqn", f"nqn.2014-08.org.nvmexpress:uuid:{_HOST_ID}\n".encode())
        archive.file("etc/nvme/hostid", f"{_HOST_ID}\n".encode())
        if files:
            name = store.kernel_package()
            add_modules(archive, ModuleTree([store.fetch([name])[name].root], image.release), image)
        for name, data in files.items():
            archive.file(f"test/{name}", data)
        if multipath:
            _multipath(archive, packages)
        archive.close()
    return replace(image, initramfs=made)


def _multipath(archive: CpioWriter, packages: Mapping[str, Package]) -> None:
    """Adds udev and multipathd, and a serial number for the LUN, by which multipathd groups its paths."""
    archive.file("usr/lib/systemd/systemd-udevd", (packages["udev"].root / "bin/udevadm").read_bytes(), 0o755)
    for package, name in _RULES:
        rules = packages[package].root / "lib/udev/rules.d" / name
        archive.file(f"usr/lib/udev/rules.d/{name}", rules.read_bytes())
    archive.file("etc/multipath.conf", _MULTIPATH_CONF.encode())
    target = (resources.files("iotax.labs.vm") / "guest" / "scsi_target.sh").read_text(encoding="utf-8")
    enabled = "echo 1 >$_store/enable"
    assert enabled in target
    serial = "echo iotax$number >$_store/wwn/vpd_unit_serial || die 'no serial number'"
    archive.file("lab/scsi_target.sh", target.replace(enabled, f"{serial}\n        {enabled}").encode())
