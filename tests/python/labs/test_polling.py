"""Polling is a factor: the engine gets it for initiator and target, and each trial records it."""

from __future__ import annotations

from pathlib import Path

from faked import FakeEngine
from iotax.cli.run import run
from iotax.collected import study_data
from iotax.notebook import Notebook
from iotax.serving.offer import Offer

STUDY = """\
name: polling
question: What does polling cost?
volume: {size: 1MiB}
factors: {polling: [never, auto, always]}
connection: {protocol: iscsi}
load: {warmup: 0s, runtime: 10ms}
design: {replicates: 2}
baseline: {polling: never}
"""


def test_server_and_load_wait_as_the_treatment_says(engine: FakeEngine, tmp_path: Path) -> None:
    text, notebook = tmp_path / "polling.yaml", tmp_path / "polling.iotax"
    text.write_text(STUDY)
    run(str(text), notebook, report=False)
    loads = sorted(each["polling"] for each in engine.documents("load") if each["task"] == "run")
    assert loads == ["always", "always", "auto", "auto", "never", "never"]
    # The server that `check` starts sleeps.
    served = [each["polling"] for each in engine.documents("serve") if "exports" in each]
    assert set(served[1:]) == {"never", "auto", "always"}
    with Notebook(notebook) as opened:
        for each in study_data(opened).runs:
            assert each.result.facts.polling == each.trial.treatment["polling"]


def test_a_served_volume_polls_while_it_pays_unless_told_otherwise() -> None:
    assert Offer().document()["polling"] == "auto"
    assert Offer(polling="never").document()["polling"] == "never"
