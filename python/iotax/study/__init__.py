"""What is to be found out: the study file, read and checked."""

from iotax.study.model import Level, Settings, Study

__all__ = ["Level", "Settings", "Study"]
