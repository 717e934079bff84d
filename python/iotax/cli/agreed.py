"""What connections found and agreed on, by protocol."""

from collections.abc import Iterable

from iotax.trial import Attempt


def agreed(attempts: Iterable[Attempt]) -> dict[str, dict[str, str]]:
    """Protocol → what its first connection found and agreed on; by level if levels of one protocol differ."""
    levels: dict[str, dict[str, dict[str, str]]] = {}
    for attempt in attempts:
        if attempt.result is None or attempt.connected is None or not attempt.connected.words:
            continue
        protocol = attempt.result.facts.protocol
        level = str(attempt.trial.treatment.get("protocol", protocol))
        levels.setdefault(protocol, {}).setdefault(level, attempt.connected.words)
    found: dict[str, dict[str, str]] = {}
    for protocol, said in levels.items():
        alike = all(words == next(iter(said.values())) for words in said.values())
        found |= {protocol: next(iter(said.values()))} if alike else said
    return found
