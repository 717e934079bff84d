"""`iotax export`: results for other programs. Units stand in the names of the columns."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

from iotax.cli.document import cannot_write
from iotax.cli.exits import Exit, leave
from iotax.cli.notebooks import open_notebook
from iotax.notebook import Notebook, NotebookError
from iotax.trial import Attempt

_PERCENTILES = {"p50": 50, "p95": 95, "p99": 99, "p99_9": 99.9, "p99_99": 99.99}


def export(path: Path | None, form: str, output: Path | None, run: int | None) -> None:
    if form == "parquet" and output is None and sys.stdout.isatty():
        leave(Exit.USAGE, "Parquet is no text; name a file with --output")
    with open_notebook(path) as notebook:
        try:
            content = _written(notebook, form, run)
        except NotebookError as error:
            leave(Exit.NOTEBOOK, str(error))
    if output is None:
        sys.stdout.buffer.write(content)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        cannot_write(output, error)


def _written(notebook: Notebook, form: str, run: int | None) -> bytes:
    match form:
        case "json":
            return (json.dumps(_everything(notebook, run), indent=1) + "\n").encode()
        case "parquet":
            return _parquet(_table(notebook, run))
        case _:
            return _csv(_table(notebook, run)).encode()


def _everything(notebook: Notebook, run: int | None) -> dict[str, Any]:
    chosen = notebook.run(run)
    return {
        "run": {"id": chosen.id, "label": chosen.label, "started_unix_ns": chosen.started_unix_ns},
        "study": notebook.study(chosen.id).model_dump(mode="json"),
        "environments": notebook.environments(chosen.id),
        "backgrounds": [each.model_dump(mode="json") for each in notebook.backgrounds(chosen.id)],
        "attempts": [each.model_dump(mode="json") for each in notebook.attempts(chosen.id)],
    }


def _table(notebook: Notebook, run: int | None) -> list[dict[str, Any]]:
    chosen = notebook.run(run)
    return [{"run": chosen.id, "label": chosen.label, **_row(each)} for each in notebook.attempts(chosen.id)]


def _row(attempt: Attempt) -> dict[str, Any]:
    """One attempt; a failed one has its reason and no figures."""
    trial, result = attempt.trial, attempt.result
    arrived = result.open if result else None
    row: dict[str, Any] = {
        "study": trial.study,
        "trial": trial.id,
        "order": trial.order,
        "block": trial.block,
        "replicate": trial.replicate,
        "attempt": attempt.number,
        "status": attempt.status,
        "reason": attempt.reason,
        "started_unix_ns": attempt.started_unix_ns,
        "ended_unix_ns": attempt.ended_unix_ns,
    }
    figures: dict[str, Any] = {
        "driver": result and result.driver,
        "carrier": result and result.facts.carrier.kind,
        "carrier_name": result and result.facts.carrier.name,
        "carrier_usual": result and result.facts.carrier.usual,
        "duration_ns": result and result.window.duration_ns,
        "reads": result and result.read.ios,
        "writes": result and result.write.ios,
        "rate_iops": result and result.rate_iops,
        "rate_bytes_per_s": result and result.rate_bytes_per_s,
        "latency_mean_ns": result and result.latency_mean_ns,
        **{f"latency_{name}_ns": result and result.latency_ns(percent) for name, percent in _PERCENTILES.items()},
        "service_mean_ns": result and result.service_mean_ns,
        "offered": arrived and arrived.offered,
        "dropped": arrived and arrived.dropped,
        "backlog_peak": arrived and arrived.backlog_peak,
        "backlog_end": arrived and arrived.backlog_end,
        "achieved": arrived and arrived.achieved,
        "latency_max_ns": result and max(result.read.latency_max_ns, result.write.latency_max_ns),
        "cpu_initiator_ns_per_io": result and result.cpu_per_io_ns("initiator"),
        "cpu_target_ns_per_io": result and result.cpu_per_io_ns("target"),
        "cpu_hypervisor_ns_per_io": result and result.cpu_per_io_ns("hypervisor"),
        "cpu_machine_ns_per_io": result and result.cpu_per_io_ns("machine"),
        "outstanding_mean": result and result.outstanding.mean,
        "errors": result and result.checks.errors,
        "verify_checked_blocks": result and result.verify and result.verify.checked_blocks,
        "verify_never_written_blocks": result and result.verify and result.verify.never_written_blocks,
    }
    # A factor may have the name of what is measured: the rate that was asked for is not the rate achieved.
    taken = row.keys() | figures.keys()
    factors = {f"factor_{name}" if name in taken else name: level for name, level in trial.treatment.items()}
    return row | factors | figures


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else ["run"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pandas as pd

    try:
        return pd.DataFrame(rows).to_parquet(None, index=False)
    except ImportError:
        leave(Exit.USAGE, "Parquet needs pyarrow: install `iotax[parquet]`")
