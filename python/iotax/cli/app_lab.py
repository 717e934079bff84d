"""The commands of `iotax lab` and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from iotax.cli.options import JsonCommand, JsonFile, PlainCommand, PlainGroup, StudyName

lab = typer.Typer(
    cls=PlainGroup,
    help="Prepare and inspect the labs in which studies run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
vm = typer.Typer(
    cls=PlainGroup,
    help="The lab of virtual machines with real kernels.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
lab.add_typer(vm, name="vm")
hosts = typer.Typer(
    cls=PlainGroup, help="The lab of your own hosts, over SSH.", no_args_is_help=True, rich_markup_mode=None
)
lab.add_typer(hosts, name="hosts")


@hosts.command("check", cls=JsonCommand)
def hosts_check(study: StudyName, document: JsonFile = None) -> None:
    """Check each host of a study.

    Shows kernel, cores, clock, engine, protocols, sudo, link to the target, and what its disks hold. Copies the engine
    to each host; changes nothing else.
    """
    from iotax.cli import hosts as command

    command.check(study, document)


@hosts.command("clean", cls=PlainCommand)
def hosts_clean(study: StudyName) -> None:
    """Clean up the hosts of a study.

    Takes down paths that earlier studies left, and removes the engines copied there.
    """
    from iotax.cli import hosts as command

    command.clean(study)


@vm.command("build", cls=JsonCommand)
def vm_build(
    update: Annotated[bool, typer.Option("--update", help="Use newer packages if there are any.")] = False,
    document: JsonFile = None,
) -> None:
    """Build the guest image.

    Downloads packages into the cache and installs nothing.
    """
    from iotax.cli import lab as command

    command.build(document, update=update)


@vm.command("check", cls=JsonCommand)
def vm_check(document: JsonFile = None) -> None:
    """Boot both guests and list the protocols that they support.

    Builds the image, and checks whether KVM works.
    """
    from iotax.cli import lab as command

    command.check(document)


@vm.command("shell", cls=PlainCommand)
def vm_shell(
    protocol: Annotated[
        str, typer.Argument(help="A protocol to bring up first, such as nvme-tcp.", show_default=False)
    ] = "",
) -> None:
    """Boot both guests and open a shell for them.

    Type `storage COMMAND` or `initiator COMMAND`.
    """
    from iotax.cli import lab as command

    command.shell(protocol)
