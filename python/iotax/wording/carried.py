"""What carries and encrypts a protocol in a lab, if a reader must know that to interpret a figure."""

from iotax.analysis.carriers import described
from iotax.analysis.summary import Summary
from iotax.analysis.withheld import of_encryption
from iotax.records import Carrier
from iotax.wording.figures import listed
from iotax.wording.names import title
from iotax.wording.verdicts import Finding

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
