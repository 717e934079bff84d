"""The command line. Imports stand inside the commands, so that `iotax --help` answers at once."""

from iotax.cli.app import main

__all__ = ["main"]
