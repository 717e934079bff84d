"""Faults of the vm lab, with what to do."""

from __future__ import annotations

from iotax.engine import EngineError


class VmFault(EngineError):  # noqa: N818 - an outcome, not a bug
    """`subject` is the part of the lab that it is about; `console` the last lines of the guest's console, if any."""

    def __init__(self, subject: str, message: str, console: str = "") -> None:
        super().__init__("lost", message, log=console)
        self.subject, self.console = subject, console

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}"

    @property
    def console_panicked(self) -> bool:
        """Whether the guest's kernel gave up, which it would do again."""
        return "Kernel panic" in self.console
