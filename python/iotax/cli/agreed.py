"""What connections found and agreed on, by protocol."""

from collections.abc import Iterable

from iotax.trial import Attempt


def agreed(attempts: Iterable[Attempt]) -> dict[str, dict[str, str]]:
    """Protocol → what its first connection found and agreed on."""
    found: dict[str, dict[str, str]] = {}
    for attempt in attempts:
        if attempt.result is None or attempt.connected is None:
            continue
        protocol, words = attempt.result.facts.protocol, attempt.connected.words
        if protocol not in found and words:
            found[protocol] = words
    return found
