"""Writes the study for `iotax vs` from fio's option names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml

from iotax.study.endpoint import EMBEDDED, Endpoint, parse_endpoint
from iotax.study.hosts import LOCALHOST
from iotax.study.model import NAME
from iotax.study.source import without_logins
from iotax.units import format_duration, format_percent, format_size

RW = {
    "read": (100, 0),
    "write": (0, 0),
    "randread": (100, 100),
    "randwrite": (0, 100),
    "rw": (None, 0),
    "readwrite": (None, 0),
    "randrw": (None, 100),
}
"""fio's word → percent of reads (None: given by `rwmixread`) and of random places."""
_NAMED = re.compile(r"(?P<label>[A-Za-z0-9][A-Za-z0-9._-]{0,39})=(?P<target>.+)")
_NAME_MAX = 64


class VersusError(ValueError):
    """The arguments make no comparison; the message says what to write."""


@dataclass(frozen=True)
class Asked:
    """The load, with fio's option names."""

    rw: str
    rwmixread: float
    bs_bytes: int
    iodepth: int
    numjobs: int
    size_bytes: int
    rate_iops: int = 0
    """Rate of all jobs together, in an open loop; 0: as fast as the endpoints answer."""

    @property
    def read_percent(self) -> float:
        read, _ = RW[self.rw]
        return self.rwmixread if read is None else read

    @property
    def words(self) -> str:
        """The load as in a fio job file: `rw=randrw, rwmixread=75, bs=4KiB, …`."""
        mixed = RW[self.rw][0] is None
        found = {
            "rw": self.rw,
            **({"rwmixread": f"{self.rwmixread:g}"} if mixed else {}),
            "bs": format_size(self.bs_bytes),
            "iodepth": self.iodepth,
            "numjobs": self.numjobs,
            "size": format_size(self.size_bytes),
            **({"iops": self.rate_iops} if self.rate_iops else {}),
        }
        return ", ".join(f"{name}={value}" for name, value in found.items())


def targets_of(words: Sequence[str]) -> dict[str, str]:
    """Label → endpoint or embedded protocol, of `[LABEL=]ENDPOINT` words. Raises VersusError."""
    if len(words) < 2:
        raise VersusError("a comparison needs two endpoints or more; beside one, `local` is a volume of this machine")
    given = [(found["label"], found["target"]) if (found := _NAMED.fullmatch(word)) else ("", word) for word in words]
    targets: dict[str, str] = {}
    for word, (label, target) in zip(words, given, strict=True):
        try:
            endpoint = parse_endpoint(target)
        except ValueError as error:
            raise VersusError(f"{without_logins(word)}: {error}") from None
        if endpoint.embedded and endpoint.protocol not in EMBEDDED:
            raise VersusError(f"{word} needs the kernels of the vm lab: `iotax init --from kernel-quick` is a start")
        named = label or _free(_short(target, endpoint), targets)
        if named in targets:
            raise VersusError(f"{named} names two endpoints; give each a label of its own: LABEL=ENDPOINT")
        if target in targets.values():
            raise VersusError(f"{target} is named twice; `iotax aa` compares a treatment with itself")
        targets[named] = target
    return targets


def _short(target: str, endpoint: Endpoint) -> str:
    """The name in tables: the protocol of an embedded one or of a URI, or a path's file name."""
    if endpoint.embedded or endpoint.protocol != "local":
        return endpoint.protocol
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", target.rstrip("/").rpartition("/")[2]).strip("-.")
    return name[:40] or "file"


def _free(label: str, taken: Mapping[str, str]) -> str:
    """`iscsi`, `iscsi 2`, …"""
    numbered = (label if number == 1 else f"{label} {number}" for number in range(1, len(taken) + 2))
    return next(each for each in numbered if each not in taken)


def hosts_of(targets: Mapping[str, str]) -> dict[str, str]:
    """Label → endpoint, for a title."""
    return {
        label: label if label == target else f"{label} ({urlsplit(target).netloc or target})"
        for label, target in targets.items()
    }


def name_of(targets: Mapping[str, str], asked: Asked) -> str:
    """A title that names the arms and the load, within the length of a study's question."""
    rate = f"-{asked.rate_iops}iops" if asked.rate_iops else ""
    load = f"{asked.rw}-{format_size(asked.bs_bytes)}-{asked.iodepth}x{asked.numjobs}{rate}"
    arms = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(targets))
    name = f"vs-{arms[: _NAME_MAX - len(load) - 4]}-{load}"
    assert re.fullmatch(NAME, name), name
    return name


_HOST = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<name>[^@:\s]+)(?::(?P<port>[0-9]{1,5}))?")


def initiators_of(text: str | None, targets: Mapping[str, str]) -> list[str | dict[str, Any]]:
    """The initiators of `[USER@]HOST[:PORT],…` in a study's form; none if this machine makes the load. Raises
    VersusError."""
    endpoints = [parse_endpoint(target) for target in targets.values()]
    if not text:
        # The lab on this machine makes no kernel paths and finds no disk by its serial number.
        return [LOCALHOST] if any(endpoint.kernel or endpoint.guest_disk for endpoint in endpoints) else []
    if served := next((endpoint.protocol for endpoint in endpoints if endpoint.embedded), ""):
        raise VersusError(
            f"{served} is served by this machine; hosts need an endpoint they can reach, such as "
            f"{'nfs://NAS/EXPORT/FILE' if served == 'nfs3' else f'kernel:{served}://ADDRESS/…'}"
        )
    found: list[str | dict[str, Any]] = []
    for word in text.split(","):
        if (host := _HOST.fullmatch(word.strip())) is None:
            raise VersusError(f"--hosts {word.strip()!r} is not a host: write [USER@]HOST[:PORT], with commas between")
        given = {name: value for name, value in host.groupdict().items() if value is not None}
        found.append(given["name"] if len(given) == 1 else {**given, **_port(given)})
    return found


def _port(given: Mapping[str, str]) -> dict[str, int]:
    return {"port": int(given["port"])} if "port" in given else {}


def study_text(
    targets: Mapping[str, str],
    asked: Asked,
    *,
    command: str,
    sessions: int,
    rounds: int,
    slice_ns: int,
    settle_ns: int,
    initiators: Sequence[str | Mapping[str, Any]] = (),
) -> str:
    """The YAML of the study. The first endpoint is the baseline. `initiators` are hosts that run the load in place of
    this machine. A load that only reads does not fill endpoints that are not iotax's own, so nothing is verified."""
    endpoints = [parse_endpoint(target) for target in targets.values()]
    ours = all(endpoint.embedded for endpoint in endpoints)
    fills = ours or asked.read_percent < 100
    document: dict[str, Any] = {
        "name": name_of(targets, asked),
        "question": f"How do {_listed(list(hosts_of(targets).values()))} compare at {asked.words}?",
        **({"lab": {"hosts": {"initiators": list(initiators)}}} if initiators else {}),
        "volume": {"size": format_size(asked.size_bytes), "fill": "pattern" if fills else "zeros"},
        "factors": {"protocol": list(targets) if list(targets) == list(targets.values()) else dict(targets)},
        "load": {
            "block_size": format_size(asked.bs_bytes),
            "read": format_percent(asked.read_percent),
            "random": format_percent(RW[asked.rw][1]),
            "outstanding": asked.iodepth,
            "workers": asked.numjobs,
            **({"rate_iops": asked.rate_iops, "arrivals": "poisson"} if asked.rate_iops else {}),
            "verify": fills,
        },
        "design": {
            "sessions": sessions,
            "rounds": rounds,
            "slice": format_duration(slice_ns),
            "settle": format_duration(settle_ns),
            "seed": 42,
        },
        "baseline": {"protocol": next(iter(targets))},
    }
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return f"# {command}\n# Change it and run it again: iotax run FILE\n{text}"


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}"
