"""The command line. Commands import what they need when they run, so that `iotax --help` answers at once."""

from iotax.cli.app import main

__all__ = ["main"]
