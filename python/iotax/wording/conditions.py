"""What a comparison holds for, and why there is none: its condition as part of a sentence, the carrier and encryption
of a protocol, the link's limit, and one sentence for each `analysis.verdict.Cause`."""

import re

from iotax.analysis.data import Grid, StudyData
from iotax.analysis.histogram import TAIL_MIN
from iotax.analysis.link import BOUND, ceiling_bytes_per_s, is_bound, per_share, shares
from iotax.analysis.summary import Summary
from iotax.analysis.verdict import Cause, Withheld
from iotax.analysis.withheld import described, of_encryption
from iotax.records import Carrier
from iotax.units import counted, show_share
from iotax.wording.figures import Finding, listed, title

_COUNTED = {"outstanding": "outstanding I/O", "workers": "worker", "threads": "thread", "clients": "client"}
_KINDS = {"block size": "blocks", "read": "reads", "random": "random I/O"}
_UNIT = re.compile(r"(?<=\d)(?=[KMGT]iB$|%$)")


def under(condition: str | None) -> str:
    """ "with 8 outstanding I/Os and 4 KiB blocks" for "outstanding 8 · block size 4KiB"; empty if there is none."""
    return f"with {listed([_said(part) for part in condition.split(' · ')])}" if condition else ""


def brief_condition(condition: str) -> str:
    """ "NVMe/TCP, 8KiB" for "protocol nvme-tcp · block size 8KiB": without names of factors that levels make clear."""
    return ", ".join(_briefly(part) for part in condition.split(" · "))


def _briefly(part: str) -> str:
    name, _, level = part.rpartition(" ")
    return title(level) if name in ("protocol", "block size") else part


def _said(part: str) -> str:
    """A factor and its level."""
    name, _, level = part.rpartition(" ")
    if name in _COUNTED and level.isdecimal():
        return counted(int(level), _COUNTED[name])
    if name in _KINDS:
        return f"{_UNIT.sub(' ', level)} {_KINDS[name]}"
    if name == "protocol":
        return title(level)
    if name == "rate iops" and level.isdecimal():
        return f"{int(level):,} IOPS offered"
    return part


def because(withheld: Withheld, arm: str, base: str) -> str:
    """The reason, to end a sentence with; `arm` and `base` are written names."""
    match withheld.cause:
        case Cause.RUNS:
            return "too few runs for an interval"
        case Cause.IMPOSED:
            return "the study sets the rate, so throughput is an input and not a result"
        case Cause.CARRIER:
            return f"the carriers differ ({arm}: {withheld.arm}; {base}: {withheld.baseline})"
        case Cause.RATES:
            return "the rates differ, and utilisation compares costs only at equal rates"
        case Cause.ENCRYPTED:
            return "an instruction that encrypts counts as one, however long it takes, so no times are compared"
        case Cause.COUNTS:
            return f"fewer than {TAIL_MIN} I/Os of a run lie beyond this percentile"
        case Cause.BOUNDS:
            return "on both sides gaps are so short that only upper bounds are known"
        case Cause.LOOKED:
            return "replicates were added after results were known"
        case Cause.ENDS:
            return "it depends on how much of the transport the adapter handles"


ENCRYPTED_BRIEF = "1 µs is 250 instructions; an AES instruction counts as one, so this is not a time."
"""The sentence of `encrypted` in one line of a terminal."""
_ENCRYPTIONS = {
    "ipsec": "IPsec",
    "wireguard": "WireGuard",
    "krb5i": "signatures of Kerberos",
    "krb5p": "Kerberos",
    "tls": "TLS",
}


def emulated(summary: Summary, said: str) -> list[Finding]:
    """One sentence for each protocol whose carrier is not named by `said`. Two treatments over the same carrier get a
    verdict, which holds for that carrier."""
    carriers: dict[str, Carrier] = {}
    for run in (run for cell in summary.cells for run in cell.runs):
        carriers.setdefault(run.result.facts.protocol, run.result.facts.carrier)
    return [
        Finding(title(protocol), f"runs over {described(carrier)}: its figures are those of that carrier")
        for protocol, carrier in carriers.items()
        if carrier.emulated and (carrier.name or carrier.kind) not in said
    ]


def encrypted(summary: Summary) -> str:
    """What CPU per I/O means for encrypted links if it counts instructions; empty if it does not."""
    kinds = of_encryption(summary.data.runs)
    if not kinds:
        return ""
    named = listed([_ENCRYPTIONS.get(kind, kind) for kind in sorted(kinds)])
    return (
        f"With {named}, CPU per I/O counts instructions (250 are 1 µs), an AES instruction as one, so it is not a time."
    )


def of_links(data: StudyData) -> list[str]:
    """Each link's capacity, and the treatments that it limits: raw figures first, then shares."""
    if not data.study.links:
        return []
    grid = Grid(data.study)
    known = shares(data, grid)
    named = ", ".join(
        f"{label} {link.label} {ceiling_bytes_per_s(link) / 1e6:,.0f} MB/s" for label, link in data.study.links.items()
    )
    lines = [f"Capacity of the links, one way: {named}."]
    for cell, share in known.items():
        base = grid.baseline_of(cell)
        if not is_bound(known, cell, base):
            continue
        raw = share / known[base] / per_share(data.study, grid, cell, base)
        lines.append(
            f"{title(' · '.join(cell))}: {100 * raw:.0f} of {title(' · '.join(base))} = 100 as measured; as shares of "
            f"their links {show_share(share)} and {show_share(known[base])}, {100 * share / known[base]:.0f}."
        )
    if len(lines) == 1:
        lines.append(
            f"No comparison was limited by its links: in none did both sides reach {show_share(BOUND, 0)} of that."
        )
    return lines
