"""An engine whose starter is gone before the first line."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path


def test_engine_that_is_given_no_document_ends_by_itself(real_engine: Path) -> None:
    with contextlib.ExitStack() as opened:
        started = [
            opened.enter_context(
                subprocess.Popen([real_engine, task], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for task in ("serve", "load", "session", "simulate")
        ]
        for process in started:
            assert process.stdout is not None
            [line] = process.stdout.read().splitlines()  # its input stays open: it cannot end for want of that
            assert process.wait(timeout=60) == 1
            error = json.loads(line)
            assert (error["event"], error["kind"], error["where"]) == ("error", "lost", "standard input")


def test_engine_whose_input_ends_at_once_says_what_it_wants(real_engine: Path) -> None:
    ended = subprocess.run([real_engine, "load"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no document" in json.loads(ended.stdout)["message"]
