"""Prometheus's text format, version 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """Metrics of one name. A sample is (labels, value), with a suffix of the name if it has one."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    words: str
    samples: Sequence[tuple[Labels, float] | tuple[Labels, float, str]]


def exposition(families: Sequence[Family]) -> str:
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {family.words}", f"# TYPE {family.name} {family.kind}"]
        for labels, value, *suffix in family.samples:
            told = ",".join(f'{name}="{_escaped(each)}"' for name, each in labels.items())
            lines.append(f"{family.name}{''.join(map(str, suffix))}{{{told}}} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
