"""How much of the variation each factor explains."""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Share:
    """A line of the allocation of variation."""

    factors: tuple[str, ...]
    """Empty for the unexplained part: blocks and runs differ."""
    share: float


def explained_variation(treatments: Sequence[Mapping[str, Hashable]], y: Sequence[float] | np.ndarray) -> list[Share]:
    """The variation of `y` split over factors, their interactions, and the rest; largest first, the rest last.

    Each combination of factors gets the between-means sum of squares that its own subsets leave. Exact if all cells
    have equally many runs; an approximation otherwise.
    """
    names = [name for name in treatments[0] if len({t[name] for t in treatments}) > 1] if treatments else []
    observed = np.asarray(y, dtype=float)
    total = float(np.sum((observed - observed.mean()) ** 2)) if len(observed) else 0.0
    if total <= 0:
        return []
    own: dict[tuple[str, ...], float] = {(): 0.0}
    for size in range(1, len(names) + 1):
        for combination in itertools.combinations(names, size):
            between = _between_squares([tuple(t[name] for name in combination) for t in treatments], observed)
            below = sum(ss for other, ss in own.items() if set(other) < set(combination))
            own[combination] = max(0.0, between - below)
    del own[()]
    shares = [Share(factors, ss / total) for factors, ss in own.items()]
    rest = max(0.0, 1 - sum(s.share for s in shares))
    return [*sorted(shares, key=lambda s: -s.share), Share((), rest)]


def _between_squares(groups: Sequence[Hashable], y: np.ndarray) -> float:
    index: dict[Hashable, int] = {}
    where = np.array([index.setdefault(group, len(index)) for group in groups])
    counts = np.bincount(where)
    means = np.bincount(where, y) / counts
    return float(np.sum(counts * (means - y.mean()) ** 2))
