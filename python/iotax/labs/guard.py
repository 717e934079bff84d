"""Keeps other people's data. No endpoint that is not ours is written to before it passed here.

An endpoint may be written to when it holds zeros only, or our own pattern, or when the user named that very endpoint
with `--destroy`. The engine's `fill` and `check` apply the same rule by themselves; this place explains it.
"""

from __future__ import annotations

from iotax.engine import EngineError
from iotax.labs.base import Finding
from iotax.labs.load import Checked
from iotax.study.model import Settings
from iotax.units import format_size

_HINTS = {
    "refused": "is the server up, and is it the right port?",
    "unreachable": "the host does not answer: is the address right, is a firewall in between?",
    "not_found": "the host answers but knows no such name: check the export, IQN, LUN, NQN or namespace",
    "too_small": "the unit is smaller than the working set: say a smaller `working_set:` under load",
    "denied": "the server does not let this initiator in: check its access list and `initiator:` under connection",
}


def judge(settings: Settings, label: str, endpoint: str, checked: Checked, *, destroy: bool) -> list[Finding]:
    """What stands in the way of running the study's treatments on an endpoint that is not ours."""
    found: list[Finding] = []
    subject = f"{label} ({endpoint})"
    needed_bytes = settings.working_set_bytes
    if checked.size_bytes < needed_bytes:
        found.append(
            Finding(
                "error",
                subject,
                f"holds {format_size(checked.size_bytes)}, but the working set is {format_size(needed_bytes)}; "
                "say a smaller `working_set:` under load",
            )
        )
    blocks = {each.block_size for each in settings.load.accesses()}
    if odd := next((block for block in sorted(blocks) if block % checked.block_size_bytes), None):
        found.append(
            Finding(
                "error",
                subject,
                f"its blocks have {checked.block_size_bytes} bytes, of which {format_size(odd)} is no multiple",
            )
        )
    if settings.writes and checked.read_only:
        found.append(
            Finding(
                "error",
                subject,
                "is read-only, and the study writes; say `read: 100%` and `verify: false` under load "
                "and `fill: zeros` under volume to only read",
            )
        )
    elif settings.writes and checked.holds not in ("zeros", "pattern") and not destroy:
        what = checked.what or "data"
        at = f" at byte {checked.at_bytes}" if checked.at_bytes is not None else ""
        found.append(
            Finding(
                "refused",
                subject,
                f"holds {what}{at} that iotax did not write. Nothing was changed. "
                f"To destroy it, add --destroy {endpoint}; to only read, say `read: 100%` and `verify: false` "
                "under load and `fill: zeros` under volume",
            )
        )
    if not found:
        overwrites = settings.writes and checked.holds not in ("zeros", "pattern")
        state = f"{format_size(checked.size_bytes)}, holds {checked.what or checked.holds}"
        found.append(
            Finding("warning", subject, f"{state}: will be destroyed, as --destroy says")
            if overwrites
            else Finding("ok", subject, state)
        )
    return found


def explain(label: str, endpoint: str, error: EngineError) -> Finding:
    """An endpoint that could not be checked, with what to do about it."""
    subject = f"{label} ({endpoint})"
    if error.kind == "foreign_data":
        return Finding("refused", subject, f"{error}; to destroy it, add --destroy {endpoint}")
    said = error.message if error.where == endpoint else str(error)
    hint = _HINTS.get(error.kind, "")
    if error.kind == "not_found" and endpoint.startswith("local:"):
        hint = f"there is no such file or device; `truncate -s 1G {endpoint.removeprefix('local:')}` makes a file"
    return Finding("error", subject, f"{said}; {hint}" if hint else said)
