"""`iotax lab hosts`: what a study's hosts are, and what iotax left on them."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Table

from iotax.cli.console import console
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.loading import load
from iotax.cli.study import open_lab, planned
from iotax.engine import EngineError
from iotax.units import format_size

if TYPE_CHECKING:
    from iotax.labs.hosts.survey import Survey
    from iotax.places.host import Companion

_COLUMNS = (
    "host",
    "role",
    "kernel",
    "cores",
    "clock",
    "kernel's bound",
    "engine",
    "kernel speaks",
    "sudo",
    "link",
    "holds data",
)


def check(name: str, document: Path | None) -> None:
    judged(document, Path(name))

    def row(found: Survey) -> list[str]:
        if found.clock is None:
            said = escape(found.fault) or "\n".join(map(escape, found.obstacles))
            known = [found.host, found.role, f"{found.kernel} {found.machine}".strip(), str(found.cores or "")]
            return [*known, f"[red]{said}[/]" if said else "–", "–", "esxtop" if not found.fault else ""]
        ahead_ms, error_ms = found.clock.ahead_ns / 1e6, found.clock.error_ns / 1e6
        bound_ns = found.clock.kernel_error_ns
        return [
            found.host,
            found.role,
            f"{found.kernel} {found.machine}",
            str(found.cores),
            f"{ahead_ms:+.2f} ± {error_ms:.2f} ms",
            "not in step" if bound_ns is None else f"{bound_ns / 1e6:.1f} ms",
            found.engine,
            ", ".join(found.protocols) or "–",
            "\n".join(f"[red]{escape(each)}[/]" for each in found.obstacles) or ("yes" if found.sudo else "no"),
            str(found.link or "–"),
            escape("\n".join(found.held)) or "–",
        ]

    with _opened(name) as lab:
        surveyed = lab.survey()
    if document != STDOUT:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in _COLUMNS:
            table.add_column(title)
        for each in surveyed:
            table.add_row(*row(each))
        console().print(table)
        for each in surveyed:
            if each.companion:
                console().print(escape(f"{each.host}: {_worker(each.companion)}"), soft_wrap=True, highlight=False)
        for relay in dict.fromkeys(each.relay for each in surveyed if each.relay):
            behind = ", ".join(each.host for each in surveyed if each.relay == relay)
            console().print(escape(f"relay {relay}: {behind}"), soft_wrap=True, highlight=False)
    if document is not None:
        write_document(document, {"hosts": [_document(each) for each in surveyed]}, Path(name))
    if any(each.fault or each.obstacles for each in surveyed):
        raise typer.Exit(Exit.LAB)


def _worker(found: Companion) -> str:
    takes = f"{format_size(found.memory_bytes)} and, at rest, {100 * found.idle_cores:.1f} % of a core"
    return f"Dask worker {found.name}, Python {found.python}, Dask {found.dask}, takes {takes}"


def _document(found: Survey) -> dict[str, Any]:
    """Units in the names; null where it is not known."""
    return {
        "host": found.host,
        "role": found.role,
        "kernel": found.kernel,
        "machine": found.machine,
        "cores": found.cores or None,
        "sudo": found.sudo,
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


def clean(name: str) -> None:
    with _opened(name) as lab:
        for host, said in lab.clean().items():
            typer.echo(f"{host}: {said}")


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
