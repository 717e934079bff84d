"""Chooses the lab for a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from iotax.design import Plan
from iotax.engine import EngineError, find_engine, find_host_engine
from iotax.labs.base import Lab
from iotax.labs.loopback import LoopbackLab
from iotax.study import Study
from iotax.version import how_to_install


def open_lab(study: Study, plan: Plan, destroy: Sequence[str]) -> Lab:
    """The lab that the study names, with permission to overwrite the endpoints in `destroy`. Raises EngineError if
    there is no engine, and ValueError if `destroy` contains something other than the study's endpoints."""
    known = {endpoint.uri for endpoint in study.endpoints().values() if not endpoint.embedded}
    if study.volume.path is not None:
        known.add(f"local:{Path(study.volume.path).absolute()}")
    given = {
        each if "://" in each or each.startswith("local:") else f"local:{Path(each).absolute()}" for each in destroy
    }
    if strange := sorted(given - known):
        named = ", ".join(sorted(known)) or "none: all its protocols are embedded"
        raise ValueError(f"{strange[0]}: the study has no such endpoint; its endpoints are {named}")
    if study.lab.vm is not None:
        # Heavy, and used by few.
        from iotax.labs.vm.lab import VmLab  # noqa: PLC0415

        return VmLab(study, plan, find_engine())
    if study.lab.sim is not None:
        from iotax.labs.sim.lab import SimLab  # noqa: PLC0415

        return SimLab(study, find_engine())
    if study.lab.hosts is not None:
        try:
            from iotax.labs.hosts.lab import HostsLab  # noqa: PLC0415

            return HostsLab(study, plan, find_host_engine(), frozenset(given))
        except ModuleNotFoundError as error:
            extra = "hosts" if study.lab.hosts.cluster == "ssh" else "cluster"
            raise EngineError("missing", f"this study needs {error.name}: {how_to_install(extra)}") from error
    return LoopbackLab(study, plan, find_engine(), frozenset(given))
