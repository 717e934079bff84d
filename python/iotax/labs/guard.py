"""Protects data that iotax did not write. Every external endpoint is checked here before it is written to.

An endpoint may be written to if it holds only zeros or iotax's own pattern, or if the user named it with `--destroy`.
The engine applies the same rule when it opens a file or device; this module explains it.
"""

from __future__ import annotations

from iotax.engine import EngineError
from iotax.labs.base import CheckItem
from iotax.labs.feasible import impossible
from iotax.labs.hints import hint
from iotax.labs.load import Checked
from iotax.study.model import Settings
from iotax.units import format_size

_HINTS = {
    "unreachable": "the host does not answer: is the address right, is a firewall in between?",
    "too_small": "say a smaller `working_set:` under load",
    "disk_full": "say a smaller `size:` under volume, or name a file on a larger file system",
}


def judge(
    settings: Settings,
    label: str,
    endpoint: str,
    checked: Checked,
    *,
    destroy: bool,
    memory_free_bytes: int | None = None,
) -> list[CheckItem]:
    """Obstacles to running the study's treatments on an external endpoint."""
    found: list[CheckItem] = []
    subject = f"{label} ({endpoint})"
    for needed_bytes, what, less in (
        (settings.working_set_bytes, "the working set is", "`working_set:` under load"),
        (settings.preconditioned_bytes, "preconditioning fills", "`size:` under volume"),
    ):
        if checked.size_bytes < needed_bytes:
            said = f"holds {format_size(checked.size_bytes)}, but {what} {format_size(needed_bytes)}; say a smaller"
            found.append(CheckItem("error", subject, f"{said} {less}"))
    limits = {"max_io_bytes": checked.max_io_bytes, "block_size_bytes": checked.block_size_bytes}
    reasons = impossible(settings, **limits, memory_free_bytes=memory_free_bytes)
    found += [CheckItem("error", subject, reason) for reason in reasons]
    if settings.writes and checked.held:
        found.append(CheckItem("refused", subject, _in_use(checked.held)))
    if settings.writes and checked.read_only:
        found.append(
            CheckItem(
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
            CheckItem(
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
            CheckItem("warning", subject, f"{state}: will be destroyed, as --destroy says")
            if overwrites
            else CheckItem("ok", subject, state)
        )
    return found


def judge_volume(path: str, size_bytes: int, checked: Checked, *, destroy: bool) -> CheckItem:
    """Obstacles to a file volume, which its server opens for writing whatever the study does."""
    subject = f"volume ({path})"
    if checked.held:
        return CheckItem("refused", subject, _in_use(checked.held))
    if checked.read_only:
        return CheckItem("error", subject, "cannot be written by this user; name another file")
    if checked.holds == "nothing":
        return CheckItem("ok", subject, f"will be made, {format_size(size_bytes)}")
    state = f"holds {checked.what or checked.holds}"
    if checked.holds == "foreign":
        if destroy:
            return CheckItem("warning", subject, f"{state}: will be destroyed, as --destroy says")
        at = f" at byte {checked.at_bytes}" if checked.at_bytes is not None else ""
        return CheckItem(
            "refused",
            subject,
            f"{state}{at} that iotax did not write. Nothing was changed. Name another file; to destroy this one, add "
            f"--destroy {path}",
        )
    return CheckItem("ok", subject, state)


def explain_volume(path: str, error: EngineError) -> CheckItem:
    """An impossible file volume, with what to do about it."""
    hints = _HINTS | {
        "not_found": "its folder is not there",
        "denied": "this user may not write there; name another file",
        "usage": "name a file or a block device",
    }
    said = f"{error.message}; {hints[error.kind]}" if error.kind in hints else error.message
    kind = "refused" if error.kind in ("foreign_data", "in_use", "swapped") else "error"
    return CheckItem(kind, f"volume ({path})", said)


def _in_use(holder: str) -> str:
    return f"is in use: {holder}; unmount or release it first, --destroy does not override this. Nothing was changed"


def explain(label: str, endpoint: str, error: EngineError) -> CheckItem:
    """An endpoint that could not be checked, with what to do about it."""
    subject = f"{label} ({endpoint})"
    if error.kind in ("in_use", "swapped"):
        return CheckItem("refused", subject, str(error))
    if error.kind == "foreign_data":
        return CheckItem("refused", subject, f"{error}; to destroy it, add --destroy {endpoint}")
    said = error.message if error.where == endpoint else str(error)
    what_to_do = hint(endpoint, error) or _HINTS.get(error.kind, "")
    return CheckItem("error", subject, f"{said}; {what_to_do}" if what_to_do else said)
