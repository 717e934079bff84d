"""When a sample counts as disturbed, by the limits of studies. The rule uses the machine's state, not the result."""

from __future__ import annotations

from bench.sample import Usage
from iotax.analysis.validity import FOREIGN_CORES_MAX, RUN_QUEUE_WAIT_MAX


def disturbance(usage: Usage) -> str | None:
    """Why a sample is left out; None if it counts."""
    if usage.run_queue_wait > RUN_QUEUE_WAIT_MAX:
        return f"a thread waited {usage.run_queue_wait:.2f} of the window for a processor"
    if usage.foreign_load > FOREIGN_CORES_MAX:
        return f"other processes kept {usage.foreign_load:.2f} cores busy"
    return None
