"""Damaged or malicious study files: each gives a study or an error, within limits."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import mutations
from iotax.design import plan
from iotax.study.read import builtin_studies, read_study
from iotax.study.sim import CostsError, read_costs
from iotax.study.source import StudyError

ROOT = Path(__file__).resolve().parents[3]
TRIES, TRIES_LONG = 4, 400
"""Tries per study."""


def survive(tries: int) -> int:
    """How many damaged files were still studies."""
    examples = {path.name: path.read_text() for path in sorted((ROOT / "examples").glob("*.yaml"))}
    whole = 0
    for name, text in (builtin_studies() | examples).items():
        rng = Random(name)
        for _ in range(tries):
            damaged = mutations.text(rng, text)
            try:
                plan(read_study(name, damaged, ROOT / "examples"))
                whole += 1
            except StudyError as error:
                error.lines()
            except BaseException as error:
                raise AssertionError(f"{type(error).__name__} of\n{damaged[:4000]}") from error
    return whole


def test_a_damaged_study_is_a_study_or_a_reason() -> None:
    assert survive(TRIES) > 10


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_damaged_studies_are_studies_or_reasons() -> None:
    assert survive(TRIES_LONG) > 1000


ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ALIASES, "more than 100,000 values, with aliases"),
        ("a: &a [*a]\n", "not valid YAML|nested too deeply"),
        ("a: " + "[" * 1500, "nested too deeply|not valid YAML"),
        ("name: " + "x" * (1 << 21), "larger than 1 Mi letters"),
    ],
)
def test_a_file_that_grows_without_end_is_refused(text: str, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        read_study("s.yaml", text, Path())


@pytest.mark.parametrize(
    "number",
    ["9" * 5000, "-" + "9" * 5000, "1e999", "-1e999", "99999999999999999999", "9" * 400 + ".5", "1" * 30 + "KiB",
     "9999999999999GiB", "9999999999999999h", "9" * 5000 + "%", ".inf", "1e18"],
)  # fmt: skip
@pytest.mark.parametrize("field", ["block_size", "outstanding", "runtime", "rate_iops", "read"])
def test_a_number_that_nothing_counts_is_named(field: str, number: str) -> None:
    study = "name: a\nquestion: b\nfactors: {protocol: [nfs3, iscsi]}\nbaseline: {protocol: nfs3}\n"
    text = f"{study}load: {{{field}: {number}}}\n"
    with pytest.raises(StudyError, match=rf"s\.yaml:5:\d+: load\.{field}|s\.yaml:5:\d+:"):
        read_study("s.yaml", text, Path())


def test_a_table_of_costs_has_the_same_limits(tmp_path: Path) -> None:
    for text in (ALIASES, "about: 1e999\n", "[]", "x: " + "9" * 5000):
        (tmp_path / "costs.yaml").write_text(text)
        with pytest.raises(CostsError):
            read_costs(str(tmp_path / "costs.yaml"))
