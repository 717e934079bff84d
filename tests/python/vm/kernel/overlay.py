"""What these tests add to the vm lab's image: file systems, fio, nvme-cli, a file exerciser, their own scripts.

The kernel unpacks archives one after the other into the same root, so the lab's image stays unchanged.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from iotax.labs.vm import recipe
from iotax.labs.vm.cache import cache_root, locked
from iotax.labs.vm.elf import read_program
from iotax.labs.vm.image import CpioWriter, Image
from iotax.labs.vm.libraries import package_closure
from iotax.labs.vm.modules import ModuleTree, index_files
from iotax.labs.vm.packages import Package, Store

ROOT = Path(__file__).parents[4]
MODULES = ("ext4", "xfs", "loop", "crc32c_generic", "sha512_generic", "drbg", "scsi_dh_alua")
PROGRAMS = {
    "e2fsprogs": ("sbin/mke2fs", "sbin/e2fsck"),
    "xfsprogs": ("sbin/mkfs.xfs", "sbin/xfs_repair"),
    "nvme-cli": ("usr/sbin/nvme",),
    "util-linux": ("usr/bin/flock", "usr/bin/fallocate"),
}
FIO = "usr/bin/fio"
STUBS = "test/stubs"
_ALIGNMENT = 512
"""The kernel skips zeros between archives in words; other tools pad to whole sectors."""


def with_tools(image: Image, folder: Path, files: Mapping[str, bytes]) -> Image:
    """The image with the tests' tools, stored in `folder`. `files` go below /test."""
    root = cache_root()
    with locked(root, lambda _: None):
        place = _assemble(image, Store(root / "packages"), folder, files)
    return replace(image, initramfs=place)


def _assemble(image: Image, store: Store, folder: Path, files: Mapping[str, bytes]) -> Path:
    kernel = store.kernel_package()
    packages = store.fetch([kernel, "fio", *PROGRAMS])
    place = folder / "initramfs"
    shutil.copyfile(image.initramfs, place)
    with place.open("ab") as out:
        out.write(bytes(-out.tell() % _ALIGNMENT))
        archive = CpioWriter(out)
        add_modules(archive, ModuleTree([packages[kernel].root], image.release), image)
        _programs(archive, store, packages)
        archive.file("etc/mke2fs.conf", (packages["e2fsprogs"].root / "etc/mke2fs.conf").read_bytes())
        _fio(archive, store, packages["fio"], folder)
        archive.file("test/exercise_file", _exerciser().read_bytes(), 0o755)
        for script in sorted((Path(__file__).parent / "guest").iterdir()):
            archive.file(f"test/{script.name}", script.read_bytes())
        for name, data in files.items():
            archive.file(f"test/{name}", data)
        archive.close()
    return place


def add_modules(archive: CpioWriter, tree: ModuleTree, image: Image) -> None:
    """Adds the tests' modules, and an index that includes the lab's modules."""
    there = [part for name, part in recipe.ALWAYS.items() if name not in image.unavailable]
    labs = [name for part in there for name in part.modules if name in tree]
    folder = f"usr/lib/modules/{image.release}"
    modules = tree.closure([*labs, *MODULES])
    for module in tree.closure(MODULES):
        archive.file(f"{folder}/{module.path}", module.data)
    for name, text in index_files(modules).items():
        archive.file(f"{folder}/{name}", text.encode())


def _programs(archive: CpioWriter, store: Store, packages: dict[str, Package]) -> None:
    found = [(packages[name], packages[name].root / path) for name, paths in PROGRAMS.items() for path in paths]
    for _, path in found:
        archive.file(f"usr/sbin/{path.name}", path.read_bytes(), 0o755)
    for target, (_, path) in package_closure(store, found).items():
        archive.file(target, path.read_bytes(), 0o755)


def _fio(archive: CpioWriter, store: Store, package: Package, folder: Path) -> None:
    """fio links to the clients of every cluster file system it can test: 82 MB that these tests do not use.

    Each of these libraries is replaced by a stub whose functions all fail. The libraries that fio does use here are
    real: libc, libm, libz, libaio.
    """
    program = package.root / FIO
    archive.file(FIO, program.read_bytes(), 0o755)
    needed = read_program(program.read_bytes()).needed
    real = _real_libraries(store, needed)
    for name, path in real.items():
        archive.file(f"{STUBS}/{name}", path.read_bytes(), 0o755)
    wanted = subprocess.run(["nm", "-D", "--undefined-only", program], capture_output=True, text=True, check=True)
    versions: dict[str, list[str]] = defaultdict(list)
    source = ""
    for name, version in re.findall(r"^ +U ([\w.]+)(?:@(\S+))?$", wanted.stdout, re.MULTILINE):
        if not version.startswith(("GLIBC", "LIBAIO", "ZLIB")):
            source += f"int {name}(void) {{ return -1; }}\n"
            versions[version].append(name)
    versions.pop("", None)
    script = folder / "versions"
    script.write_text("".join(f"{each} {{ global: {'; '.join(names)}; }};\n" for each, names in versions.items()))
    for name in needed:
        if name not in real and not name.startswith(("libc.", "libm.", "ld-")):
            stub = folder / name
            subprocess.run(
                ["cc", "-shared", "-nostdlib", "-fno-builtin", "-w", "-x", "c", "-", "-o", stub,
                 f"-Wl,-soname,{name},--version-script={script}"],
                input=source, text=True, check=True,
            )  # fmt: skip
            archive.file(f"{STUBS}/{name}", stub.read_bytes(), 0o755)


def _real_libraries(store: Store, needed: tuple[str, ...]) -> dict[str, Path]:
    libraries = {"libz.so.1": "zlib1g", "libaio.so.1": "libaio1"}
    held = store.fetch(libraries.values())
    return {
        name: next(held[package].root.rglob(f"{name}*")).resolve()
        for name, package in libraries.items()
        if name in needed
    }


def _exerciser() -> Path:
    """Returns the example that `make test-built` has built, so it is not built twice."""
    built = subprocess.run(
        ["cargo", "test", "--no-run", "--locked", "-p", "iotax-runtime", "--example", "exercise_file",
         "--message-format=json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for line in built.stdout.splitlines():
        if path := json.loads(line).get("executable"):
            return Path(path)
    raise AssertionError("cargo names no program")
