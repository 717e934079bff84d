"""Builds what both guests boot: a kernel, and one initramfs with modules, programs, libraries, scripts and the engine.

The initramfs is a newc cpio archive (Linux, Documentation/driver-api/early-userspace/buffer-format.rst). It is not
compressed: an emulated processor unpacks slower than the host's disk reads.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import BinaryIO

from iotax.labs.vm import recipe
from iotax.labs.vm.built import FCLOOP, VDUSE, Built, Source
from iotax.labs.vm.built import modules as built_modules
from iotax.labs.vm.cache import by_use, cache_root, keep, locked, need_space, new_entry, prune, sound
from iotax.labs.vm.elf import is_elf, read_program, without_symbols
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.kernel import is_commit, is_folder, own_kernel, unpacked
from iotax.labs.vm.libraries import host_closure, package_closure
from iotax.labs.vm.modules import Module, ModuleTree, index_files
from iotax.labs.vm.packages import STOCK, Package, Store, exists
from iotax.labs.vm.tree import build as build_kernel
from iotax.labs.vm.tree import commit_of
from iotax.places.guest import ENGINE

_IMAGE_BYTES = 200 << 20
_IMAGES_SPARED = 3
"""Comparing two builds of the engine alternates between their images."""
KERNEL, PACKED_KERNEL = "vmlinux", "vmlinuz"
"""Kernel of a built image; boot loaders take the second."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class Image:
    """A built image."""

    kernel: Path
    """The kernel for QEMU: unpacked if possible."""
    initramfs: Path
    release: str
    """Release of the kernel: 6.1.0-56-amd64."""
    packages: dict[str, str]
    """Name → version of every package that gave something."""
    unavailable: dict[str, str]
    """Protocols and controllers that this image has not, with the reason."""
    sources: dict[str, str] = field(default_factory=dict)
    """Path in a guest → file on this host, of every program and library."""


@dataclass(frozen=True)
class Contents:
    """Optional contents of an image."""

    kernel: str = STOCK
    """The release that a study names, the distribution's stock one, a kernel's folder, or a commit of its source."""
    servers: tuple[str, ...] = ()
    """Targets that are programs of the distribution."""
    own_targets: tuple[str, ...] = ()
    """Paths of targets that the user built."""
    fc_nvme: bool = True
    """Whether the module that it needs is built."""
    database: bool = False
    """Whether it has PostgreSQL."""
    generators: tuple[tuple[str, tuple[str, str]], ...] = ()
    """Load generators beside the engine by name, each with its package and program. The libraries of one may be larger
    than all others together."""
    encryption: tuple[str, ...] = ()
    """The tools that encrypt links."""
    vduse: bool = False
    """Whether it has QEMU's storage daemon; the modules that it needs are then built."""


def build(engine: Path, report: Report, *, update: bool = False, contents: Contents = Contents()) -> Image:
    """The image for this engine: from the cache if nothing changed. Raises VmFault.

    It stays in the cache as long as this process lives. A new image replaces the least recently used ones. `update`
    asks the package manager for newer packages; otherwise those in the cache are used.
    """
    root = cache_root()
    with locked(root, report):
        return _build(root, engine, report, contents, update=update)


def _build(root: Path, engine: Path, report: Report, contents: Contents, *, update: bool) -> Image:
    store = Store(root / "packages", update=update)
    own = _own_kernel(store, contents.kernel, report)
    kernel = own.name if own else store.kernel_package(contents.kernel)
    report(f"packages: {kernel} and tools")
    made_of = _ingredients(root, store, own or kernel, contents, report)
    if own is None:
        store.decide(contents.kernel, kernel)
    place = root / "images" / _key(engine, made_of)
    if not sound(place):
        report("image: modules, programs and libraries")
        need_space(root, _IMAGE_BYTES)
        store.strict = True
        made_of = _ingredients(root, store, own or kernel, contents, report)
        place = root / "images" / _key(engine, made_of)
        with new_entry(place) as entry:
            _assemble(entry, engine, store, made_of)
        prune(by_use(place.parent)[_IMAGES_SPARED:])
        if update:
            store.prune()
    keep(place)
    return _load(place)


def _own_kernel(store: Store, kernel: str, report: Report) -> Package | None:
    """The kernel in a folder, or of a commit; None if the distribution has it."""
    if is_folder(kernel):
        return own_kernel(Path(kernel))
    if not is_commit(kernel):
        return None
    name = store.kernel_package()
    stock = store.fetch([name, *_split_kernel(name)])
    release = name.removeprefix("linux-image-")
    tree = ModuleTree([each.root for each in stock.values()], release)
    wanted = [each for each in recipe.MODULES if each in tree]
    config = next(path for each in stock.values() if (path := each.root / "boot" / f"config-{release}").is_file())
    return own_kernel(build_kernel(commit_of(kernel), config, [each.name for each in tree.closure(wanted)], report))


@dataclass(frozen=True)
class _Ingredients:
    packages: dict[str, Package]
    kernels: list[Package]
    """The kernel's package, and those of its modules where they are apart."""
    release: str
    built: dict[Source, Built] = field(default_factory=dict)
    """Modules that its packages have not, if they could be built."""
    parts: dict[str, recipe.Part] = field(default_factory=lambda: recipe.ALWAYS)
    unavailable: dict[str, str] = field(default_factory=dict)
    """Parts whose programs cannot be had, with the reason."""
    own_targets: tuple[Path, ...] = ()
    own_daemon: Path | None = None
    """The user's own daemon for TLS, if the distribution has none."""


def _ingredients(root: Path, store: Store, wanted: Package | str, contents: Contents, report: Report) -> _Ingredients:
    """What an image consists of. `wanted` is a kernel's package by name, or a kernel in a folder."""
    own, kernel = (wanted, wanted.name) if isinstance(wanted, Package) else (None, wanted)
    asked = {name: recipe.SERVERS[name] for name in contents.servers}
    asked |= {name: recipe.ENCRYPTION[name] for name in contents.encryption}
    asked |= {recipe.VDUSE: recipe.STORAGE_DAEMON} if contents.vduse else {}
    asked |= {name: recipe.Part(programs=(program,)) for name, program in contents.generators}
    unavailable = {name: reason for name, part in asked.items() if (reason := _absence(store, part))}
    own_daemon = None
    if "tls" in asked and store.knows(recipe.TLSHD_PACKAGE):
        program = (recipe.TLSHD_PACKAGE, recipe.PROGRAM)
        asked["tls"] = replace(asked["tls"], programs=(*asked["tls"].programs, program))
    elif "tls" in asked and (own_daemon := recipe.own_daemon()) is None:
        unavailable["tls"] = recipe.TLSHD_MISSING
    if contents.database:
        asked[recipe.DATABASE] = recipe.database(store.postgresql_package())
    parts = recipe.ALWAYS | {name: part for name, part in asked.items() if name not in unavailable}
    named = [
        package for part in parts.values() for package, _ in (*part.programs, *part.files, *part.libraries, *part.trees)
    ]
    extra = [] if not kernel.endswith("-generic") else _split_kernel(kernel)
    packages = store.fetch([*extra, *named]) | {kernel: own} if own else store.fetch([kernel, *extra, *named])
    unavailable |= {name: reason for name in asked if name in parts and (reason := _lack(packages, parts[name]))}
    parts = {name: part for name, part in parts.items() if name not in unavailable}
    release = own.version if own else kernel.removeprefix("linux-image-")
    kernels = [packages[name] for name in (kernel, *extra)]
    tree = ModuleTree([each.root for each in kernels], release)
    built = {
        source: built_modules(source, store, release, packages[kernel], root / "modules", report) if wanted else Built()
        for source, wanted in ((FCLOOP, contents.fc_nvme), (VDUSE, recipe.VDUSE in parts))
        if any(name not in tree for name in source.names)
    }
    own_targets = tuple(map(Path, contents.own_targets))
    return _Ingredients(packages, kernels, release, built, parts, unavailable, own_targets, own_daemon)


def _absence(store: Store, part: recipe.Part) -> str | None:
    """Why a program's packages cannot be had; None if they can."""
    named = dict.fromkeys(package for package, _ in (*part.programs, *part.libraries))
    unknown = [package for package in named if not store.knows(package)]
    return f"the package lists do not know {' or '.join(unknown)}" if unknown else None


def _lack(packages: dict[str, Package], part: recipe.Part) -> str | None:
    """A program that a distribution has in another package than expected; None if all are there."""
    lost = [f"{package} holds no {name}" for package, name in part.programs if not _found(packages[package], name)]
    return "; ".join(lost) or None


def _split_kernel(kernel: str) -> list[str]:
    """Ubuntu keeps modules in packages beside the kernel's."""
    release = kernel.removeprefix("linux-image-")
    return [name for name in (f"linux-modules-{release}", f"linux-modules-extra-{release}") if exists(name)]


def _load(place: Path) -> Image:
    described = json.loads((place / "image.json").read_text())
    kernel = place / (KERNEL if (place / KERNEL).exists() else PACKED_KERNEL)
    return Image(kernel=kernel, initramfs=place / "initramfs", **described)


def _key(engine: Path, made_of: _Ingredients) -> str:
    """Names everything that the image is made of, the builder's own sources included."""
    digest = hashlib.sha256()
    for name, package in sorted(made_of.packages.items()):
        digest.update(f"{name} {package.sha256}\n".encode())
    for part in made_of.parts.values():
        digest.update(repr(asdict(part)).encode())
    for path, data in sorted(_guest_files()):
        digest.update(f"{path} {len(data)}\n".encode() + data)
    for source in ("image", "elf", "kernel", "libraries", "modules"):
        digest.update(Path(__file__).with_name(f"{source}.py").read_bytes())
    digest.update(engine.read_bytes())
    for program in made_of.own_targets:
        digest.update(f"{program}\n".encode() + own_program(program))
    if made_of.own_daemon:
        digest.update(f"{made_of.own_daemon}\n".encode() + own_program(made_of.own_daemon))
    for each in made_of.built.values():
        digest.update(b"".join(each.modules.values()) or each.reason.encode())
    return digest.hexdigest()[:24]


def _guest_files() -> Iterable[tuple[str, bytes]]:
    """Path below /lab and content of every script of the guests."""

    def walk(folder: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
        for each in folder.iterdir():
            if each.is_dir():
                yield from walk(each, f"{prefix}{each.name}/")
            else:
                yield f"{prefix}{each.name}", each.read_bytes()

    yield from walk(resources.files("iotax.labs.vm") / "guest", "")
    yield "postgres.sh", (resources.files("iotax.labs.generators") / "postgres.sh").read_bytes()


def _assemble(entry: Path, engine: Path, store: Store, made_of: _Ingredients) -> None:
    packages, kernels, release = made_of.packages, made_of.kernels, made_of.release
    tree = ModuleTree([each.root for each in kernels], release)
    for each in made_of.built.values():
        for name, data in each.modules.items():
            tree.add(name, f"extra/{name}.ko", data)
    modules, unavailable = _modules(tree, made_of)
    with (entry / "initramfs").open("wb") as out:
        image = CpioWriter(out)
        _skeleton(image)
        used, sources = _programs(image, store, packages, made_of.parts)
        for module in modules:
            image.file(f"usr/lib/modules/{release}/{module.path}", module.data)
        for name, text in index_files(modules).items():
            image.file(f"usr/lib/modules/{release}/{name}", text.encode())
        for path, data in _guest_files():
            image.file("init" if path == "init" else f"lab/{path}", data, 0o755 if path == "init" else 0o644)
        sources |= _run_here(image, engine, "iotax-engine", ENGINE)
        for program in made_of.own_targets:
            sources |= _run_here(image, program, program.name, own_target(program))
        if made_of.own_daemon:
            sources |= _run_here(image, made_of.own_daemon, recipe.PROGRAM, recipe.OWN_START)
        image.close()
    packed = _find_kernel(kernels, release)
    (entry / PACKED_KERNEL).write_bytes(packed)
    if kernel := unpacked(packed):
        (entry / KERNEL).write_bytes(kernel)
    described = {
        "release": release,
        "packages": {name: each.version for name, each in sorted(used.items())}
        | {each.name: each.version for each in kernels},
        "unavailable": unavailable | made_of.unavailable,
        "sources": sources,
    }
    (entry / "image.json").write_text(json.dumps(described, indent=1))


def _modules(tree: ModuleTree, made_of: _Ingredients) -> tuple[list[Module], dict[str, str]]:
    """Modules for every protocol and controller that this kernel has, and why not for the others."""
    reasons = {name: built.reason for source, built in made_of.built.items() for name in source.names}
    wanted = list(recipe.BASE.modules)
    unavailable: dict[str, str] = {}
    for name, part in made_of.parts.items():
        if part is recipe.BASE:
            continue
        absent = [module for module in part.modules if module not in tree]
        if not absent:
            wanted += part.modules
        elif unknown := [module for module in absent if module not in reasons]:
            unavailable[name] = f"Linux {tree.release} comes without {', '.join(unknown)}"
        else:
            unavailable[name] = reasons[absent[0]]
    return tree.closure(wanted), unavailable


def _skeleton(image: CpioWriter) -> None:
    for folder in ("dev", "proc", "sys", "run", "tmp", "mnt", "etc", "var/lib", "usr/bin", "usr/sbin", "root"):
        image.folder(folder)
    for name in ("bin", "sbin", "lib", "lib64"):
        image.folder(f"usr/{name}")
        image.link(name, f"usr/{name}")
    image.device("dev/console", 5, 1)
    image.link("var/run", "/run")
    image.file(
        "etc/passwd",
        b"root:x:0:0:root:/root:/bin/sh\n_rpc:x:101:65534::/run/rpcbind:/bin/false\npostgres:x:102:102::/:/bin/sh\n",
    )
    image.file("etc/group", b"root:x:0:\npostgres:x:102:\nnogroup:x:65534:\n")
    image.file("etc/hosts", b"127.0.0.1 localhost\n10.0.0.1 storage\n10.0.0.2 initiator\n")


def _programs(
    image: CpioWriter, store: Store, packages: dict[str, Package], wanted: dict[str, recipe.Part]
) -> tuple[dict[str, Package], dict[str, str]]:
    """Writes programs, plain files and libraries; the packages that they came from, and the file behind each program
    and library."""
    parts, sources = wanted.values(), dict[str, str]()

    def put(name: str, path: Path) -> None:
        image.file(name, path.read_bytes(), 0o755)
        sources[f"/{name}"] = str(path)

    programs = [
        (packages[package], name) for package, name in dict.fromkeys(each for p in parts for each in p.programs)
    ]
    found = [(package, _program(package, name)) for package, name in programs]
    for _, path in found:
        put(f"usr/{path.parent.name}/{path.name}", path)
    for package, name in dict.fromkeys(each for p in parts for each in (*p.files, *_in_trees(p, packages))):
        path = packages[package].root / name
        data = path.read_bytes()
        if is_elf(data):
            found.append((packages[package], path))
        image.file(name, data, 0o755 if is_elf(data) else 0o644)
    loaded = [(packages[package], packages[package].root / name) for p in parts for package, name in p.libraries]
    for package, path in loaded:
        put(str(path.relative_to(package.root)), path)
    libraries = package_closure(store, found + loaded)
    for target, (_, path) in libraries.items():
        put(target, path)
    return packages | {each.name: each for each, _ in libraries.values()}, sources


def _in_trees(part: recipe.Part, packages: dict[str, Package]) -> Iterable[tuple[str, str]]:
    """(package, path) of every file in the trees of a part."""
    for package, folder in part.trees:
        root = packages[package].root
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield package, str(path.relative_to(root))


def _program(package: Package, name: str) -> Path:
    if path := _found(package, name):
        return path
    raise VmFault("packages", f"{package.name} {package.version} holds no program {name}")


def _found(package: Package, name: str) -> Path | None:
    """A link in a package may name another of its files by its place on an installed system."""
    for folder in ("usr/sbin", "sbin", "usr/bin", "bin"):
        path = package.root / folder / name
        if path.is_symlink() and path.readlink().is_absolute():
            path = package.root / path.readlink().relative_to("/")
        if path.is_file():
            return path.resolve()
    return None


def own_program(program: Path) -> bytes:
    """A program of this host. Raises VmFault if it cannot run in a guest."""
    try:
        data = program.read_bytes()
    except OSError as fault:
        raise VmFault(program.name, f"{program} cannot be read: {fault.strerror}") from fault
    if not is_elf(data):
        raise VmFault(program.name, f"{program} is not an x86-64 program, so it cannot run in a guest")
    return data


def own_target(program: Path) -> str:
    """What starts a target that the user built; its folder in a guest has the program's name and a digest of its
    place."""
    return f"/opt/{program.name}-{hashlib.sha256(str(program).encode()).hexdigest()[:8]}/run"


def _run_here(image: CpioWriter, program: Path, name: str, start: str) -> dict[str, str]:
    """Writes a program of this host under a name of its own, its loader and libraries, which need not be those of the
    guest's packages, and the script `start`, which starts it. The file behind the program and each library."""
    data, folder = own_program(program), Path(start).parent
    files = {f"{folder}/{name}": str(program)}
    image.file(f"{folder}/{name}".removeprefix("/"), without_symbols(data), 0o755)
    loader = read_program(data).loader
    command = f"{folder}/{name}"
    if loader is not None:
        for library, path in host_closure(program).items():
            image.file(f"{folder}/{library}".removeprefix("/"), path.read_bytes(), 0o755)
            files[f"{folder}/{library}"] = str(path)
        image.file(f"{folder}/loader".removeprefix("/"), Path(loader).read_bytes(), 0o755)
        command = f"{folder}/loader --library-path {folder} {folder}/{name}"
    image.file(start.removeprefix("/"), f'#!/bin/sh\nexec {command} "$@"\n'.encode(), 0o755)
    return files


def _find_kernel(kernels: list[Package], release: str) -> bytes:
    for package in kernels:
        path = package.root / "boot" / f"vmlinuz-{release}"
        if path.is_file():
            return path.read_bytes()
    raise VmFault("kernel", f"no vmlinuz-{release} in {', '.join(each.name for each in kernels)}")


_TRAILER = "TRAILER!!!"


class CpioWriter:
    """Equal calls give equal bytes: every time is 0, every owner root, inodes count up."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._inode = out, 0
        self._folders: set[str] = set()

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._parents(path)
        self._entry(path, stat.S_IFREG | mode, data)

    def folder(self, path: str) -> None:
        self._parents(f"{path}/x")

    def link(self, path: str, target: str) -> None:
        self._parents(path)
        self._entry(path, stat.S_IFLNK | 0o777, target.encode())

    def device(self, path: str, major: int, minor: int) -> None:
        """A character device."""
        self._parents(path)
        self._entry(path, stat.S_IFCHR | 0o600, b"", major, minor)

    def close(self) -> None:
        self._entry(_TRAILER, 0, b"")

    def _parents(self, path: str) -> None:
        parts = path.split("/")[:-1]
        for end in range(1, len(parts) + 1):
            folder = "/".join(parts[:end])
            if folder not in self._folders:
                self._folders.add(folder)
                self._entry(folder, stat.S_IFDIR | 0o755, b"")

    def _entry(self, path: str, mode: int, data: bytes, major: int = 0, minor: int = 0) -> None:
        self._inode += 1
        name = path.encode() + b"\0"
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._out.write(_padded(header + name))
        self._out.write(_padded(data))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
