"""Kernels that the lab builds from a commit. The test's source has a `make` that only records its arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from iotax.labs.vm.cache import cache_root, locked
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.kernel import is_commit, is_folder, own_kernel
from iotax.labs.vm.topology import _same
from iotax.labs.vm.tree import Commit, build, commit_of, version_of
from needed import program

MAKEFILE = """\
VERSION = 6
PATCHLEVEL = 99
RELEASE = 6.99.0$(shell sed -n 's/^LOCALVERSION=//p' .config)
PLACE = $(INSTALL_MOD_PATH)/lib/modules/$(RELEASE)
olddefconfig:
\t@echo olddefconfig >> .config
localmodconfig:
\t@cat $(LSMOD) >> .config
bzImage:
\t@echo '  CC      init/main.o'; mkdir -p arch/x86/boot; cp main.c arch/x86/boot/bzImage; cp main.c System.map
modules:
\t@echo '  CC [M]  drivers/nvme/host/tcp.o'; ! grep -H 'error:' main.c
kernelrelease:
\t@echo $(RELEASE)
modules_install:
\t@mkdir -p $(PLACE); touch $(PLACE)/nvme-tcp.ko; ln -s $(CURDIR) $(PLACE)/build
"""
CONFIG = (
    '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = --set-str ] && { echo "$2=$3" >> .config; shift; }; shift 2; done\n'
)


def git(tree: Path, *words: str) -> str:
    known = ["-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run([program("git"), "-C", tree, *known, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits: good builds, bad does not."""
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path / "cache"))
    # The fake make needs no parser generator, and this machine may have none.
    (tmp_path / "bin").mkdir()
    for name in ("flex", "bison", "bc"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    tree = tmp_path / "linux"
    (tree / "scripts").mkdir(parents=True)
    (tree / "scripts" / "config").write_text(CONFIG)
    (tree / "scripts" / "config").chmod(0o755)
    (tree / "Makefile").write_text(MAKEFILE)
    (tree / "Kconfig").write_text("")
    (tree / "old.c").write_text("int old;\n")
    (tmp_path / "config").write_text("CONFIG_NVME_TCP=m\n")
    git(tree, "init", "--quiet")
    for name, text in (("good", "int main;\n"), ("bad", "error: no such thing\n")):
        (tree / "main.c").write_text(text)
        git(tree, "add", "--all")
        git(tree, "commit", "--quiet", "-m", name)
        git(tree, "tag", name)
    commit_of.cache_clear()
    return tree


def built(commit: Commit, config: Path, said: list[str], modules: Sequence[str] = ("nvme_tcp", "nvmet")) -> Path:
    with locked(cache_root(), said.append):
        return build(commit, config, modules, said.append)


def test_a_commit_is_built_once_and_is_then_a_kernel_in_a_folder(tree: Path) -> None:
    commit, config, said = commit_of(f"{tree}@good"), tree.parent / "config", []
    folder = built(commit, config, said)
    kernel = own_kernel(folder)
    release = f"6.99.0-{git(tree, 'rev-parse', 'good')[:12]}"
    assert kernel.version == release
    assert (folder / "boot" / f"vmlinuz-{release}").read_text() == "int main;\n"
    assert (folder / "boot" / f"System.map-{release}").is_file()
    assert not (folder / "lib/modules" / release / "build").is_symlink(), "it would name a folder that is gone"
    configured = (folder / "boot" / f"config-{release}").read_text().splitlines()
    assert configured[0] == "CONFIG_NVME_TCP=m"
    assert "nvme_tcp 1 0" in configured
    assert said == [f"kernel: source of good ({commit.short}) of {tree}"]
    assert built(commit, config, said) == folder
    assert len(said) == 1, "the second time it is there"
    more = built(commit, config, said, ("nvme_tcp", "nvmet", "nfs"))
    config.write_text("CONFIG_NVME_TCP=y\n")
    assert len({folder, more, built(commit, config, said)}) == 3


def test_a_commit_that_does_not_build_leaves_its_log_and_no_kernel(tree: Path) -> None:
    with pytest.raises(VmFault) as failed:
        built(commit_of(f"{tree}@bad"), tree.parent / "config", [])
    short = git(tree, "rev-parse", "bad")[:12]
    log = cache_root() / f"kernel-{short}.log"
    assert str(failed.value) == (
        f"kernel: bad ({short}) of {tree} does not build: main.c:error: no such thing (all of it: {log})"
    )
    assert "CC [M]  drivers/nvme/host/tcp.o" in log.read_text()
    assert not list((cache_root() / "kernels").iterdir())
    assert not (cache_root() / "kernel-build").exists()


def test_a_machine_without_a_compiler_is_told_what_to_install(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = commit_of(f"{tree}@good")
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("gcc", "bc") else f"/usr/bin/{name}")
    with pytest.raises(VmFault, match=r"cannot be built without gcc, bc; install what is missing$"):
        built(commit, tree.parent / "config", [])


def test_what_a_killed_build_left_is_removed_by_the_next(tree: Path) -> None:
    left = cache_root() / "kernel-build" / "linux" / "vmlinux.o"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half of it")
    built(commit_of(f"{tree}@good"), tree.parent / "config", [])
    assert not left.exists()


def test_the_next_commit_changes_its_own_files_in_the_folder_of_the_last(tree: Path) -> None:
    (tree / "main.c").write_text("int better;\n")
    (tree / "old.c").unlink()
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "-m", "better")
    config, folder = tree.parent / "config", cache_root() / "kernel-build" / "linux"
    built(commit_of(f"{tree}@good"), config, [])
    assert (folder / "old.c").is_file()
    written, object_file = (folder / "scripts" / "config").stat().st_mtime_ns, folder / "same.o"
    object_file.write_bytes(b"that make keeps")
    second = built(commit_of(f"{tree}@HEAD"), config, [])
    assert next((second / "boot").glob("vmlinuz-*")).read_text() == "int better;\n"
    assert object_file.is_file()
    assert (folder / "scripts" / "config").stat().st_mtime_ns == written
    assert (folder / "main.c").stat().st_mtime_ns > written, "or make would keep its object file"
    assert not (folder / "old.c").exists()
    config.write_text("CONFIG_NVME_TCP=y\n")
    built(commit_of(f"{tree}@HEAD"), config, [])
    assert not object_file.exists(), "made of something else"


def test_files_that_the_users_checkout_leaves_out_are_built(tree: Path) -> None:
    git(tree, "sparse-checkout", "set", "--no-cone", "/Makefile", "/Kconfig")
    assert not (tree / "main.c").exists()
    folder = built(commit_of(f"{tree}@good"), tree.parent / "config", [])
    assert next((folder / "boot").glob("vmlinuz-*")).read_text() == "int main;\n"
    assert not (tree / "main.c").exists()


def test_the_source_of_the_user_is_left_as_it_is(tree: Path) -> None:
    (tree / "main.c").write_text("int changed;\n")
    before = git(tree, "status", "--porcelain")
    folder = built(commit_of(f"{tree}@good"), tree.parent / "config", [])
    assert next((folder / "boot").glob("vmlinuz-*")).read_text() == "int main;\n"
    assert git(tree, "status", "--porcelain") == before
    assert git(tree, "worktree", "list").count("\n") == 0


def test_commits_are_told_from_folders_and_named_in_whole(tree: Path) -> None:
    assert is_commit(f"{tree}@good")
    assert not is_folder(f"{tree}@good")
    (tree.parent / "linux@good").mkdir()
    assert is_folder(f"{tree}@good"), "a folder may have such a name"
    assert not is_commit("6.12")
    commit = commit_of(f"{tree}@bad~1")
    assert str(commit) == f"bad~1 ({git(tree, 'rev-parse', 'good')[:12]}) of {tree}"
    assert version_of(commit) == "6.99"
    assert _same("kernel", f"{tree}@bad~1", f"6.99.0-{commit.short}")
    assert not _same("kernel", f"{tree}@bad~1", "6.99.0")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("linux@nowhere", "kernel: {tree}: it has no commit 'nowhere'; fetch it first"),
        ("linux@", "kernel: {tree}: it has no commit ''; fetch it first"),
        (
            "other@good",
            "kernel: {other} is not the source of a kernel; write ./linux@COMMIT, or the folder of a built one",
        ),
    ],
)
def test_what_is_no_commit_of_a_kernel_is_refused_with_what_to_do(tree: Path, named: str, message: str) -> None:
    with pytest.raises(VmFault) as refused:
        commit_of(str(tree.parent / named))
    assert str(refused.value) == message.format(tree=tree, other=tree.parent / "other")
