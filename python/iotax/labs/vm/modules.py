"""Kernel modules: which ones a wish drags in, and the indexes that modprobe reads.

Debian's kernel package carries no modules.dep (its installation makes it); every module's own .modinfo says the same.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from iotax.labs.vm.elf import read_modinfo
from iotax.labs.vm.fault import VmFault

_FILE = re.compile(r"(?P<name>.+)\.ko(?P<packed>\.xz|\.zst)?")


@dataclass(frozen=True)
class Module:
    name: str
    """With underscores, as the kernel shows it."""
    path: str
    """Below the folder of its kernel release, uncompressed: kernel/fs/nfs/nfs.ko."""
    data: bytes
    depends: tuple[str, ...]
    """Other modules that must be loaded before."""
    aliases: tuple[str, ...]


class ModuleTree:
    """The modules of one kernel release, possibly out of several packages."""

    def __init__(self, roots: Iterable[Path], release: str) -> None:
        self.release = release
        self._files: dict[str, tuple[Path, str]] = {}
        self._builtin: set[str] = set()
        self._read: dict[str, Module] = {}
        for root in roots:
            for lib in ("lib", "usr/lib"):
                self._index(root / lib / "modules" / release)

    def __contains__(self, name: str) -> bool:
        return canonical(name) in self._files or canonical(name) in self._builtin

    def add(self, name: str, path: str, data: bytes) -> None:
        """A module that no package holds."""
        self._read[name] = _described(name, path, data, self._files)
        self._files[name] = (Path(path), path)

    def module(self, name: str) -> Module:
        name = canonical(name)
        if name not in self._read:
            file, path = self._files[name]
            self._read[name] = _described(name, path, _unpacked(file), self._files)
        return self._read[name]

    def closure(self, wanted: Iterable[str]) -> list[Module]:
        """The wanted modules and all that they need, each after those that it needs. Raises VmFault."""
        found: dict[str, Module] = {}
        entered: set[str] = set()  # soft dependencies may go round in a circle

        def add(name: str, needed_by: str) -> None:
            name = canonical(name)
            if name in entered or name in self._builtin:
                return
            entered.add(name)
            if name not in self._files:
                raise VmFault("kernel", f"Linux {self.release} has no module {name}, which {needed_by} needs")
            module = self.module(name)
            for each in module.depends:
                add(each, name)
            found[name] = module

        for each in wanted:
            add(each, "the vm lab")
        return list(found.values())

    def _index(self, folder: Path) -> None:
        builtin = folder / "modules.builtin"
        if builtin.is_file():
            for line in builtin.read_text().splitlines():
                self._builtin.add(canonical(Path(line).name.removesuffix(".ko")))
        for file in folder.rglob("*.ko*"):
            if match := _FILE.fullmatch(file.name):
                path = str(file.relative_to(folder).with_name(f"{match['name']}.ko"))
                self._files[canonical(match["name"])] = (file, path)


def _described(name: str, path: str, data: bytes, there: Container[str]) -> Module:
    """A soft dependency (`softdep=pre: a b post: c`) is a hint: one that is not there is passed over."""
    info = read_modinfo(data)
    depends = [canonical(each) for each in ",".join(info.get("depends", [])).split(",") if each]
    soft = [canonical(word) for line in info.get("softdep", []) for word in line.split() if not word.endswith(":")]
    depends += [each for each in soft if each in there]
    return Module(name, path, data, tuple(dict.fromkeys(depends)), tuple(info.get("alias", [])))


def index_files(modules: list[Module]) -> dict[str, str]:
    """modules.dep and modules.alias for these modules, as depmod writes them (modules.dep(5))."""
    paths = {module.name: module.path for module in modules}
    place = {module.name: index for index, module in enumerate(modules)}
    needs: dict[str, list[str]] = {}
    for module in modules:  # each after those that it needs; modprobe loads a line from its end
        direct = [name for name in module.depends if name in paths]
        deep = [name for each in direct for name in needs.get(each, [])]
        needs[module.name] = sorted({*direct, *deep}, key=lambda name: -place[name])
    dep = [f"{each.path}:{''.join(f' {paths[name]}' for name in needs[each.name])}\n" for each in modules]
    alias = [f"alias {alias} {each.name}\n" for each in modules for alias in each.aliases]
    return {"modules.dep": "".join(dep), "modules.alias": "".join(alias), "modules.symbols": ""}


def canonical(name: str) -> str:
    """The kernel takes dash and underscore for the same."""
    return name.replace("-", "_")


def _unpacked(file: Path) -> bytes:
    data = file.read_bytes()
    if file.suffix == ".xz":
        import lzma  # noqa: PLC0415 - not every Python has it, and only guests need it

        return lzma.decompress(data)
    if file.suffix == ".zst":
        if shutil.which("zstd") is None:
            raise VmFault("kernel", "this kernel's modules are packed with zstd; install the package zstd")
        return subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True, timeout=60).stdout
    return data
