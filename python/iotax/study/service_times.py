"""Reads the service times of a real drive from a file with one time per line, such as `85us`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iotax.study.media import TIMES_MAX
from iotax.study.source import Document, Place, Problem
from iotax.units import format_duration, parse_duration

_FILE_BYTES_MAX = 16 << 20
_LONGEST_NS = 3_600_000_000_000


class ServiceTimesError(ValueError):
    """Why a file has no service times."""


def settle_service_times(document: Document, folder: Path) -> list[Problem]:
    """Replaces each `service_times` that names a file by the file's contents, so that a study is complete. Relative
    paths start at `folder`. Returns the errors with their places."""
    found = []
    for section, place in _media(document.data):
        name = section.get("service_times")
        if not isinstance(name, str):
            continue
        try:
            section["service_times"] = [format_duration(ns) for ns in read_service_times(folder / name)]
        except ServiceTimesError as error:
            at = (*place, "service_times")
            found.append(Problem(document.mark(at), at, str(error)))
            section["service_times"] = ["100us"]  # so that the rest of the study can still be checked
    return found


def _media(data: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Place]]:
    lab, volume = data.get("lab"), data.get("volume")
    if isinstance(volume, dict):
        yield volume, ("volume",)
    sim = lab.get("sim") if isinstance(lab, dict) else None
    media = sim.get("media") if isinstance(sim, dict) else None
    if isinstance(media, dict):
        yield media, ("lab", "sim", "media")


def read_service_times(path: Path) -> list[int]:
    """Ascending nanoseconds; more than TIMES_MAX are reduced to that many, each the middle of an equal part. Skips
    empty lines and comments after #. Raises ServiceTimesError."""
    times = sorted(_parsed(path))
    if not times:
        raise ServiceTimesError(f"{path} has no service times; it takes one on each line, such as 85us")
    if len(times) <= TIMES_MAX:
        return times
    return [times[(2 * part + 1) * len(times) // (2 * TIMES_MAX)] for part in range(TIMES_MAX)]


def _parsed(path: Path) -> Iterator[int]:
    try:
        if not path.is_file():
            raise ServiceTimesError(f"there is no file {path}")
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise ServiceTimesError(f"{path} has more than {_FILE_BYTES_MAX >> 20} MiB; keep a sample of its lines")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceTimesError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if not (told := line.partition("#")[0].strip()):
            continue
        try:
            time_ns = parse_duration(told)
        except ValueError as error:
            raise ServiceTimesError(f"{path}, line {number}: {told[:40]!r}: {error}") from error
        if time_ns > _LONGEST_NS:
            raise ServiceTimesError(f"{path}, line {number}: {told[:40]!r} is longer than an hour")
        yield time_ns
