"""Modelled media in the loopback lab: each level has its own model, and each trial records what the media did."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotax.cli.run import run
from iotax.collected import study_data
from iotax.engine import EngineError
from iotax.labs.server import Server, serve_document
from iotax.notebook import Notebook
from iotax.study.model import Volume
from iotax.trial import TrialResult

STUDY = """\
name: modelled
question: What do disks leave of the differences?
volume: {{size: 1MiB, media: model, servers: 2}}
factors: {{protocol: [iscsi, nvme-tcp], service: [200us, 500us]}}
load: {{read: 50%, outstanding: 4, {windows}}}
design: {design}
baseline: {{protocol: iscsi}}
"""


def measured(folder: Path, design: str, windows: str = "") -> list[tuple[int, TrialResult]]:
    """Service time in ns, and result, of each trial."""
    text, notebook = folder / "modelled.yaml", folder / "modelled.iotax"
    text.write_text(STUDY.format(design=design, windows=windows))
    run(str(text), notebook, report=False)
    with Notebook(notebook) as opened:
        runs = study_data(opened).runs
    assert all(each.result.verify is not None and not each.result.verify.wrong_blocks for each in runs)
    return [(int(each.trial.treatment["service"]), each.result) for each in runs]


@pytest.mark.machine
@pytest.mark.usefixtures("real_engine")
def test_each_trial_keeps_what_its_media_did(tmp_path: Path) -> None:
    found = measured(tmp_path, "{replicates: 1}", "warmup: 20ms, runtime: 400ms")
    assert len(found) == 4
    for service_ns, result in found:
        media = result.media
        assert media is not None
        assert media.busy_ns == service_ns * media.operations
        assert media.operations >= media.told >= result.ios > 0


@pytest.mark.machine
@pytest.mark.usefixtures("real_engine")
def test_what_media_did_is_that_of_the_warm_up_too_as_the_check_says(tmp_path: Path) -> None:
    for _, result in measured(tmp_path, "{replicates: 1}", "warmup: 400ms, runtime: 100ms"):
        assert result.media is not None
        # Media also serve the warm-up: about five times the I/Os of the window. Twice allows for pauses of a busy
        # machine.
        assert result.media.told > 2 * result.ios


@pytest.mark.machine
@pytest.mark.usefixtures("real_engine")
@pytest.mark.slow
def test_in_rounds_each_level_has_media_of_its_own(tmp_path: Path) -> None:
    found = measured(tmp_path, "{sessions: 2, rounds: 2, slice: 200ms, settle: 5ms}")
    assert len(found) == 8
    for service_ns, result in found:
        assert result.media is not None
        assert result.media.busy_ns == service_ns * result.media.operations
        assert result.media.operations >= result.ios > 0


def test_the_engine_refuses_a_model_of_other_media_than_memory(real_engine: Path) -> None:
    volume = Volume(size=1 << 20, media="model", service=1_000_000)
    document = serve_document(volume, driver="auto", threads=1, cpus=[])
    document["volumes"][0] |= {"media": "null", "fill": "zeros"}
    with pytest.raises(EngineError, match="only a memory volume can have a model"):
        Server(real_engine, volume, document)
    document = serve_document(volume, driver="auto", threads=1, cpus=[])
    document["volumes"][0]["model"]["servers"] = 0
    with pytest.raises(EngineError, match="must be 1 to 65,536"):
        Server(real_engine, volume, document)
