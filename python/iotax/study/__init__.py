"""What is to be found out: the study file, read and checked."""

from iotax.study.model import Level, Settings, Study
from iotax.study.omissions import Omissions

__all__ = ["Level", "Omissions", "Settings", "Study"]
