"""The JSON Schema of study files, for editors. schema/study.schema.json is this, kept equal by a test."""

from __future__ import annotations

from typing import Any

from iotax.study.model import Study


def study_schema() -> dict[str, Any]:
    """What editors complete and check; `iotax plan` checks more."""
    schema = Study.model_json_schema()
    # Factors are optional in the model by a None that no file should write.
    for factor in schema["$defs"]["Factors"]["properties"].values():
        kinds = [each for each in factor.pop("anyOf") if each != {"type": "null"}]
        factor.pop("default", None)
        factor.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
    lab = schema["properties"]["lab"]
    schema["properties"]["lab"] = {
        "anyOf": [{"enum": sorted(schema["$defs"]["Lab"]["properties"])}, {"$ref": "#/$defs/Lab"}],
        "description": lab.get("description", ""),
        "default": "loopback",
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "An iotax study"}
