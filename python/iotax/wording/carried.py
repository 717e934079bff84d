"""What carries a protocol in a lab, where it is emulated and the comparison does not bring it up itself."""

from iotax.analysis.carriers import described
from iotax.analysis.summary import Summary
from iotax.records import Carrier
from iotax.wording.names import title
from iotax.wording.verdicts import Finding


def emulated(summary: Summary, said: str) -> list[Finding]:
    """One sentence for each protocol whose carrier what is `said` does not name: between two treatments over the same
    carrier there is a verdict, which holds for that carrier."""
    carriers: dict[str, Carrier] = {}
    for run in (run for cell in summary.cells for run in cell.runs):
        carriers.setdefault(run.result.facts.protocol, run.result.facts.carrier)
    return [
        Finding(title(protocol), f"runs over {described(carrier)}: its figures are those of that carrier")
        for protocol, carrier in carriers.items()
        if carrier.emulated and (carrier.name or carrier.kind) not in said
    ]
