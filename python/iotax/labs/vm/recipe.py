"""What each protocol needs in a guest: packages, programs, kernel modules; for the kernel's TLS, the daemon that shakes
hands, which is the distribution's or one that the user built."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from iotax.study.fields import KERBEROS


@dataclass(frozen=True)
class Part:
    """Files of packages and modules of the kernel that go into the image together."""

    modules: tuple[str, ...] = ()
    programs: tuple[tuple[str, str], ...] = ()
    """(package, name of a program in one of its bin or sbin folders)."""
    files: tuple[tuple[str, str], ...] = ()
    """(package, path of a plain file)."""
    libraries: tuple[tuple[str, str], ...] = ()
    """(package, path of a library that a program loads by itself)."""
    trees: tuple[tuple[str, str], ...] = ()
    """(package, folder of it), with all that is in it."""


BASE = Part(
    modules=("virtio_pci", "virtio_net", "virtio_console", "configfs", "sch_tbf", "sch_netem"),
    programs=(("busybox-static", "busybox"), ("iproute2", "tc"), ("diffutils", "cmp")),
)

_NFS = Part(
    modules=("nfsd", "nfsv3", "nfsv4"),
    programs=(
        ("nfs-common", "mount.nfs"),
        ("nfs-kernel-server", "exportfs"),
        ("nfs-kernel-server", "rpc.nfsd"),
        ("nfs-kernel-server", "rpc.mountd"),
        ("nfs-kernel-server", "nfsdcld"),
        ("rpcbind", "rpcbind"),
    ),
    files=(("libtirpc-common", "etc/netconfig"), ("netbase", "etc/protocols"), ("netbase", "etc/services")),
)
_SCSI = Part(modules=("target_core_mod", "target_core_file", "sd_mod", "crc32c_generic", "crct10dif_generic"))
_MULTIPATH = Part(
    modules=("dm_multipath", "dm_round_robin", "dm_queue_length", "scsi_dh_alua"), programs=(("dmsetup", "dmsetup"),)
)
_ISCSI = Part(
    modules=(*_SCSI.modules, *_MULTIPATH.modules, "iscsi_target_mod", "iscsi_tcp"),
    programs=(("open-iscsi", "iscsid"), ("open-iscsi", "iscsiadm"), *_MULTIPATH.programs),
)
_RDMA = Part(modules=("rdma_rxe", "rdma_cm", "crc32_generic"), programs=(("iproute2", "rdma"),))

PROTOCOLS: dict[str, Part] = {
    "nfs3": _NFS,
    "nfs4.1": _NFS,
    "iscsi": _ISCSI,
    "iser": Part(
        modules=(*_ISCSI.modules, *_RDMA.modules, "ib_isert", "ib_iser"),
        programs=(*_ISCSI.programs, *_RDMA.programs),
    ),
    "nvme-tcp": Part(modules=("nvmet", "nvmet_tcp", "nvme_tcp", "crc32c_generic")),
    "nvme-rdma": Part(modules=("nvmet", "nvmet_rdma", "nvme_rdma", *_RDMA.modules), programs=_RDMA.programs),
    "fcp": Part(
        modules=(*_SCSI.modules, *_MULTIPATH.modules, "libfc", "libfcoe", "fcoe", "tcm_fc", "veth"),
        programs=_MULTIPATH.programs,
    ),
    "fcp-loop": Part(modules=(*_SCSI.modules, "tcm_loop")),
    "fc-nvme": Part(modules=("nvmet", "nvmet_fc", "nvme_fc", "nvme_fcloop")),
}
"""Every protocol of the vm lab."""

CONTROLLERS: dict[str, Part] = {
    "virtio-blk": Part(modules=("virtio_pci", "virtio_blk")),
    "virtio-scsi": Part(modules=("virtio_pci", "virtio_scsi", "sd_mod")),
    "pvscsi": Part(modules=("vmw_pvscsi", "sd_mod")),
    "nvme": Part(modules=("nvme",)),
}
"""Every controller behind which a datastore's disk may stand."""

SERVERS: dict[str, Part] = {
    "ganesha": Part(
        programs=(("nfs-ganesha", "ganesha.nfsd"), ("rpcbind", "rpcbind")),
        libraries=(("nfs-ganesha-vfs", "usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so"),),
    ),
    "tgt": Part(programs=(("tgt", "tgtd"), ("tgt", "tgtadm"))),
}
"""Every target that is a program of the distribution. They are in the image only where a study asks for them."""


_KERBEROS = Part(
    modules=("auth_rpcgss", "rpcsec_gss_krb5", "aesni_intel", "cts", "cbc", "sha1_ssse3", "sha512_ssse3"),
    programs=(
        ("iproute2", "ip"),
        ("nfs-common", "rpc.gssd"),
        ("nfs-common", "rpc.svcgssd"),
        ("krb5-kdc", "krb5kdc"),
        ("krb5-kdc", "kdb5_util"),
        ("krb5-admin-server", "kadmin.local"),
    ),
    libraries=(
        ("krb5-kdc", "usr/lib/x86_64-linux-gnu/krb5/plugins/kdb/db2.so"),
        ("libverto-libev1", "usr/lib/x86_64-linux-gnu/libverto-libev.so.1"),
        ("libnfsidmap1", "usr/lib/x86_64-linux-gnu/libnfsidmap/nsswitch.so"),
    ),
)

ENCRYPTION: dict[str, Part] = {
    "ipsec": Part(
        modules=(
            *("esp4", "xfrm_user", "aesni_intel", "ghash_clmulni_intel", "gcm", "ctr", "ghash_generic"),
            *("seqiv", "drbg", "sha512_generic"),  # its initialisation vectors
        ),
        programs=(("iproute2", "ip"),),
    ),
    "wireguard": Part(modules=("wireguard",), programs=(("iproute2", "ip"), ("wireguard-tools", "wg"))),
    **dict.fromkeys(KERBEROS, _KERBEROS),
    "tls": Part(
        modules=(
            *("tls", "nvme_keyring", "tcp_diag", "aesni_intel", "ghash_clmulni_intel"),
            *("gcm", "ctr", "ccm", "ghash_generic", "chacha20poly1305"),
        ),
        programs=(("iproute2", "ip"), ("iproute2", "ss"), ("keyutils", "keyctl"), ("openssl", "openssl")),
    ),
}
"""Tools that encrypt a link; those of TLS without its daemon. In the image only if a study needs them."""

VDUSE = "vduse"
"""The part with which a guest's kernel has a disk of its own as a hypervisor's guest has it."""

STORAGE_DAEMON = Part(
    modules=("vduse", "virtio_vdpa", "virtio_blk"),
    programs=(("qemu-system-common", "qemu-storage-daemon"), ("iproute2", "vdpa")),
)
"""QEMU's block layer without a machine, and the tool that shows its disk to the kernel. In the image only if needed."""

DATABASE = "database"
"""The part that only studies of databases ask for: it is as large as all others together."""


def database(package: str) -> Part:
    """PostgreSQL and pgbench of one release, of which the server's package is named: postgresql-15 or another."""
    release = package.removeprefix("postgresql-")
    folder = f"usr/lib/postgresql/{release}"
    return Part(
        modules=("ext4", "loop", "crc32c_generic"),
        programs=(("e2fsprogs", "mke2fs"),),
        files=(
            (package, f"{folder}/bin/postgres"),
            (package, f"{folder}/bin/initdb"),
            (package, f"{folder}/bin/pgbench"),
            (f"postgresql-client-{release}", f"{folder}/bin/psql"),
            (package, f"{folder}/lib/plpgsql.so"),
            (package, f"{folder}/lib/dict_snowball.so"),
        ),
        trees=((package, f"usr/share/postgresql/{release}"),),
    )


ALWAYS: dict[str, Part] = {"guest": BASE} | PROTOCOLS | CONTROLLERS
"""Contents of every image, by the name of what they serve."""

_OPTIONAL = (*SERVERS.values(), *ENCRYPTION.values(), STORAGE_DAEMON, database("postgresql-0"))
MODULES = tuple(dict.fromkeys(each for part in (*ALWAYS.values(), *_OPTIONAL) for each in part.modules))
"""Every module that any part wants."""


TLSHD_PACKAGE, PROGRAM = "ktls-utils", "tlshd"
OWN_START = f"/opt/{PROGRAM}/run"
"""What starts the user's own in a guest."""
TLSHD_MISSING = (
    "TLS needs the program tlshd, which is not there. Debian 13 has ktls-utils; on older systems build "
    "https://github.com/oracle/ktls-utils (autoreconf, ./configure, make install)"
)
_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
"""A user's PATH may lack them."""


def own_daemon() -> Path | None:
    """The one that is installed on this machine."""
    found = shutil.which(PROGRAM, path=os.pathsep.join((os.environ.get("PATH", ""), *_FOLDERS)))
    return Path(found) if found else None
