"""`iotax vs`: compares endpoints without a study file, with fio's option names, and writes down the study that it runs.
Slow imports follow the first line on the screen."""

from __future__ import annotations

import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iotax.cli import complete, options
from iotax.cli.console import say
from iotax.cli.document import STDOUT, write_output
from iotax.cli.exits import Exit, leave
from iotax.cli.loading import load
from iotax.cli.options import Destroy, JsonFile, Long, NewNotebook
from iotax.cli.run import Shown, Wishes, notebook_of, run_and_show
from iotax.outputs import OUT
from iotax.protocols import names
from iotax.study.versus import RW, Asked, VersusError, initiators_of, name_of, study_text, targets_of
from iotax.units import counted, format_duration

if TYPE_CHECKING:
    from iotax.design.shape import Shape


class Rw(StrEnum):
    READ = "read"
    WRITE = "write"
    RANDREAD = "randread"
    RANDWRITE = "randwrite"
    RW = "rw"
    READWRITE = "readwrite"
    RANDRW = "randrw"


def versus(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[LABEL=]ENDPOINT...",
            help=f"Two or more of: protocols that iotax serves itself ({', '.join(names('loopback'))}), URIs of "
            "targets, paths of files or devices; kernel:iscsi://…, kernel:nvme-tcp://… or kernel:nfs://… are connected "
            "by the kernel. The first is the baseline.",
            autocompletion=complete.endpoints,
        ),
    ],
    rw: Annotated[Rw, typer.Option("--rw", help="Access pattern, as in fio.")] = Rw.RANDREAD,
    rwmixread: Annotated[
        float | None,
        typer.Option(
            "--rwmixread",
            parser=options.percent,
            metavar="PERCENT",
            help="Share of reads if --rw is rw, readwrite or randrw.",
            show_default="50",
        ),
    ] = None,
    bs: Annotated[
        int, typer.Option("--bs", parser=options.size_bytes, metavar="SIZE", help="Block size.", show_default="4k")
    ] = 4096,
    iodepth: Annotated[int, typer.Option(min=1, help="I/Os in flight for each job.")] = 32,
    numjobs: Annotated[int, typer.Option(min=1, help="Jobs, each with its own connection.")] = 1,
    size: Annotated[
        int,
        typer.Option(
            "--size",
            parser=options.size_bytes,
            metavar="SIZE",
            help="Bytes used of each endpoint, from its start.",
            show_default="512m",
        ),
    ] = 512 << 20,
    iops: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="NUMBER",
            help="I/Os per second of all jobs together, whatever the endpoints do; as fast as they answer when not "
            "given. `iotax size` then uses the CPU per I/O at this rate.",
            show_default=False,
        ),
    ] = 0,
    time_s: Annotated[
        float,
        typer.Option(
            "--time",
            parser=options.seconds,
            metavar="DURATION",
            help="Time limit for the whole comparison.",
            show_default="2m",
        ),
    ] = 120,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts",
            metavar="[USER@]HOST,...",
            help="Hosts that run the load, over SSH; this machine when not given.",
            show_default=False,
        ),
    ] = None,
    destroy: Destroy = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--study",
            metavar="FILE.yaml",
            help="Where the study is written; in out/ when not given.",
            show_default=False,
        ),
    ] = None,
    notebook: NewNotebook = None,
    again: Annotated[
        bool, typer.Option("--again", help="Start a new run, even if an earlier one is finished.")
    ] = False,
    report: Annotated[bool, typer.Option(help="Write the report at the end.")] = True,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Compare endpoints or protocols without a study file.

    The load options have fio's names. iotax writes the study to a file that you can keep, change and run again.
    """
    asked = Asked(rw.value, _mix(rw.value, rwmixread), bs, iodepth, numjobs, size, iops)
    try:
        targets = _absolute(targets_of(words))
        initiators = initiators_of(hosts, targets)
        say(f"Load: {asked.words}.", err=document == STDOUT)
        from iotax.design.shape import SETTLE_NS, SLICE_NS

        shape = _shape(len(targets), time_s, hosts=bool(initiators))
    except VersusError as error:
        leave(Exit.USAGE, str(error))
    text = study_text(
        targets,
        asked,
        command=shlex.join(["iotax", "vs", *words, *_options(asked, time_s, hosts)]),
        sessions=shape.sessions,
        rounds=shape.rounds,
        slice_ns=SLICE_NS,
        settle_ns=SETTLE_NS,
        initiators=initiators,
    )
    _refuse_impossible(text)
    path = _written(file, name_of(targets, asked), text)
    say(
        f"Study: {path}, {counted(shape.sessions, 'session')} of {counted(shape.rounds, 'round')}.",
        err=document == STDOUT,
    )
    study, source = load(str(path))
    wishes = Wishes(destroy=destroy or (), again=again, spoken=in_options)
    shown = Shown(document, report=report, long=long)
    run_and_show(study, source, notebook_of(study, notebook, document, path), wishes, shown)


def _mix(rw: str, given: float | None) -> float:
    """Percentage of reads in a mix. Exits if it was given for another pattern, which would ignore it."""
    if given is not None and RW[rw][0] is not None:
        leave(
            Exit.USAGE, f"--rwmixread is for a mix, and --rw {rw} is none; say --rw rw or --rw randrw, or leave it out"
        )
    return 50 if given is None else given


_OPTIONS = {
    ("load", "block_size"): "--bs",
    ("load", "outstanding"): "--iodepth",
    ("load", "workers"): "--numjobs",
    ("volume", "size"): "--size",
    ("load", "rate_iops"): "--iops",
}
"""Field of the study → the option that sets it."""


_SAID = {
    r"`(working_set|size):` under (load|volume)": "`--size`",
    r"`read: 100%` and `verify: false` under load and `fill: zeros` under volume": "`--rw read` or `--rw randread`",
    r"`block_size:`": "`--bs`",
    r"`outstanding: (\d+)`": r"`--iodepth \1`",
    r"`workers: (\d+)`": r"`--numjobs \1`",
}
"""Fields of a study as messages name them → the options that set them."""


def in_options(message: str) -> str:
    for fields, named in _SAID.items():
        message = re.sub(fields, named, message)
    return message


def _refuse_impossible(text: str) -> None:
    """Exits before writing a file if no study can ask this."""
    from iotax.study.read import read_study
    from iotax.study.source import StudyError

    try:
        read_study("the study", text, Path.cwd())
    except StudyError as error:
        said = (f"{_OPTIONS.get(each.place, each.field())}: {each.message}" for each in error.problems)
        leave(Exit.USAGE, "\niotax: ".join(said))


def _absolute(targets: dict[str, str]) -> dict[str, str]:
    """Makes paths absolute: the study may be in another folder than the current one."""
    return {
        label: str(Path(target).expanduser().absolute())
        if "/" in target and "://" not in target and not target.startswith("local:")
        else target
        for label, target in targets.items()
    }


def _shape(treatments: int, time_s: float, *, hosts: bool) -> Shape:
    from iotax.design.shape import best_shape

    try:
        return best_shape(treatments, round(time_s * 1e9), hosts=hosts)
    except ValueError as error:
        raise VersusError(f"--time {format_duration(round(time_s * 1e9))} is too short: {error}") from None


def _options(asked: Asked, time_s: float, hosts: str | None) -> list[str]:
    """The load as command-line options."""
    words = [word.split("=") for word in asked.words.split(", ")]
    return [part for name, value in words for part in (f"--{name}", value)] + [
        "--time",
        format_duration(round(time_s * 1e9)),
        *(["--hosts", hosts] if hosts else []),
    ]


def _written(path: Path | None, name: str, text: str) -> Path:
    """Writes the study's file. Keeps an existing file with the same study and never replaces another study."""
    numbered = (OUT / f"{name}{'' if number == 1 else f'-{number}'}.yaml" for number in range(1, 1000))
    some = numbered if path is None else (path,)
    place = next((each for each in some if not each.exists() or _says(each, text)), None)
    if place is None:
        leave(Exit.USAGE, f"{path or name} already exists and asks something else; name another file with --study")
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        write_output(place, text)
    return place


def _says(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text
