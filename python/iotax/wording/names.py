"""Names as the field writes them."""

from iotax.protocols import titles

PROTOCOL_TITLES = titles()


def title(label: str) -> str:
    """A level's name as the field writes it."""
    return " · ".join(PROTOCOL_TITLES.get(part, part) for part in label.split(" · "))


def inside(heading: str) -> str:
    """A heading as part of a sentence: "mean latency", but "CPU per I/O" and "Little's law" unchanged."""
    if heading.startswith("Little"):
        return heading
    return heading[:1].lower() + heading[1:] if heading[1:2].islower() else heading
