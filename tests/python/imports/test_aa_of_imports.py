"""`iotax aa` of imported results: what their replicates show, and why other parts are missing."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest
from import_samples import fio_campaign

PATTERN = ("--name-pattern", "{protocol}-{bs}-r{replicate}.json")


def test_the_noise_floor_is_that_of_the_replicates(tmp_path: Path, iotax) -> None:
    iotax("import", "fio", fio_campaign(tmp_path / "c"), *PATTERN, "-n", "c.iotax")
    said = json.loads(iotax("aa", "c.iotax", "--json").stdout)
    assert (said["replicates"], said["runs"]) == (3, 6)
    iops = next(each for each in said["responses"] if each["response"] == "iops")
    # Both protocols have 1,000, 1,010 and 1,020 I/Os per second, or twice as many.
    scatter = statistics.variance([math.log(ios) for ios in (1000, 1010, 1020)])
    assert iops["noise_floor"] == pytest.approx(math.sqrt(math.expm1(scatter)), rel=1e-3)
    assert iops["ratio"] is None and iops["verdict"] is None
    shown = iotax("aa", "c.iotax").output
    assert "scatter of 6 imported runs about their treatment" in shown
    assert "A was not compared with B: the files hold no treatment under two names" in shown
    assert "1.0 %" in shown


def test_one_replicate_tells_no_noise(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    for path in (*folder.glob("*-r2.json"), *folder.glob("*-r3.json")):
        path.unlink()
    iotax("import", "fio", folder, *PATTERN, "-n", "c.iotax")
    said = iotax("aa", "c.iotax", code=1).output
    assert "measure again, and import two or more replicates of each treatment" in said


@pytest.mark.parametrize("words", [("--protocol", "nfs"), ("--replicates", "3"), ("other.iotax",)])
def test_what_would_need_new_runs_is_refused(tmp_path: Path, iotax, words: tuple[str, ...]) -> None:
    iotax("import", "fio", fio_campaign(tmp_path / "c"), *PATTERN, "-n", "c.iotax")
    before = (tmp_path / "c.iotax").read_bytes()
    said = iotax("aa", "c.iotax", *words, code=2).output
    assert "c.iotax holds imported runs, and none is run for aa: leave" in said
    assert (tmp_path / "c.iotax").read_bytes() == before and not (tmp_path / "other.iotax").exists()
