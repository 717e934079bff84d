"""Linux's NVMe drivers with in-band authentication, which Debian's kernel leaves out (CONFIG_NVME_AUTH): built from the
distribution's own source against its headers, as the lab builds nvme-fcloop. RFC 7919's groups are left out too; their
template is all that is taken of the module that has it, since the arithmetic is in the kernel.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

from iotax.labs.vm.cache import cache_root, new_entry, sound
from iotax.labs.vm.packages import Package, Store
from iotax.labs.vm.untar import extract

ORDER = ("ffdhe", "nvme-common", "nvme-core", "nvme-fabrics", "nvme-tcp", "nvmet", "nvmet-tcp")
"""In the order of loading: each after what it needs."""
_NEEDED = re.compile(r"linux-source-[\d.]+/(drivers/nvme(/.*)?|crypto/dh(_helper)?\.c)")
_OPTIONS = {
    "drivers/nvme": (
        *("CONFIG_NVME_COMMON=m", "CONFIG_NVME_AUTH=y", "CONFIG_NVME_TARGET_AUTH=y"),
        *(f"CONFIG_{name}=" for name in ("NVME_RDMA", "NVME_FC", "BLK_DEV_NVME", "NVME_TARGET_RDMA", "NVME_TARGET_FC")),
        "KCFLAGS=-DCONFIG_NVME_AUTH=1 -DCONFIG_NVME_TARGET_AUTH=1",
    ),
    "ffdhe": ("KCFLAGS=-DCONFIG_CRYPTO_DH_RFC7919_GROUPS=1",),
}


def modules(store: Store, release: str, kernel: Package) -> dict[str, bytes]:
    """Name → module; from the cache where they were built before."""
    name = hashlib.sha256(f"nvme-auth {kernel.sha256}".encode() + Path(__file__).read_bytes()).hexdigest()[:24]
    place = cache_root() / "modules" / name
    if not sound(place):
        with new_entry(place) as entry:
            for each, data in _build(store, release).items():
                (entry / each).write_bytes(data)
    return {each: (place / each).read_bytes() for each in ORDER}


def _build(store: Store, release: str) -> dict[str, bytes]:
    headers, source = f"linux-headers-{release}", f"linux-source-{'.'.join(release.split('.')[:2])}"
    found = store.fetch([headers, source])
    halves = [each for each in found[headers].depends if each.startswith(("linux-headers", "linux-kbuild"))]
    with tempfile.TemporaryDirectory(prefix="iotax-nvme-auth-") as name:
        folder = Path(name)
        for package in (found[headers], *store.fetch(halves).values()):
            subprocess.run(["cp", "-a", f"{package.root}/.", folder], check=True)
        archive = next((found[source].root / "usr/src").glob("linux-source-*.tar.xz"))
        with tarfile.open(archive, mode="r|xz") as files:
            for each in files:
                if _NEEDED.fullmatch(each.name):
                    each.name = each.name.partition("/")[2]
                    extract(files, each, folder)
        _only_the_template(folder)
        makefile = folder / "usr/src" / headers / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{folder}/usr/src/"))
        for part, options in _OPTIONS.items():
            done = subprocess.run(
                ["make", "-C", makefile.parent, f"M={folder / part}", "CC=gcc", *options, "modules"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-2000:]
        built = {path.stem: path.read_bytes() for part in _OPTIONS for path in (folder / part).rglob("*.ko")}
        return {each: built[each] for each in ORDER}


def _only_the_template(folder: Path) -> None:
    """crypto/dh.c without its `dh`, which the kernel has; its helper without what the kernel exports."""
    place = folder / "ffdhe"
    place.mkdir()
    template = (folder / "crypto/dh.c").read_text()
    for call, instead in (("err = crypto_register_kpp(&dh);", "err = 0;"), ("crypto_unregister_kpp(&dh);", "")):
        assert call in template
        template = template.replace(call, instead)
    (place / "template.c").write_text(template)
    helper = (folder / "crypto/dh_helper.c").read_text()
    (place / "helper.c").write_text(re.sub(r"^EXPORT_SYMBOL.*$", "", helper, flags=re.MULTILINE))
    (place / "Makefile").write_text("obj-m := ffdhe.o\nffdhe-y := template.o helper.o\n")
