"""The commands and their options. What they do stands in the modules beside this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from iotax.cli import app_lab, app_results, app_sim, complete, examples, options
from iotax.cli.examples import WAYS_IN
from iotax.cli.exits import HELP, Exit
from iotax.cli.letters import echo, spell_out
from iotax.cli.options import (
    Destroy,
    Driver,
    JsonCommand,
    JsonFile,
    Long,
    NewNotebook,
    NotebookOption,
    NotebookPath,
    OtherLab,
    OwnTargets,
    PlainCommand,
    PollingChoice,
    RunNumber,
    Rw,
    Shell,
    StudyName,
    TimeBudget,
    ToBeDestroyed,
    one_notebook,
)
from iotax.protocols import names
from iotax.waiting import WAIT_FOR_TARGET_S

app = typer.Typer(
    help="Measures what each I/O costs over NFS, iSCSI, NVMe/TCP or Fibre Channel: throughput, latency, CPU per I/O.",
    epilog=HELP,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(app_lab.lab, name="lab")
app.add_typer(app_sim.sim, name="sim")
app.add_typer(app_results.results)


def _version(wanted: bool) -> None:
    if wanted:
        from iotax.version import __version__

        echo(f"iotax {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        echo(WAYS_IN, nl=False)
        raise typer.Exit(Exit.USAGE)


@app.command(cls=JsonCommand)
def run(
    study: StudyName = "quick",
    notebook: Annotated[
        Path | None,
        typer.Argument(help="Where results are kept; out/NAME.iotax when not given.", show_default=False),
    ] = None,
    notebook_option: NotebookOption = None,
    label: Annotated[str, typer.Option(help="Name of this run, such as `before` or `after`.")] = "",
    time: TimeBudget = None,
    destroy: Destroy = None,
    driver: Annotated[
        Driver | None, typer.Option(help="How the engine does I/O; overrides the study.", show_default=False)
    ] = None,
    lab: OtherLab = None,
    with_target: OwnTargets = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Start a new run, even if an earlier one is finished or could be resumed."),
    ] = False,
    old_again: Annotated[bool, typer.Option("--new", hidden=True)] = False,
    report: Annotated[bool, typer.Option(help="Write the report at the end.")] = True,
    wait_for_target: Annotated[
        float,
        typer.Option(
            parser=options.seconds,
            metavar="DURATION",
            help="How long to wait for a target that stops answering before the study ends early.",
            show_default="1min",
        ),
    ] = WAIT_FOR_TARGET_S,
    without_lost_hosts: Annotated[
        bool,
        typer.Option(
            "--without-lost-hosts",
            help="Continue when hosts stay unreachable; their trials are listed separately and not compared.",
        ),
    ] = False,
    disturb: Annotated[
        bool, typer.Option("--disturb", help="Allow the commands of the study's `events:` to run on its hosts.")
    ] = False,
    live: Annotated[
        str | None,
        typer.Option(
            "--live",
            metavar="[[ADDRESS:]PORT]",
            help="Show the run in a browser and as metrics; default: a free port, reachable only from this machine.",
            show_default=False,
        ),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send the metrics of --live to an OpenTelemetry collector every 10 s, such as http://localhost:4318; "
            "needs the extra `otlp`.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors, on standard error.")
    ] = False,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Run a study and write its report.

    To continue an interrupted run, or one with failed trials, run the same study again with the same notebook. If
    `replicates:` is higher than before, the missing ones are added, and the ratios get no verdict. A finished run
    stays as it is, unless you pass --again.
    """
    from iotax.cli import run as command

    command.run(
        study,
        one_notebook(notebook, notebook_option),
        label,
        destroy or [],
        driver.value if driver else None,
        document,
        again=again or old_again,
        report=report,
        wait_for_target_s=wait_for_target,
        disturb=disturb,
        without_lost_hosts=without_lost_hosts,
        live=live,
        otlp=otlp,
        quiet=quiet,
        simulated=lab is not None,
        targets=with_target or [],
        long=long,
        time_s=time,
    )


@app.command("live", cls=PlainCommand)
def live_(
    notebook: NotebookPath = None,
    run: RunNumber = None,
    port: Annotated[
        str,
        typer.Option(
            metavar="[ADDRESS:]PORT", help="Where to serve the page; a free port of this machine when not given."
        ),
    ] = "0",
) -> None:
    """Show a run of another process in a browser and as metrics.

    Reads the notebook that the run writes, until Ctrl-C. Shows trials when they end; rates of the current trial need
    `iotax run --live`.
    """
    from iotax.cli import live as command

    command.live(notebook, run, port)


@app.command("vs", cls=JsonCommand)
def versus(
    endpoints: Annotated[
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
    time: Annotated[
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
    study: Annotated[
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
    from iotax.cli import versus as command
    from iotax.study.versus import Asked

    command.versus(
        endpoints,
        Asked(rw.value, command.mix(rw.value, rwmixread), bs, iodepth, numjobs, size, iops),
        time,
        command.Where(hosts, study, notebook, document, destroy or []),
        again=again,
        report=report,
        long=long,
    )


@app.command(cls=JsonCommand)
def plan(
    study: StudyName,
    time: TimeBudget = None,
    long: Annotated[
        bool, typer.Option("--long", help="List the trials in run order and explain the design, instead of the screen.")
    ] = False,
    lab: OtherLab = None,
    with_target: OwnTargets = None,
    document: JsonFile = None,
) -> None:
    """Show what a study will do and what it can detect; run nothing."""
    from iotax.cli import plan as command

    command.plan(study, document, long=long, simulated=lab is not None, targets=with_target or [], time_s=time)


@app.command(cls=JsonCommand)
def check(
    study: StudyName,
    destroy: ToBeDestroyed = None,
    lab: OtherLab = None,
    with_target: OwnTargets = None,
    initiator: Annotated[
        bool,
        typer.Option(
            "--initiator",
            help="Also measure for about 10 s what this machine's initiator reaches on iotax's own target: if your "
            "target comes near, the initiator may be the bottleneck.",
        ),
    ] = False,
    document: JsonFile = None,
) -> None:
    """Check whether a study can run here; write nothing.

    Checks processors, memory, the server, and every endpoint: whether it answers, its size, and what data it holds.
    """
    from iotax.cli import study as command

    command.check(
        study,
        destroy or [],
        document,
        simulated=lab is not None,
        targets=with_target or [],
        initiator=initiator,
    )


@app.command(cls=JsonCommand)
def serve(
    path: Annotated[
        Path | None,
        typer.Argument(help="The file or block device to serve; memory when not given.", show_default=False),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Size of the volume, such as 10GiB; default: the whole file or device, or 1GiB of memory.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Serve the data that the file holds, e.g. what clients wrote before a restart."),
    ] = False,
    destroy: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Let clients overwrite data at PATH that iotax did not write."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all writes.")] = False,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of this machine to listen on; 0.0.0.0 for all of them.")
    ] = "127.0.0.1",
    port: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROTOCOL=PORT",
            help="Port of nfs3, nfs4.1, iscsi or nvme-tcp instead of 2049, 2050, 3260 or 4420; 0 takes a free one; "
            "may be repeated.",
            show_default=False,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHO",
            help="Admit only this network, address, IQN or NQN; may be repeated.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the volume, in its IQN, NQN and NFS export.")] = "v0",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the server.")] = 1,
    polling: Annotated[
        PollingChoice,
        typer.Option(
            help="Busy polling: never (sleep), auto (poll briefly before sleeping), or always (keeps one processor "
            "busy per thread)."
        ),
    ] = PollingChoice.AUTO,
    document: JsonFile = None,
) -> None:
    """Serve one volume over NFS, iSCSI and NVMe/TCP.

    Runs until Ctrl-C. Prints the endpoints and the commands for Linux clients. Serves data that iotax did not write
    only with --keep.
    """
    from iotax.cli import serve as command

    command.serve(
        path,
        name=name,
        size=size,
        keep=keep,
        destroy=destroy,
        read_only=read_only,
        listen=listen,
        ports=port or [],
        allow=allow or [],
        threads=threads,
        polling=polling.value,
        document=document,
    )


@app.command(cls=JsonCommand)
def aa(
    study: StudyName = "quick",
    notebook: Annotated[
        Path | None,
        typer.Argument(help="Where results are kept; out/aa.iotax when not given.", show_default=False),
    ] = None,
    notebook_option: NotebookOption = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="Protocol or endpoint of the study; default: its baseline.", show_default=False),
    ] = None,
    replicates: Annotated[
        int | None, typer.Option(min=2, help="Runs of each of the two sides.", show_default="10")
    ] = None,
    document: JsonFile = None,
) -> None:
    """Compare a treatment with itself: the noise floor of this lab.

    Prints how many replicates it takes to detect a difference of a given size. For a notebook with imported results,
    it prints the noise floor of those runs.
    """
    from iotax.cli import aa as command

    command.aa(study, protocol, replicates, one_notebook(notebook, notebook_option), document)


@app.command(cls=JsonCommand)
def studies(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Print this one, as YAML; list all when not given.",
            show_default=False,
            autocompletion=complete.study_names,
        ),
    ] = None,
    document: JsonFile = None,
) -> None:
    """List the built-in studies, or print one."""
    from iotax.cli import study as command

    command.studies(name, document)


@app.command(cls=JsonCommand)
def doctor(document: JsonFile = None) -> None:
    """List what this machine can run and what to install."""
    from iotax.cli import doctor as command

    command.doctor(document)


@app.command(cls=PlainCommand)
def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("study.yaml"),
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NAME",
            help="Start from a built-in study (`iotax studies`), a fio job file (JOB.fio), a DiskSpd profile "
            "(FILE.xml), "
            "command line, script or output, a vdbench parameter file, or an Iometer configuration (FILE.icf).",
            show_default=False,
            autocompletion=complete.study_names,
        ),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Value of ${NAME} in fio's job file; default: from the environment; may be repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a study to start from.

    On a terminal it asks six questions; with --from, or without a terminal, it asks none. It also writes the JSON
    Schema with which editors complete and check the file.
    """
    from iotax.cli import study as command

    command.init(path, source, command.set_variables(variables or []))


@app.command(cls=PlainCommand)
def completion(shell: Annotated[Shell, typer.Argument(help="The shell to print the script for.")]) -> None:
    """Print a script for shell completion.

    bash: add `eval "$(iotax completion bash)"` to ~/.bashrc.
    zsh: add `eval "$(iotax completion zsh)"` to ~/.zshrc, after `compinit`.
    fish: run `iotax completion fish > ~/.config/fish/completions/iotax.fish`.
    """
    complete.script(shell.value)


examples.attach(app)


def main() -> None:
    from typer.completion import completion_init

    completion_init()
    spell_out()
    try:
        app(prog_name=complete.PROGRAM)
    except SystemExit as end:
        from iotax.cli.console import unwritten

        if unwritten:
            _cannot_say(unwritten[0], end.code or Exit.USAGE)
        raise
    except Exception as error:
        from iotax.cli.console import NO_ROOM

        if isinstance(error, OSError) and error.filename is None and error.errno in NO_ROOM:
            _cannot_say(error, Exit.USAGE)
        from iotax.cli.unexpected import report

        raise SystemExit(report(error)) from None


def _cannot_say(error: OSError, code: str | int) -> NoReturn:
    """Ends where standard output takes no more."""
    import os

    # What is left in the stream's buffer would fail again when Python ends.
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    echo(f"iotax: the output cannot be written: {error.strerror}", err=True)
    raise SystemExit(code)
