"""The parts of the image: archive, modules, libraries, packages. Starts no virtual machine."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iotax.labs.vm import built, kbuild, recipe
from iotax.labs.vm.built import FCLOOP, VDUSE, Built
from iotax.labs.vm.cache import cache_root, need_space, new_entry
from iotax.labs.vm.elf import read_modinfo, read_program, without_symbols
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.image import Contents, CpioWriter, _Ingredients, _ingredients, _modules, _run_here, own_program
from iotax.labs.vm.kernel import own_kernel, unpacked
from iotax.labs.vm.libraries import host_closure
from iotax.labs.vm.modules import ModuleTree, index_files
from iotax.labs.vm.packages import LEFT_OUT, Package, Store, extract, likeliest

from .elf_factory import kernel_module, program, with_note
from .fakes import write_program

RELEASE = "6.1.0-1-amd64"


def packed(payload: bytes, version: int = 0x20F) -> bytes:
    """A kernel as boot loaders read it, with this payload at the second byte of its second sector."""
    image = bytearray(2 * 512 + 1)
    image[0x1F1] = 1
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x206, version)
    struct.pack_into("<II", image, 0x248, 1, len(payload))
    return bytes(image) + payload + b"more"


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress])
def test_a_kernel_is_unpacked_where_it_can_start_so(pack: Callable[[bytes], bytes]) -> None:
    kernel = with_note("Xen", 18)
    assert unpacked(packed(pack(kernel))) == kernel


def own(folder: Path) -> Path:
    """A kernel as `make dir-pkg` leaves it, with one module."""
    modules = folder / "lib" / "modules" / RELEASE
    for place in (folder / "boot", modules):
        place.mkdir(parents=True)
    (folder / "boot" / f"vmlinuz-{RELEASE}").write_bytes(b"kernel")
    (modules / "nvme-tcp.ko").write_bytes(kernel_module())
    return folder


def test_a_kernel_of_ones_own_is_known_by_its_files(tmp_path: Path) -> None:
    folder = own(tmp_path / "tar-install")
    first = own_kernel(folder)
    assert (first.version, first.root) == (RELEASE, folder)
    assert own_kernel(folder) == first
    module = folder / "lib" / "modules" / RELEASE / "nvme-tcp.ko"
    module.write_bytes(kernel_module() + b"patched")
    assert own_kernel(folder).sha256 != first.sha256, "the image of the kernel before would be booted"
    (folder / "boot" / f"vmlinuz-{RELEASE}").write_bytes(b"another kernel")
    assert len({first.sha256, own_kernel(folder).sha256}) == 2


def test_a_folder_without_a_kernel_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(VmFault, match=r"holds 0 files vmlinuz-RELEASE.*make dir-pkg"):
        own_kernel(tmp_path)
    folder = own(tmp_path / "tar-install")
    (folder / "boot" / "vmlinuz-6.2.0").write_bytes(b"second")
    with pytest.raises(VmFault, match="holds 2 files"):
        own_kernel(folder)
    (folder / "boot" / f"vmlinuz-{RELEASE}").unlink()
    with pytest.raises(VmFault, match=r"no lib/modules/6\.2\.0: install its modules too"):
        own_kernel(folder)


NOT_UNPACKED = {
    "no entry point": packed(gzip.compress(with_note("Xen", 17))),
    "another's note": packed(gzip.compress(with_note("GNU", 18))),
    "no program": packed(gzip.compress(b"no program")),
    "gzip, damaged": packed(gzip.compress(with_note("Xen", 18))[:-20] + bytes(20)),
    "xz, cut": packed(lzma.compress(with_note("Xen", 18))[:-4]),
    "zstd": packed(b"\x28\xb5\x2f\xfdzstd"),
    "a protocol that does not say where": packed(gzip.compress(with_note("Xen", 18)), version=0x207),
    "nothing": b"",
    "another image": b"MZ" + bytes(600),
}


@pytest.mark.parametrize("kind", NOT_UNPACKED)
def test_a_kernel_that_cannot_be_unpacked_stays_packed(kind: str) -> None:
    assert unpacked(NOT_UNPACKED[kind]) is None


def test_a_program_without_its_symbols_is_loaded_all_the_same(tmp_path: Path) -> None:
    whole = program(["libc.so.6"], "/lib64/ld.so") + b"symbols" * 1000
    assert read_program(without_symbols(whole)) == read_program(whole)
    assert len(without_symbols(whole)) == len(whole) - len(b"symbols" * 1000)
    small = tmp_path / "true"
    small.write_bytes(without_symbols(Path("/bin/true").resolve().read_bytes()))
    small.chmod(0o755)
    subprocess.run([small], check=True)


def archive() -> bytes:
    out = io.BytesIO()
    writer = CpioWriter(out)
    writer.file("usr/bin/tool", b"#!/bin/sh\n", 0o755)
    writer.link("bin", "usr/bin")
    writer.device("dev/console", 5, 1)
    writer.close()
    return out.getvalue()


def test_an_archive_holds_parents_before_children_and_ends_with_a_trailer() -> None:
    data = archive()
    names, at = [], 0
    while at < len(data):
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * index : at + 14 + 8 * index], 16) for index in range(13)]
        names.append((data[at + 110 : at + 110 + fields[11] - 1].decode(), oct(fields[1])))
        at += (110 + fields[11] + 3) // 4 * 4 + (fields[6] + 3) // 4 * 4
    assert names == [
        ("usr", "0o40755"),
        ("usr/bin", "0o40755"),
        ("usr/bin/tool", "0o100755"),
        ("bin", "0o120777"),
        ("dev", "0o40755"),
        ("dev/console", "0o20600"),
        ("TRAILER!!!", "0o0"),
    ]


def test_the_same_files_give_the_same_archive() -> None:
    assert archive() == archive()


def tree(folder: Path, **modules: str) -> ModuleTree:
    """A tree of modules: name → its dependencies."""
    kernel = folder / "lib" / "modules" / RELEASE
    (kernel / "kernel" / "net").mkdir(parents=True)
    for name, depends in modules.items():
        (kernel / "kernel" / "net" / f"{name}.ko").write_bytes(
            kernel_module(depends=depends, alias=f"net-{name}", softdep="pre: absent")
        )
    (kernel / "modules.builtin").write_text("kernel/lib/crc-core.ko\n")
    return ModuleTree([folder], RELEASE)


def test_a_module_comes_after_all_that_it_needs(tmp_path: Path) -> None:
    found = tree(tmp_path, virtio_ring="", virtio="virtio_ring", virtio_net="virtio_ring,virtio,crc_core")
    assert [each.name for each in found.closure(["virtio-net"])] == ["virtio_ring", "virtio", "virtio_net"]


def test_modprobe_finds_dependencies_loaded_from_the_end_of_a_line(tmp_path: Path) -> None:
    found = tree(tmp_path, virtio_ring="", virtio="virtio_ring", virtio_net="virtio_ring,virtio")
    files = index_files(found.closure(["virtio_net"]))
    net = "kernel/net"
    assert files["modules.dep"].splitlines()[-1] == f"{net}/virtio_net.ko: {net}/virtio.ko {net}/virtio_ring.ko"
    assert "alias net-virtio virtio\n" in files["modules.alias"]


def test_soft_dependencies_may_go_round_in_a_circle(tmp_path: Path) -> None:
    found = tree(tmp_path, a="b", b="a")
    assert {each.name for each in found.closure(["a"])} == {"a", "b"}


def test_a_missing_module_is_named_with_what_needs_it(tmp_path: Path) -> None:
    found = tree(tmp_path, nvme_tcp="nvme_core")
    with pytest.raises(VmFault, match=r"no module nvme_core, which nvme_tcp needs"):
        found.closure(["nvme-tcp"])


def kernel_package(folder: Path) -> Package:
    return Package(f"linux-image-{RELEASE}", "6.1.1", "0" * 64, folder, ())


def test_modules_are_built_once_for_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[str] = []

    def build(headers: Path, folder: Path, options: tuple[str, ...]) -> None:
        del headers, options
        builds.append((folder / "vdpa/Makefile").read_text())
        for each in VDUSE.modules:
            (folder / f"{each}.ko").write_bytes(each.encode())

    def unpack(store: Store, release: str, kernel: Package, wanted: re.Pattern[str], folder: Path, report: Any) -> Path:
        del store, release, kernel, report
        for name in ("drivers/vdpa/vdpa.c", "drivers/vdpa/vdpa_user/vduse_dev.c", "drivers/virtio/virtio_vdpa.c"):
            assert wanted.fullmatch(name)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        assert not wanted.fullmatch("drivers/vdpa/mlx5/core/mr.c")
        return folder

    monkeypatch.setattr(kbuild, "unpack", unpack)
    monkeypatch.setattr(kbuild, "make", build)
    for _ in range(2):
        found = built.modules(
            VDUSE, Store(tmp_path / "s"), RELEASE, kernel_package(tmp_path), tmp_path / "m", lambda _: None
        )
        assert found.modules == {
            "vdpa": b"vdpa/vdpa", "vduse": b"vdpa/vduse", "virtio_vdpa": b"virtio/virtio_vdpa",
        }  # fmt: skip
    assert len(builds) == 1


@pytest.mark.parametrize(("subject", "tries"), [(kbuild.SUBJECT, 1), ("packages", 2)])
def test_a_build_that_another_try_would_not_mend_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: str, tries: int
) -> None:
    tried: list[str] = []

    def unpack(*_: object) -> Path:
        tried.append(subject)
        raise VmFault(subject, "make is not there; install the package make")

    monkeypatch.setattr(kbuild, "unpack", unpack)
    for _ in range(2):
        found = built.modules(
            VDUSE, Store(tmp_path / "s"), RELEASE, kernel_package(tmp_path), tmp_path / "m", lambda _: None
        )
        assert found.modules == {}
        assert found.reason == (
            f"Linux {RELEASE} comes without vduse, and it could not be built: make is not there; install the "
            "package make"
        )
    assert len(tried) == tries


def of_virtual_disks(folder: Path, **made: Built) -> tuple[list[str], str | None]:
    """Modules in the image, and the reason why it has no virtual disk."""
    found = tree(folder, virtio_pci="", virtio_net="", virtio_console="", configfs="", sch_tbf="", sch_netem="",
                 virtio_blk="")  # fmt: skip
    for each in made.values():
        for name, data in each.modules.items():
            found.add(name, f"extra/{name}.ko", data)
    parts = {"guest": recipe.BASE, recipe.VDUSE: recipe.STORAGE_DAEMON}
    sources = {FCLOOP: Built(), VDUSE: made.get("vduse", Built())}
    modules, unavailable = _modules(found, _Ingredients({}, [], RELEASE, sources, parts))
    return [each.name for each in modules], unavailable.get(recipe.VDUSE)


def test_modules_that_were_built_stand_beside_those_of_the_kernel(tmp_path: Path) -> None:
    needs = {"vdpa": "", "vduse": "vdpa", "virtio_vdpa": "vdpa"}
    made = Built({name: kernel_module(depends=depends) for name, depends in needs.items()}, "")
    modules, reason = of_virtual_disks(tmp_path, vduse=made)
    assert modules[-4:] == ["vdpa", "vduse", "virtio_vdpa", "virtio_blk"]
    assert reason is None


def test_what_needs_modules_that_could_not_be_built_says_why(tmp_path: Path) -> None:
    modules, reason = of_virtual_disks(tmp_path, vduse=Built(reason="gcc is not there"))
    assert reason == "gcc is not there"
    assert "virtio_blk" not in modules


@pytest.mark.parametrize(
    ("program", "reason"), [("qemu-storage-daemon", None), ("qemu-img", "qemu-system-common holds no qemu-storage-")]
)
def test_a_program_that_a_distribution_has_elsewhere_costs_its_part_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, reason: str | None
) -> None:
    root = tmp_path / "root"
    tree(root, virtio_blk="", vdpa="", vduse="vdpa", virtio_vdpa="vdpa", nvme_fcloop="")
    (root / "usr/bin").mkdir(parents=True)
    for name in (program, "vdpa"):
        (root / "usr/bin" / name).touch()
    monkeypatch.setattr(Store, "knows", lambda *_: True)
    monkeypatch.setattr(
        Store, "fetch", lambda _, names: {name: Package(name, "1", "0" * 64, root, ()) for name in names}
    )
    made_of = _ingredients(
        tmp_path, Store(tmp_path / "s"), f"linux-image-{RELEASE}", Contents(vduse=True), lambda _: None
    )
    # The kernel has all modules, so none is built.
    assert made_of.built == {}
    assert (recipe.VDUSE in made_of.parts) == (reason is None)
    assert made_of.unavailable.get(recipe.VDUSE, "").startswith(reason or "")
    assert set(recipe.ALWAYS) <= set(made_of.parts)


def test_programs_say_what_they_load() -> None:
    found = read_program(program(["libm.so.6", "libc.so.6"], "/lib64/ld-linux-x86-64.so.2"))
    assert (found.needed, found.loader) == (("libm.so.6", "libc.so.6"), "/lib64/ld-linux-x86-64.so.2")
    assert read_program(program([])).loader is None


def test_a_file_of_another_kind_is_no_program() -> None:
    with pytest.raises(ValueError, match="ELF64"):
        read_program(b"#!/bin/sh\n")
    assert read_modinfo(kernel_module(alias=["a", "b"], depends=""))["alias"] == ["a", "b"]


def test_the_libraries_of_a_real_program_are_those_that_ldd_names() -> None:
    python = Path(sys.executable).resolve()
    said = subprocess.run(["ldd", python], capture_output=True, text=True, check=False).stdout
    paths = [line.split("=>")[1].split()[0] for line in said.splitlines() if "=> /" in line]
    if not paths or not all(path.startswith(("/lib/", "/usr/lib/", "/lib64/")) for path in paths):
        pytest.skip("this Python is static or loads libraries of its own")
    named = {line.split()[0] for line in said.splitlines() if "=> /" in line}
    assert set(host_closure(python)) == named


def test_a_program_of_this_host_comes_with_its_libraries_and_their_files() -> None:
    program = Path(shutil.which("sh") or "/bin/sh").resolve()
    out = io.BytesIO()
    image = CpioWriter(out)
    files = _run_here(image, program, "served", "/opt/served/run")
    image.close()
    assert files["/opt/served/served"] == str(program)
    assert files["/opt/served/libc.so.6"].endswith("libc.so.6")
    written = out.getvalue()
    assert b"exec /opt/served/loader --library-path /opt/served /opt/served/served" in written
    for name in ("opt/served/served", "opt/served/libc.so.6", "opt/served/loader"):
        assert name.encode() + b"\0" in written


def test_what_cannot_run_in_a_guest_is_named(tmp_path: Path) -> None:
    with pytest.raises(VmFault, match="nvmf_tgt cannot be read: No such file"):
        own_program(tmp_path / "nvmf_tgt")
    (tmp_path / "nvmf_tgt").write_text("#!/bin/sh")
    with pytest.raises(VmFault, match="nvmf_tgt is not an x86-64 program"):
        own_program(tmp_path / "nvmf_tgt")


def test_libraries_beside_a_program_are_found_where_it_looks(tmp_path: Path) -> None:
    (tmp_path / "libown.so").write_bytes(program([]))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "served").write_bytes(program(["libown.so"], runpath="$ORIGIN/.."))
    assert host_closure(tmp_path / "bin" / "served") == {"libown.so": tmp_path / "bin" / ".." / "libown.so"}


@pytest.mark.parametrize(
    ("soname", "package"),
    [
        ("libtirpc.so.3", "libtirpc3"),
        ("libkrb5.so.3", "libkrb5-3"),
        ("libgssapi_krb5.so.2", "libgssapi-krb5-2"),
        ("libsqlite3.so.0", "libsqlite3-0"),
        ("libcrypto.so.3", "libssl3t64"),
        ("libm.so.6", "libc6"),
        ("libopeniscsiusr.so.0.2.0", "libopeniscsiusr"),
    ],
)
def test_the_package_of_a_library_is_guessed_first(soname: str, package: str) -> None:
    depends = ["adduser", "libc6", "libkrb5-3", "libgssapi-krb5-2", "libopeniscsiusr", "libsqlite3-0", "libssl3t64",
               "libtirpc3", "perl"]  # fmt: skip
    assert likeliest(soname, depends)[0] == package


def test_drivers_that_no_lab_needs_are_left_out_of_the_cache() -> None:
    kernel = f"lib/modules/{RELEASE}/kernel"
    assert LEFT_OUT.match(f"{kernel}/drivers/gpu/drm/i915/i915.ko")
    assert LEFT_OUT.match("usr/share/doc/busybox-static/copyright")
    for path in ("drivers/nvme/host/nvme-tcp.ko", "drivers/net/virtio_net.ko", "net/sunrpc/sunrpc.ko"):
        assert not LEFT_OUT.match(f"{kernel}/{path}")


def test_the_package_managers_own_words_are_passed_on(programs: Path, tmp_path: Path) -> None:
    for tool in ("apt-cache", "dpkg-deb"):
        write_program(programs / tool, "exit 0")
    write_program(
        programs / "apt-get",
        "echo 'W: unsandboxed' >&2; echo 'E: Unable to locate package busybox-static' >&2; exit 100",
    )
    with pytest.raises(VmFault, match=r"^packages: Unable to locate package busybox-static; run `apt-get update`"):
        Store(tmp_path / "store").fetch(["busybox-static"])


def test_a_package_with_another_checksum_is_refused(programs: Path, tmp_path: Path) -> None:
    for tool in ("apt-cache", "dpkg-deb"):
        write_program(programs / tool, "exit 0")
    listed = "'http://archive/t_1_amd64.deb' t_1_amd64.deb 5 SHA256:" + "0" * 64
    write_program(
        programs / "apt-get", f'case "$*" in *print-uris*) echo "{listed}" ;; *) echo fake >t_1_amd64.deb ;; esac'
    )
    with pytest.raises(VmFault, match=r"t_1_amd64.deb has SHA-256 [0-9a-f]{64}, but apt's lists say 0{64}"):
        Store(tmp_path / "store").fetch(["t"])
    assert not list((tmp_path / "store").glob("0*"))


def test_a_machine_without_apt_is_told_so(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(VmFault, match="apt-get is not there"):
        Store(tmp_path / "store").fetch(["busybox-static"])


def test_the_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path / "cache"))
    assert cache_root() == tmp_path / "cache" / "vm"
    monkeypatch.setenv("IOTAX_CACHE", "/proc/nowhere")
    with pytest.raises(VmFault, match="name another place in IOTAX_CACHE"):
        cache_root()


def test_a_full_disk_is_noticed_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(VmFault, match=r"disk space: .* MiB free and 1099511627776 MiB are needed"):
        need_space(tmp_path, 1 << 60)


def test_a_build_that_fails_leaves_no_entry(tmp_path: Path) -> None:
    def build() -> None:
        with new_entry(tmp_path / "images" / "x") as entry:
            (entry / "half").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        build()
    assert list((tmp_path / "images").iterdir()) == []


@pytest.mark.parametrize("filters", [True, False])
def test_nothing_is_unpacked_outside_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, filters: bool
) -> None:
    if not filters:  # as on Python 3.11.2
        monkeypatch.delattr(tarfile, "tar_filter", raising=False)
    archive, folder = tmp_path / "a.tar", tmp_path / "out"
    folder.mkdir()
    with tarfile.open(archive, "w") as files:
        for name in ("./usr/bin/tool", "../escaped", "/escaped"):
            member = tarfile.TarInfo(name)
            member.size = 4
            files.addfile(member, io.BytesIO(b"data"))
    with tarfile.open(archive) as files:
        inside, *outside = files.getmembers()
        extract(files, inside, folder)
        for member in outside:
            with pytest.raises(tarfile.TarError):
                extract(files, member, folder)
    assert (folder / "usr/bin/tool").read_bytes() == b"data"
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("filters", [True, False])
def test_nothing_is_written_through_a_link_out_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, filters: bool
) -> None:
    if not filters:
        monkeypatch.delattr(tarfile, "tar_filter", raising=False)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("mine")
    folder = tmp_path / "out"
    (folder / "usr").mkdir(parents=True)

    def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, to
        return member

    def file(name: str) -> tarfile.TarInfo:
        member = tarfile.TarInfo(name)
        member.size = 4
        return member

    device = tarfile.TarInfo("device")
    device.type = tarfile.CHRTYPE
    links = [link("folder", str(outside)), link("up", "../outside/secret"), link("loop", "loop"), link("lib", "usr")]
    refused = [
        *(file("folder/new"), file("up"), file("loop/x"), device),
        *(link("hard", "../outside/secret", tarfile.LNKTYPE), link("hard2", "folder/secret", tarfile.LNKTYPE)),
        link("folder/inner", "x"),
    ]
    with tarfile.open(tmp_path / "a.tar", "w") as files:
        for member in (*links, *refused, file("lib/inside")):
            files.addfile(member, io.BytesIO(b"evil") if member.isfile() else None)
    with tarfile.open(tmp_path / "a.tar") as files:
        members = files.getmembers()
        for member in members[: len(links)]:
            extract(files, member, folder)
        for member in members[len(links) : -1]:
            with pytest.raises(tarfile.TarError):
                extract(files, member, folder)
        extract(files, members[-1], folder)
    assert [path.name for path in outside.iterdir()] == ["secret"] and (outside / "secret").read_text() == "mine"
    assert (folder / "usr/inside").read_bytes() == b"evil", "a link within the folder is followed"
