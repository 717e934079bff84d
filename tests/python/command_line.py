"""The command line in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from iotax.cli.app import app


def ran(*words: object) -> Result:
    """The command line in this process, which need not load it anew."""
    return CliRunner().invoke(app, [str(word) for word in words])
