"""A site's hosts in a separate file that several studies can use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iotax.study.source import Document, Place, Problem, StudyError, read_yaml

_KEY = "inventory"
_PLACE: Place = ("lab", "hosts")


def settle_inventory(document: Document, folder: Path) -> list[Problem]:
    """Puts the file's contents where the study names it, so that notebooks contain the hosts. Either `hosts:
    site.yaml`, or `hosts: {inventory: site.yaml, …}` with the study's own fields, which take precedence over the
    file's."""
    lab = document.data.get("lab")
    given = lab.get("hosts") if isinstance(lab, dict) else None
    named = given.get(_KEY) if isinstance(given, dict) else given
    if not isinstance(lab, dict) or not isinstance(named, str):
        return []
    own = {name: value for name, value in given.items() if name != _KEY} if isinstance(given, dict) else {}
    path = folder / Path(named).expanduser()
    try:
        lab["hosts"] = {**_hosts(path), **own}
    except (OSError, UnicodeDecodeError) as error:
        lab.pop("hosts")
        return [Problem(document.mark(_PLACE), _PLACE, f"the inventory {path} cannot be read: {error}")]
    except StudyError as error:
        lab.pop("hosts")
        return [Problem(document.mark(_PLACE), _PLACE, line) for line in error.lines()]
    return []


def _hosts(path: Path) -> dict[str, Any]:
    """Raises OSError, UnicodeDecodeError, StudyError."""
    found = read_yaml(str(path), path.read_text(encoding="utf-8"))
    if found.problems:
        raise StudyError(str(path), found.problems)
    if not isinstance(found.data, dict) or "initiators" not in found.data:
        message = "an inventory is a mapping with `initiators:`, and `targets:` where there are any"
        raise StudyError(str(path), [Problem(None, (), message)])
    return found.data
