"""Load generators: iotax's own engine, or another program. A new one is a module and a row here; `base` has the
interface, which is all that labs know."""

from iotax.labs.generators.base import Generator, Job
from iotax.labs.generators.command.generator import COMMAND
from iotax.labs.generators.fio.generator import FIO
from iotax.labs.generators.iotax import IOTAX
from iotax.labs.generators.pgbench import PGBENCH
from iotax.study import Settings

GENERATORS: dict[str, Generator] = {each.name: each for each in (IOTAX, FIO, PGBENCH, COMMAND)}
"""Generators by name, as in a study's `generator:`."""

__all__ = ["GENERATORS", "Generator", "Job", "generator_of"]


def generator_of(settings: Settings) -> Generator:
    return GENERATORS[settings.load.generator]
