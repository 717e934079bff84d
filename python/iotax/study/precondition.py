"""Preconditioning: brings a volume into the state that it keeps under load before anything is measured on it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from iotax.study.fields import Count, Duration, Percent, Section, Size

ROUNDS_MIN = 5
"""Rounds over which a steady state is judged (SNIA SSS PTS 2.0.2 §2.1.26)."""


class Precondition(Section):
    """Before the first trial each volume of the endpoints is filled in sequence, then overwritten at random in rounds
    until its rate is steady (SNIA SSS PTS): over five rounds within 20% of their mean, the line through them within \
10%. The notebook keeps what was done, so a continued study does only what is missing."""

    fill: Annotated[Percent, Field(gt=0)] = 100.0
    """Share of the volume that is filled and overwritten, from its start; at least what the load uses."""
    passes: Annotated[int, Field(ge=1, le=10)] = 2
    """How often it is filled sequentially with iotax's pattern."""
    rounds_max: Annotated[int, Field(ge=0, le=1000)] = 25
    """Maximum rounds of random writes; 0: none, e.g. for volumes on disks. If the volume is not steady by then, the \
study continues and the report says so."""
    round: Annotated[Duration, Field(ge=100_000_000)] = 60_000_000_000
    """How long a round takes."""
    block_size: Size = 4096
    """Bytes of each random write."""
    workers: Count = 1
    """Connections per host for overwriting."""
    outstanding: Count = 32
    """Writes in flight per worker."""
