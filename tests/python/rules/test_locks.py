"""The lock of a run and that of development."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def _locked(name: str) -> dict[str, str]:
    """Package → its version and hashes."""
    packages = re.split(r"^(?=\S)", (ROOT / name).read_text(), flags=re.MULTILINE)
    return dict(each.split("==", 1) for each in packages if each)


def test_runs_and_tests_use_the_same_packages() -> None:
    of_runs, of_all = _locked("requirements.lock"), _locked("requirements-dev.lock")
    assert of_runs.items() <= of_all.items()
    assert "pandas" in of_runs
    assert "pytest" not in of_runs
