"""The page: one document that loads nothing from elsewhere; changes come as events."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from iotax.outputs import csp_hash
from iotax.report import font, palette
from iotax.wording import SIMULATED

_UNIT = re.compile(r"(?<=\d) (?=(?:KiB|MiB|GiB)\b)")
_HERE = Path(__file__).parent
_STYLE = _HERE.parent / "report" / "templates" / "style.css"


class Page:
    """`study`: the unchanging facts of the displayed run."""

    def __init__(self, study: dict[str, Any]) -> None:
        script = _own("page.js").replace("STUDY", _in_script(study), 1)
        style = font.css() + palette.css() + _STYLE.read_text(encoding="utf-8") + _own("page.css")
        text = _own("page.html")
        for name, part in {
            "TITLE": ("Simulated: " if study["simulated"] else "") + html.escape(study["name"]),
            "OVER": html.escape(study["name"]) + (" · simulated" if study["simulated"] else ""),
            "SIMULATED": f'<div class="trust"><p class="warning">{html.escape(SIMULATED)}</p></div>'
            if study["simulated"]
            else "",
            "QUESTION": _UNIT.sub("\u00a0", html.escape(study["question"])),
            "STYLE": style,
            "SCRIPT": script,
        }.items():
            text = text.replace(f"<!--{name}-->", part)
        self.html = text.encode()
        self.policy = (
            f"default-src 'none'; style-src {csp_hash(style)}; script-src {csp_hash(script)}; img-src data:; "
            "font-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )


def _own(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _in_script(value: object) -> str:
    """JSON that no text in it can end the script with."""
    return json.dumps(value).replace("<", "\\u003c")
