"""Damage to text and JSON, from a fixed seed: like that of a full disk, an editor, or an attacker."""

from __future__ import annotations

import copy
import json
import re
from random import Random
from typing import Any

WORDS = [
    "1e999", "-1", "0", "nan", "NaN", "inf", "Infinity", "9" * 5000, "99999999999999999999", "-99999999999999999999",
    "9223372036854775808", "[]", "{}", "null", "true", '""', '"x"', "1e308", "1e18", "[[1]]", "0x10", "-0.0", "1,000",
    "٣", "\x00", "\x1b[31m", "1e-400", "%s", "../x", "2000-01-01", "99:99:99", "12:00:00 PM", "é", "100%", "1h", "*x",
]  # fmt: skip
"""Replacements for a figure or a word."""
VALUES: list[Any] = [
    None, True, -1, 0, 1, 1e300, 10**18, 10**19, 10**40, 10**400, 2**62, "x", "", [], {}, [1], [[1, 2]], {"a": 1},
    float("nan"), float("inf"), 1.5, "1e999", -5.5, "12", "\x1b[31m", 1e-300,
]  # fmt: skip
"""Replacements for a value."""
MARKS = "{}[]:,&*!|>'\"%@`#\t-0123456789eE.\x1b"


def text(rng: Random, given: str) -> str:
    """The text with up to four changes."""
    for _ in range(rng.randint(1, 4)):
        if not given:
            break
        at = rng.randrange(len(given))
        lines = given.splitlines(keepends=True)
        line = rng.randrange(len(lines)) if lines else 0
        match rng.randrange(10):
            case 0:
                given = given[:at]
            case 1:
                given = given[:at] + given[at + rng.randint(1, 30) :]
            case 2:
                given = given[:at] + rng.choice(WORDS) + given[at:]
            case 3 | 4 | 5:
                words = list(re.finditer(r"[-\w.%]+", given))
                if words:
                    word = rng.choice(words)
                    given = given[: word.start()] + rng.choice(WORDS) + given[word.end() :]
            case 6:
                given = "".join([*lines[:line], lines[rng.randrange(len(lines))], *lines[line:]])
            case 7:
                given = "".join([*lines[:line], *lines[line + 1 :]])
            case 8:
                given = given[:at] + rng.choice(MARKS) + given[at + rng.randrange(2) :]
            case _:
                given = given[:at] + given[at : at + 200] * rng.randint(2, 5) + given[at + 200 :]
    return given


def document(rng: Random, given: Any) -> Any:
    """The document with up to three values changed, left out or renamed."""
    made = copy.deepcopy(given)
    for _ in range(rng.randint(1, 3)):
        inside, path = made, []
        while isinstance(inside, dict | list) and inside:
            key = rng.choice(list(inside) if isinstance(inside, dict) else list(range(len(inside))))
            path.append((inside, key))
            if not isinstance(inside[key], dict | list) or rng.random() < 0.15:
                break
            inside = inside[key]
        if not path:
            break
        holder, key = path[-1]
        drawn = rng.random()
        if drawn < 0.12 and isinstance(holder, dict):
            del holder[key]
        elif drawn < 0.18 and isinstance(holder, dict):
            holder[rng.choice(["x", "1e999", "-1", "nan"])] = holder.pop(key)
        elif drawn < 0.5 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = rng.choice([0, -1, 1, 2**62, 10**17, 1e-9, 10**400, -holder[key], holder[key] * 1000])
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return made


def json_text(rng: Random, given: str) -> str:
    """Damages JSON mostly as a document, otherwise as text."""
    try:
        parsed = json.loads(given)
    except ValueError:
        return text(rng, given)
    return json.dumps(document(rng, parsed)) if rng.random() < 0.7 else text(rng, given)
