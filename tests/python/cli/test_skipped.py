"""`make test` ends with what was skipped, and why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TESTS = """\
import pytest

def test_done():
    pass

@pytest.mark.parametrize("number", [1, 2])
def test_not_done(number):
    pytest.skip("no such program")
"""


def skipped(tmp_path: Path, tests: str) -> tuple[int, list[str]]:
    """The status of a run under scripts/skipped, and its last lines."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "skipped").symlink_to(ROOT / "scripts" / "skipped")
    (tmp_path / "test_some.py").write_text(tests)
    done = subprocess.run(
        [scripts / "skipped", sys.executable, "-m", "pytest", "-q", "-p", "conftest", "test_some.py"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests" / "python")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


def test_what_was_skipped_is_said_once_with_its_reason(tmp_path: Path) -> None:
    status, lines = skipped(tmp_path, TESTS)
    assert status == 0
    assert lines[-2:] == ["skipped, where and why:", "      2 test_some.py:8: no such program"]


def test_where_nothing_was_skipped_that_is_said_and_a_failure_stays_one(tmp_path: Path) -> None:
    status, lines = skipped(tmp_path, "def test_wrong():\n    assert False\n")
    assert status == 1
    assert lines[-1] == "skipped: nothing"
