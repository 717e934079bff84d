"""The command line, run in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from iotax.cli.app import app


def ran(*words: object) -> Result:
    """Runs the command line in this process, which avoids loading it again."""
    return CliRunner().invoke(app, [str(word) for word in words])
