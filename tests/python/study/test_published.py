"""Published figures in a study file: what is read, refused and kept."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from iotax.design import plan
from iotax.design.treatments import treatments
from iotax.study import Study
from iotax.study.read import builtin_studies, read_study
from iotax.study.schema import study_schema
from iotax.study.source import StudyError

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "studies.md"

STUDY = """\
name: published
question: Does it agree with what was published?
factors:
  protocol: [nfs3, iscsi]
  block_size: [4KiB, 8KiB]
baseline: {protocol: iscsi}
published:
  - source: Somebody, 2014
    response: cpu_per_io
    figures:
      - {of: {protocol: nfs3}, relative: 196, absolute: 81}
      - {of: {protocol: nfs3, block_size: 8k}, relative: [190, 210]}
      - {of: {protocol: iscsi}, absolute: 41, called: Fibre Channel}
"""


def said(text: str) -> list[str]:
    with pytest.raises(StudyError) as caught:
        read_study("s.yaml", text, Path("/studies"))
    return caught.value.lines()


def test_published_figures_are_read_and_kept_as_they_were_written() -> None:
    study = read_study("s.yaml", STUDY, Path("/studies"))
    [published] = study.published
    assert published.source == "Somebody, 2014"
    assert [(each.relative, each.absolute) for each in published.figures] == [
        ((196, 196), (81, 81)),
        ((190, 210), None),
        (None, (41, 41)),
    ]
    kept = study.model_dump_json(exclude_defaults=True)
    assert json.loads(kept)["published"][0]["figures"][1]["relative"] == [190, 210]
    assert Study.model_validate_json(kept) == study


def test_published_figures_fit_the_schema() -> None:
    schema = jsonschema.Draft202012Validator(study_schema())
    schema.validate(yaml.safe_load(STUDY))
    with pytest.raises(jsonschema.ValidationError):
        schema.validate(yaml.safe_load(STUDY.replace("196", "[1, 2, 3]")))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("{protocol: nfs3}, rel", "{protocol: fcp}, rel", "s.yaml:11:15: published[1].figures[1].of.protocol: fcp is "
         "not a level of protocol; its levels are nfs3, iscsi"),
        ("block_size: 8k", "outstanding: 8", "s.yaml:12:31: published[1].figures[2].of.outstanding: not a factor of "
         "this study; its factors are protocol, block_size"),
        (", absolute: 41", "", "s.yaml:13:9: published[1].figures[3]: says nothing: give `relative:` (the baseline "
         "is 100), `absolute:`, or both"),
        ("absolute: 41", "relative: 41", "s.yaml:13:33: published[1].figures[3].relative: this treatment is the "
         "baseline itself, which is 100"),
        ("{protocol: nfs3}, rel", "{block_size: 4k}, rel", "s.yaml:11:10: published[1].figures[1].of: a relative "
         "figure needs a level of protocol, of which the baseline names one"),
        ("[190, 210]", "[210, 190]", "s.yaml:12:48: published[1].figures[2].relative: found a list: figures are above "
         "0, and a range begins with its lower end"),
        ("196", "twice", "s.yaml:11:32: published[1].figures[1].relative: found 'twice': give a number, or two as "
         "[low, high]"),
        ("cpu_per_io", "cpu", "s.yaml:9:5: published[1].response: found 'cpu'; one of iops, bandwidth, latency, "
         "latency_p99, cpu_per_io, cpu_initiator, cpu_target, cpu_hypervisor, cpu_machine, "
         "cpu_utilisation_initiator, cpu_utilisation_target, cpu_utilisation_hypervisor, cpu_utilisation_machine, "
         "transactions, disk_iops, longest_gap is expected"),
        ("cpu_per_io", "transactions", "s.yaml:9:5: published[1].response: only databases have it; say "
         "`oltp: {}` under load, or in the vm lab `generator: pgbench`"),
        ("called", "caled", "s.yaml:13:47: published[1].figures[3].caled: unknown name, did you mean 'called'?; "
         "figures has of, relative, absolute, cores, called"),
        ("    response", "    baseline: {protocol: local}\n    response", "s.yaml:9:16: "
         "published[1].baseline.protocol: local is not a level of protocol; its levels are nfs3, iscsi"),
    ],
)  # fmt: skip
def test_a_figure_that_fits_no_treatment_is_explained(before: str, after: str, expected: str) -> None:
    assert before in STUDY
    assert expected in said(STUDY.replace(before, after))


def test_the_shipped_cost_studies_carry_what_was_published() -> None:
    for name in ("cpu-cost", "cpu-cost-full"):
        study = read_study(name, builtin_studies()[name], Path.cwd())
        [published] = study.published
        assert {each.absolute for each in published.figures} == {(81, 81), (41, 41)}


def test_the_guide_lists_every_built_in_study() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", GUIDE.read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row) if name != "-full"}
    listed |= {f"{re.findall(r'`([a-z0-9-]+)`', row)[0]}-full" for row in rows if row.endswith("`-full`")}
    assert listed == set(builtin_studies())


def test_published_figures_stand_at_the_load_that_their_source_had() -> None:
    for name in ("patterns", "patterns-full"):
        study = read_study(name, builtin_studies()[name], Path.cwd())
        figures = study.published[0].figures
        assert {(each.of["workers"], each.of["outstanding"]) for each in figures} == {(8, 4)}


def test_utilisation_and_guest_cpu_of_a_source_are_not_set_beside_cpu_per_io() -> None:
    """Relative utilisation is compared only with its like. A guest's CPU without its initiator is not compared."""
    expected = {"tr-3808": {"iops", "latency", "cpu_utilisation_initiator"}, "ip-vs-fc": {"iops"}}
    for name, responses in expected.items():
        study = read_study(name, builtin_studies()[name], Path.cwd())
        assert {each.response for each in study.published} == responses


def test_every_published_ratio_of_a_built_in_study_has_a_baseline_that_runs() -> None:
    """Jumbo frames once lacked a baseline, because the study excluded it with them."""
    for name, text in builtin_studies().items():
        study = read_study(name, text, Path.cwd())
        ran = [dict(zip(study.levels(), treatment, strict=True)) for treatment in treatments(study)]
        for published in study.published:
            base = study.baseline if published.baseline is None else published.baseline
            wanted = {factor: study.level(factor, value) for factor, value in base.items()}
            for figure in published.figures:
                of = {factor: study.level(factor, value) for factor, value in figure.of.items()}
                cells = [levels for levels in ran if of.items() <= levels.items()]
                assert cells, (name, figure)
                if figure.relative is not None:
                    assert any(levels | wanted in ran for levels in cells), (name, figure)


def test_every_treatment_of_a_built_in_study_is_compared_with_a_baseline() -> None:
    for name, text in builtin_studies().items():
        study = read_study(name, text, Path.cwd())
        ran = [dict(zip(study.levels(), treatment, strict=True)) for treatment in treatments(study)]
        wanted = {factor: study.baseline_level(factor) for factor in study.baseline}
        alone = [levels for levels in ran if levels | wanted not in ran]
        assert not alone, (name, alone)


def test_counts_of_trials_in_studies_and_guide_are_those_of_the_plan() -> None:
    for name, text in builtin_studies().items():
        planned = plan(read_study(name, text, Path.cwd()))
        for said_of in re.findall(r"\b(\d+) trials of", text):
            assert int(said_of) == len(planned.trials), name
    costs = (GUIDE.parents[1] / "results" / "cpu-cost.md").read_text()
    for name, count in re.findall(r"(cpu-cost(?:-full)?)\W\s*(?:# )?([0-9,]+) trials", costs):
        assert int(count.replace(",", "")) == len(plan(read_study(name, builtin_studies()[name], Path.cwd())).trials)
