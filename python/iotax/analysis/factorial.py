"""Effects of two-level factors, and how much of the variation each factor explains at any number of levels."""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student


@dataclass(frozen=True)
class Effects:
    """Coefficients of the sign table (half the difference between high and low), after Jain ch. 17 and 18."""

    coefficients: dict[str, float]
    """`""` is the mean; `AB` the interaction of A and B."""
    sums_of_squares: dict[str, float]
    error_sum_of_squares: float
    replicates: int

    @property
    def total_sum_of_squares(self) -> float:
        return sum(self.sums_of_squares.values()) + self.error_sum_of_squares

    @property
    def shares(self) -> dict[str, float]:
        """Share of the variation about the mean that each effect explains."""
        return {name: ss / self.total_sum_of_squares for name, ss in self.sums_of_squares.items()}

    @property
    def error_sd(self) -> float:
        cells = len(self.coefficients)
        return float(np.sqrt(self.error_sum_of_squares / (cells * (self.replicates - 1))))

    @property
    def coefficient_sd(self) -> float:
        return self.error_sd / float(np.sqrt(len(self.coefficients) * self.replicates))

    def interval(self, name: str, confidence: float = 0.95) -> tuple[float, float]:
        cells = len(self.coefficients)
        reach = float(student.ppf(0.5 + confidence / 2, cells * (self.replicates - 1))) * self.coefficient_sd
        return self.coefficients[name] - reach, self.coefficients[name] + reach

    def lenth(self) -> tuple[float, float]:
        """(pseudo standard error, margin of error) of the effects, for a design without replicates.

        Effects are twice the coefficients.
        """
        effects = np.array([abs(2 * c) for name, c in self.coefficients.items() if name])
        start = 1.5 * np.median(effects)
        pse = float(1.5 * np.median(effects[effects < 2.5 * start]))
        return pse, float(student.ppf(0.975, len(effects) / 3)) * pse


def two_level_effects(names: str, cells: Sequence[Sequence[float]]) -> Effects:
    """`cells` in standard order (the first factor varies fastest), each with its replicates."""
    observed = np.asarray(cells, dtype=float)
    if observed.shape[0] != 2 ** len(names):
        raise ValueError(f"{len(names)} factors at two levels make {2 ** len(names)} cells, not {observed.shape[0]}")
    means, replicates = observed.mean(axis=1), observed.shape[1]
    signs = {name: np.array([1 if row >> i & 1 else -1 for row in range(len(means))]) for i, name in enumerate(names)}
    coefficients, squares = {}, {}
    for size in range(len(names) + 1):
        for combination in itertools.combinations(names, size):
            column = np.prod([signs[name] for name in combination], axis=0) if combination else np.ones(len(means))
            label = "".join(combination)
            coefficients[label] = float(column @ means) / len(means)
            if combination:
                squares[label] = observed.size * coefficients[label] ** 2
    return Effects(coefficients, squares, float(np.sum((observed - means[:, None]) ** 2)), replicates)


@dataclass(frozen=True)
class Share:
    """A line of the allocation of variation."""

    factors: tuple[str, ...]
    """Empty for what no factor explains: blocks and runs differ."""
    share: float


def explained_variation(treatments: Sequence[Mapping[str, Hashable]], y: Sequence[float] | np.ndarray) -> list[Share]:
    """How the variation of `y` splits over factors, their interactions, and the rest; largest first, the rest last.

    Each combination of factors gets the between-means sum of squares that its own subsets leave. Exact where every cell
    has as many runs as every other; where it is not so, an approximation.
    """
    names = list(treatments[0]) if treatments else []
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
