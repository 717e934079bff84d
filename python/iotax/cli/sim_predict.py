"""`iotax sim predict`: compares a cost table's predictions with measurements of the same treatments."""

from __future__ import annotations

from pathlib import Path

from iotax.calibration import Prediction, predict
from iotax.cli.console import console, say
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.measurements import costs_of, measured, simulating, tell
from iotax.cli.notebooks import open_notebook
from iotax.cli.predictions import document_of, sentences, table_of
from iotax.engine import find_engine


def predicted(path: Path | None, run: int | None, costs: str, document: Path | None) -> None:
    with open_notebook(path) as notebook:
        judged(document, notebook.path, Path(costs))
        table = costs_of(costs, "--costs")
        data, source = measured(notebook, run)
        with simulating():
            found = predict(data, source, table, find_engine(), tell)
        if document != STDOUT:
            _print(found, costs)
        if document is not None:
            told = {"costs": costs, "measured": source, "treatments": document_of(found.rows)}
            write_document(document, told | {"left_out": found.left_out}, notebook.path, Path(costs))


def _print(found: Prediction, costs: str) -> None:
    console().print(table_of(found.rows, costs))
    for line in sentences(found.rows):
        say(line)
    say("Treatments that the table was made from tell how it fits, not how it predicts.")
    for line in found.left_out:
        say(f"Left out: {line}.")
