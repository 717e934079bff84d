"""Secrets are taken out of all that is kept, shown or passed on: values that are known, and what is one by its form.

Words are not secrets: "CHAP authentication failed" stays as it is. What a study names as a secret is read once, when it
runs (`learn`), so that its value is taken out of whatever a program says. A report is made from a notebook, perhaps on
another machine, where the values are not known: there only the form tells.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HIDDEN = "‹hidden›"

_CHARACTERS_MIN = 4
"""Shorter ones are parts of words; no credential of a protocol is as short."""
_FILE_BYTES_MAX = 64 << 10
_NAMES = r"[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|credentials?|psk|api[-_]?key|private[-_]?key)"
_VALUE = r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
_FORMS = (
    # An option (`--password x`), an assignment (`password=x`, `"secret": "x"`), a line of a file (`password: x`).
    re.compile(rf"(?i)(?P<before>--[\w-]*{_NAMES}\s+){_VALUE}"),
    re.compile(rf"(?i)(?P<before>\b{_NAMES}[\"']?\s*=\s*){_VALUE}"),
    re.compile(rf"(?i)(?P<before>\b{_NAMES}[\"']\s*:\s*){_VALUE}"),
    re.compile(rf"(?im)(?P<before>^[^\S\n]*(?:\S+:[^\S\n]+)?{_NAMES}[^\S\n]*:[^\S\n]*){_VALUE}(?=[^\S\n]*$)"),
)
_KEYS = re.compile(r"(?:DHHC-1:[0-9]{2}|NVMeTLSkey-1:[0-9]{2}):[A-Za-z0-9+/=]+:")
"""NVMe TCP transport 1.0 §3.6.1.5: secrets as nvme-cli writes them."""
_IN_URI = re.compile(r"(?<=://)[^/@\s]+@")
_NAMED = re.compile(
    r"(?i)[\w-]*(?:passw(?:or)?d|passphrase|secret|token|credential|chap|psk|dhchap|api[-_]?key|private[-_]?key)[\w-]*"
)
"""Keys of data whose values are not prose."""
_known: set[str] = set()


def learn(secrets: Iterable[str]) -> None:
    """From now on these are hidden wherever this process keeps or shows a text."""
    _known.update(each for each in secrets if len(each) >= _CHARACTERS_MIN)


def learn_from(document: Any) -> None:
    """The secrets that a study names, at any depth. Only of one that is run: it names files that are read here."""
    if isinstance(document, Mapping):
        learn(_read(document.get("secret_file"), document.get("secret_env")))
        for name, each in document.items():
            if name == "env" and isinstance(each, list | tuple):
                learn(os.environ.get(str(variable), "") for variable in each)
            learn_from(each)
    elif isinstance(document, list | tuple):
        for each in document:
            learn_from(each)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the secrets that are known or given, and without what is one by its form."""
    # A secret may hold another one: the longest first.
    for secret in sorted({*_known, *filter(None, secrets)}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _KEYS.sub(HIDDEN, _IN_URI.sub(f"{HIDDEN}@", text))
    for form in _FORMS:
        text = form.sub(lambda found: f"{found['before']}{HIDDEN}", text)
    return text


def redact_data(value: Any) -> Any:
    """Plain data without the values of keys that name a secret."""
    if isinstance(value, Mapping):
        return {key: HIDDEN if _NAMED.fullmatch(str(key)) else redact_data(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact_data(each) for each in value]
    return redact(value) if isinstance(value, str) else value


def _read(file: Any, variable: Any) -> list[str]:
    """What cannot be read is none that could be printed: who needs it says so."""
    found = [os.environ.get(variable, "")] if isinstance(variable, str) else []
    if isinstance(file, str | Path):
        with contextlib.suppress(OSError, ValueError):
            path = Path(file)
            if stat.S_ISREG(path.stat().st_mode):
                with path.open("rb") as opened:
                    found.append(opened.read(_FILE_BYTES_MAX).decode("utf-8", "replace").rstrip("\r\n"))
    return found
