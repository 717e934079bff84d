"""What the analysis found, in sentences: the only place where a verdict becomes words.

`analysis` gives numbers, verdicts and causes; here they become English, for report, command line and exports alike.
No sentence states a difference without its interval, and one that withholds a verdict says why.

- `verdicts(summary)`, `trust(summary)`: the answer and how far to believe it, each a `Finding`;
- `answer(summary)`: the same in parts, for a first screen; `precision(summary)`: how narrow its intervals are;
- `verdict_word(response, verdict)`: a verdict in a cell of a table; `because(withheld, arm, base)`: why there is none;
- `title`, `figure`, `signed`, `span`: names and numbers as they are written everywhere.
"""

from iotax.wording.answer import Part, answer, precision
from iotax.wording.conditions import because
from iotax.wording.costs import comparable, cost_cautions, not_sized
from iotax.wording.figures import (
    PERCENT_RATIO_MAX,
    PROTOCOL_TITLES,
    Finding,
    Tone,
    figure,
    indexed,
    indexed_ends,
    inside,
    percent,
    points,
    signed,
    span,
    title,
)
from iotax.wording.trust import SIMULATED, looked, measuring, trust
from iotax.wording.verdicts import change, verdict_word, verdicts

__all__ = [
    "PERCENT_RATIO_MAX",
    "PROTOCOL_TITLES",
    "SIMULATED",
    "Finding",
    "Part",
    "Tone",
    "answer",
    "because",
    "change",
    "comparable",
    "cost_cautions",
    "figure",
    "indexed",
    "indexed_ends",
    "inside",
    "looked",
    "measuring",
    "not_sized",
    "percent",
    "points",
    "precision",
    "signed",
    "span",
    "title",
    "trust",
    "verdict_word",
    "verdicts",
]
