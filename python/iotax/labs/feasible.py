"""Finds settings that no trial can run, before any starts, by the engine's own limits and with its messages."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from iotax.study.model import Settings
from iotax.units import format_size

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
