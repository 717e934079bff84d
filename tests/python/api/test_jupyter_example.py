"""The notebook under examples/ runs, and its page in docs/results shows its content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faked import FakeEngine

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
CELLS = [
    (cell["cell_type"], "".join(cell["source"]))
    for cell in json.loads((ROOT / "examples" / "jupyter.ipynb").read_text())["cells"]
]


def test_its_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: FakeEngine) -> None:
    pytest.importorskip("altair")
    del engine
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    for kind, source in CELLS:
        if kind == "code":
            exec(compile(source, "examples/jupyter.ipynb", "exec"), known)
    assert (tmp_path / "out" / "small.iotax").is_file()


def test_its_page_shows_every_cell_and_its_pictures() -> None:
    page = ROOT / "docs" / "results" / "jupyter.md"
    text = page.read_text()
    assert len(CELLS) > 8
    for kind, source in CELLS:
        assert (f"```python\n{source}\n```" if kind == "code" else source) in text
    pictures = sorted(path.name for path in (ROOT / "docs" / "images").glob("jupyter_*"))
    assert len(pictures) == 2
    assert all(f"(../images/{name})" in text for name in pictures)


def test_the_notebook_itself_holds_no_output() -> None:
    whole = json.loads((ROOT / "examples" / "jupyter.ipynb").read_text())
    assert all(not cell.get("outputs") for cell in whole["cells"])
