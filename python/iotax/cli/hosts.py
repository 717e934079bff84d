"""`iotax lab hosts`: describes a study's hosts and removes what iotax left on them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.cli.console import console, fitting
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import load
from iotax.cli.options import JsonFile, StudyName
from iotax.cli.study import open_lab, planned
from iotax.engine import EngineError
from iotax.units import format_size

if TYPE_CHECKING:
    from iotax.labs.hosts.survey import Survey
    from iotax.places.host import Companion

_PARTED = (
    ("host", "role", "reached", "kernel", "cores", "clock"),
    ("host", "engine", "time sync", "kernel speaks", "sudo", "link", "holds data"),
)
"""The columns of each table if one table with all would be too wide."""
_COLUMNS = tuple(dict.fromkeys(column for part in _PARTED for column in part))


def check(name: StudyName, document: JsonFile = None) -> None:
    """Check each host of a study.

    Shows kernel, cores, clock, engine, protocols, sudo, link to the target, and what its disks hold. Copies the engine
    to each host; changes nothing else.
    """
    judged(document, Path(name))

    with _opened(name) as lab:
        surveyed = lab.survey()
    if document != STDOUT:
        out = console()
        rows = [_row(each) for each in surveyed]
        narrow = [_table(columns, rows) for columns in _PARTED]
        for index, table in enumerate(fitting(out, ([_table(_COLUMNS, rows)], narrow))):
            if index:
                out.print()
            out.print(table)
        for each in surveyed:
            for what in (each.fault, *each.obstacles):
                if what:
                    out.print(Text(f"{each.host}: {what}", style="red"), soft_wrap=True)
        for each in surveyed:
            if each.companion:
                out.print(escape(f"{each.host}: {_worker(each.companion)}"), soft_wrap=True, highlight=False)
        for relay in dict.fromkeys(each.relay for each in surveyed if each.relay):
            behind = ", ".join(each.host for each in surveyed if each.relay == relay)
            out.print(escape(f"relay {relay}: {behind}"), soft_wrap=True, highlight=False)
    if document is not None:
        write_document(document, {"hosts": [_document(each) for each in surveyed]}, Path(name))
    if any(each.fault or each.obstacles for each in surveyed):
        raise typer.Exit(Exit.LAB)


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns:
        # Columns whose cells may hold several lines may wrap.
        table.add_column(title, no_wrap=title not in ("kernel speaks", "sudo", "link", "holds data"))
    for row in rows:
        table.add_row(*(row.get(title) or "–" for title in columns))
    return table


def _row(found: Survey) -> dict[str, str]:
    """Values by column; unknown ones are left out."""
    row = {"host": found.host, "role": found.role}
    if not found.kernel:
        return {**row, "reached": "[red]no[/]"}
    row |= {"reached": "yes", "kernel": f"{found.kernel} {found.machine}", "cores": str(found.cores or "")}
    if found.cores:
        row |= {
            "sudo": _sudo(found),
            "kernel speaks": ", ".join(found.protocols),
            "link": str(found.link or ""),
            "holds data": escape("\n".join(found.held)),
            "engine": found.engine,
        }
    elif not found.fault and not found.obstacles:
        row["engine"] = "esxtop"
    if found.clock is not None:
        ahead_ms, error_ms, synced_ns = (
            found.clock.ahead_ns / 1e6,
            found.clock.error_ns / 1e6,
            found.clock.kernel_error_ns,
        )
        row["clock"] = f"{ahead_ms:+.2f} ± {error_ms:.2f} ms"
        row["time sync"] = "none" if synced_ns is None else f"± {synced_ns / 1e6:.1f} ms"
    return row


def _sudo(found: Survey) -> str:
    if found.root:
        return "root login"
    # The engine's own name contains its hash.
    allowed = ["engine" if each.startswith("engine-") else each for each in found.allowed]
    return "all" if found.sudo else ", ".join(allowed) or "no"


def _worker(found: Companion) -> str:
    takes = f"{format_size(found.memory_bytes)} and, at rest, {100 * found.idle_cores:.1f} % of a core"
    return f"Dask worker {found.name}, Python {found.python}, Dask {found.dask}, takes {takes}"


def _document(found: Survey) -> dict[str, Any]:
    """Names hold units; unknown values are null."""
    return {
        "host": found.host,
        "role": found.role,
        "kernel": found.kernel,
        "machine": found.machine,
        "cores": found.cores or None,
        "root": found.root,
        "sudo": found.sudo,
        "allowed": list(found.allowed),
        "protocols": list(found.protocols),
        "obstacles": list(found.obstacles),
        "link": None if found.link is None else str(found.link),
        "holds": list(found.held),
        "engine": found.engine,
        "clock_ahead_ns": found.clock and found.clock.ahead_ns,
        "clock_error_ns": found.clock and found.clock.error_ns,
        "clock_kernel_error_ns": found.clock and found.clock.kernel_error_ns,
        "dask_worker": None if found.companion is None else asdict(found.companion),
        "relay": found.relay or None,
        "fault": found.fault or None,
    }


def clean(name: StudyName) -> None:
    """Clean up the hosts of a study.

    Takes down paths that earlier studies left, and removes the engines copied there.
    """
    with _opened(name) as lab:
        for host, said in lab.clean().items():
            echo(f"{host}: {said}")


def _opened(name: str) -> contextlib.closing:
    from iotax.labs.hosts.lab import HostsLab

    study, _ = load(name)
    if study.lab.hosts is None:
        leave(Exit.USAGE, f"{study.name} runs in the {study.lab.name} lab; hosts are named under `lab: {{hosts: …}}`")
    try:
        lab = open_lab(study, planned(study), [])
    except EngineError as error:
        leave(Exit.LAB, str(error))
    assert isinstance(lab, HostsLab)
    return contextlib.closing(lab)
