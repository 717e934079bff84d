"""Colours by meaning, in a light and a dark variant.

The common protocols' colours are Okabe and Ito's, which colour-blind readers tell apart, darkened or lightened to stand
4:1 against the page; ten protocols take more, and shapes help. Each protocol keeps its own over all reports. Charts
are drawn once, with a stand-in for each colour; in the page a stand-in becomes a CSS variable, in a file the light
colour.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from iotax.protocols import colours


@dataclass(frozen=True)
class Colour:
    name: str
    """The CSS variable, without its dashes."""
    light: str
    dark: str
    stand_in: str
    """A colour that nothing else uses, which stands in for it in the chart library."""


def _colours(*rows: tuple[str, str, str]) -> dict[str, Colour]:
    return {name: Colour(name, light, dark, f"#0f1e{i:02x}") for i, (name, light, dark) in enumerate(rows)}


COLOURS = _colours(
    ("ink", "#1b1f24", "#e6e8eb"),
    ("soft", "#5a626d", "#a3abb6"),
    ("grid", "#e3e6ea", "#2c323a"),
    ("axis", "#b4bac2", "#535b66"),
    ("page", "#ffffff", "#14171b"),
    ("band", "#eef1f5", "#20252c"),
    ("gray", "#6b7280", "#9aa3b0"),
    ("blue", "#0068a8", "#5cb3f0"),
    ("vermilion", "#c85200", "#ff9350"),
    ("green", "#00855f", "#3fc99b"),
    ("purple", "#9a4a8c", "#d891cb"),
    ("ochre", "#9a6c00", "#e3b341"),
    ("sky", "#1a8099", "#8fe3f5"),
    ("wine", "#8a2346", "#f0708f"),
    ("olive", "#4f6b12", "#b9d65a"),
    ("indigo", "#4a3fb5", "#9a94ff"),
    ("pink", "#d0277f", "#ff7ac6"),
    ("brown", "#6b4226", "#c79a78"),
    ("plum", "#471f6b", "#bb4fe6"),
    ("pine", "#0f4d45", "#3f9a4a"),
    ("part-initiator", "#30588c", "#7fa9dd"),
    ("part-target", "#7d9fc9", "#4a6f9f"),
    ("part-rest", "#d8cbb5", "#6d6353"),
    ("part-background", "#ece6da", "#423c33"),
    ("part-disk", "#b07f2e", "#d0a355"),
    ("part-hypervisor", "#8b79b3", "#8f7cc0"),
    ("part-both", "#4f7bb3", "#6590c9"),
    ("part-copies", "#b5563f", "#d98268"),
    ("part-memory", "#6f8f5e", "#8fb07c"),
)

_OWN = {**colours(), "iotax": "indigo", "fio": "pink"}
"""Colours of protocols, and of generators if those are compared."""
_VARIANTS = ("indigo", "pink", "brown")
"""Colours for a protocol's second arm: no protocol has them."""
_OTHERS = ("blue", "vermilion", "green", "purple", "ochre", "sky", "wine", "olive", "gray", *_VARIANTS)
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")


@dataclass(frozen=True)
class Look:
    """How an arm is drawn everywhere."""

    colour: Colour
    shape: str


def looks(arms: Sequence[str], protocol_of: dict[str, str]) -> dict[str, Look]:
    """A colour and a shape for each arm: its protocol's unless an earlier arm has them, else free ones."""
    own = {
        arm: [_OWN[known] for part in arm.split(" · ") if (known := protocol_of.get(part, part)) in _OWN]
        for arm in arms
    }
    named: dict[str, str] = {}
    for arm in arms:
        if wanted := [name for name in own[arm] if name not in named.values()]:
            named[arm] = wanted[0]
    for i, arm in enumerate(arm for arm in arms if arm not in named):
        choice = (*_VARIANTS, *_OTHERS) if own[arm] else _OTHERS
        named[arm] = next((name for name in choice if name not in named.values()), choice[i % len(choice)])
    return {arm: Look(COLOURS[named[arm]], SHAPES[i % len(SHAPES)]) for i, arm in enumerate(arms)}


def ref(name: str) -> str:
    """A colour's stand-in, for a chart's specification."""
    return COLOURS[name].stand_in


def to_variables(svg: str) -> str:
    return _replace(svg, {c.stand_in: f"var(--{c.name})" for c in COLOURS.values()})


def to_light(svg: str) -> str:
    return _replace(svg, {c.stand_in: c.light for c in COLOURS.values()})


def css() -> str:
    """CSS variables for both colour schemes; paper is light."""
    light = "".join(f"--{c.name}:{c.light};" for c in COLOURS.values())
    dark = "".join(f"--{c.name}:{c.dark};" for c in COLOURS.values())
    return f":root{{color-scheme:light dark;{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _replace(svg: str, colours: dict[str, str]) -> str:
    return re.sub("|".join(map(re.escape, colours)), lambda found: colours[found[0]], svg)
