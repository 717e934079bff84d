"""When a sample counts as disturbed. The rule looks at the machine, never at the result."""

from __future__ import annotations

from bench.sample import Usage

RUN_QUEUE_WAIT_MAX = 0.05
FOREIGN_LOAD_MAX = 0.1


def disturbance(usage: Usage) -> str | None:
    """Why a sample is left out; None where it counts."""
    if usage.run_queue_wait > RUN_QUEUE_WAIT_MAX:
        return f"a thread waited {usage.run_queue_wait:.2f} of the window for a processor"
    if usage.foreign_load > FOREIGN_LOAD_MAX:
        return f"other processes kept {usage.foreign_load:.2f} cores busy"
    return None
