"""Nothing secret leaves in a report: it is made to be passed on."""

import re
from collections.abc import Mapping
from typing import Any

_HIDDEN = "‹hidden›"
_NAMES = r"[\w-]*(?:passw(?:or)?d|passphrase|secret|token|credential|chap|psk|dhchap|api[-_]?key|private[-_]?key)[\w-]*"
_IN_URI = re.compile(r"(?<=://)[^/@\s]+@")
_IN_TEXT = re.compile(rf"(?i)(?P<name>{_NAMES})(?P<gap>[\"']?\s*[=:]\s*|\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)")
_NAME = re.compile(rf"(?i){_NAMES}")


def redact(text: str) -> str:
    """A text without passwords: those inside a URI, and whatever follows a word that names a secret."""
    return _IN_TEXT.sub(lambda found: f"{found['name']}{found['gap']}{_HIDDEN}", _IN_URI.sub(f"{_HIDDEN}@", text))


def redact_data(value: Any) -> Any:
    """Plain data without the values of keys that name a secret."""
    if isinstance(value, Mapping):
        return {key: _HIDDEN if _NAME.fullmatch(str(key)) else redact_data(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact_data(each) for each in value]
    return redact(value) if isinstance(value, str) else value
