"""The JSON Schema of study files, for editors.

`python -m iotax.study.schema > schema/study.schema.json` writes the copy that is checked in; a test compares them. It
has the docstring of each field of a model: pydantic's own `use_attribute_docstrings` would slow every start by a tenth
of a second.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, PlainSerializer

from iotax.study.fields import Section
from iotax.study.model import LABS, SECTIONS, Study, factor_names
from iotax.study.setup import OWN, Setup
from iotax.study.sim import Sim

_INVENTORY: list[dict[str, Any]] = [
    {"type": "string", "description": "An inventory: a file with the fields of `hosts`."},
    {"type": "object", "required": ["inventory"], "properties": {"inventory": {"type": "string"}}},
]
"""Replaces hosts by a file (`iotax.study.read`)."""
TITLE = "An iotax study"


def study_schema() -> dict[str, Any]:
    """The schema for editors; `iotax plan` checks more."""
    schema = Study.model_json_schema()
    describe(schema["$defs"], schema)
    # The model's None for optional factors is not for files.
    for factor in schema["$defs"]["Factors"]["properties"].values():
        kinds = [each for each in factor.pop("anyOf") if each != {"type": "null"}]
        factor.pop("default", None)
        factor.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
    for section in _sections(Section):
        if section.__name__ in schema["$defs"]:
            _say_defaults(schema["$defs"][section.__name__]["properties"], section)
    _say_defaults(schema["properties"], Study)
    for name in (*SECTIONS, "design"):
        schema["properties"][name].pop("default", None)
    lab = schema["properties"]["lab"]
    schema["properties"]["lab"] = {
        "anyOf": [{"enum": sorted(name for name, model in LABS.items() if not _asks(model))}, {"$ref": "#/$defs/Lab"}],
        "description": lab.get("description", ""),
        "default": "loopback",
    }
    schema["$defs"]["Lab"]["properties"]["hosts"]["anyOf"] += _INVENTORY
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": TITLE}


def _sections(kind: type[Section]) -> Iterator[type[Section]]:
    for each in kind.__subclasses__():
        yield each
        yield from _sections(each)


def _asks(section: type[Section]) -> bool:
    """Whether a file must set one of its fields: the bare name is not enough."""
    return any(field.is_required() for field in section.model_fields.values())


def _say_defaults(properties: dict[str, Any], model: type[BaseModel]) -> None:
    """Defaults as a file writes them: `1s`, where the model has nanoseconds."""
    for name, field in model.model_fields.items():
        written: Callable[[Any], str] | None = next(
            (each.func for each in field.metadata if isinstance(each, PlainSerializer)), None
        )
        if written and properties.get(name, {}).get("default") is not None:
            properties[name]["default"] = written(field.default)


def schema_text() -> str:
    """The schema as it stands in files."""
    return json.dumps(study_schema(), indent=2, ensure_ascii=False) + "\n"


def describe(definitions: dict[str, dict[str, Any]], study: dict[str, Any]) -> None:
    """Gives each property its field's docstring. `definitions` are a schema's `$defs`, `study` describes the file."""
    sections = {name: _docstrings(SECTIONS.get(section, Sim)) for name, section in factor_names().items()}
    factors = {name: docstrings[name] for name, docstrings in sections.items()}
    _put(definitions["Factors"], factors)
    _put(definitions[Setup.__name__], {name: factors[name] for name in OWN})
    models = _models(Section)
    for name, schema in (*definitions.items(), ("Study", study)):
        _put(schema, _docstrings(models[name]))


def _models(of: type[Section]) -> dict[str, type[Section]]:
    """All models by name."""
    found: dict[str, type[Section]] = {of.__name__: of}
    for each in of.__subclasses__():
        found |= _models(each)
    return found


def _docstrings(model: type[Section]) -> dict[str, str]:
    """The docstrings of the fields in its class statement and in those that it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, Section):
            found |= _stated(each)
    return found


@functools.cache
def _stated(model: type[Section]) -> dict[str, str]:
    """The string that follows a field. A model made by a function has no class statement and so none."""
    statement = _statements(model.__module__).get(model.__name__)
    if statement is None:
        return {}
    found = {}
    for field, after in zip(statement.body, statement.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            said = after.value
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                found[field.target.id] = inspect.cleandoc(said.value)
    return found


@functools.cache
def _statements(module: str) -> dict[str, ast.ClassDef]:
    """A module's classes by name. (`inspect.getsource` of a class would parse the module for each.)"""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    return {each.name: each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)}


def _put(schema: dict[str, Any], docstrings: dict[str, str]) -> None:
    for name, property_ in schema.get("properties", {}).items():
        if name in docstrings:
            property_["description"] = docstrings[name]


if __name__ == "__main__":
    print(schema_text(), end="")
