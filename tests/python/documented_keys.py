"""The keys of each command's JSON that docs/reference/json.md lists."""

from __future__ import annotations

import re
from pathlib import Path


def documented() -> dict[str, set[str]]:
    """Title → keys in its table in docs/reference/json.md."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "json.md").read_text()
    found: dict[str, set[str]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title = re.sub(r"`|iotax ", "", part.splitlines()[0])
        found[title] = {
            key for line in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for key in re.findall(r"`(\w+)`", line)
        }
    found["run"] |= found["show"]
    return found
