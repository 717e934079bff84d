"""Notes on values of a study file that may have been meant otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from iotax.study.source import read_yaml
from iotax.units import read_as_binary

_SIZES = ("size", "block_size", "working_set")


def notes(text: str) -> list[str]:
    """One line for each such value of a valid study."""
    found = {value: binary for value in _sizes(read_yaml("", text).data, "") if (binary := read_as_binary(value))}
    if not found:
        return []
    read = ", ".join(f"{value} is {binary}" for value, binary in found.items())
    return [f"{read} here: sizes are binary, whether written with B or iB, as in fio"]


def _sizes(data: Any, name: str) -> Iterator[Any]:
    """Every value of a size field."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _sizes(value, key)
    elif isinstance(data, list):
        for value in data:
            yield from _sizes(value, name)
    elif name in _SIZES:
        yield data
