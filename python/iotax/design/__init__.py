"""Makes a study's trials, in the order in which they run."""

from iotax.design.plan import Plan, plan

__all__ = ["Plan", "plan"]
