"""Hosts for tests: network namespaces on their own bridge, an sshd in each, and a home folder with SSH keys."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from needed import missing

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin") or ""


def need() -> None:
    """Skips the test where such hosts cannot be created; with CI=true it fails instead."""
    reason = ""
    if os.geteuid() != 0:
        reason = "namespaces need root"
    elif not SSHD:
        reason = "sshd is not installed (Debian package openssh-server)"
    elif shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin") is None:
        reason = "ip is not installed (Debian package iproute2)"
    else:
        name = f"iotax-try-{os.getpid()}"
        done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        reason = f"no namespaces: {done.stderr.strip()}" if done.returncode else ""
    if reason:
        missing(reason)


class Network:
    """`count` hosts, `h1` and up, that reach each other and the controller. SSH uses the test's own HOME."""

    def __init__(
        self,
        folder: Path,
        count: int,
        environment: Mapping[str, Mapping[str, str]] | None = None,
        roots: Mapping[str, Path] | None = None,
        behind: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` sets variables of logins, per host; a HOME there gives the host its own home. `roots` are file
        systems that logins of some hosts see instead of the machine's. A host in `behind` shares a network only with
        the host named there."""
        self._environment, self._roots, self._behind = environment or {}, roots or {}, behind or {}
        self.folder, self.names = folder, [f"h{number}" for number in range(1, count + 1)]
        self._tag = f"{os.getpid() % 10000}"
        # Each test process has its own subnet, because several run at the same time.
        self._subnet = f"10.{200 + os.getpid() // 250 % 50}.{os.getpid() % 250 + 1}"
        self._bridge = f"ix{self._tag}"
        self._sshd: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    @property
    def here(self) -> str:
        """The controller's address on this network."""
        return f"{self._subnet}.1"

    @property
    def nobody(self) -> str:
        """An address that no host has."""
        return f"{self._subnet}.250"

    def address(self, name: str) -> str:
        if name in self._behind:
            return f"192.168.{self.names.index(name) + 11}.2"
        return f"{self._subnet}.{self.names.index(name) + 11}"

    def address_towards(self, name: str) -> str:
        """The address at which this host reaches the host it is behind."""
        return f"192.168.{self.names.index(name) + 11}.1"

    def home(self, name: str) -> Path:
        """The home folder of the host's logins."""
        if (root := self._roots.get(name)) is not None:
            return root / "home"
        return Path(self._environment.get(name, {}).get("HOME", self.folder / f"home-{name}"))

    def namespace(self, name: str) -> str:
        return f"iotax-{self._tag}-{name}"

    def run(self, name: str, *words: str) -> str:
        """Runs a command in the host's network namespace."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.namespace(name), *words], capture_output=True, text=True, check=True
        )
        return done.stdout

    def beside(self, name: str, *words: str) -> str:
        """Like `run`, but in the mount namespace of the host's logins."""
        inside = ["nsenter", "-t", str(self._sshd[name].pid), "-m", "-n", *words]
        return subprocess.run(inside, capture_output=True, text=True, check=True).stdout

    def processes(self, name: str, of: str, *, whole: bool = False) -> list[int]:
        """Process ids of the host whose command line contains `of`, or is it."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.namespace(name)], capture_output=True, text=True, check=True
        ).stdout.split()
        here = []
        for pid in map(int, found):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().rstrip()
                if of == line if whole else of in line:
                    here.append(pid)
        return here

    def kill(self, name: str, of: str, sent: signal.Signals = signal.SIGKILL) -> int:
        """Signals those processes that have not ended meanwhile, and returns how many there were."""
        count = 0
        for pid in self.processes(name, of):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sent)
                count += 1
        return count

    def link(self, name: str, state: str) -> None:
        subprocess.run(["ip", "link", "set", self._outside(name), state], check=True)

    def close(self) -> None:
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.kill(name, "")
        for process in self._sshd.values():
            process.kill()
            process.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", self.namespace(name)], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", self._outside(name)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)

    def _outside(self, name: str) -> str:
        return f"ix{self._tag}{name}"

    def _make(self) -> None:
        def ip(*words: str) -> None:
            subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

        home = self.folder / "home"
        ssh = home / ".ssh"
        ssh.mkdir(parents=True, mode=0o700)
        for key in (ssh / "id_ed25519", self.folder / "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        (ssh / "authorized_keys").write_text((ssh / "id_ed25519.pub").read_text())
        host_key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        (ssh / "known_hosts").write_text("".join(f"{self.address(name)} {host_key}\n" for name in self.names))
        ip("link", "add", self._bridge, "type", "bridge")
        ip("addr", "add", f"{self._subnet}.1/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for name in self.names:
            space, outside = self.namespace(name), self._outside(name)
            ip("netns", "add", space)
            ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
            if name in self._behind:
                way = self.namespace(self._behind[name])
                ip("link", "set", outside, "netns", way)
                ip("-n", way, "addr", "add", f"{self.address_towards(name)}/24", "dev", outside)
                ip("-n", way, "link", "set", outside, "up")
            else:
                ip("link", "set", outside, "master", self._bridge, "up")
            ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            self._start_sshd(name, ssh)
        until_s = time.monotonic() + 30
        for name in self.names:
            while not self.run(name, "ss", "-Hltn", "sport = :22").strip():
                assert time.monotonic() < until_s, f"sshd of {name} did not come up"
                time.sleep(0.05)

    def _start_sshd(self, name: str, ssh: Path) -> None:
        Path("/run/sshd").mkdir(exist_ok=True, mode=0o755)
        host_home = self.home(name)
        host_home.mkdir(exist_ok=True)
        given = {"HOME": str(host_home), **self._environment.get(name, {})}
        shell = "exec sh -c"
        if (root := self._roots.get(name)) is not None:
            given["HOME"] = f"/{host_home.relative_to(root)}"
            shell = f'exec {shutil.which("chroot")} {root} /bin/sh -c \'cd "$HOME"; eval "$0"\''
        variables = " ".join(f"{key}={value}" for key, value in given.items())
        config = self.folder / f"sshd-{name}"
        config.write_text(
            f"HostKey {self.folder}/host_key\nAuthorizedKeysFile {ssh}/authorized_keys\nStrictModes no\nUsePAM no\n"
            f"PidFile none\nPasswordAuthentication no\nSubsystem sftp internal-sftp -d {host_home}\n"
            f"ListenAddress {self.address(name)}\nPermitRootLogin yes\n"
            # Each host has its own home folder, although all logins are the same user.
            f'SetEnv {variables}\nForceCommand cd {host_home} && if [ -n "$SSH_ORIGINAL_COMMAND" ]; then '
            'case "$SSH_ORIGINAL_COMMAND" in *sftp-server*|internal-sftp*) exec /usr/lib/openssh/sftp-server;; '
            f'*) {shell} "$SSH_ORIGINAL_COMMAND";; esac; fi\n'
        )
        self._sshd[name] = subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                self.namespace(name),
                SSHD,
                "-D",
                "-E",
                self.folder / f"sshd-{name}.log",
                "-f",
                config,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
