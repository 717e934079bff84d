"""The JSON Schema of study files, for editors.

`python -m iotax.study.schema > schema/study.schema.json` writes the copy that is checked in; a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, PlainSerializer

from iotax.study.documented import describe
from iotax.study.fields import Section
from iotax.study.model import LABS, SECTIONS, Study

_INVENTORY: list[dict[str, Any]] = [
    {"type": "string", "description": "An inventory: a file with the fields of `hosts`."},
    {"type": "object", "required": ["inventory"], "properties": {"inventory": {"type": "string"}}},
]
"""Replaces hosts by a file (`iotax.study.inventory`)."""
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


if __name__ == "__main__":
    print(schema_text(), end="")
