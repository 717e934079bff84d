"""Factors from the names of files: `{protocol}-{bs}-r{replicate}.json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from iotax.study.imported import SIZES
from iotax.trial import LevelValue
from iotax.units import parse_size

REPLICATE, BLOCK = "replicate", "block"
"""Names that say which run it is, and are not factors."""
SAME = {
    "bs": "block_size",
    "blocksize": "block_size",
    "iodepth": "outstanding",
    "qd": "outstanding",
    "numjobs": "workers",
    "threads": "workers",
    "rep": REPLICATE,
}
"""Other words for what studies call otherwise."""
_FIELD = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")


class PatternError(ValueError):
    """The pattern, or a factor, cannot be used; says why."""


class NamePattern:
    """Matches the last parts of a path, as many as the pattern has."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern.strip("/")
        self._parts = self.pattern.count("/") + 1
        names = _FIELD.findall(self.pattern)
        if not names:
            raise PatternError(f"--name-pattern {pattern}: it names no factor; write {{protocol}}-r{{replicate}}.json")
        if twice := {name for name in names if names.count(name) > 1}:
            raise PatternError(f"--name-pattern {pattern}: {{{twice.pop()}}} is in it twice")
        expression, at = "", 0
        for field in _FIELD.finditer(self.pattern):
            expression += _literal(self.pattern[at : field.start()]) + f"(?P<{field[1]}>[^/]+?)"
            at = field.end()
        self._expression = re.compile(expression + _literal(self.pattern[at:]))

    def values(self, path: Path) -> dict[str, str] | None:
        """Name → text; None if the path is named otherwise."""
        found = self._expression.fullmatch("/".join(path.parts[-self._parts :]))
        return {SAME.get(name, name): text for name, text in found.groupdict().items()} if found else None


def given_factors(words: list[str]) -> dict[str, str]:
    """Of `--factor NAME=VALUE`. Raises PatternError."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise PatternError(f"--factor {word}: write NAME=VALUE, such as protocol=iscsi")
        found[SAME.get(name, name)] = value
    return found


def level_of(factor: str, text: str) -> LevelValue:
    """A number where it is one, bytes of a size."""
    if factor in SIZES:
        try:
            return parse_size(text)
        except ValueError:
            return text
    return int(text) if text.isdecimal() and (text == "0" or not text.startswith("0")) else text


def run_number(values: Mapping[str, str], name: str, path: Path) -> int | None:
    """Which replicate or block a name says; None if it says none. Raises PatternError."""
    text = values.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise PatternError(f"{path}: {name} {text!r} is not a number from 1 on")
    return int(text)


def _literal(text: str) -> str:
    """`*` stands for anything within a name."""
    return "[^/]*".join(re.escape(part) for part in text.split("*"))
