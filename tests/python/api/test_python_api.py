"""`import iotax`, as the guide shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

import iotax as package
from faked import TINY, FakeEngine
from iotax.analysis import RESPONSES
from iotax.api import COLUMNS
from iotax.notebook import NotebookError

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "python.md"


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: FakeEngine) -> Path:
    """out/quick.iotax with two runs, of nfs3 and iscsi."""
    del engine
    monkeypatch.chdir(tmp_path)
    study = yaml.safe_load(TINY) | {"name": "quick", "factors": {"protocol": ["iscsi", "nfs3"]}}
    Path("quick.yaml").write_text(yaml.safe_dump(study))
    for _ in range(2):
        package.run(tmp_path / "quick.yaml", again=True)
    return tmp_path / "out" / "quick.iotax"


@pytest.mark.slow
def test_the_examples_of_the_guide_run(measured: Path) -> None:
    """Runs all examples, including charts, which need the extras."""
    pytest.importorskip("altair")
    del measured
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(examples) >= 4
    known: dict[str, object] = {}
    for example in examples:
        exec(compile(example, str(GUIDE), "exec"), known)


def test_frames_have_what_their_names_say(measured: Path) -> None:
    results = package.open(measured)
    cells, runs = results.cells(), results.runs()
    assert list(cells["protocol"]) == ["iscsi", "nfs3"]
    assert len(runs) == 4
    own = runs[runs["protocol"] == "iscsi"]["rate_iops"]
    assert cells["rate_iops"][0] == pytest.approx((own.prod()) ** (1 / len(own)))
    assert (cells["rate_iops_low"] <= cells["rate_iops"]).all() and (
        cells["rate_iops"] <= cells["rate_iops_high"]
    ).all()
    ratios = results.compare().set_index("response")
    assert ratios.loc["rate_iops", "ratio"] == pytest.approx(cells["rate_iops"][1] / cells["rate_iops"][0])
    turned = results.compare(baseline={"protocol": "nfs3"}).set_index("response")
    assert turned.loc["rate_iops", "ratio"] == pytest.approx(1 / ratios.loc["rate_iops", "ratio"])
    sizes = results.size(70_000)
    assert isinstance(sizes, pd.DataFrame)
    assert (sizes["cores_low"] <= sizes["cores_high"]).all()


def test_what_is_not_there_is_said(tmp_path: Path, measured: Path) -> None:
    with pytest.raises(NotebookError, match="there is no notebook here"):
        package.open(tmp_path / "none.iotax")
    with pytest.raises(ValueError, match="no such level; the study has"):
        package.open(measured).compare(baseline={"protocol": "smb"})


def test_running_again_takes_up_what_is_left(measured: Path) -> None:
    again = package.run("quick.yaml", measured)
    assert again.run == 2
    assert again.report() == measured.with_name("quick-run2.html")
    assert package.open(measured, run=1).report() == measured.with_suffix(".html")


def test_every_response_has_a_column_with_its_unit() -> None:
    assert list(COLUMNS) == [each.key for each in RESPONSES]
    units = {"IOPS": "rate_iops", "MiB/s": "_mib_per_s", "%": "_percent", "µs": "_us", "transactions/s": "_per_s"}
    for each in RESPONSES:
        assert units.get(each.unit, each.unit) in COLUMNS[each.key]


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, iotax; print([m for m in ('pandas', 'pydantic', 'scipy', 'iotax.study') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
