"""What to do if an endpoint refuses access, in the terms of its own protocol."""

from __future__ import annotations

from urllib.parse import urlsplit

from iotax.engine import EngineError
from iotax.protocols import schemes
from iotax.study.endpoint import one_portal


def hint(endpoint: str, error: EngineError) -> str:
    """Empty if there is nothing better than the error itself."""
    if endpoint.startswith("local:"):
        return _of_path(endpoint.removeprefix("local:"), error.kind)
    parts = urlsplit(one_portal(endpoint))
    scheme, _ = schemes().get(parts.scheme, (None, None))
    words = scheme.hints.get(error.kind) if scheme else None
    if not (scheme and words):
        return ""
    return words.format(host=parts.hostname, port=parts.port or scheme.port, usual_port=scheme.port)


def _of_path(path: str, kind: str) -> str:
    device = path.startswith("/dev/")
    if kind == "not_found":
        if device:
            return "there is no such device; `lsblk` lists this machine's"
        return f"there is no such file; `truncate -s 1G {path}` makes one"
    if kind == "denied":
        return f"this user may not open it; `ls -l {path}` says who may" + (", often group disk" if device else "")
    return ""
