"""docs/results/performance.md: a run of the bench, with the text needed to read it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.document import Document
from bench.results import Result
from bench.table import HEADINGS, accounting, failed, rows, skipped
from iotax.analysis.validity import FOREIGN_CORES_MAX, RUN_QUEUE_WAIT_MAX

_LIMITS = Path(__file__).with_name("what-limits.md")
"""The handwritten text on what limits the rest; it does not depend on the run."""
_APART = ("target", "initiator")
_SECTIONS = (
    ("Measured", [], None),
    ("Targets alone", ["Both targets are tested with the same initiator, so ratios compare targets.", ""], "target"),
    (
        "Initiators alone",
        ["Both initiators are tested on the same target, so ratios compare initiators.", ""],
        "initiator",
    ),
)


def page(document: Document) -> str:
    parts = [
        "# Performance",
        "",
        f"Measured by `{document.command}`; bench/README.md explains the method. Target on one core, initiator on"
        " another,"
        " one connection, a memory volume; both sides of iotax sleep when idle unless marked as polling. A ratio"
        " divides iotax's figure by the other's, measured in turns in one run: the geometric mean, minimum and maximum"
        " of the undisturbed pairs. Other figures are medians of the undisturbed samples; sleeps are voluntary context"
        " switches. Compare figures only within this page.",
        "",
        "A sample is disturbed if a thread of either side waited for threads of other processes for more than"
        f" {RUN_QUEUE_WAIT_MAX:g} of its window, or if other processes used more than {FOREIGN_CORES_MAX:g} cores."
        " Pairs with a disturbed sample are excluded, whatever their figures.",
        "",
        *_machine(document),
        "",
        *_tables(document.results),
        *(f"- {line}" for line in [*accounting(document), *skipped(document.results), *failed(document.results)]),
        "",
        "## Goals",
        "",
        *_goals(document.results),
        "",
        _LIMITS.read_text().rstrip(),
    ]
    return "\n".join(parts) + "\n"


def _tables(results: Sequence[Result]) -> list[str]:
    """A table of whole pairs, and tables of single sides."""
    found = []
    for title, about, group in _SECTIONS:
        chosen = [each for each in results if (each.group if each.group in _APART else None) == group]
        if chosen:
            lines = [f"| {' | '.join(row)} |" for row in rows(chosen)]
            found += [
                f"## {title}",
                "",
                *about,
                f"| {' | '.join(HEADINGS)} |",
                f"|{'---|' * len(HEADINGS)}",
                *lines,
                "",
            ]
    return found


def _machine(document: Document) -> list[str]:
    machine = document.environment.get("machine", {})
    return [
        f"- machine: {machine.get('cpu_model', 'unknown')}, {machine.get('cpus', '?')} processors"
        f"{', a virtual machine' if machine.get('hypervisor') else ''}; governor {document.governor or 'unknown'};"
        f" {machine.get('system', '')}, Linux {machine.get('kernel', '')}",
        f"- iotax {document.environment.get('iotax', '')}, commit {document.environment.get('commit', 'unknown')}",
        *(f"- {name}: {version}" for name, version in document.versions.items()),
    ]


def _goals(results: Sequence[Result]) -> list[str]:
    """Which goals are met, which are not, and by how much."""
    met, missed, unknown = [], [], []
    for result in results:
        name = f"{result.load}, {result.ours_name} to {result.theirs_name}"
        ratio = result.ratio.mean if result.ratio else 0.0
        if result.goal is not None:
            group = {True: met, False: missed, None: unknown}[result.rate_met]
            told = "" if result.rate_met is None else f" ({ratio:.2f} of ≥ {result.goal:g})"
            group.append(f"{name}{told}")
        if result.cpu_goal:
            {True: met, False: missed, None: unknown}[result.cpu_met].append(f"{name}, CPU per I/O of either side")
    found = []
    for title, group in (("Met", met), ("Not met", missed), ("Not measurable here", unknown)):
        if group:
            found += [f"{title}, {len(group)}:", "", *(f"- {line}" for line in group), ""]
    return found[:-1]
