"""What connections found and agreed on, by protocol."""

from collections.abc import Iterable

from iotax.trial import Attempt


def agreed(attempts: Iterable[Attempt]) -> dict[str, dict[str, str]]:
    """Protocol → what its first connection found and agreed on."""
    found: dict[str, dict[str, str]] = {}
    for attempt in attempts:
        connected = attempt.connected
        if attempt.status != "done" or connected is None:
            continue
        protocol = connected.endpoint.partition(":")[0]
        facts = {name: value for name, value in (connected.identity | connected.negotiated).items() if value}
        if protocol not in found and facts:
            found[protocol] = facts
    return found
