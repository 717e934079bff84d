"""Studies as they are written, stored and read again."""

from pathlib import Path

import jsonschema
import pytest
import yaml
from jsonschema.protocols import Validator

from iotax.cli.questions import TEMPLATE
from iotax.study import Study, source
from iotax.study.model import SECTIONS, factor_names
from iotax.study.read import builtin_studies, load_study, read_study
from iotax.study.reference import reference
from iotax.study.schema import schema_text, study_schema
from iotax.study.sim import OF_SIM

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = ROOT / "schema" / "study.schema.json"
SHIPPED = {
    **builtin_studies(),
    **{path.name: path.read_text() for path in sorted((ROOT / "examples").glob("*.yaml"))},
    "init": TEMPLATE,
}


def test_the_schema_is_the_one_checked_in() -> None:
    assert SCHEMA.read_text() == schema_text(), "python -m iotax.study.schema > schema/study.schema.json"


@pytest.fixture(scope="module")
def schema() -> Validator:
    """A validator for studies. Checking the schema itself takes a second, so it is done once."""
    written = study_schema()
    jsonschema.Draft202012Validator.check_schema(written)
    return jsonschema.Draft202012Validator(written)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_studies_fit_the_model_and_the_schema(name: str, schema: Validator) -> None:
    read_study(name, SHIPPED[name], ROOT)
    schema.validate(yaml.safe_load(SHIPPED[name]))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_study_kept_in_the_notebook_is_the_same_study(name: str) -> None:
    study = read_study(name, SHIPPED[name], ROOT)
    kept = Study.model_validate_json(study.model_dump_json())
    assert kept == study
    assert kept.digest() == study.digest()
    assert list(kept.levels().items()) == list(study.levels().items())


def test_sections_share_no_field() -> None:
    fields = [name for section in SECTIONS.values() for name in section.model_fields]
    assert len(fields) == len(set(fields))
    assert set(factor_names()) < {*fields, *OF_SIM}
    assert not set(OF_SIM) & set(fields)


def test_a_treatment_changes_its_own_fields_only(tiny: Path) -> None:
    study, _ = load_study(str(tiny))
    settings = study.settings({"protocol": "local", "outstanding": 8})
    assert (settings.load.outstanding, settings.endpoint.protocol) == (8, "local")
    assert settings.load.model_copy(update={"outstanding": 1}) == study.load
    assert settings.volume == study.volume


def test_layout_does_not_change_what_was_asked() -> None:
    first = read_study("a", TEMPLATE, ROOT)
    second = read_study("b", yaml.safe_dump(yaml.safe_load(TEMPLATE), sort_keys=False), ROOT)
    assert first.digest() == second.digest()
    third = read_study("c", TEMPLATE.replace("seed: 42", "seed: 43"), ROOT)
    assert third.digest() != first.digest()


def test_paths_start_at_the_study_file(tmp_path: Path) -> None:
    text = TEMPLATE.replace("[local, iscsi, nvme-tcp]", "{disk: ./scratch.img, iscsi: iscsi}")
    study = read_study("s", text, tmp_path)
    assert study.endpoints()["disk"].uri == f"local:{tmp_path}/scratch.img"


def test_the_folder_of_a_kernel_starts_at_the_study_file(tmp_path: Path) -> None:
    text = """
name: kernels
question: Which kernel takes fewer instructions?
lab: vm
factors: {protocol: [nvme-tcp], kernel: [stock, "6.12", ./good/tar-install, ../bad, ./linux@net/next]}
baseline: {protocol: nvme-tcp, kernel: ./good/tar-install}
"""
    study = read_study("kernels.yaml", text, tmp_path / "here")
    good = str(tmp_path / "here" / "good" / "tar-install")
    built = [good, str(tmp_path / "bad"), str(tmp_path / "here" / "linux@net/next")]
    assert [level.label for level in study.levels()["kernel"]] == ["stock", "6.12", *built]
    assert study.baseline["kernel"] == good
    one = read_study("kernels.yaml", text.replace(", kernel: [", ", outstanding: [1]}\ntopology: {kernel: ./k}  # [")
                     .replace(", kernel: ./good/tar-install", ""), tmp_path)  # fmt: skip
    assert one.topology.kernel == str(tmp_path / "k")


def nodes(node: yaml.Node) -> list[object]:
    """Kind, position and text of everything in a document."""
    found: list[object] = [(node.tag, node.start_mark.line, node.start_mark.column)]
    if isinstance(node, yaml.ScalarNode):
        return [*found, node.value]
    pairs = node.value if isinstance(node, yaml.SequenceNode) else [each for pair in node.value for each in pair]
    return found + [each for part in pairs for each in nodes(part)]


TRICKY = """\
name: 'µ für zwei'  # ü
question: "a\\tb é?"
factors: {protocol: [iscsi, &n nfs3], é: [*n, ~, "null", 1e3, 0x1f, yes, TRUE, .5]}
about: |
    zwei
    Zeilen
"""


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML was built without libyaml")
@pytest.mark.parametrize("text", [TEMPLATE, SHIPPED["targets-exact"], TRICKY], ids=["template", "study", "tricky"])
def test_libyaml_and_python_read_the_same_at_the_same_places(text: str) -> None:
    slow = yaml.compose(text, Loader=source._Loader)
    fast = source._composed(text)
    assert fast is not None and slow is not None
    assert nodes(fast) == nodes(slow)


def test_a_baseline_may_be_written_as_its_level_is() -> None:
    text = TEMPLATE.replace("outstanding: [1, 8, 32]", "block_size: [4KiB, 64KiB]\n  verify: [true, false]")
    text = text.replace("block_size: 4KiB  ", "#").replace("verify: true  ", "#")
    for block_size, verify in (("4k", "on"), ("4096", "true"), ("4KiB", "true")):
        baseline = f"{{protocol: iscsi, block_size: {block_size}, verify: {verify}}}"
        study = read_study("s", text.replace("{protocol: iscsi}", baseline), ROOT)
        assert study.baseline == {"protocol": "iscsi", "block_size": 4096, "verify": True}


def test_yaml_words_stay_words() -> None:
    study = read_study(
        "s", TEMPLATE.replace("name: my-study", "name: no").replace("question: What", "question: on"), ROOT
    )
    assert study.name == "no"


def test_defaults_are_written_with_their_units() -> None:
    """Editors complete defaults from the schema; 60000000000 under `round:` would be a round of 1,900 years."""
    schema = study_schema()
    defaults = {
        f"{name}.{field}": said["default"]
        for name, each in schema["$defs"].items()
        for field, said in each.get("properties", {}).items()
        if said.get("default") is not None
    }
    assert (defaults["Precondition.round"], defaults["Slurm.time"]) == ("1min", "4h")
    assert (defaults["Volume.dedupe_block"], defaults["Search.precision"]) == ("4KiB", "5%")
    large = {name for name, value in defaults.items() if isinstance(value, int | float) and value > 9_000}
    assert large == {"Load.backlog"}


def test_the_reference_is_the_one_checked_in() -> None:
    page = ROOT / "docs" / "reference" / "study.md"
    assert page.read_text() == reference(), "python -m iotax.study.reference > docs/reference/study.md"
