"""What changed between two runs, in sentences and in the cells of tables."""

from collections.abc import Sequence

from iotax.analysis.change import Change
from iotax.analysis.estimate import Estimate
from iotax.analysis.verdict import Cause
from iotax.wording.figures import PERCENT_RATIO_MAX, figure, listed, points, span, title
from iotax.wording.verdicts import change, doubtful_runs, verdict_word

TOGETHER = "all together"
_NONE = {
    Cause.CARRIER: "none: carriers differ",
    Cause.ENCRYPTED: "none: encryption",
    Cause.LOOKED: "none: looked before",
    Cause.COUNTS: "none: small tail",
}


def explained(margin_percent: float) -> str:
    """How to read a table of changes."""
    return f"After over before, with 95 % intervals; within {margin_percent:g} % counts as equivalent."


def treatment(found: Change) -> str:
    return title(found.treatment) if found.treatment else TOGETHER


def verdict(found: Change) -> str:
    """The change for a table cell; the reason if there is none."""
    if found.verdict is None:
        return _NONE.get(found.withheld.cause if found.withheld else Cause.RUNS, "too few runs")
    word = "differs by treatment" if found.mixed else verdict_word(found.response, found.verdict)
    return f"{word}, doubtful" if found.doubt.most else word


def changed(ratio: Estimate) -> str:
    """ "+3.1 % [+1.0, +5.2]", or "× 2.4 [2.1, 2.7]" if a percentage would mislead."""
    times = not 0.5 < ratio.value < 2 or (ratio.high is not None and ratio.high > PERCENT_RATIO_MAX)
    write = figure if times else points
    said = f"× {figure(ratio.value)}" if times else f"{points(ratio.value)} %"
    if ratio.low is None or ratio.high is None:
        return said
    return f"{said} [{write(ratio.low)}, {write(ratio.high)}]"


def regression(found: Change) -> str:
    """ "Regression (all together): 20 % fewer IOPS (95 % CI −21 % to −19 %)."."""
    doubtful = "; doubtful" if found.doubt.most else ""
    said = f"{change(found.response, found.ratio.value)} ({span(found.ratio)})"
    return f"Regression ({treatment(found)}): {said}{doubtful}."


def no_regression(found: Sequence[Change], margin_percent: float) -> str:
    """If no regression is certain: whether one is ruled out."""
    count = sum(each.may_have_regressed(margin_percent) for each in found)
    if not count:
        return "No regression beyond the margin."
    where = f"{count} of {len(found)} comparisons" if len(found) > 1 else "the one comparison"
    return f"No regression beyond the margin was found, but {where} cannot rule one out."


def doubts(found: Sequence[Change]) -> list[str]:
    """Treatments that rest on mostly doubtful runs, and why; one line for all with the same reason."""
    about: dict[str, dict[str, None]] = {}
    for each in found:
        if each.doubt.most:
            about.setdefault(doubtful_runs(each.doubt), {})[treatment(each)] = None
    return [f"Doubtful ({listed(list(names))}): {runs}." for runs, names in about.items()]
