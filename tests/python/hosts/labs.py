"""Labs on hosts in network namespaces. Needs AsyncSSH: import this module only where AsyncSSH is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iotax.design import plan as make_plan
from iotax.labs.hosts.lab import HostsLab
from iotax.study import Study

from .namespaces import Network


@contextlib.contextmanager
def opened_labs(network: Network, engine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., HostsLab]]:
    """Opens a lab on these hosts for each study, with the endpoints it may destroy. Closes all labs at the end."""
    monkeypatch.setenv("HOME", str(network.folder / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    labs: list[HostsLab] = []

    def make(study: Study, destroy: frozenset[str] = frozenset()) -> HostsLab:
        labs.append(HostsLab(study, make_plan(study), engine, destroy))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()
