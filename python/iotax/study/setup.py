"""A level of `protocol` that is more than a word: an endpoint or protocol with settings of its own."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Discriminator, Field, Tag, create_model

from iotax.study.connection import CREDENTIALS, Connection
from iotax.study.fields import Grown, Section
from iotax.study.sim import Sim
from iotax.study.topology import Topology

_SIMULATED = ("costs", "luns", "adapter_depth", "paths_to")
"""What a label may have of the simulated machines: who initiates, with which queues, and over whose paths."""
OWN = (
    {name: Topology.model_fields[name] for name in Topology.model_fields}
    | {name: Connection.model_fields[name] for name in CREDENTIALS}
    | {name: Sim.model_fields[name] for name in _SIMULATED}
)
_TIMEOUTS = ("keep_alive", "replacement_timeout", "reconnect_delay", "timeo")
_LATER = ("target", "kernel", "target_kernel", "encryption", *_TIMEOUTS, *_SIMULATED)


class _Setup(Grown):
    later = _LATER


def _setup_model() -> type[Section]:
    fields: dict[str, Any] = {"protocol": (str, Field(description="The protocol, or an endpoint."))}
    for name, field in OWN.items():
        kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation  # ty: ignore[invalid-type-form]
        fields[name] = (kind | None, None)
    return create_model(
        "Setup",
        __base__=_Setup,
        __doc__="A protocol with a topology, credentials or simulated machines of its own.",
        **fields,
    )


Setup = _setup_model()


def setup_changes(setup: Any) -> dict[str, Any]:
    """The fields of topology, connection and simulated machines that a setup names."""
    return {name: value for name in OWN if (value := getattr(setup, name)) is not None}


ProtocolLevel: TypeAlias = Annotated[
    # The brackets mark the branch as no name of the file's own (iotax.study.read).
    Annotated[str, Tag("str")] | Annotated[Setup, Tag("setup[]")],  # ty: ignore[invalid-type-form]
    Discriminator(lambda level: "str" if isinstance(level, str) else "setup[]"),
]
"""A label's meaning: an endpoint or protocol, or either with settings of its own."""
