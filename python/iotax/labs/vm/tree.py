"""Kernels that the lab builds: a commit of a git repository, configured as the distribution's kernel is.

A study writes `kernel: ./linux@v6.6`. Of the distribution's modules only those that the lab may load are built, and no
drivers of devices that the lab's machines lack. A built kernel stays in the cache, by commit, configuration, modules
and compiler. The folder of the last build stays there too: in it the next commit changes its own files, and make builds
what depends on them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from iotax.labs.vm.cache import by_use, cache_root, keep, need_space, new_entry, prune, sound
from iotax.labs.vm.fault import VmFault

SUBJECT = "kernel"
_TOOLS = ("git", "make", "gcc", "ld", "flex", "bison", "bc", "perl")
_BUILD_BYTES, _BUILD_AGAIN_BYTES = 6 << 30, 2 << 30
_FOLDER = "kernel-build"
"""Below the cache; kernels are built in it, one after another."""
_MADE_OF = "made-of"
"""A file in that folder, absent while a kernel is built."""
_SPARED = 8
"""Kernels that stay in the cache though no run uses them."""
_REPORT_S = 30.0
_OFF = (
    # What takes long and is in no figure: debug information, and signatures, which need a key.
    *("DEBUG_INFO", "DEBUG_INFO_DWARF4", "DEBUG_INFO_DWARF5", "DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT", "DEBUG_INFO_BTF"),
    *("MODULE_SIG", "SECURITY_LOCKDOWN_LSM", "SYSTEM_TRUSTED_KEYRING", "SYSTEM_REVOCATION_LIST", "LOCALVERSION_AUTO"),
)
_ABSENT = (
    # Drivers of what the lab's machines do not have.
    *("DRM", "FB", "AGP", "SOUND", "MEDIA_SUPPORT", "USB_SUPPORT", "HAMRADIO", "ISDN", "WAN", "FDDI"),
    *("INPUT_JOYSTICK", "INPUT_TABLET", "INPUT_TOUCHSCREEN", "INPUT_MISC", "NEW_LEDS", "ACCESSIBILITY"),
    *("STAGING", "I2C", "SPI", "PINCTRL", "GPIOLIB", "PWM", "REGULATOR", "HWMON", "POWER_SUPPLY", "POWERCAP"),
    *("WATCHDOG", "EDAC", "CHROME_PLATFORMS", "SURFACE_PLATFORMS", "X86_PLATFORM_DEVICES", "MACINTOSH_DRIVERS"),
    *("GOOGLE_FIRMWARE", "FUSION", "AMD_IOMMU", "INTEL_IOMMU", "CXL_BUS", "TCG_TPM", "X86_SGX", "INTEL_TXT"),
    *("PSTORE", "RAS", "IMA", "EVM"),
    # What a machine does between its runs.
    *("HIBERNATION", "KEXEC", "KEXEC_FILE", "CRASH_DUMP", "LIVEPATCH"),
)
_ON = ("DEBUG_INFO_NONE", "MAC80211_MESH")
_MODULES = (
    # Parts of the kernel that distributions leave out and the lab uses.
    *("VDPA", "VDPA_USER", "VIRTIO_VDPA", "NVME_TARGET_FCLOOP"),
    # Nobody loads these. But with them a kernel gives every packet more room for headers (MAX_HEADER) and clears it.
    *("CFG80211", "MAC80211", "NET_IPIP"),
)


@dataclass(frozen=True)
class Commit:
    """One commit of a repository."""

    tree: Path
    named: str
    """As the study writes it: a tag, a branch or a hash."""
    digest: str

    @property
    def short(self) -> str:
        return self.digest[:12]

    def __str__(self) -> str:
        return f"{self.named} ({self.short}) of {self.tree}"


@cache
def commit_of(kernel: str) -> Commit:
    """The commit that `kernel:` names as TREE@COMMIT; a branch stays where it was when first asked. Raises VmFault."""
    tree, _, named = kernel.rpartition("@")
    if shutil.which("git") is None:
        raise VmFault(SUBJECT, f"git is not there, and {kernel} names a commit; install the package git")
    if not (Path(tree) / "Makefile").is_file() or not (Path(tree) / "Kconfig").is_file():
        raise VmFault(
            SUBJECT, f"{tree} is not the source of a kernel; write ./linux@COMMIT, or the folder of a built one"
        )
    done = subprocess.run(
        ["git", "-C", tree, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{named}^{{commit}}"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if done.returncode:
        reason = done.stderr.strip().partition("\n")[0] or f"it has no commit '{named}'; fetch it first"
        raise VmFault(SUBJECT, f"{tree}: {reason}")
    return Commit(Path(tree), named, done.stdout.strip())


def version_of(commit: Commit) -> str:
    """Of Linux, such as 6.6, by the commit's Makefile. Raises VmFault."""
    makefile = _git(commit, "show", f"{commit.digest}:Makefile")
    numbers = [re.search(rf"^{name} = (\d+)$", makefile, re.MULTILINE) for name in ("VERSION", "PATCHLEVEL")]
    if None in numbers:
        raise VmFault(SUBJECT, f"the Makefile of {commit} names no version of Linux")
    return ".".join(each[1] for each in numbers if each)


def build(commit: Commit, config: Path, modules: Sequence[str], report: Callable[[str], None]) -> Path:
    """The folder of its kernel, with boot and lib/modules; built if the cache has none. `config` is the distribution's,
    `modules` are the names of those that are wanted. For whoever holds the cache's lock. Raises VmFault."""
    if absent := [each for each in _TOOLS if shutil.which(each) is None]:
        raise VmFault(SUBJECT, f"{commit} cannot be built without {', '.join(absent)}; install what is missing")
    root, made_of = cache_root(), _made_of(config, modules)
    place = root / "kernels" / f"{commit.short}-{made_of}"
    if not sound(place):
        with _folder(root, made_of) as folder, new_entry(place) as entry:
            _Build(commit, folder, report).into(entry, config, modules)
        prune(by_use(place.parent)[_SPARED:])
    keep(place)
    return place


def _made_of(config: Path, modules: Sequence[str]) -> str:
    """Names what a commit is built with."""
    gcc = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=False, timeout=60).stdout
    chosen = repr((sorted(modules), _OFF, _ABSENT, _ON, _MODULES, gcc))
    return hashlib.sha256(config.read_bytes() + chosen.encode()).hexdigest()[:12]


@contextlib.contextmanager
def _folder(root: Path, made_of: str) -> Generator[Path]:
    """The folder of the last build if that was made of the same, else an empty one. Removed if this build fails."""
    folder = root / _FOLDER
    mark = folder / _MADE_OF
    again = mark.is_file() and mark.read_text() == made_of
    if not again:
        shutil.rmtree(folder, ignore_errors=True)
    need_space(root, _BUILD_AGAIN_BYTES if again else _BUILD_BYTES)
    folder.mkdir(exist_ok=True)
    mark.unlink(missing_ok=True)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    mark.write_text(made_of)


class _Build:
    def __init__(self, commit: Commit, folder: Path, report: Callable[[str], None]) -> None:
        self._commit, self._source, self._report = commit, folder / "linux", report
        self._index = folder / "index"
        self._log = cache_root() / f"kernel-{commit.short}.log"

    def into(self, entry: Path, config: Path, modules: Sequence[str]) -> None:
        self._report(f"kernel: source of {self._commit}")
        self._log.write_bytes(b"")
        self._check_out()
        self._configure(config, modules)
        self._make("-j", str(len(os.sched_getaffinity(0))), "bzImage", "modules", said="built")
        release = self._make("-s", "kernelrelease")[-1]
        boot = entry / "boot"
        boot.mkdir()
        shutil.copy(self._source / "arch/x86/boot/bzImage", boot / f"vmlinuz-{release}")
        shutil.copy(self._source / "System.map", boot / f"System.map-{release}")
        shutil.copy(self._source / ".config", boot / f"config-{release}")
        self._make(f"INSTALL_MOD_PATH={entry}", "INSTALL_MOD_STRIP=1", "DEPMOD=true", "modules_install")
        for link in ("build", "source"):
            (entry / "lib/modules" / release / link).unlink(missing_ok=True)
        self._log.unlink()

    def _check_out(self) -> None:
        """Writes the files that differ from the commit that was here, with an index of our own: the user's repository
        stays as it is."""
        self._source.mkdir(exist_ok=True)
        known = _git(self._commit, "rev-parse", "--absolute-git-dir").strip()
        plain = ("-c", "core.sparseCheckout=false", "-c", "core.fsmonitor=false")
        words = ["git", *plain, f"--git-dir={known}", f"--work-tree={self._source}", "read-tree", "--reset", "-u"]
        done = subprocess.run(
            [*words, self._commit.digest], env={**os.environ, "GIT_INDEX_FILE": str(self._index)}, cwd=self._source,
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        if done.returncode:
            reason = done.stderr.strip().partition("\n")[0]
            raise VmFault(SUBJECT, f"{self._commit} cannot be checked out: {reason}")

    def _configure(self, config: Path, modules: Sequence[str]) -> None:
        """As the distribution's kernel, with the wanted modules only. New choices of the commit get their defaults."""
        shutil.copy(config, self._source / ".config")
        self._make("olddefconfig")
        loaded = self._source / "wanted-modules"
        loaded.write_text("Module Size Used by\n" + "".join(f"{each} 1 0\n" for each in sorted(modules)))
        self._make(f"LSMOD={loaded}", "localmodconfig")
        words = [word for name in (*_OFF, *_ABSENT) for word in ("--disable", name)]
        words += [word for name in _ON for word in ("--enable", name)]
        words += [word for name in _MODULES for word in ("--module", name)]
        words += ["--set-str", "LOCALVERSION", f"-{self._commit.short}", "--set-str", "SYSTEM_TRUSTED_KEYS", ""]
        self._run(["scripts/config", *words])
        self._make("olddefconfig")

    def _make(self, *words: str, said: str = "") -> list[str]:
        return self._run(["make", *words], said)

    def _run(self, words: Sequence[str], said: str = "") -> list[str]:
        """What the command printed, which the log keeps; with `said`, the files that it compiles are counted aloud.
        Raises VmFault with the first error."""
        lines, spoken_s, compiled = [], time.monotonic(), 0
        with (
            self._log.open("a") as log,
            subprocess.Popen(
                words,
                cwd=self._source,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            ) as process,
        ):
            try:
                for line in process.stdout or ():
                    log.write(line)
                    lines.append(line.rstrip("\n"))
                    compiled += bool(re.match(r"\s+(CC|AS)\s", line))
                    if said and time.monotonic() - spoken_s > _REPORT_S:
                        self._report(f"kernel: {self._commit.named}, {compiled} files {said}")
                        spoken_s = time.monotonic()
            except BaseException:
                os.killpg(process.pid, signal.SIGTERM)
                raise
            status = process.wait()
        if status:
            errors = [line for line in lines if re.search(r"error|not found|No such file", line, re.IGNORECASE)]
            first = (errors or lines or ["no reason given"])[0].strip()
            raise VmFault(SUBJECT, f"{self._commit} does not build: {first} (all of it: {self._log})")
        return lines


def _git(commit: Commit, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", commit.tree, *words], capture_output=True, text=True, errors="replace", check=False, timeout=60
    )
    if done.returncode:
        raise VmFault(SUBJECT, f"git {words[0]} of {commit}: {done.stderr.strip().partition(chr(10))[0]}")
    return done.stdout
