"""What was done to a volume before anything was measured on it."""

from __future__ import annotations

from typing import Literal

from iotax.records.base import Record


class Conditioning(Record):
    """One step that ended: a pass of filling in sequence, or a round of overwriting at random."""

    endpoint: str
    """The endpoint as in the study; with `{client}` it stands for the volumes of all hosts, which are worked on at
    once."""
    invocation: int
    """Steps of one invocation follow each other without a rest."""
    kind: Literal["fill", "round"]
    started_unix_ns: int
    duration_ns: int
    bytes: int
    """Written."""
    rate_iops: float | None = None
    """Rate of a round."""
