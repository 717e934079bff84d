"""Builds Linux's NVMe drivers with in-band authentication, which Debian's kernel leaves out (CONFIG_NVME_AUTH).

They are built from the distribution's own source against its headers, as the lab builds nvme-fcloop. The kernel also
lacks RFC 7919's groups. Only their template is taken from the module that has it, because the kernel has the
arithmetic.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path

from iotax.labs.vm import kbuild
from iotax.labs.vm.cache import cache_root, locked, new_entry, sound
from iotax.labs.vm.packages import Package, Store

ORDER = ("ffdhe", "nvme-common", "nvme-core", "nvme-fabrics", "nvme-tcp", "nvmet", "nvmet-tcp")
"""In load order: each module after those it needs."""
_NEEDED = re.compile(r"drivers/nvme(/.*)?|crypto/dh(_helper)?\.c")
_OPTIONS = {
    "drivers/nvme": (
        *("CONFIG_NVME_COMMON=m", "CONFIG_NVME_AUTH=y", "CONFIG_NVME_TARGET_AUTH=y"),
        *(f"CONFIG_{name}=" for name in ("NVME_RDMA", "NVME_FC", "BLK_DEV_NVME", "NVME_TARGET_RDMA", "NVME_TARGET_FC")),
        "KCFLAGS=-DCONFIG_NVME_AUTH=1 -DCONFIG_NVME_TARGET_AUTH=1",
    ),
    "ffdhe": ("KCFLAGS=-DCONFIG_CRYPTO_DH_RFC7919_GROUPS=1",),
}


def modules() -> dict[str, bytes]:
    """Name → module, from the cache if they were built before."""
    root = cache_root()
    with locked(root, lambda _: None):
        store = Store(root / "packages")
        name = store.kernel_package()
        kernel = store.fetch([name])[name]
        made_of = f"nvme-auth {kernel.sha256}".encode() + Path(__file__).read_bytes()
        place = root / "modules" / hashlib.sha256(made_of).hexdigest()[:24]
        if not sound(place):
            with new_entry(place) as entry:
                for each, data in _build(store, name.removeprefix("linux-image-"), kernel).items():
                    (entry / each).write_bytes(data)
        return {each: (place / each).read_bytes() for each in ORDER}


def _build(store: Store, release: str, kernel: Package) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="iotax-nvme-auth-") as name:
        folder = Path(name)
        headers = kbuild.unpack(store, release, kernel, _NEEDED, folder, lambda _: None)
        _only_the_template(folder)
        for part, options in _OPTIONS.items():
            kbuild.make(headers, folder / part, options)
        built = {path.stem: path.read_bytes() for part in _OPTIONS for path in (folder / part).rglob("*.ko")}
        return {each: built[each] for each in ORDER}


def _only_the_template(folder: Path) -> None:
    """Takes crypto/dh.c without its `dh`, which the kernel has, and its helper without exported symbols."""
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
