"""Where the boxes of a flame graph stand: a row is a depth of calls, callers below; the width of a box is the
instructions of a function and everything it called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iotax.analysis.profile import Frame
from iotax.report import font

TEXT_PX = 10
_LETTERS_MIN = 3


@dataclass(frozen=True)
class Box:
    """A function under its callers, in instructions per I/O from the left edge."""

    depth: int
    begin: float
    end: float
    at: int
    """Place of its frame."""
    frame: Frame


def boxes(frames: Sequence[Frame]) -> list[Box]:
    """Callers come before the functions they call; the calls of one function stand side by side, largest first."""
    below: dict[int, list[int]] = {}
    for at, frame in enumerate(frames):
        below.setdefault(frame.caller, []).append(at)
    found: list[Box] = []
    waiting = [(-1, 0, 0.0)]
    while waiting:
        caller, depth, begin = waiting.pop()
        for at in sorted(below.get(caller, ()), key=lambda at: -frames[at].instructions):
            found.append(Box(depth, begin, begin + frames[at].instructions, at, frames[at]))
            waiting.append((at, depth + 1, begin))
            begin += frames[at].instructions
    return found


def fitting(name: str, room_px: float) -> str:
    """As much of a name as fits; empty if too little fits to be useful."""
    if font.width_px(name, TEXT_PX) <= room_px:
        return name
    for kept in range(len(name) - 1, _LETTERS_MIN - 1, -1):
        if font.width_px(name[:kept] + "…", TEXT_PX) <= room_px:
            return name[:kept] + "…"
    return ""
