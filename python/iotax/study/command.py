"""A load generator that the study describes: the command that starts it, and the form of what it prints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from iotax.study.fields import Section

ResultFormat: TypeAlias = Literal[
    "fio",
    "diskspd",
    "vdbench",
    "iometer",
    "elbencho",
    "spdk-perf",
    "bdevperf",
    "sysbench",
    "table",
]
"""A format of `iotax import` that holds one run in one file."""

PLACEHOLDERS = (
    *("device", "seconds", "warmup", "runtime", "block_size", "read", "random", "outstanding", "workers", "threads"),
    *("rate_iops", "size", "offset", "client", "seed"),
)
"""Names that stand for a trial's values when the command runs."""
_PLACEHOLDER = re.compile(r"\{\{|\}\}|(?<!\$)\{([A-Za-z_]\w*)\}")


class Command(Section):
    """A load generator of your own, on the hosts' paths. iotax starts it on all hosts at the same moment, for a window
    that it observes itself, and reads the result as `iotax import` does."""

    run: Annotated[str, Field(min_length=1, max_length=1 << 14)]
    """Shell commands, run in an empty folder: `elbencho --rand -t {workers} -b {block_size} … {device}`. Words in \
braces stand for this trial's values: device, seconds (`warmup` and `runtime` together), warmup, runtime, block_size, \
read, random, outstanding, workers, threads, rate_iops, size and offset of this host's part, client (from 1), seed. \
Sizes are in bytes, times in seconds, shares in percent. {{ and }} are braces."""
    format: ResultFormat
    """What the result is written in: a format of `iotax import`."""
    result: Annotated[str, Field(max_length=4096)] = ""
    """The file that the result is in, within that folder; standard output when not given."""
    columns: dict[str, str] | None = None
    """For the format table: {iops: "title of its column", duration_s: …}, as `iotax import table --column`."""

    @field_validator("run")
    @classmethod
    def _says_something(cls, given: str) -> str:
        if not given.strip():
            raise ValueError("an empty command loads nothing")
        if "\0" in given:
            raise ValueError("no shell takes a command with a zero byte")
        return given

    @model_validator(mode="after")
    def _fits(self) -> Command:
        if unknown := [name for name in self.used() if name not in PLACEHOLDERS]:
            raise ValueError(
                f"{{{unknown[0]}}} in `run:` stands for nothing; there are {', '.join(PLACEHOLDERS)}. "
                f"For braces of the command's own write {{{{{unknown[0]}}}}}"
            )
        if "device" not in self.used():
            raise ValueError("`run:` has no {device}, so it would not load the path; say where it belongs")
        place = PurePosixPath(self.result)
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(
                f"`result: {self.result}` is outside of the command's folder; name a file that it writes there"
            )
        if (self.format == "table") != (self.columns is not None):
            raise ValueError("`columns:` belongs to `format: table`, and only to it")
        return self

    def used(self) -> list[str]:
        """Names of the placeholders in the command, in its order."""
        return [name for name in (found.group(1) for found in _PLACEHOLDER.finditer(self.run)) if name]

    def filled(self, values: Mapping[str, object]) -> str:
        """The command with these values in place of its placeholders."""
        double = {"{{": "{", "}}": "}"}
        return _PLACEHOLDER.sub(lambda found: double.get(found.group()) or str(values[found.group(1)]), self.run)
