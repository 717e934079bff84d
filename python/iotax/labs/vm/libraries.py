"""The shared libraries that programs ask for: from packages for the guest's tools, from this host for the engine."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from iotax.labs.vm.elf import read_program
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.packages import Package, Store, likeliest

_TRIPLET = "x86_64-linux-gnu"
FOLDERS = (f"usr/lib/{_TRIPLET}", f"lib/{_TRIPLET}", "usr/lib", "lib", "usr/lib64", "lib64")
"""Folders of libraries, on this host and in packages."""
_LOADED_LATER = "libgcc_s.so.1"
"""glibc loads it when a thread is cancelled, and no header says so."""


Library: TypeAlias = tuple[Package, Path]


def package_closure(store: Store, programs: list[Library]) -> dict[str, Library]:
    """Path in the image → package and file of every library that the programs load, loader included.

    Goes in rounds, each asking the package manager once for the likeliest package of every library still missing.
    """
    found: dict[str, Library] = {}
    known: dict[str, Package] = {package.name: package for package, _ in programs}
    missing: dict[str, Package] = {}
    todo = list(programs)
    own: list[str] = []
    while todo or missing:
        while todo:
            package, file = todo.pop()
            own += [folder.strip("/") for folder in read_program(file.read_bytes()).runpath]
            for name in _asked(file):
                if _place(name) not in found and name not in missing:
                    missing[name] = package
        for name, package in list(missing.items()):
            for each in (package, *known.values()):
                if path := _in(each, name, own):
                    found[_place(name)] = (each, path)
                    todo.append((each, path))
                    del missing[name]
                    break
        if missing and not todo:
            known |= store.fetch(_next_candidate(name, package, known) for name, package in missing.items())
    return found


def host_closure(program: Path) -> dict[str, Path]:
    """Name → file of every library that a program of this host loads from the standard places or its own."""
    found: dict[str, Path] = {}
    todo, own = [program], list[str]()
    while todo:
        file = todo.pop()
        read = read_program(file.read_bytes())
        own += [folder.replace("$ORIGIN", str(file.parent)) for folder in read.runpath]
        for name in read.needed:
            if name in found or name.startswith("ld-linux"):
                continue
            for folder in (*own, *FOLDERS):
                path = Path("/") / folder / name
                if path.is_file():
                    found[name] = path
                    todo.append(path)
                    break
            else:
                raise VmFault(program.name, f"{program} needs {name}, which is in none of this host's library folders")
    return found


def _asked(file: Path) -> list[str]:
    program = read_program(file.read_bytes())
    names = [*program.needed]
    if any(name.startswith("libc.so") for name in names):
        names.append(_LOADED_LATER)
    if program.loader:
        names.append(Path(program.loader).name)
    return names


def _next_candidate(name: str, package: Package, known: dict[str, Package]) -> str:
    always = {_LOADED_LATER: ["libgcc-s1"]}.get(name, ["libc6"] if name.startswith("ld-linux") else [])
    for candidate in likeliest(name, [*package.depends, *always]):
        if candidate not in known:
            return candidate
    raise VmFault("packages", f"{package.name} {package.version} needs {name}, which none of its dependencies holds")


def _place(name: str) -> str:
    return f"usr/lib64/{name}" if name.startswith("ld-linux") else f"usr/lib/{_TRIPLET}/{name}"


def _in(package: Package, name: str, own: list[str]) -> Path | None:
    for folder in (*FOLDERS, *own):
        path = package.root / folder / name
        if path.is_file():
            return path.resolve()
    return None
