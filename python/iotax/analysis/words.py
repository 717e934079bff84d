"""The findings in sentences: short, honest, the uncertainty said before the number is trusted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from iotax.analysis.compare import Comparison, Overall, Tax
from iotax.analysis.data import Grid, StudyData
from iotax.analysis.estimate import Estimate
from iotax.analysis.noise import Noise
from iotax.analysis.responses import CPU, CPU_INITIATOR, IOPS, LATENCY, Response
from iotax.analysis.validity import DISTURBANCES, TITLES, Check, Level
from iotax.analysis.verdict import Verdict
from iotax.units import show_minutes

Tone: TypeAlias = Literal["better", "worse", "equivalent", "inconclusive", "plain", "warning"]

PROTOCOL_TITLES = {
    "local": "Local",
    "nfs3": "NFSv3",
    "nfs4.1": "NFSv4.1",
    "iscsi": "iSCSI",
    "iser": "iSER",
    "nvme-tcp": "NVMe/TCP",
    "nvme-rdma": "NVMe/RDMA",
    "fcp": "FCP",
    "fc-nvme": "FC-NVMe",
}
PERCENT_RATIO_MAX = 10.0
"""Beyond it nobody reads percent."""
_NAMED_MAX = 8
"""Runs that a sentence names; the tables list all."""


@dataclass(frozen=True)
class Finding:
    subject: str
    """The arm that it is about; empty for all."""
    text: str
    tone: Tone = "plain"
    details: tuple[str, ...] = ()
    response_key: str = ""
    """The response that it is about; empty for all."""
    verb: str = ""

    @property
    def sentence(self) -> str:
        return f"{' '.join(filter(None, (self.subject, self.verb, self.text)))}."


def title(label: str) -> str:
    """A level's name as the field writes it."""
    return " · ".join(PROTOCOL_TITLES.get(part, part) for part in label.split(" · "))


def verdicts(
    responses: Sequence[Response],
    grid: Grid,
    comparisons: Sequence[Comparison],
    overalls: Sequence[Overall],
    taxes: Sequence[Tax],
) -> list[Finding]:
    """For each response and arm one finding, then what the protocols cost beyond local."""
    base = title(grid.baseline_arm)
    found = []
    for response in responses:
        for overall in (o for o in overalls if o.response is response):
            by_condition = [c for c in comparisons if c.response is response and c.arm == overall.arm]
            found.append(_against_baseline(overall, by_condition, base))
    return found + _taxes(taxes)


def trust(
    data: StudyData,
    cells: Sequence[Sequence[Check]],
    runs: dict[str, list[Check]],
    noise: Sequence[Noise] = (),
    both_ways: Sequence[tuple[Overall, Overall]] = (),
) -> list[Finding]:
    """What was planned and measured, what the checks found, what was left out, and what scatter hides."""
    planned = data.planned_count or len({a.trial.id for a in data.attempts})
    text = f"{len(data.measured)} of {planned} planned trials were measured"
    if data.not_done:
        are = "is" if len(data.not_done) == 1 else "are"
        text += f"; {_count(len(data.not_done), 'attempt')} did not end well and {are} listed"
    found = [Finding("", text + ".", "warning" if len(data.measured) < planned else "plain")]
    spoilt = sum(
        any(check.key in DISTURBANCES and check.level >= Level.DOUBTFUL for check in checks) for checks in runs.values()
    )
    if spoilt * 2 > len(runs):
        text = f"{spoilt} of {len(runs)} runs were disturbed: measure again on a quiet machine before you rely on this."
        found.append(Finding("disturbed", text, "warning"))
    if data.excluded:
        found.append(_left_out(data, both_ways))
    for key, name in TITLES.items():
        bad = [
            check for checks in runs.values() for check in checks if check.key == key and check.level >= Level.DOUBTFUL
        ]
        if bad:
            shown = (
                check for checks in cells for check in checks if check.key == key and check.level >= Level.DOUBTFUL
            )
            example = next(shown, bad[0]).text
            found.append(
                Finding(
                    key,
                    f"{name}: a finding in {_count(len(bad), 'run')} of {len(runs)}, for instance “{example}”.",
                    "warning",
                )
            )
    return found + [_noise(each) for each in noise[:1]]


def _left_out(data: StudyData, both_ways: Sequence[tuple[Overall, Overall]]) -> Finding:
    """Never silent: which runs, by which rule, and what the answer were with them."""
    names = [f"{each.run.trial.id} ({', '.join(f.key for f in each.findings)})" for each in data.excluded]
    few = ", ".join(names[:_NAMED_MAX]) + (f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else "")
    text = (
        f"{len(names)} of {len(data.measured)} measured runs are left out by the rules that the study set beforehand "
        f"({', '.join(data.study.exclude)}): {few}."
    )
    details = [
        f"{title(kept.arm)}, {kept.response.short.lower()}: ratio {_bare(kept)} without them, {_bare(whole)} with them"
        for kept, whole in both_ways
    ]
    return Finding("excluded", text, "warning", tuple(details))


def _bare(overall: Overall) -> str:
    ratio = overall.comparison.ratio
    if ratio.low is None or ratio.high is None:
        return figure(ratio.value)
    return f"{figure(ratio.value)} [{figure(ratio.low)}, {figure(ratio.high)}]"


def _noise(noise: Noise) -> Finding:
    scatter = _percent(noise.cv) if noise.cv < 1 else "more than their mean"
    text = f"Noise floor: runs of one treatment scatter by {scatter} ({noise.response.title.lower()})"
    if noise.detectable_ratio is not None:
        ratio = noise.detectable_ratio
        seen = (
            f"a difference of {_percent(ratio - 1)}" if ratio <= PERCENT_RATIO_MAX else f"a factor of {figure(ratio)}"
        )
        text += f"; {_count(noise.replicates, 'replicate')} show {seen} nine times out of ten"
    return Finding("noise", text + ".")


def measuring(data: StudyData) -> str:
    """ "89 % of 2 min 41 s measuring"; empty where the notebook does not tell."""
    share = data.measuring_share
    return "" if share is None else f"{100 * share:.0f} % of {show_minutes(data.wall_ns / 1e9)} measuring"


def change(response: Response, ratio: float) -> str:
    """A ratio as a reader says it: "34 % more IOPS", "2.1 times the CPU"."""
    more, less, times = _words_of(response)
    if ratio >= 1.995:
        return f"{figure(ratio)} times {times}"
    return f"{_percent(abs(ratio - 1))} {more if ratio >= 1 else less}"


def span(estimate: Estimate) -> str:
    """A ratio's interval as changes: "31 to 37 %", "1.9 to 2.2 times"."""
    if estimate.low is None or estimate.high is None:
        return "no interval: too few runs"
    if estimate.value >= 1.995 or estimate.high > PERCENT_RATIO_MAX:
        return f"95 % CI {figure(estimate.low)} to {figure(estimate.high)} times"
    return f"95 % CI {signed(estimate.low - 1)} to {signed(estimate.high - 1)}"


def figure(value: float) -> str:
    """Three significant figures, thousands separated."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{digits}f}".replace("-", "−")


def signed(share: float) -> str:
    return ("+" if share >= 0 else "−") + _percent(abs(share))


_VERBS = {IOPS.key: "moves", LATENCY.key: "shows", CPU.key: "needs", CPU_INITIATOR.key: "needs"}

_WORDS = {
    IOPS.key: ("more IOPS", "fewer IOPS", "the IOPS"),
    LATENCY.key: ("more latency", "less latency", "the latency"),
    CPU.key: ("more CPU an I/O", "less CPU an I/O", "the CPU an I/O"),
    CPU_INITIATOR.key: ("more initiator CPU an I/O", "less initiator CPU an I/O", "the initiator CPU an I/O"),
}


def _against_baseline(overall: Overall, by_condition: Sequence[Comparison], base: str) -> Finding:
    response, arm = overall.response, title(overall.arm)
    ratios = [c.ratio.value for c in by_condition]
    details = tuple(f"{c.condition}: {_one(response, c)}" for c in by_condition if c.condition)
    if overall.flips:
        better = [c.condition for c in by_condition if c.verdict is Verdict.BETTER]
        worse = [c.condition for c in by_condition if c.verdict is Verdict.WORSE]
        text = (
            f"no overall winner: {response.better} than {base} at {_list(better)}, {response.worse} at {_list(worse)}"
        )
        return Finding(arm, text, "inconclusive", details, response.key, "has")
    if overall.depends and len(by_condition) > 1:
        known, reach = {c.verdict for c in by_condition}, _range(response, ratios, base)
        if known == {Verdict.INCONCLUSIVE}:
            text = f"not to be told from {base} under any load by these runs (estimates: {reach})"
            return Finding(arm, text, "inconclusive", details, response.key, "is")
        if known == {Verdict.EQUIVALENT}:
            text = f"equivalent to {base} within the margin under every load (estimates: {reach})"
            return Finding(arm, text, "equivalent", details, response.key, "is")
        tone: Tone = known.pop().value if len(known) == 1 and None not in known else "plain"  # ty: ignore
        text = f"{reach}, depending on the load"
        return Finding(arm, text, tone, details, response.key, _VERBS.get(response.key, "shows"))
    text = _one(response, overall.comparison, base)
    verdict = overall.comparison.verdict
    unsure = verdict in (Verdict.EQUIVALENT, Verdict.INCONCLUSIVE)
    verb = "is" if unsure else _VERBS.get(response.key, "shows")
    tone = verdict.value if verdict else "plain"
    return Finding(arm, text, tone, details if len(by_condition) > 1 else (), response.key, verb)


def _range(response: Response, ratios: Sequence[float], base: str) -> str:
    """The span of several ratios: "19 to 41 % fewer IOPS than iSCSI", "1.96 to 2.16 times the IOPS of iSCSI"."""
    low, high = min(ratios), max(ratios)
    more, less, times = _words_of(response)
    if high >= 1.995:
        return f"{figure(low)} to {figure(high)} times {times} of {base}"
    if low >= 1 or high < 1:
        near, far = (_percent(share) for share in sorted((abs(low - 1), abs(high - 1))))
        reach = far if near == far else f"{near.removesuffix(' %')} to {far}"
        return f"{reach} {more if low >= 1 else less} than {base}"
    return f"from {_percent(1 - low)} {less} to {_percent(high - 1)} {more} than {base}"


def _words_of(response: Response) -> tuple[str, str, str]:
    return _WORDS.get(response.key, (f"more ({response.title})", f"less ({response.title})", response.title))


def _one(response: Response, comparison: Comparison, base: str = "the baseline") -> str:
    ratio = comparison.ratio
    said = change(response, ratio.value)
    link = "of" if "times" in said else "than"
    if comparison.verdict is None:
        return f"{said} {link} {base} ({span(ratio)}, so no verdict)"
    if comparison.verdict is Verdict.EQUIVALENT:
        return f"equivalent to {base} within the margin ({span(ratio)})"
    if comparison.verdict is Verdict.INCONCLUSIVE:
        return f"not to be told from {base} by these runs ({span(ratio)})"
    return f"{said} {link} {base} ({span(ratio)})"


def _taxes(taxes: Sequence[Tax]) -> list[Finding]:
    """The tax under the lightest load, which the study names first: queueing adds least to it."""
    found = []
    for arm in dict.fromkeys(tax.arm for tax in taxes):
        tax = next(t for t in taxes if t.arm == arm)
        where = f" at {tax.condition}" if tax.condition else ""
        parts = [f"{_us(tax.latency_us)} of latency"]
        if tax.cpu_us is not None:
            parts.append(f"{_us(tax.cpu_us)} of CPU")
        found.append(
            Finding(title(arm), f"adds {' and '.join(parts)} to each I/O beyond the same volume reached locally{where}")
        )
    return found


def _us(estimate: Estimate) -> str:
    text = f"{figure(estimate.value)} µs"
    if estimate.low is not None and estimate.high is not None:
        text += f" ({figure(estimate.low)} to {figure(estimate.high)})"
    return text


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.1f} %" if percent < 9.95 else f"{percent:.0f} %"


def _list(items: Sequence[str | None]) -> str:
    return ", ".join(item for item in items if item)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")
