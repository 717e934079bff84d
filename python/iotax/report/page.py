"""The page: one file that loads nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from jinja2.environment import TemplateModule
from markupsafe import Markup, escape

from iotax.analysis import Summary
from iotax.outputs import GENERATOR, csp_hash
from iotax.redaction import redact
from iotax.report import font, palette, renderer
from iotax.report.charts.base import Drawing
from iotax.report.section import Part, Section, Source, source_of
from iotax.report.sections import sections
from iotax.study.imported import ImportedStudy
from iotax.version import __version__
from iotax.wording.recovery import wrong_data

_TEMPLATES = Path(__file__).with_name("templates")
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[KMGT]i?B|B|ns|µs|ms|s|min)\b|%)|(?<=min) (?=\d)")
_CODE = re.compile(r"`([^`\n]+)`")


class Page:
    """A report: its sections, their charts, and all of it as HTML."""

    def __init__(self, summary: Summary, notebook: str) -> None:
        """`notebook`: the file's name."""
        self._source = source_of(summary, notebook)
        self.sections: Sequence[Section] = sections(self._source)

    @property
    def drawings(self) -> list[Drawing]:
        return [drawing for section in self.sections for drawing in section.drawings()]

    def html(self) -> str:
        style = f"{font.css()}{palette.css()}{_own('style.css')}{_own('print.css')}"
        script = _own("hover.js")
        page = (
            _templates()
            .get_template("report.html")
            .render(
                policy=_POLICY,
                style=Markup(style),  # noqa: S704 - our own files and constants
                script=Markup(script),  # noqa: S704 - our own file
                generator=Markup(GENERATOR),  # noqa: S704 - our own constant
                head=_head(self._source),
                sections=self.sections,
                show=_Show(self._source),
                version=__version__,
                notebook=self._source.notebook,
            )
        )
        return _with_policy(page, style, script)


@dataclass(frozen=True)
class _Head:
    name: str
    question: str
    simulated: bool
    wrong_data: str
    facts: Sequence[str]


def _head(source: Source) -> _Head:
    summary = source.summary
    data, study = summary.data, summary.data.study
    made, of = "simulated" if data.simulated else "measured", data.planned_count or len(data.measured)
    trials = f"{len(data.measured)} of {of} trials {made}"
    if isinstance(study, ImportedStudy):
        trials = f"imported from {study.source}"
    facts = [
        *_measured(summary),
        trials,
        f"baseline {source.base}",
        f"equivalence margin ±{study.margin:g} %",
    ]
    return _Head(study.name, study.question, data.simulated, redact(wrong_data(data)), facts)


def _measured(summary: Summary) -> list[str]:
    """The header's date; simulations have none."""
    runs = summary.data.runs
    if summary.data.simulated:
        return ["simulated, not measured"]
    if not runs:
        return []
    return [datetime.fromtimestamp(runs[0].result.window.start_unix_ns / 1e9, UTC).strftime("%-d %B %Y, %H:%M UTC")]


class _Show:
    """Parts as HTML, each by the macro of its kind."""

    def __init__(self, source: Source) -> None:
        template = _templates().get_template("parts.html")
        self._macros: TemplateModule = template.make_module({"looks": source.looks, "show": self})

    def __call__(self, parts: Sequence[Part]) -> Markup:
        return Markup("\n").join(getattr(self._macros, part.kind)(part) for part in parts)


@cache
def _templates() -> Environment:
    """One for all reports of a process: it keeps the templates that it has compiled."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["tight"] = _tight
    environment.filters["svgs"] = _svgs
    return environment


_POLICY = "the policy of this page"
"""Replaced by the policy once the page is known."""
_STYLES = re.compile(r' style="((?:--n:\d+|--arm:var\(--[a-z0-9-]+\)|background:var\(--[a-z0-9-]+\)))"')
"""The attributes that our templates write."""


def _with_policy(page: str, style: str, script: str) -> str:
    """A policy that allows only our own script and styles, by their hashes (Content Security Policy Level
    3, §2.3.1)."""
    styles = " ".join(sorted(csp_hash(each) for each in {style, *_STYLES.findall(page)}))
    policy = (
        f"default-src 'none'; script-src {csp_hash(script)}; style-src 'unsafe-hashes' {styles}; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    return page.replace(_POLICY, policy, 1)


def _own(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _tight(text: str) -> Markup:
    """A sentence as HTML: text in backticks becomes code, and no line breaks between a number and its unit."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(_UNIT.sub("\u00a0", text)))))  # noqa: S704 - escaped before


def _svgs(drawing: Drawing) -> list[tuple[str, Markup]]:
    """A chart for each kind of screen. The SVG comes from us and the chart library, which escapes text. Without the
    library there is none, and the page shows words."""
    return [(kind, Markup(svg)) for kind, svg in drawing.inline()] if renderer.available() else []  # noqa: S704
