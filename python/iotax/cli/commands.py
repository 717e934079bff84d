"""The table of commands: the function of each, a line about it, and examples. A command's module is loaded when the
command is used, so that lists of commands and completions come at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import CompletionItem, TyperGroup
from typer.main import get_command

from iotax.cli.options import PlainCommand, PlainGroup


@dataclass(frozen=True)
class Command:
    place: str
    """Module below `iotax.cli`, and function."""
    about: str
    """The first sentence of its help; a test compares the two."""
    examples: tuple[str, ...]

    def load(self, name: str) -> Any:
        module, _, function = self.place.partition(":")
        found = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        epilog = "\b\nExample:\n" + "\n".join(f"  {each}" for each in self.examples)
        found.command(name, cls=PlainCommand, epilog=epilog)(getattr(import_module(f"iotax.cli.{module}"), function))
        return get_command(found)


class Commands(PlainGroup):
    """A group whose commands are loaded when they are used."""

    table: ClassVar[Mapping[str, Command]] = {}

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.commands: Any = {**self.table, **self.commands}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = self.commands.get(cmd_name)
        if isinstance(found, Command):
            found = self.commands[cmd_name] = found.load(cmd_name)
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def lines(self) -> list[tuple[str, str]]:
        """Each command and what it does, as lists show them."""
        return [
            (name, found.about if isinstance(found, Command) else found.get_short_help_str())
            for name, found in self.commands.items()
        ]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[CompletionItem]:
        named = [CompletionItem(name, help=about) for name, about in self.lines() if name.startswith(incomplete)]
        # The group's own method would load each command for what is known here; the one above it names the options.
        return [*named, *super(TyperGroup, self).shell_complete(ctx, incomplete)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.lines())


class Root(Commands):
    table: ClassVar[Mapping[str, Command]] = {
        "run": Command(
            "run:run",
            "Run a study and write its report.",
            ("iotax run quick --time 30s", "iotax run my-study.yaml --live", "iotax run my-study.yaml results.iotax"),
        ),
        "live": Command(
            "live:live",
            "Show a run of another process in a browser and as metrics.",
            ("iotax live out/quick.iotax --port 9480",),
        ),
        "vs": Command(
            "versus:versus",
            "Compare endpoints or protocols without a study file.",
            (
                "iotax vs nvme-tcp iscsi --bs 8k --iodepth 16 --rw randrw --time 2m",
                "iotax vs nfs://10.0.0.5/vol1/data iscsi://10.0.0.5/iqn.2001-05.org.example:vol1/0",
            ),
        ),
        "plan": Command(
            "plan:plan",
            "Show what a study will do and what it can detect; run nothing.",
            ("iotax plan quick", "iotax plan quick --time 30s", "iotax plan quick --long"),
        ),
        "check": Command(
            "study:check",
            "Check whether a study can run here; write nothing.",
            ("iotax check my-study.yaml", "iotax check my-study.yaml --initiator"),
        ),
        "serve": Command(
            "serve:serve",
            "Serve one volume over NFS, iSCSI and NVMe/TCP.",
            ("iotax serve disk.img --size 10GiB",),
        ),
        "aa": Command(
            "aa:aa",
            "Compare a treatment with itself: the noise floor of this lab.",
            ("iotax aa quick --replicates 20",),
        ),
        "studies": Command(
            "study:studies",
            "List the built-in studies, or print one.",
            ("iotax studies", "iotax studies quick"),
        ),
        "doctor": Command("doctor:doctor", "List what this machine can run and what to install.", ("iotax doctor",)),
        "init": Command(
            "study:init",
            "Write a study to start from.",
            ("iotax init my-study.yaml --from quick", "iotax init my-study.yaml --from job.fio"),
        ),
        "completion": Command(
            "complete:completion",
            "Print a script for shell completion.",
            ('eval "$(iotax completion bash)"',),
        ),
        "import": Command(
            "imports:import_",
            "Read other programs' results into a notebook.",
            (
                "iotax import fio results/*.json --name-pattern '{protocol}-{bs}-r{replicate}.json'",
                "iotax import table runs.csv --column iops=IO/s --column duration_s=60 --column protocol=Setup",
                "iotax import list",
            ),
        ),
        "show": Command(
            "show:show",
            "Show a notebook: runs, results, failed attempts.",
            ("iotax show", "iotax show out/quick.iotax --long"),
        ),
        "report": Command(
            "show:report",
            "Write the report of a notebook: one HTML file.",
            ("iotax report out/quick.iotax --charts charts --pdf report.pdf",),
        ),
        "export": Command(
            "export:export",
            "Write a notebook's results for other programs.",
            ("iotax export out/quick.iotax --output quick.csv",),
        ),
        "size": Command(
            "size:size",
            "Cores needed for a rate, and response times by utilisation.",
            ("iotax size --iops 70k", "iotax size --iops 70k --cpu-us nfs=81:78-84 --cpu-us fc=41"),
        ),
        "compare": Command(
            "compare:compare",
            "Compare two runs of a study, or two levels of a factor.",
            (
                "iotax compare before.iotax after.iotax --fail-on-regression",
                "iotax compare nfs3 iscsi out/quick.iotax",
            ),
        ),
    }


class Hosts(Commands):
    table: ClassVar[Mapping[str, Command]] = {
        "check": Command("hosts:check", "Check each host of a study.", ("iotax lab hosts check my-study.yaml",)),
        "clean": Command("hosts:clean", "Clean up the hosts of a study.", ("iotax lab hosts clean my-study.yaml",)),
    }


class Vm(Commands):
    table: ClassVar[Mapping[str, Command]] = {
        "build": Command("lab:build", "Build the guest image.", ("iotax lab vm build --update",)),
        "check": Command(
            "lab:check", "Boot both guests and list the protocols that they support.", ("iotax lab vm check",)
        ),
        "shell": Command("lab:shell", "Boot both guests and open a shell for them.", ("iotax lab vm shell nvme-tcp",)),
    }


class Sim(Commands):
    table: ClassVar[Mapping[str, Command]] = {
        "costs": Command(
            "sim_costs:costs",
            "Make a cost table from measurements.",
            ("iotax sim costs out/quick.iotax --output mine.yaml",),
        ),
        "predict": Command(
            "sim_predict:predicted",
            "Compare a cost table with measurements.",
            ("iotax sim predict out/other.iotax --costs mine.yaml",),
        ),
        "what-if": Command(
            "sim_what_if:what_if",
            "Show what limits a simulated study, now and after a change.",
            (
                "iotax sim what-if sim-quick --link 25GbE",
                "iotax sim what-if sim-quick --hosts x4 --trunk 10GbE",
            ),
        ),
        "sensitivity": Command(
            "sim_sensitivity:sensitivity",
            "Show how sensitive simulated ratios are to each assumption.",
            ("iotax sim sensitivity sim-quick",),
        ),
    }
