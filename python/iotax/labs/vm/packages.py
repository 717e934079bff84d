"""Debian packages, fetched by the package manager and unpacked, never installed.

apt verifies what it downloads against its signed lists; the checksum it names is checked once more, and names the
place in the cache. Shared libraries are fetched only where a program asks for them: a Debian package depends directly
on the packages of every library that its programs link to (Debian policy §8.6). Members of archives are unpacked into a
folder, and never out of it, on every Python that iotax runs on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from iotax.labs.vm.cache import keep, need_space, new_entry, prune, sound
from iotax.labs.vm.fault import VmFault

_KERNEL = re.compile(r"linux-image-\d[\w.-]*")
STOCK = "stock"
"""The distribution's default kernel: what its metapackage names."""
_POSTGRESQL = re.compile(r"postgresql-\d+")
_DOWNLOAD_S = 600
_UNPACKED_FACTOR = 6
"""Factor by which a package may grow when unpacked."""

LEFT_OUT = re.compile(
    r"usr/share/(doc|man|locale|info|lintian|bash-completion|bug)(/|$)"
    r"|lib/modules/[^/]+/kernel/(sound|drivers/(gpu|media|staging|iio|hwmon|usb|isdn|bluetooth|video)"
    r"|drivers/net/(wireless|ethernet|can|usb|wan|hamradio)|net/(wireless|mac80211|bluetooth|can))(/|$)"
)
"""Files that no lab needs, hundreds of megabytes: left out when unpacking."""


@dataclass(frozen=True)
class Package:
    """A downloaded and unpacked package."""

    name: str
    version: str
    sha256: str
    root: Path
    """Holds the package's files under their own paths."""
    depends: tuple[str, ...]
    """The packages that it depends on directly, the first of each alternative."""

    def keep(self) -> None:
        """Keeps the entry in the cache until this process ends. Call while holding the cache's lock."""
        keep(self.root.parent)


@dataclass(frozen=True)
class _Listed:
    uri: str
    file: str
    size_bytes: int
    sha256: str


def require_tools() -> None:
    """Raises VmFault if there is no apt to download with."""
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise VmFault(
                "packages",
                f"{tool} is not there: the vm lab builds its image from Debian or Ubuntu packages, so it runs on "
                "Debian, Ubuntu, or in a container of one of them",
            )


def kernel_package() -> str:
    """The package of the newest stock kernel for this architecture. Raises VmFault."""
    require_tools()
    for meta in ("linux-image-amd64", "linux-image-generic"):
        for name in direct_depends(meta):
            if _KERNEL.fullmatch(name):
                return name
    raise VmFault(
        "kernel",
        "the package lists name no kernel (linux-image-amd64 or linux-image-generic); run `apt-get update` first",
    )


def kernel_of(release: str) -> str:
    """The package of the newest kernel of a release, such as 6.12, or of the very one that it names. Raises VmFault."""
    require_tools()
    done = subprocess.run(
        ["apt-cache", "pkgnames", f"linux-image-{release}"], capture_output=True, text=True, check=False, timeout=60
    )
    # Behind 6.1 there may come .0-56 but not 2: flavours (cloud, rt) and unsigned twins are other kernels.
    usual = re.compile(rf"linux-image-{re.escape(release)}(?!\d)[\d.+~-]*(\+deb\d[\d.]*)?-?(amd64|generic)")
    found = [name for name in done.stdout.split() if name == f"linux-image-{release}" or usual.fullmatch(name)]
    found = [name for name in found if _packaged(name)]
    if not found:
        raise VmFault(
            "kernel",
            f"the package lists know no kernel {release}; `apt-cache search linux-image` names those that they know, "
            "and a distribution's backports have newer ones",
        )
    return max(found, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def _packaged(name: str) -> bool:
    """Whether it is a kernel, not a metapackage that only names one."""
    return not any(_KERNEL.match(each) for each in direct_depends(name))


def postgresql_package() -> str:
    """The package of the release that the distribution has. Raises VmFault."""
    require_tools()
    for name in direct_depends("postgresql"):
        if _POSTGRESQL.fullmatch(name):
            return name
    raise VmFault("packages", "the package lists name no postgresql; run `apt-get update` first")


def direct_depends(name: str) -> tuple[str, ...]:
    """The packages that a package depends on, by name; empty if it is unknown."""
    done = subprocess.run(
        ["apt-cache", "--no-recommends", "--no-suggests", "depends", name],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return tuple(re.findall(r"^ +\|?(?:Pre)?Depends: ([^<>\s]+)", done.stdout, re.MULTILINE))


def exists(name: str) -> bool:
    """Whether the package lists know it; a machine without apt has none."""
    if shutil.which("apt-cache") is None:
        return False
    done = subprocess.run(["apt-cache", "show", name], capture_output=True, check=False, timeout=60)
    return done.returncode == 0


class Store:
    """Packages downloaded and unpacked below one folder. A package once there is used again, until `update`."""

    def __init__(self, folder: Path, *, update: bool = False) -> None:
        self._folder = folder
        self.strict = False
        """Compares every file of a package with its checksum before use, and fetches different ones again."""
        folder.mkdir(parents=True, exist_ok=True)
        self._index_file = folder / "index.json"
        self._index: dict[str, str] = {}
        self.resting = not update
        """Whether an earlier decision is still valid."""
        self._decisions = folder / "kernels.json"
        if update:
            self._decisions.unlink(missing_ok=True)
        if not update and self._index_file.is_file():
            with contextlib.suppress(ValueError):
                self._index = json.loads(self._index_file.read_text())

    @property
    def filled(self) -> bool:
        """Whether an image was built from it before."""
        return any(_KERNEL.fullmatch(name) for name in self._index)

    def kernel_package(self, release: str = STOCK) -> str:
        """The package of the kernel in use for a release, else of the newest. Raises VmFault."""
        decided = self._decided()
        if release in decided:
            return decided[release]
        if release != STOCK:
            return kernel_of(release)
        for name in self._index:
            if _KERNEL.fullmatch(name) and name not in decided.values():
                return name
        return kernel_package()

    def decide(self, release: str, name: str) -> None:
        """The kernel of a release from now on, until `update`; it has been fetched."""
        self._decisions.write_text(json.dumps(self._decided() | {release: name}, indent=1, sort_keys=True))

    def knows(self, name: str) -> bool:
        """Whether it exists here, or in the package lists."""
        return self._holds(name) or exists(name)

    def _decided(self) -> dict[str, str]:
        """Release → the kernel that was taken for it."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads(self._decisions.read_text())
        return {}

    def postgresql_package(self) -> str:
        """The package of the release in use, else of the distribution's. Raises VmFault."""
        for name in self._index:
            if _POSTGRESQL.fullmatch(name):
                return name
        return postgresql_package()

    def fetch(self, names: Iterable[str]) -> dict[str, Package]:
        """Name → package, downloaded unless it already exists. NAME=VERSION is that very version, if the archive still
        has it. Raises VmFault."""
        wanted = list(dict.fromkeys(names))
        missing = [name for name in wanted if not self._holds(name)]
        if missing:
            require_tools()
            listed = _listed(missing)
            new = {name: each for name, each in listed.items() if not self._usable(each.sha256)}
            if new:
                need_space(self._folder, _UNPACKED_FACTOR * sum(each.size_bytes for each in new.values()))
                _download(new, self._folder)
            self._index |= {name: each.sha256 for name, each in listed.items()}
            self._index_file.write_text(json.dumps(self._index, indent=1, sort_keys=True))
        return {name: _read(self._folder / self._index[name]) for name in wanted}

    def prune(self) -> None:
        """Removes packages that newer ones took the place of, none that is in use."""
        named = set(self._index.values())
        prune(each for each in self._folder.iterdir() if each.is_dir() and each.name not in named)

    def _holds(self, name: str) -> bool:
        return name in self._index and self._usable(self._index[name])

    def _usable(self, sha256: str) -> bool:
        entry = self._folder / sha256
        return sound(entry) if self.strict else (entry / "control").is_file()


def _listed(names: list[str]) -> dict[str, _Listed]:
    """The files that apt would download for each name."""
    done = subprocess.run(
        ["apt-get", "download", "--print-uris", *names],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if done.returncode:
        raise VmFault(
            "packages", f"{_apt_message(done.stderr)}; run `apt-get update`, or enable the archive's main part"
        )
    found: dict[str, _Listed] = {}
    asked = {name.partition("=")[0]: name for name in names}
    for uri, file, size, checksum in re.findall(r"^'([^']+)' (\S+) (\d+) (\S+)$", done.stdout, re.MULTILINE):
        kind, _, value = checksum.partition(":")
        if kind != "SHA256":
            raise VmFault("packages", f"apt names no SHA-256 for {file}, so it cannot be trusted")
        package = file.split("_")[0]
        found[asked.get(package, package)] = _Listed(uri, file, int(size), value)
    if absent := [name for name in names if name not in found]:
        raise VmFault("packages", f"apt does not say where {', '.join(absent)} may be downloaded")
    return found


def _download(missing: dict[str, _Listed], store: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".download-", dir=store) as name:
        folder = Path(name)
        done = subprocess.run(
            ["apt-get", "-q", "download", *missing],
            cwd=folder, capture_output=True, text=True, check=False, timeout=_DOWNLOAD_S,
        )  # fmt: skip
        if done.returncode:
            raise VmFault("packages", f"download failed: {_apt_message(done.stderr)}")
        for listed in missing.values():
            archive = folder / listed.file
            with archive.open("rb") as data:
                checksum = hashlib.file_digest(data, "sha256").hexdigest()
            if checksum != listed.sha256:
                raise VmFault("packages", f"{listed.file} has SHA-256 {checksum}, but apt's lists say {listed.sha256}")
            with new_entry(store / listed.sha256) as entry:
                unpack(archive, entry)
            archive.unlink()


def unpack(archive: Path, entry: Path) -> None:
    """Unpacks a package into `entry`/root, with its control file beside it. Runs nothing from it."""
    control = subprocess.run(["dpkg-deb", "-f", archive], capture_output=True, check=True, timeout=60).stdout
    root = entry / "root"
    root.mkdir()
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as unpacker:
        with tarfile.open(fileobj=unpacker.stdout, mode="r|") as files:
            for each in files:
                if LEFT_OUT.match(each.name.removeprefix("./")):
                    continue
                extract(files, each, root)
                path = root / each.name
                if each.isfile() and each.mode & 0o111:
                    path.chmod(0o755)
        if unpacker.wait():
            raise VmFault("packages", f"{archive.name} cannot be unpacked")
    (entry / "control").write_bytes(control)


def _read(entry: Path) -> Package:
    control = (entry / "control").read_text(encoding="utf-8", errors="replace")
    fields = dict(re.findall(r"^([\w-]+): (.*)$", control, re.MULTILINE))
    both = ", ".join(fields[name] for name in ("Pre-Depends", "Depends") if name in fields)
    depends = [re.split(r"[ :(|]", each.strip(), maxsplit=1)[0] for each in both.split(",") if each.strip()]
    return Package(fields["Package"], fields["Version"], entry.name, entry / "root", tuple(depends))


def likeliest(soname: str, candidates: Iterable[str]) -> list[str]:
    """Packages that may hold a library, the likeliest first: libkrb5.so.3 stands in libkrb5-3 (Debian policy §8.1)."""
    stem, _, version = soname.partition(".so")
    version = version.lstrip(".")
    plain = stem.lower().replace("_", "-")
    named = f"{plain}-{version}" if plain[-1].isdigit() and version else f"{plain}{version}"
    special = {"libcrypto": "libssl3", "libssl": "libssl3", "libz": "zlib1g", "libgcc_s": "libgcc-s1"}.get(
        stem, "libc6"
    )

    def rank(package: str) -> tuple[int, str]:
        bare = package.removesuffix("t64")
        order = (named, plain, special)
        place = order.index(bare) if bare in order else 3 + (not bare.startswith(plain[:6]))
        return place, package

    return sorted((each for each in candidates if each.startswith(("lib", "zlib"))), key=rank)


def _apt_message(text: str) -> str:
    """apt's own words, its warnings aside."""
    errors = [line.removeprefix("E: ") for line in text.splitlines() if line.startswith("E: ")]
    return "; ".join(errors) or text.strip() or "apt gave no reason"


def extract(files: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Writes one member below the folder, without its owner and times. Raises tarfile.TarError.

    A link may name any file, as packages' links do. Nothing is written through a link that leads out of the folder, and
    no hard link is made to a file outside. Python's own filters check that from 3.11.4 on only; Debian 12 has 3.11.2.
    """
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise tarfile.TarError(f"{member.name} would stand outside its folder")
    if member.ischr() or member.isblk() or member.isfifo():
        raise tarfile.TarError(f"{member.name} is not a file, folder or link")
    top = folder.resolve()
    # An existing entry may be a link: a folder on the way, or the file itself.
    if not _within(folder / path, top) and not (member.issym() and _within((folder / path).parent, top)):
        raise tarfile.TarError(f"{member.name} would be written through a link out of its folder")
    if member.islnk() and not _within(folder / member.linkname.lstrip("/"), top):
        raise tarfile.TarError(f"{member.name} links to {member.linkname}, outside its folder")
    options: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    files.extract(member, folder, set_attrs=False, **options)


def _within(path: Path, top: Path) -> bool:
    """Whether it is inside the folder, with links followed."""
    try:
        return path.resolve().is_relative_to(top)
    except (OSError, RuntimeError):  # links that lead to each other
        return False
