"""What makes load: iotax's own engine, or another program. A new one is a module and a row.

`base` says what a generator must do; the lab knows no more of it.
"""

from iotax.labs.generators.base import Generator, Job
from iotax.labs.generators.fio.generator import FIO
from iotax.labs.generators.iotax import IOTAX
from iotax.labs.generators.pgbench import PGBENCH

GENERATORS: dict[str, Generator] = {each.name: each for each in (IOTAX, FIO, PGBENCH)}
"""By name, as a study's `generator:` has it."""

__all__ = ["GENERATORS", "Generator", "Job"]
