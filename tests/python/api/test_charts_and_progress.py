"""Charts as Altair objects, and the progress that `iotax.run` shows in a notebook."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

import iotax as package
from faked import TINY, FakeEngine


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: FakeEngine) -> Path:
    del engine
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "quick.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(TINY) | {"name": "quick"}))
    return path


@pytest.mark.slow
def test_the_reports_charts_are_altair_objects(tmp_path: Path, study: Path) -> None:
    altair = pytest.importorskip("altair")
    results = package.run(study)
    charts = results.charts()
    from iotax.notebook import Notebook
    from iotax.report import write

    with Notebook(results.path) as notebook:
        write(notebook, tmp_path / "r.html", tmp_path / "charts")
    assert list(charts) and set(charts) == {path.stem for path in (tmp_path / "charts").glob("*.svg")}
    chart = charts["throughput-against-latency"]
    assert isinstance(chart, altair.LayerChart)
    assert chart.properties(width=700).to_dict()["width"] == 700
    # Valid by Altair's own schema; colours replace the page's variables.
    import vl_convert

    svg = vl_convert.vegalite_to_svg(chart.to_json())
    assert svg.startswith("<svg") and "Throughput (IOPS)" in svg and "var(" not in svg
    assert "Down and to the right is better" in chart.to_dict()["description"]


def test_without_altair_it_says_what_to_install(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = package.run(study)
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(ImportError, match=r"pip install 'iotax\[charts\]'"):
        results.charts()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that a notebook's output showed, in order."""
    texts: list[str] = []

    def update(data: dict[str, str], *, raw: bool) -> None:
        assert raw
        texts.append(data["text/plain"])

    def display(data: dict[str, str], *, display_id: bool, raw: bool) -> Any:
        assert display_id and raw and data
        return SimpleNamespace(update=update)

    ipython, displays = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # ty: ignore
    displays.display = display  # ty: ignore
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    return texts


def test_a_notebook_shows_one_line_that_moves_on(study: Path, shown: list[str], capsys: pytest.CaptureFixture) -> None:
    results = package.run(study)
    trials = len(results.runs())
    assert shown[0].startswith("░" * 24 + f" 0 of {trials} trials")
    assert any("s left · " in text for text in shown)
    assert shown[-1] == "█" * 24 + f" {trials} of {trials} trials"
    assert all("\n" not in text for text in shown)
    assert capsys.readouterr().err == ""


def test_what_went_wrong_stays_below_the_line(study: Path, shown: list[str], engine: FakeEngine) -> None:
    engine.faults(run_2="die")
    package.run(study)
    assert "failed (" in shown[-1].splitlines()[1]


def test_elsewhere_each_trial_is_a_line(study: Path, capsys: pytest.CaptureFixture) -> None:
    results = package.run(study)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(results.runs()) and all(line.endswith(": done") for line in lines)
