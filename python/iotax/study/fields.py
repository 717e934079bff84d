"""The types of a study's values: words in the file, plain numbers in the program, words again in the notebook."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    WithJsonSchema,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

from iotax.units import (
    COMPRESS_MAX,
    DEDUPE_MAX,
    format_bit_rate,
    format_duration,
    format_percent,
    format_ratio,
    format_size,
    parse_bit_rate,
    parse_duration,
    parse_percent,
    parse_rate,
    parse_ratio,
    parse_share,
    parse_size,
)


class Section(BaseModel):
    """A part of a study file: nothing unknown, nothing guessed, nothing changed later."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Grown(Section):
    """Fields in `later` that have their defaults are not written, so that studies from before them keep their
    digests."""

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_later(self, handler: Any) -> dict[str, Any]:
        fields = type(self).model_fields
        return {
            name: value
            for name, value in handler(self).items()
            if name not in self.later or getattr(self, name) != fields[name].default
        }


def _in_quotes(value: object) -> object:
    """YAML reads 6.10 as the number 6.1."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'a release stands in quotes, as "{value}", since YAML takes it for a number')
    return value


Size: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^[0-9.]+ *[kKmMgGtT]?(i?[bB])?$"},
            ],
            "examples": ["4KiB", "1GiB"],
        }
    ),
]
"""Bytes."""

DURATION_SCHEMA: JsonSchemaValue = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^[0-9.]+ *(ns|us|µs|ms|s|min|m|h)$"},
    ],
    "examples": ["2s", "500ms"],
}
Duration: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, when_used="json"),
    WithJsonSchema(DURATION_SCHEMA),
]
"""Nanoseconds."""

Percent: TypeAlias = Annotated[
    float,
    BeforeValidator(parse_percent),
    PlainSerializer(format_percent, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 100},
                {"type": "string", "pattern": r"^[0-9.]+ *%?$"},
            ],
            "examples": ["75%"],
        }
    ),
]
"""Percent, 0 to 100."""

_RATIO = (BeforeValidator(parse_ratio), PlainSerializer(format_ratio, when_used="json"))
_RATIO_TEXT = {"type": "string", "pattern": r"^[0-9.]+ *(: *1)?$", "examples": ["2.5:1"]}
Compress: TypeAlias = Annotated[
    float,
    *_RATIO,
    Field(ge=1, le=COMPRESS_MAX),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 1, "maximum": COMPRESS_MAX}, _RATIO_TEXT]}),
]
"""Ratio of the bytes before to those after compression."""
Dedupe: TypeAlias = Annotated[
    float,
    *_RATIO,
    Field(ge=1, le=DEDUPE_MAX),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 1, "maximum": DEDUPE_MAX}, _RATIO_TEXT]}),
]
"""Ratio of the blocks before to those after deduplication."""

BitRate: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_bit_rate),
    PlainSerializer(format_bit_rate, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9.]+ *[KMG]bit$", "examples": ["100Mbit"]}),
]
"""Bits per second."""

Count: TypeAlias = Annotated[int, Field(ge=1)]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 63)]

_RATE_SCHEMA = {"type": "string", "pattern": r"^[0-9.]+ *[kM]?$", "examples": ["70k"]}
Rate: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_rate),
    Field(ge=0, le=100_000_000),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": 100_000_000}, _RATE_SCHEMA]}),
]
"""I/Os per second."""
RateLimit: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_rate),
    Field(ge=1),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, _RATE_SCHEMA]}),
]
"""I/Os per second, above 0."""
UserId: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 32)]
Backlog: TypeAlias = Annotated[int, Field(ge=0, le=1 << 22)]
WritesAFlush: TypeAlias = Annotated[int, Field(ge=0, le=1 << 31)]
Share: TypeAlias = Annotated[float, BeforeValidator(parse_share), Field(gt=0, allow_inf_nan=False)]
"""A weight, which may be written as a percentage."""

Arrivals: TypeAlias = Literal["constant", "poisson"]
Generator: TypeAlias = Literal["iotax", "fio", "pgbench", "command"]
Driver: TypeAlias = Literal["auto", "io_uring", "epoll"]
Accelerator: TypeAlias = Literal["auto", "kvm", "tcg"]
Clock: TypeAlias = Literal["auto", "host", "icount"]
Encryption: TypeAlias = Literal["none", "ipsec", "wireguard", "krb5i", "krb5p", "tls"]
KERBEROS = ("krb5i", "krb5p")
TARGETS = ("kernel", "ganesha", "tgt", "iotax")
OWN_TARGETS = ("nvmf_tgt",)
"""Programs that a user builds and a study names by their path."""
_OWN_TARGET = rf"^(~|\.{{1,2}})?/(.*/)?({'|'.join(OWN_TARGETS)})$"


def _known_target(value: object) -> object:
    if isinstance(value, str) and (value in TARGETS or re.match(_OWN_TARGET, value)):
        return value
    expected = ", ".join([*TARGETS, *(f"./PATH/{name}" for name in OWN_TARGETS)])
    raise PydanticCustomError("literal_error", "a target is expected", {"expected": expected})


Target: TypeAlias = Annotated[
    str,
    BeforeValidator(_known_target),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(TARGETS)},
                {"type": "string", "pattern": _OWN_TARGET, "examples": ["./spdk/build/bin/nvmf_tgt"]},
            ]
        }
    ),
]
"""The kernel's target, a program of the distribution, iotax's own, or the path of a program that the user built."""


def kind_of(target: Target) -> str:
    """The name of a target's program, without its path."""
    return target.rpartition("/")[2]


_RELEASE = r"^(stock|\d[\w.+~-]*|(~|\.{1,2})?/.+)$"
Release: TypeAlias = Annotated[
    str,
    BeforeValidator(_in_quotes),
    Field(pattern=_RELEASE),
    WithJsonSchema(
        {"type": "string", "pattern": _RELEASE, "examples": ["6.12", "./linux@v6.6", "./linux/tar-install"]}
    ),
]
"""A release of a distribution's kernel, a commit of a kernel's source, or the folder of a kernel."""
Aio: TypeAlias = Literal["native", "threads", "io_uring"]
DiskCache: TypeAlias = Literal["none", "writeback", "writethrough"]
Attach: TypeAlias = Literal["guest", "vduse", "virtio-blk", "virtio-scsi", "pvscsi", "nvme"]
PathsTo: TypeAlias = Literal["owner", "partner", "both"]
PathRetry: TypeAlias = Literal["when-safe", "at-once"]
PathPolicy: TypeAlias = Literal["fixed", "numa", "round-robin", "queue-depth"]
Media: TypeAlias = Annotated[
    Literal["memory", "file", "null", "model"],
    # YAML reads `media: null` as its own null.
    BeforeValidator(lambda value: "null" if value is None else value),
    WithJsonSchema({"enum": ["memory", "file", "null", "model", None]}),
]
Fill: TypeAlias = Literal["pattern", "zeros"]
Volumes: TypeAlias = Literal["shared", "per client"]
Refill: TypeAlias = Literal["never", "block", "trial"]
Blocks: TypeAlias = Literal["replicate", "none"]
Fraction: TypeAlias = Literal["1", "1/2", "1/4", "1/8", "1/16"]
Effects: TypeAlias = Literal["main", "two-factor"]
CpuResponse: TypeAlias = Literal[
    "cpu_per_io",
    "cpu_initiator",
    "cpu_target",
    "cpu_hypervisor",
    "cpu_machine",
    "cpu_utilisation_initiator",
    "cpu_utilisation_target",
    "cpu_utilisation_hypervisor",
    "cpu_utilisation_machine",
]
"""CPU per I/O of both ends together or of one role, and utilisation of a role's processors."""
_BY_ROLE = {"cpu_per_io": "cpu", "cpu_utilisation": "cpu_utilisation"}
_CPU_ROLES = ("initiator", "target", "hypervisor", "machine")


def _role_words(given: object) -> list[object]:
    """`{cpu_per_io: {of: [hypervisor, machine]}}` as the words cpu_hypervisor and cpu_machine; other values
    unchanged."""
    if not isinstance(given, dict):
        return [given]
    asked = [
        (name, role)
        for name, said in given.items()
        if isinstance(said, dict) and [*said] == ["of"]
        for role in (said["of"] if isinstance(said["of"], list) else [said["of"]])
    ]
    words = [f"{_BY_ROLE[name]}_{role}" for name, role in asked if name in _BY_ROLE and role in _CPU_ROLES]
    if not asked or len(words) < len(asked) or len(given) > len({name for name, _ in asked}):
        known = f"{{{' or '.join(_BY_ROLE)}: {{of: ROLE}}}}"
        raise ValueError(f"write {known}, where ROLE is {', '.join(_CPU_ROLES)}, or a list of them")
    return [*words]


def _responses(given: object) -> object:
    """Each response once, with roles as words."""
    if not isinstance(given, list):
        return given
    found: list[object] = []
    for word in (word for each in given for word in _role_words(each)):
        if word not in found:
            found.append(word)
    return found


def _one_response(given: object) -> object:
    words = _role_words(given)
    if len(words) != 1:
        raise ValueError("one source's figures are of one response; name one role")
    return words[0]


Response: TypeAlias = Literal[
    "iops",
    "latency",
    CpuResponse,
    "transactions",
    "cpu_per_transaction",
    "disk_iops",
    "longest_gap",
    "slow_ios",
    "recovery_time",
    "iops_after",
]
_ROLE_SCHEMA = {"enum": [*_CPU_ROLES]}
_BY_ROLE_SCHEMA = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        name: {
            "type": "object",
            "additionalProperties": False,
            "required": ["of"],
            "properties": {"of": {"anyOf": [_ROLE_SCHEMA, {"type": "array", "items": _ROLE_SCHEMA, "minItems": 1}]}},
        }
        for name in _BY_ROLE
    },
}
_WORDS_OF = TypeAdapter(Response).json_schema()
RESPONSE_WORDS: tuple[str, ...] = tuple(_WORDS_OF["enum"])
Responses: TypeAlias = Annotated[
    list[Response],
    BeforeValidator(_responses),
    Field(min_length=1),
    WithJsonSchema({"type": "array", "minItems": 1, "items": {"anyOf": [_WORDS_OF, _BY_ROLE_SCHEMA]}}),
]
"""What a study compares. `{cpu_per_io: {of: hypervisor}}` is `cpu_hypervisor`."""
PublishedResponse: TypeAlias = Annotated[
    Literal["iops", "bandwidth", "latency", "latency_p99", CpuResponse, "transactions", "disk_iops", "longest_gap"],
    BeforeValidator(_one_response),
]
Rule: TypeAlias = Literal[
    "errors",
    "data",
    "little",
    "steady",
    "wait",
    "foreign",
    "skew",
    "common",
    "generator",
    "unwritten",
    "achieved",
    "lateness",
    "balance",
    "media",
]
"""A check of a run, by its key in analysis and report."""
