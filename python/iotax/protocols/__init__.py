"""All facts about each protocol in one place: its name, endpoints, options, colour and labs. `table` lists them. A new
protocol needs a module here, a row in `table`, and support in the lab that serves it. This module loads quickly: shell
completion imports it at each press of Tab."""

from iotax.protocols.base import Protocol, Scheme, is_port, portal
from iotax.protocols.table import (
    access_options,
    colours,
    kernel_modules,
    knowing,
    known,
    names,
    of_family,
    schemes,
    titles,
    with_access,
    with_paths,
    without_transport,
)

__all__ = [
    "Protocol",
    "Scheme",
    "access_options",
    "colours",
    "is_port",
    "kernel_modules",
    "knowing",
    "known",
    "names",
    "of_family",
    "portal",
    "schemes",
    "titles",
    "with_access",
    "with_paths",
    "without_transport",
]
