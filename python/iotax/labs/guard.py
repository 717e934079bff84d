"""Protects data that iotax did not write. Every external endpoint is checked here before it is written to.

An endpoint may be written to if it holds only zeros or iotax's own pattern, or if the user named it with `--destroy`.
The engine applies the same rule when it opens a file or device; this module explains it, and says what to do about an
endpoint that refuses access in the terms of its own protocol. It also finds settings that no trial can run, before any
starts, by the engine's own limits and with its messages.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from urllib.parse import urlsplit

from iotax.engine import EngineError
from iotax.labs.base import CheckItem
from iotax.labs.load import Checked
from iotax.protocols import schemes
from iotax.study.endpoint import one_portal
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


def hint(endpoint: str, error: EngineError) -> str:
    """Empty if there is nothing better than the error itself."""
    if endpoint.startswith("local:"):
        return _of_path(endpoint.removeprefix("local:"), error.kind)
    parts = urlsplit(one_portal(endpoint))
    scheme, _ = schemes().get(parts.scheme, (None, None))
    words = scheme.hints.get(error.kind) if scheme else None
    if not (scheme and words):
        return ""
    return words.format(host=parts.hostname, port=parts.port or scheme.port, usual_port=scheme.port)


def _of_path(path: str, kind: str) -> str:
    device = path.startswith("/dev/")
    if kind == "not_found":
        if device:
            return "there is no such device; `lsblk` lists this machine's"
        return f"there is no such file; `truncate -s 1G {path}` makes one"
    if kind == "denied":
        return f"this user may not open it; `ls -l {path}` says who may" + (", often group disk" if device else "")
    return ""


OUTSTANDING_MAX = 4096
"""I/Os of one connection (crates/node/src/load/config.rs)."""
CONNECTIONS_MAX = 4096
"""Limit of one thread of the embedded server (crates/engine/src/serve/mod.rs)."""
_SPARE_DESCRIPTORS = 64


def impossible(
    settings: Settings, *, max_io_bytes: int | None, block_size_bytes: int, memory_free_bytes: int | None
) -> Iterator[str]:
    """Each reason why trials with these settings would fail at a unit with these limits, and the remedy."""
    load = settings.load
    blocks = sorted({each.block_size for each in load.accesses()})
    if odd := next((block for block in blocks if block % block_size_bytes), None):
        yield f"its blocks have {block_size_bytes} bytes, of which {format_size(odd)} is not a multiple"
    if max_io_bytes is not None and blocks[-1] > max_io_bytes:
        yield (
            f"accepts at most {format_size(max_io_bytes)} per I/O, and `block_size:` is {format_size(blocks[-1])}; "
            "say a smaller one under load"
        )
    if load.outstanding > OUTSTANDING_MAX:
        yield f"`outstanding: {load.outstanding}` is more than one connection can have under way ({OUTSTANDING_MAX})"
    yield from _connections(settings)
    buffers_bytes = load.workers * load.outstanding * blocks[-1]
    if memory_free_bytes is not None and buffers_bytes > memory_free_bytes:
        yield (
            f"the buffers of {load.workers} workers × {load.outstanding} outstanding × {format_size(blocks[-1])} are "
            f"{format_size(buffers_bytes)}, more than the {memory_free_bytes >> 20} MiB of free memory"
        )


def _connections(settings: Settings) -> Iterator[str]:
    """A worker has a connection of its own where a network lies between."""
    workers = settings.load.workers
    if settings.endpoint.protocol == "local":
        return
    if settings.endpoint.embedded and workers > CONNECTIONS_MAX:
        yield f"the server keeps {CONNECTIONS_MAX} connections, and `workers: {workers}` wants one each"
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and workers + _SPARE_DESCRIPTORS > limit:
        yield f"`workers: {workers}` want more open files than this shell allows ({limit}); `ulimit -n` raises it"
