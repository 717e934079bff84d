"""A notebook's results as rows for other programs. Units stand in the names of the columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

from iotax.analysis.recovery import rate_after_iops, recoveries
from iotax.analysis.responses import SLOW, Run
from iotax.analysis.validity import Severity, against_rules, check_run, overall
from iotax.notebook import Notebook, StudyRun
from iotax.records import CPU_ROLES
from iotax.trial import Attempt, CpuSecond, Direction, Second, TrialResult

_PERCENTILES = {"p50": 50, "p95": 95, "p99": 99, "p99_9": 99.9, "p99_99": 99.99}
Row: TypeAlias = dict[str, Any]


def is_judged(attempt: Attempt) -> bool:
    return attempt.status == "done" and attempt.result is not None


def judged_runs(notebook: Notebook, run: StudyRun) -> dict[str, Row]:
    """Trial → what the report says of whether its run can be believed."""
    study = notebook.study(run.id)
    found = {}
    for attempt in notebook.each_attempt(run.id):
        if attempt.result is not None and is_judged(attempt):
            checks = check_run(Run(attempt.trial, attempt.result))
            found[attempt.trial.id] = {
                "level": overall(checks).name.lower(),
                "excluded": bool(against_rules(checks, study.exclude)),
                "doubts": [f"{check.key}: {check.text}" for check in checks if check.level >= Severity.NOTE],
            }
    return found


def attempt_rows(notebook: Notebook, run: StudyRun) -> Iterator[Row]:
    """One by one, as all here: a run may have more attempts than memory holds."""
    judgements = judged_runs(notebook, run)
    for each in notebook.each_attempt(run.id):
        judgement = judgements.get(each.trial.id) if is_judged(each) else None
        yield {"run": run.id, "label": run.label, **_row(each, judgement)}


def _row(attempt: Attempt, judgement: Row | None) -> Row:
    """One attempt; a failed one has its reason and no figures."""
    trial, result = attempt.trial, attempt.result
    arrived = result.open if result else None
    # Of a database the figures below count transactions, and none of them an I/O.
    ios, database = (result, None) if result and result.database is None else (None, result and result.database)
    row: Row = {
        "study": trial.study,
        "trial": trial.id,
        "order": trial.order,
        "block": trial.block,
        "replicate": trial.replicate,
        "role": trial.role,
        "attempt": attempt.number,
        "status": attempt.status,
        "reason": attempt.reason,
        "started_unix_ns": attempt.started_unix_ns,
        "ended_unix_ns": attempt.ended_unix_ns,
        "validity": judgement and judgement["level"],
        "excluded": judgement and judgement["excluded"],
        "doubts": judgement and "; ".join(judgement["doubts"]),
    }
    figures: Row = {
        "lab": result and result.facts.lab,
        "simulated": result and result.facts.simulated,
        "driver": result and result.driver,
        "hosts_left_out": result and (", ".join(result.left_out) or None),
        "carrier": result and result.facts.carrier.kind,
        "carrier_name": result and result.facts.carrier.name,
        "carrier_usual": result and result.facts.carrier.usual,
        "duration_ns": result and result.window.duration_ns,
        "reads": ios and ios.read.ios,
        "writes": ios and ios.write.ios,
        "rate_iops": ios and ios.rate_iops,
        "rate_bytes_per_s": ios and ios.rate_bytes_per_s,
        "latency_mean_ns": result and _known(result, result.latency_mean_ns),
        **{
            f"latency_{name}_ns": result and _known(result, result.latency_ns(percent))
            for name, percent in _PERCENTILES.items()
        },
        "service_mean_ns": result and _known(result, result.service_mean_ns),
        "offered": arrived and arrived.offered,
        "dropped": arrived and arrived.dropped,
        "backlog_peak": arrived and arrived.backlog_peak,
        "backlog_end": arrived and arrived.backlog_end,
        "achieved": arrived and arrived.achieved,
        "latency_max_ns": result and result.latency_max_ns,
        "longest_gap_ns": result and result.gaps and result.gaps.longest_ns,
        "longest_gap_of": result and result.gaps and result.gaps.of,
        "after_rate_iops": (result and rate_after_iops(result)) or None,
        **_events(result),
        **{f"ios_{name.replace(' ', '_')}": result and result.slow_ios(over_ns) for name, over_ns in SLOW.items()},
        **_stream("read", ios.read if ios else None, ios.duration_s if ios else 0),
        **_stream("write", ios.write if ios else None, ios.duration_s if ios else 0),
        **_syncs(ios),
        **{f"cpu_{part}_ns_per_io": ios and ios.cpu_per_io_ns(part) for part in CPU_ROLES},
        **{f"cpu_utilisation_{role}_percent": result and _percent(result.role(role).share) for role in CPU_ROLES},
        **_transactions(result if database else None),
        "outstanding_mean": result and result.outstanding.mean,
        "errors": result and result.checks.errors,
        "verify_checked_blocks": result and result.verify and result.verify.checked_blocks,
        "verify_never_written_blocks": result and result.verify and result.verify.never_written_blocks,
        "verify_wrong_blocks": result and result.verify and result.verify.wrong_blocks,
    }
    return row | _factors(attempt, {*row, *figures}) | figures


def _events(result: TrialResult | None) -> Row:
    """What happened, from the window's start, and when throughput was back: a number for each event."""
    events, found = (result.events, recoveries(result)) if result else ((), [])
    told = {
        "events": [each.what for each in events],
        "events_began_ns": [each.began_ns for each in events],
        "events_undone_ns": [each.undone_ns for each in events],
        "recovery_s": [f"{'>' if each.is_bound else ''}{each.seconds:.3f}" for each in found],
    }
    return {name: "; ".join(map(str, each)) or None for name, each in told.items()}


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _transactions(result: TrialResult | None) -> Row:
    """Of a database, with what it did on the volume."""
    database = result.database if result else None
    return {
        "transactions": result and result.ios,
        "transactions_per_s": result and result.rate_iops,
        "disk_read_iops": result and database and database.reads / result.duration_s,
        "disk_write_iops": result and database and database.writes / result.duration_s,
        "disk_flushes": database and database.flushes,
        "checkpoints": database and database.checkpoints,
        **{f"cpu_{part}_ns_per_transaction": result and result.cpu_per_io_ns(part) for part in CPU_ROLES},
    }


def _known(result: TrialResult, value_ns: float) -> float | None:
    """None if another program's files do not say; iotax itself measures every latency that exists."""
    return None if result.origin is not None and math.isnan(value_ns) else value_ns


def _stream(name: str, stream: Direction | None, duration_s: float) -> Row:
    """Reads or writes alone; without latencies where there were none."""
    some = stream if stream is not None and stream.ios and stream.latency != "none" else None
    return {
        f"{name}_rate_iops": stream and stream.ios / duration_s,
        f"{name}_rate_bytes_per_s": stream and stream.bytes / duration_s,
        f"{name}_latency_mean_ns": some and some.latency_sum_ns / some.ios,
        **{f"{name}_latency_{key}_ns": _percentile(some, percent) for key, percent in _PERCENTILES.items()},
        f"{name}_latency_max_ns": some and some.latency_max_ns,
    }


def _syncs(result: TrialResult | None) -> Row:
    """Of flushes, where the load issued some."""
    some = result.sync if result is not None and result.sync is not None and result.sync.latency != "none" else None
    return {
        "syncs": result and result.sync and result.sync.ios,
        "sync_latency_mean_ns": some and some.latency_sum_ns / some.ios,
        **{f"sync_latency_{key}_ns": _percentile(some, percent) for key, percent in _PERCENTILES.items()},
        "sync_latency_max_ns": some and some.latency_max_ns,
    }


def _percentile(stream: Direction | None, percent: float) -> float | None:
    if stream is None:
        return None
    return None if math.isnan(value_ns := stream.percentile_ns(percent)) else value_ns


def _factors(attempt: Attempt, taken: set[str]) -> Row:
    """A factor may have the name of what is measured: the rate that was asked for is not the rate achieved."""
    levels = attempt.trial.treatment
    return {f"factor_{name}" if name in taken else name: level for name, level in levels.items()}


def series_rows(notebook: Notebook, run: StudyRun) -> Iterator[Row]:
    """A row for each interval of each attempt that was done."""
    return (
        row | {"interval": number} | each.model_dump()
        for attempt in notebook.each_attempt(run.id)
        if attempt.result is not None
        for row in [_of_interval(attempt, run, {*Second.model_fields, "interval"})]
        for number, each in enumerate(attempt.result.series, start=1)
    )


def cpu_series_rows(notebook: Notebook, run: StudyRun) -> Iterator[Row]:
    """A row for each interval and role of each attempt whose CPU time was read over time."""
    return (
        row | {"at_ns": each.at_ns, "duration_ns": each.duration_ns, "role": role, "busy_ns": busy_ns}
        for attempt in notebook.each_attempt(run.id)
        if attempt.result is not None
        for row in [_of_interval(attempt, run, {*CpuSecond.model_fields, "role"})]
        for each in attempt.result.cpu_over_time
        for role, busy_ns in each.busy_ns.items()
    )


def _of_interval(attempt: Attempt, run: StudyRun, taken: set[str]) -> Row:
    row: Row = {
        "run": run.id,
        "label": run.label,
        "study": attempt.trial.study,
        "trial": attempt.trial.id,
        "attempt": attempt.number,
        "simulated": attempt.result is not None and attempt.result.facts.simulated,
    }
    return row | _factors(attempt, {*row, *taken})
