"""Fractional two-level factorial designs 2^(k−p).

The first k − p factors run through a full factorial; each of the others follows a product of them, its generator. The
generators are searched for: highest resolution first, then the fewest shortest words (minimum aberration; Box, Hunter
and Hunter). Factors are letters A, B, C, … here, words are sets of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

Word: TypeAlias = frozenset[int]
"""A product of factors, by their numbers. Equal factors cancel: the product of two words is their difference."""


@dataclass(frozen=True)
class Fraction:
    factors: int
    generators: tuple[Word, ...]
    """Generators of the last factors, in order: each a product of the first ones."""

    @property
    def base(self) -> int:
        return self.factors - len(self.generators)

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """The defining relation without the identity: products that are +1 in every run."""
        given = [word | {self.base + index} for index, word in enumerate(self.generators)]
        found = []
        for count in range(1, len(given) + 1):
            for some in itertools.combinations(given, count):
                product: Word = frozenset()
                for word in some:
                    product ^= word
                found.append(product)
        return tuple(sorted(found, key=lambda word: (len(word), sorted(word))))

    @property
    def resolution(self) -> int:
        """Length of the shortest word: 3 aliases main effects with two-factor interactions."""
        return min((len(word) for word in self.words), default=self.factors + 1)

    def runs(self) -> list[tuple[int, ...]]:
        """Levels 0 and 1 of each factor, in standard order of the base factors."""
        found = []
        for base in itertools.product((0, 1), repeat=self.base):
            signs = [2 * level - 1 for level in base]
            made = []
            for word in self.generators:
                sign = 1
                for factor in word:
                    sign *= signs[factor]
                made.append((sign + 1) // 2)
            found.append((*base, *made))
        return found

    def aliases(self, order: int = 2) -> list[tuple[Word, list[Word]]]:
        """Each effect of up to `order` factors with the others of that order that it is aliased with."""
        effects = [
            frozenset(some)
            for count in range(1, order + 1)
            for some in itertools.combinations(range(self.factors), count)
        ]
        found: list[tuple[Word, list[Word]]] = []
        seen: set[Word] = set()
        for effect in effects:
            if effect in seen:
                continue
            same = sorted((effect ^ word for word in self.words), key=lambda word: (len(word), sorted(word)))
            short = [word for word in same if 0 < len(word) <= order]
            seen.update(short)
            found.append((effect, short))
        return found


def fraction(factors: int, halvings: int) -> Fraction:
    """The design of minimum aberration of 2^(factors − halvings) runs."""
    base = factors - halvings
    products = [frozenset(some) for count in range(2, base + 1) for some in itertools.combinations(range(base), count)]
    # Long products first: among designs of equal words, the customary one (ABCD before ABC).
    products.sort(key=lambda word: (-len(word), sorted(word)))
    designs = (Fraction(factors, some) for some in itertools.combinations(products, halvings))
    return min(designs, key=lambda design: _aberration(design.words, factors))


def letters(word: Iterable[int]) -> str:
    """`ABD`."""
    return "".join(chr(ord("A") + factor) for factor in sorted(word))


def _aberration(words: tuple[Word, ...], factors: int) -> list[int]:
    """Number of words of each length, the short ones first."""
    lengths = [len(word) for word in words]
    return [lengths.count(length) for length in range(1, factors + 1)]
