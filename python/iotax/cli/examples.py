"""An example for each command, shown under its help."""

from __future__ import annotations

import typer

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": ("iotax run quick --time 30s", "iotax run my-study.yaml --live", "iotax run my-study.yaml results.iotax"),
    "live": ("iotax live out/quick.iotax --port 9480",),
    "vs": (
        "iotax vs nvme-tcp iscsi --bs 8k --iodepth 16 --rw randrw --time 2m",
        "iotax vs nfs://10.0.0.5/vol1/data iscsi://10.0.0.5/iqn.2001-05.org.example:vol1/0",
    ),
    "plan": ("iotax plan quick", "iotax plan quick --time 30s", "iotax plan quick --long"),
    "check": ("iotax check my-study.yaml", "iotax check my-study.yaml --initiator"),
    "show": ("iotax show", "iotax show out/quick.iotax --long"),
    "report": ("iotax report out/quick.iotax --charts charts --pdf report.pdf",),
    "export": ("iotax export out/quick.iotax --output quick.csv",),
    "serve": ("iotax serve disk.img --size 10GiB",),
    "size": ("iotax size --iops 70k", "iotax size --iops 70k --cpu-us nfs=81:78-84 --cpu-us fc=41"),
    "compare": (
        "iotax compare before.iotax after.iotax --fail-on-regression",
        "iotax compare nfs3 iscsi out/quick.iotax",
    ),
    "aa": ("iotax aa quick --replicates 20",),
    "studies": ("iotax studies", "iotax studies quick"),
    "init": ("iotax init my-study.yaml --from quick", "iotax init my-study.yaml --from job.fio"),
    "import": (
        "iotax import fio results/*.json --name-pattern '{protocol}-{bs}-r{replicate}.json'",
        "iotax import table runs.csv --column iops=IO/s --column duration_s=60 --column protocol=Setup",
        "iotax import list",
    ),
    "completion": ('eval "$(iotax completion bash)"',),
    "doctor": ("iotax doctor",),
    "lab hosts check": ("iotax lab hosts check my-study.yaml",),
    "lab hosts clean": ("iotax lab hosts clean my-study.yaml",),
    "lab vm build": ("iotax lab vm build --update",),
    "lab vm check": ("iotax lab vm check",),
    "lab vm shell": ("iotax lab vm shell nvme-tcp",),
    "sim costs": ("iotax sim costs out/quick.iotax --output mine.yaml",),
    "sim predict": ("iotax sim predict out/other.iotax --costs mine.yaml",),
    "sim what-if": (
        "iotax sim what-if sim-quick --link 25GbE",
        "iotax sim what-if sim-quick --hosts x4 --trunk 10GbE",
    ),
    "sim sensitivity": ("iotax sim sensitivity sim-quick",),
}

WAYS_IN = """\
Three ways in:

  Results you have         iotax import fio results/*.json
  (no hardware, no risk)   iotax report
                           iotax compare nfs iscsi

  Your NAS or array        iotax vs nfs://HOST/EXPORT/FILE iscsi://HOST/IQN/0
  (no root)                iotax show --long
                           iotax size --iops 70000

  Nothing at hand          iotax run quick --time 30s
  (this machine, virtual   iotax run kernel-exact
  machines, simulation)    iotax sim what-if sim-quick --hosts x4 --trunk 10GbE

`iotax doctor` says what this machine can run and what to install.
`iotax --help` lists the commands.
"""
"""The text that `iotax` prints without arguments."""


def attach(app: typer.Typer, before: tuple[str, ...] = ()) -> None:
    """Puts each command's example under its help."""
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "").replace("_", "-")
        if examples := EXAMPLES.get(" ".join((*before, name))):
            command.epilog = "\b\nExample:\n" + "\n".join(f"  {each}" for each in examples)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            attach(group.typer_instance, (*before, group.name) if isinstance(group.name, str) else before)
