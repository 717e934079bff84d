"""The time for preconditioning a study's volumes before the first trial."""

from __future__ import annotations

from dataclasses import dataclass

from iotax.study import Study
from iotax.study.precondition import ROUNDS_MIN, Precondition
from iotax.units import counted, format_duration, format_size, show_minutes

FILL_BYTES_PER_S = 500 << 20
"""Assumed bandwidth of a volume behind a network, which is unknown before it runs."""


@dataclass(frozen=True)
class Conditioned:
    """Time for all volumes of a study, one endpoint after the other."""

    asked: Precondition
    endpoints: int
    fill_bytes: int
    """Bytes of each volume in each pass."""

    @property
    def fill_ns(self) -> int:
        return self.endpoints * self.asked.passes * self.fill_bytes * 1_000_000_000 // FILL_BYTES_PER_S

    @property
    def least_ns(self) -> int:
        return self.fill_ns + self.endpoints * min(ROUNDS_MIN, self.asked.rounds_max) * self.asked.round

    @property
    def most_ns(self) -> int:
        return self.fill_ns + self.endpoints * self.asked.rounds_max * self.asked.round


def conditioned(study: Study) -> Conditioned | None:
    """None without preconditioning."""
    if study.precondition is None:
        return None
    named = {each.uri for each in study.endpoints().values() if not each.embedded}
    if study.floor is not None and not study.endpoints()[study.floor].embedded:
        named = {study.endpoints()[study.floor].uri}
    fill_bytes = round(study.volume.size * study.precondition.fill / 100)
    return Conditioned(study.precondition, len(named), fill_bytes)


def described(study: Study) -> list[str]:
    """The preconditioning as a line for people."""
    found = conditioned(study)
    if found is None:
        return []
    asked = found.asked
    passes = "1 pass" if asked.passes == 1 else f"{asked.passes} passes"
    filled = f"{passes} of {format_size(found.fill_bytes)}"
    rate = f"about {show_minutes(found.fill_ns / 1e9)} at {FILL_BYTES_PER_S >> 20} MiB/s"
    said = f"Preconditioning of {counted(found.endpoints, 'endpoint')} before the first trial: {filled} each, {rate}"
    if not asked.rounds_max:
        return [f"{said}."]
    rounds_ns = (found.least_ns - found.fill_ns, found.most_ns - found.fill_ns)
    least, most = (show_minutes(each / 1e9) for each in rounds_ns)
    return [
        f"{said}; then random writes of {format_size(asked.block_size)} in rounds of {format_duration(asked.round)} "
        f"until the rate is steady, {least} to {most} in all."
    ]
