"""`iotax size`: cores needed for a rate of I/O."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.analysis import Estimate, summarise
from iotax.analysis.capacity import (
    STORAGE_US,
    UTILISATIONS,
    Capacity,
    Demand,
    capacity,
    per_core_iops,
    response_us,
)
from iotax.analysis.cost import ServiceCost
from iotax.cli import options
from iotax.cli.console import console, say
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import open_notebook
from iotax.cli.options import JsonFile, Long, NotebookOption, NotebookPath, RunNumber, one_notebook
from iotax.collected import study_data
from iotax.notebook import NotebookError
from iotax.queueing import SizingTarget
from iotax.units import parse_duration
from iotax.wording import SIMULATED, comparable, cost_cautions, figure, not_sized, title
from iotax.wording.costs import hidden

_US = r"[0-9]+(?:\.[0-9]*)?"
_COST = re.compile(rf"(?:(?P<name>[^=]+)=)?(?P<cost>{_US})(?::(?P<low>{_US})-(?P<high>{_US}))?")


def size(
    notebook: NotebookPath = None,
    notebook_option: NotebookOption = None,
    iops: Annotated[
        int,
        typer.Option(
            parser=options.rate,
            metavar="RATE",
            help="I/Os per second that the cores must sustain.",
            show_default="70k",
        ),
    ] = 70_000,
    cpu_us: Annotated[
        list[str] | None,
        typer.Option(
            "--cpu-us",
            metavar="[NAME=]US[:LOW-HIGH]",
            help="CPU time per I/O in µs, such as 81 or nfs=81:78-84, without a notebook; may be repeated.",
            show_default=False,
        ),
    ] = None,
    cap: Annotated[
        float,
        typer.Option(
            parser=options.percent,
            metavar="PERCENT",
            help="Highest allowed utilisation of the cores.",
            show_default="80%",
        ),
    ] = 80,
    response: Annotated[
        str | None,
        typer.Option(
            metavar="LIMIT",
            help="Limit on the mean response time: 1.25x the service time, or 120us including the storage.",
            show_default=False,
        ),
    ] = None,
    storage: Annotated[
        str, typer.Option(metavar="DURATION", help="Time that the storage itself takes per I/O.")
    ] = "0us",
    cores: Annotated[int, typer.Option(min=1, help="Cores in the table of response times.")] = 8,
    run: RunNumber = None,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Cores needed for a rate, and response times by utilisation.

    Takes the CPU cost per I/O from a notebook, with its interval, or from the command line.
    """
    notebook = one_notebook(notebook, notebook_option)
    demand = _demand(iops, cap, response, storage)
    judged(document)
    costs, simulated = (_costs(cpu_us), False) if cpu_us else _from_notebook(notebook, run, demand.rate_iops, document)
    found = [capacity(cost, demand) for cost in costs]
    if document != STDOUT:
        if simulated:
            console().print(Text(SIMULATED, style="yellow"), soft_wrap=True)
        _print(found, costs, demand, cores, given=bool(cpu_us), long=long)
    if document is not None:
        write_document(document, {"simulated": simulated} | _document(found, costs, demand, cores))
    if any(each.size is None for each in found):
        raise typer.Exit(Exit.FAILED)


def _print(
    found: list[Capacity], costs: list[ServiceCost], demand: Demand, cores: int, *, given: bool, long: bool
) -> None:
    out = console()
    out.print(_sizes(found, demand))
    out.print(_asked(demand), style="dim", soft_wrap=True)
    for each in found:
        if each.size is None:
            out.print(f"{escape(title(each.cost.arm))}: {escape(each.reason)}", style="yellow", soft_wrap=True)
    if long:
        out.print()
        out.print(_responses(costs, cores))
        out.print(
            f"Mean response in µs over the utilisation of {cores:,} {'core' if cores == 1 else 'cores'}: service and "
            f"waiting in an M/M/{cores:,} queue (Poisson arrivals, exponential service, one queue), then the storage's "
            "own time added.",
            style="dim",
            soft_wrap=True,
        )
        if len(costs) > 1 and (given or comparable(costs)):
            out.print(f"{hidden(costs, cores)}.", soft_wrap=True)
    sources = _sources(costs)
    if len(sources) > 1 and not long:
        parts = ", ".join(dict.fromkeys(cost.part for cost in costs if cost.part))
        sources = [f"Costs: CPU per I/O ({parts}), each under its measured load nearest to this rate; see --long."]
    for source in sources:
        out.print(Text(source, style="dim"), soft_wrap=True)
    for line in cost_cautions(costs):
        out.print(Text(line, style="yellow"), soft_wrap=True)


def _sources(costs: list[ServiceCost]) -> list[str]:
    """The source of the costs; by name if they come from several."""
    told = [cost for cost in costs if cost.source]
    if len({cost.source for cost in told}) < 2:
        return [f"Costs: {told[0].source}, with 95 % intervals."] if told else []
    return [f"Cost of {title(cost.arm)}: {cost.source}, with its 95 % interval." for cost in told]


def _document(found: list[Capacity], costs: list[ServiceCost], demand: Demand, cores: int) -> dict[str, Any]:
    target = demand.target
    return {
        "rate_iops": demand.rate_iops,
        "utilisation_max": target.utilisation_max,
        "response_max_ratio": target.response_max_ratio,
        "response_max_us": target.response_max_s and target.response_max_s * 1e6,
        "storage_us": demand.storage_us,
        "cautions": list(cost_cautions(costs)),
        "sizes": [
            {
                "arm": each.cost.arm,
                "cpu_us": {
                    "value": each.cost.cost_us.value,
                    "low": each.cost.cost_us.low,
                    "high": each.cost.cost_us.high,
                },
                "source": each.cost.source,
                "per_core_iops": per_core_iops(each.cost),
                "cores": each.size and each.size.servers,
                "cores_low": each.low and each.low.servers,
                "cores_high": each.high and each.high.servers,
                "utilisation": each.size and each.size.queue.utilisation,
                "response_us": each.size and each.size.response_s * 1e6,
                "bound_by": each.size and each.size.bound_by,
                "reason": each.reason,
            }
            for each in found
        ],
        "response_table": [
            {
                "arm": cost.arm,
                "cores": cores,
                "storage_us": storage_us,
                "utilisation": utilisation,
                "response_us": response_us(cost.cost_us.value, cores, utilisation, storage_us),
            }
            for storage_us in STORAGE_US
            for cost in costs
            for utilisation in UTILISATIONS
        ],
    }


def _demand(iops: int, cap: float, response: str | None, storage: str) -> Demand:
    try:
        ratio, limit_s = _response(response)
        if not cap > 0:
            raise ValueError("--cap 0%: cores that may do nothing sustain no rate; name a share above 0%")
        target = SizingTarget(cap / 100, limit_s, ratio)
        storage_us = parse_duration(storage) / 1e3
    except ValueError as error:
        leave(Exit.USAGE, str(error))
    if not iops > 0:
        leave(Exit.USAGE, f"--iops {iops}: a rate must be above 0")
    return Demand(iops, target, storage_us)


def _response(text: str | None) -> tuple[float | None, float | None]:
    """(multiple of the service time, seconds) from `1.25x` or `120us`."""
    if text is None:
        return None, None
    if text.endswith(("x", "×")):
        try:
            ratio = float(text[:-1])
        except ValueError:
            raise ValueError(f"--response {text}: write 1.25x or 120us") from None
        if not ratio > 1:
            raise ValueError(f"--response {text}: a response takes at least the service time; write more than 1x")
        return ratio, None
    try:
        return None, parse_duration(text) / 1e9
    except ValueError:
        raise ValueError(f"--response {text}: write 1.25x or 120us") from None


def _costs(given: list[str]) -> list[ServiceCost]:
    found = []
    for index, text in enumerate(given, start=1):
        parts = _COST.fullmatch(text)
        if not parts or float(parts["cost"]) <= 0:
            leave(Exit.USAGE, f"--cpu-us {text}: write 81, nfs=81 or nfs=81:78-84 (µs, with its interval)")
        low, high = (float(parts[end]) if parts[end] else None for end in ("low", "high"))
        if low is not None and high is not None and not low <= float(parts["cost"]) <= high:
            leave(Exit.USAGE, f"--cpu-us {text}: the cost does not lie within its interval")
        name = parts["name"] or (f"cost {index}" if len(given) > 1 else "given cost")
        found.append(ServiceCost(name, Estimate(float(parts["cost"]), low, high), ""))
    return found


def _from_notebook(
    path: Path | None, run: int | None, rate_iops: float, document: Path | None
) -> tuple[list[ServiceCost], bool]:
    """What an I/O costs at this rate, and whether that is simulated."""
    with open_notebook(path, ", or give --cpu-us 81 (µs per I/O)") as notebook:
        try:
            data = study_data(notebook, run)
            found = summarise(data).sizing(rate_iops)
        except NotebookError as error:
            leave(Exit.NOTEBOOK, str(error))
        if not found.costs:
            reasons = "".join(f"\n  {reason}" for reason in not_sized(found))
            leave(
                Exit.NOTEBOOK,
                f"{notebook.path}: nothing to size {rate_iops:,.0f} IOPS by:{reasons}\n"
                f"Size a rate that was measured, or measure this one: `iotax vs … --iops {rate_iops:.0f}`, or "
                f"`rate_iops: {rate_iops:.0f}` under load; or give --cpu-us 81 (µs per I/O)",
            )
        judged(document, notebook.path)
        for reason in not_sized(found):
            say(f"Not sized: {reason}.", err=document == STDOUT)
        echo(f"{notebook.path}", err=document == STDOUT)
    return found.costs, data.simulated


def _sizes(found: list[Capacity], demand: Demand) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ("CPU\nµs per I/O", "IOPS\nper core", "cores", "busy", "response\nµs"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for each in found:
        cost = each.cost.cost_us
        spans = cost.low is not None and cost.high is not None and not cost.alike
        span = f" \\[{figure(cost.low)}, {figure(cost.high)}]" if spans else ""
        if each.size is None:
            row = ["none", "–", "–", "–"]
        else:
            busy = f"{100 * each.size.queue.utilisation:.0f} %"
            row = [each.cores, busy, figure(each.size.response_s * 1e6), each.size.bound_by]
        table.add_row(escape(title(each.cost.arm)), figure(cost.value) + span, figure(per_core_iops(each.cost)), *row)
    return table


def _asked(demand: Demand) -> str:
    target = demand.target
    parts = [f"{demand.rate_iops:,.0f} IOPS, cores at most {100 * target.utilisation_max:.0f} % busy"]
    if target.response_max_ratio is not None:
        parts.append(f"mean response on the cores at most {target.response_max_ratio:g} × the service time")
    if target.response_max_s is not None:
        parts.append(f"mean response at most {target.response_max_s * 1e6:g} µs")
    if demand.storage_us:
        parts.append(f"of which the storage takes {demand.storage_us:g} µs")
    return "; ".join(parts) + ". In brackets: the 95 % interval of the cost, and cores at its ends."


def _responses(costs: list[ServiceCost], cores: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("storage", justify="right")
    for utilisation in UTILISATIONS:
        table.add_column(f"{100 * utilisation:.0f} %", justify="right")
    for storage_us in STORAGE_US:
        for cost in costs:
            row = [figure(response_us(cost.cost_us.value, cores, u, storage_us)) for u in UTILISATIONS]
            table.add_row(escape(title(cost.arm)), f"{storage_us:g} µs", *row)
    return table
