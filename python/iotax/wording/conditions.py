"""The condition under which a comparison holds, as part of a sentence; labels of tables and charts stay short."""

import re

from iotax.units import counted
from iotax.wording.figures import listed
from iotax.wording.names import title

_COUNTED = {"outstanding": "outstanding I/O", "workers": "worker", "threads": "thread", "clients": "client"}
_KINDS = {"block size": "blocks", "read": "reads", "random": "random I/O"}
_UNIT = re.compile(r"(?<=\d)(?=[KMGT]iB$|%$)")


def under(condition: str | None) -> str:
    """ "with 8 outstanding I/Os and 4 KiB blocks" for "outstanding 8 · block size 4KiB"; empty if there is none."""
    return f"with {listed([_said(part) for part in condition.split(' · ')])}" if condition else ""


def brief_condition(condition: str) -> str:
    """ "NVMe/TCP, 8KiB" for "protocol nvme-tcp · block size 8KiB": without names of factors that levels make clear."""
    return ", ".join(_briefly(part) for part in condition.split(" · "))


def _briefly(part: str) -> str:
    name, _, level = part.rpartition(" ")
    return title(level) if name in ("protocol", "block size") else part


def _said(part: str) -> str:
    """A factor and its level."""
    name, _, level = part.rpartition(" ")
    if name in _COUNTED and level.isdecimal():
        return counted(int(level), _COUNTED[name])
    if name in _KINDS:
        return f"{_UNIT.sub(' ', level)} {_KINDS[name]}"
    if name == "protocol":
        return title(level)
    if name == "rate iops" and level.isdecimal():
        return f"{int(level):,} IOPS offered"
    return part
