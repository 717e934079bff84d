"""Study files, read and checked."""

from iotax.study.model import Level, Settings, Study
from iotax.study.varied import Omissions

__all__ = ["Level", "Omissions", "Settings", "Study"]
