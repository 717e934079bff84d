"""Options with the same syntax as a study file's values: `--iops 70k`, `--margin 5%`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import typer

from iotax.units import parse_bit_rate, parse_duration, parse_percent, parse_rate, parse_size

_Value = TypeVar("_Value")


def percent(text: str) -> float:
    return _read(parse_percent, text)


def rate(text: str) -> int:
    """I/Os per second."""
    return _read(parse_rate, text)


def seconds(text: str) -> float:
    return _read(parse_duration, text) / 1e9


def size_bytes(text: str) -> int:
    return _read(parse_size, text)


def link(text: str) -> int:
    """Bits per second: 25GbE, 25Gbit."""
    return _read(parse_bit_rate, re.sub(r"(?i)be$", "bit", text))


def times(text: str) -> float:
    """x2, 2x or 2: a factor."""
    found = re.fullmatch(r"[x×]?(\d+(?:\.\d+)?)[x×]?", text.strip())
    if found is None or not float(found[1]):
        raise typer.BadParameter(f"found {text!r}: say how many times, such as x2")
    return float(found[1])


def _read(parse: Callable[[object], _Value], text: str) -> _Value:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"found {text!r}: {error}") from None
