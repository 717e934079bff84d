"""Study files, read and checked."""

from iotax.study.model import Level, Settings, Study
from iotax.study.omissions import Omissions

__all__ = ["Level", "Omissions", "Settings", "Study"]
