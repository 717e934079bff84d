"""What stands in the way of the vm lab, in words that say what to do."""

from __future__ import annotations


class VmFault(Exception):  # noqa: N818 - an outcome, not a bug
    """`subject` is the part of the lab that it is about; `console` the last lines of the guest's console, if any."""

    def __init__(self, subject: str, message: str, console: str = "") -> None:
        self.subject, self.message, self.console = subject, message, console
        super().__init__(f"{subject}: {message}")

    @property
    def console_panicked(self) -> bool:
        """Whether the guest's kernel gave up, which it would do again."""
        return "Kernel panic" in self.console
