"""DH-HMAC-CHAP between Linux and us, both ways round: its host with our controller, our host with its controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vm.needed import require

from .clients import NQN, NVME, Serve
from .linux_targets import SIZE_BYTES, fill, holds_what_is_written, run, served
from .machine import KernelMachine
from .nvme_auth import modules

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

HOST = "nqn.2014-08.org.nvmexpress:uuid:6f746178-0000-4000-8000-000000000001"
KINDS = [
    *(("sha256", group) for group in ("null", "ffdhe2048", "ffdhe3072")),
    *((name, "null") for name in ("sha384", "sha512")),
    *(("sha512", group) for group in ("ffdhe4096", "ffdhe6144", "ffdhe8192")),
]


@pytest.fixture(scope="module")
def own_machine() -> Iterator[KernelMachine]:
    """With modules in place of the kernel's own: none of the other tests' machine."""
    require("cc", "nm", "cargo", "make", "gcc")
    machine = KernelMachine({f"{name}.ko": data for name, data in modules().items()})
    try:
        machine.run(". /test/nvme_auth.sh; auth_up")
        yield machine
    finally:
        machine.close()


@pytest.fixture
def authenticating(own_machine: KernelMachine) -> Iterator[KernelMachine]:
    yield own_machine
    own_machine.run("leave")


@pytest.fixture
def secrets(authenticating: KernelMachine, tmp_path: Path) -> tuple[Path, Path]:
    """A host's and a controller's, as nvme-cli makes them."""
    host, controller = tmp_path / "host", tmp_path / "controller"
    for path, transform in ((host, 1), (controller, 2)):
        path.write_text(authenticating.run(f"nvme gen-dhchap-key -m {transform} -n {HOST}")[-1])
    return host, controller


@pytest.mark.parametrize(("hash_name", "group"), KINDS)
def test_linux_proves_itself_to_us_and_we_to_it(
    serve: Serve, authenticating: KernelMachine, secrets: tuple[Path, Path], hash_name: str, group: str
) -> None:
    host, controller = secrets
    dhchap = {"secret_file": str(host), "controller": {"secret_file": str(controller)}}
    members = {"name": "lab", "initiators": [HOST], "dhchap": dhchap | {"hash": hash_name, "dh_group": group}}
    server = serve("nvme-tcp", SIZE_BYTES, groups=[members])
    connect = f"nvme connect $AT -n {NQN} -q {HOST} -i 2"
    right = f"{connect} --dhchap-secret {host.read_text()} --dhchap-ctrl-secret {controller.read_text()}"
    authenticating.run(
        NVME.script(
            server,
            f"refuses {connect}; refuses {connect} --dhchap-secret {controller.read_text()}; "
            f"checked {right}; block_device '/dev/nvme?n1' || die 'no namespace'; "
            f"fio proven $_device --size=4m --rw=randwrite --bs=4k --direct=1 --iodepth=8; {NVME.down}",
        )
    )


@pytest.mark.parametrize(("hash_name", "group"), KINDS)
def test_we_prove_ourselves_to_linux_and_it_to_us(
    authenticating: KernelMachine, secrets: tuple[Path, Path], hash_name: str, group: str
) -> None:
    host, controller = secrets
    proof = {"secret_file": str(host), "controller": {"secret_file": str(controller)}}
    right = {"initiator": HOST, "dhchap": proof}
    wrong = {"initiator": HOST, "dhchap": {"secret_file": str(controller)}}
    only = f"only {HOST} {host.read_text()} {controller.read_text()} {hash_name} {group}"
    with served(authenticating, "nvme-tcp") as endpoint:
        authenticating.run(f". /test/nvme_auth.sh; {only}")
        try:
            # nvmet ends the connection as it says why, so that the reason may come too late.
            for options, kinds in (({"initiator": HOST}, {"unauthenticated"}), (wrong, {"unauthenticated", "lost"})):
                refused = run({"task": "check", "endpoint": endpoint, "options": options})
                assert refused["event"] == "error" and refused["kind"] in kinds, refused
            fill(endpoint, right)
            holds_what_is_written(endpoint, right, [(2, 4096)])
        finally:
            authenticating.run(f". /test/nvme_auth.sh; anyone {HOST}")
