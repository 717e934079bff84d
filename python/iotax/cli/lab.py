"""`iotax lab vm`: builds, checks and opens the guests."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.options import JsonFile
from iotax.engine import EngineError, find_engine
from iotax.labs.vm import accelerator, recipe
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import Guests, StepFailed
from iotax.labs.vm.image import Image
from iotax.labs.vm.image import build as build_image
from iotax.labs.vm.qemu import require_qemu
from iotax.protocols import without_transport

_VOLUME_BYTES = 64 << 20
_COMMAND_S = 600.0
"""Time limit of a command in a guest."""


def build(
    update: Annotated[bool, typer.Option("--update", help="Use newer packages if there are any.")] = False,
    document: JsonFile = None,
) -> None:
    """Build the guest image.

    Downloads packages into the cache and installs nothing.
    """
    judged(document)
    with _faults_told():
        image = _built(update=update)
        size_bytes = image.initramfs.stat().st_size
        if document != STDOUT:
            echo(f"image: {image.initramfs.parent} ({size_bytes >> 20} MiB)")
            echo(f"kernel: Linux {image.release}, {len(image.packages)} packages")
            _say_protocols(image)
        if document is not None:
            about = {"image": str(image.initramfs.parent), "size_bytes": size_bytes, "packages": len(image.packages)}
            write_document(document, about | _document(image))


def check(document: JsonFile = None) -> None:
    """Boot both guests and list the protocols that they support.

    Builds the image, and checks whether KVM works.
    """
    judged(document)
    with _faults_told():
        booted = _boot()
        with contextlib.closing(booted.guests):
            boot_s = booted.guests.boot_s
            if document != STDOUT:
                echo(f"accelerator: {booted.why}")
                echo(f"guests: both up after {boot_s:.1f} s, Linux {booted.image.release}")
                _say_protocols(booted.image)
            if document is not None:
                write_document(document, {"accelerator": booted.why, "boot_s": boot_s} | _document(booted.image))


def _document(image: Image) -> dict[str, Any]:
    """Protocol → why it is not available, null if it is."""
    return {
        "kernel": image.release,
        "protocols": {protocol: image.unavailable.get(protocol) for protocol in recipe.PROTOCOLS},
    }


def shell(
    protocol: Annotated[
        str, typer.Argument(help="A protocol to bring up first, such as nvme-tcp.", show_default=False)
    ] = "",
) -> None:
    """Boot both guests and open a shell for them.

    Type `storage COMMAND` or `initiator COMMAND`.
    """
    with _faults_told():
        booted = _boot()
        with contextlib.closing(booted.guests):
            if protocol:
                _bring_up(booted, protocol)
            echo("`storage COMMAND` or `initiator COMMAND`; end with Ctrl-D")
            for line in sys.stdin:
                role, _, command = line.strip().partition(" ")
                if role not in ("storage", "initiator"):
                    echo("start the line with storage or initiator", err=True)
                    continue
                try:
                    booted.guests[role].stream(f"exec 2>&1; {command}", echo, _COMMAND_S)
                except StepFailed as failed:
                    echo(f"status {failed.status}", err=True)


@dataclass(frozen=True)
class _Booted:
    image: Image
    guests: Guests
    why: str


def _boot() -> _Booted:
    version = require_qemu()
    image = _built(update=False)
    chosen, why = accelerator.choose(image, "auto", version)
    return _Booted(image, Guests(image, accelerator=chosen, clock="host", volume_bytes=_VOLUME_BYTES), why)


def _built(*, update: bool) -> Image:
    return build_image(find_engine(), lambda text: echo(text, err=True), update=update)


def _bring_up(booted: _Booted, protocol: str) -> None:
    if protocol not in recipe.PROTOCOLS:
        leave(Exit.USAGE, f"{protocol} is not a protocol of the vm lab; it has {', '.join(recipe.PROTOCOLS)}")
    if reason := booted.image.unavailable.get(protocol):
        leave(Exit.LAB, f"{protocol} is not available: {reason}")
    target = booted.guests["initiator" if protocol in without_transport() else "storage"]
    target.run(f"volume_up {_VOLUME_BYTES}; step {protocol} target_up")
    for line in booted.guests["initiator"].run(f"step {protocol} initiator_up"):
        echo(line)


def _say_protocols(image: Image) -> None:
    for protocol in recipe.PROTOCOLS:
        echo(f"{protocol}: {image.unavailable.get(protocol, 'ok')}")


@contextlib.contextmanager
def _faults_told() -> Generator[None]:
    try:
        yield
    except VmFault as fault:
        leave(Exit.LAB, f"{fault}\n{fault.console}" if fault.console else str(fault))
    except (EngineError, StepFailed) as error:
        leave(Exit.LAB, str(error))
    except KeyboardInterrupt:
        leave(Exit.INTERRUPTED, "interrupted")
