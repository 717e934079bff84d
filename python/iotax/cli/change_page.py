"""What changed, as Markdown for a pull request or as a page of HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

from iotax.analysis import Shift
from iotax.analysis.change import Change, Changes
from iotax.cli import change_chart, change_profile
from iotax.cli.change_profile import escaped, html_table, markdown_table
from iotax.outputs import GENERATOR, NOTE_OF_ORIGIN
from iotax.wording import changes as wording
from iotax.wording import figure, title

SUFFIXES = (".md", ".html")
QUANTILES_PERCENT = (50.0, 90.0, 99.0, 99.9)
_COLUMNS = ("Response", "Treatment", "Before", "After", "Change [95 % CI]", "Runs", "Verdict")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color-scheme: light dark }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .3rem .8rem; border-bottom: 1px solid #8884 }
th { text-align: left } td.num { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto } .worse { font-weight: 600 }
@media (max-width: 40rem) { h1 { font-size: 1.5em } h2 { font-size: 1.2em } th, td { padding: .3rem .5rem } }
"""  # noqa: E501


def markdown(
    found: Changes, before: str, after: str, margin_percent: float, notes: Sequence[str], mark: str = ""
) -> str:
    """Tables as GitHub and GitLab show them. `mark` stands before all figures."""
    lines = [NOTE_OF_ORIGIN, f"### {escaped(f'{before} → {after}')}", ""]
    lines += [f"**{escaped(mark)}**", ""] if mark else []
    lines += [_headline(found, margin_percent, strong=lambda text: f"**{text}**"), ""]
    lines += markdown_table(_COLUMNS, [_row(each) for each in found.found], numeric=(2, 3, 4, 5))
    if rows := _quantile_rows(found.shifts):
        lines += ["", "<details><summary>Latency at each quantile</summary>", ""]
        lines += markdown_table(_quantile_columns(), rows, numeric=range(1, len(QUANTILES_PERCENT) + 1))
        lines += ["", "</details>"]
    lines += change_profile.markdown(found.profiles)
    lines += ["", wording.explained(margin_percent), *(f"\n{escaped(note)}" for note in notes)]
    return "\n".join(lines) + "\n"


def page(found: Changes, before: str, after: str, margin_percent: float, notes: Sequence[str], mark: str = "") -> str:
    """One page that loads nothing from elsewhere. `mark` stands before all figures."""
    heading = f"{before} → {after}"
    said = _headline(found, margin_percent, strong=lambda text: f"<b>{html.escape(text)}</b><br>")
    body = [f"<h1>{html.escape(heading)}</h1>"]
    body += [f"<p><b>{html.escape(mark)}</b></p>"] if mark else []
    body += [f"<p>{said}</p>"]
    body += change_chart.charts(found.found, before, after)
    body += ["<h2>In figures</h2>", html_table(_COLUMNS, [_row(each) for each in found.found], numeric=(2, 3, 4, 5))]
    if rows := _quantile_rows(found.shifts):
        body += ["<h2>Latency at each quantile</h2>"]
        body += [html_table(_quantile_columns(), rows, numeric=range(1, len(QUANTILES_PERCENT) + 1))]
    body += change_profile.sections(found.profiles, before, after)
    body += [f"<p>{html.escape(text)}</p>" for text in (wording.explained(margin_percent), *notes)]
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f"{GENERATOR}\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(heading)}</title>\n<style>{_STYLE}{change_chart.STYLE}{change_profile.STYLE}</style>\n"
        + "\n".join(body)
        + "\n</html>\n"
    )


def _headline(found: Changes, margin_percent: float, strong: Callable[[str], str]) -> str:
    worse = [each for each in found.found if each.regressed(margin_percent)]
    if not worse:
        return wording.no_regression(found.found, margin_percent)
    return " ".join(strong(wording.regression(each)) for each in worse)


def _row(change: Change) -> tuple[str, ...]:
    return (
        f"{change.response.title} ({change.response.unit})",
        wording.treatment(change),
        figure(change.before),
        figure(change.after),
        wording.changed(change.ratio),
        f"{change.runs[0]} + {change.runs[1]}",
        wording.verdict(change),
    )


def _quantile_columns() -> tuple[str, ...]:
    return ("Treatment", *(f"p{percent:g}" for percent in QUANTILES_PERCENT))


def _quantile_rows(shifts: Sequence[Shift]) -> list[tuple[str, ...]]:
    rows = []
    for shift in shifts:
        known = {point.percent: wording.changed(point.ratio) for point in shift.points}
        if known:
            rows.append((title(shift.arm), *(known.get(percent, "–") for percent in QUANTILES_PERCENT)))
    return rows
