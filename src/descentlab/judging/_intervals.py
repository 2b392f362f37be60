"""Intervals: those that claims predict, and those that estimates spread over.

A spread gives a confidence interval at every level, since Holm's procedure adjusts levels, and for any
number of seeds, since an undecided verdict says how many it would need. Intervals are nested in the level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from scipy import special  # pyright: ignore[reportMissingTypeStubs], SciPy has no types

Number = float | int
Bounds = tuple[Number, Number]
EVERYTHING: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True)
class Interval:
    """A closed interval of predicted values.

    >>> around(-1, 0.25).holds(-1.1, -0.9)
    True
    """

    low: Number = -math.inf
    high: Number = math.inf

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"Interval needs low <= high, got low={self.low}, high={self.high}.")

    def holds(self, low: Number, high: Number) -> bool:
        """Whether [low, high] lies inside."""
        return bool(self.low <= low and high <= self.high)

    def misses(self, low: Number, high: Number) -> bool:
        """Whether [low, high] is disjoint from this interval."""
        return bool(high < self.low or self.high < low)

    def decides(self, low: Number, high: Number) -> bool:
        """Whether [low, high] lies inside or is disjoint: either way a verdict is due."""
        return self.holds(low, high) or self.misses(low, high)

    def __str__(self) -> str:
        return f"[{self.low:.4g}, {self.high:.4g}]"


def around(x: Number, margin: Number) -> Interval:
    """[x - margin, x + margin], for `predicts` of a claim."""
    return Interval(x - margin, x + margin)


def at_least(x: Number) -> Interval:
    """[x, inf)."""
    return Interval(low=x)


def at_most(x: Number) -> Interval:
    """(-inf, x]."""
    return Interval(high=x)


@runtime_checkable
class Spread(Protocol):
    """What an estimate knows about its error."""

    def interval(self, level: float, seeds: Number | None = None) -> Bounds:
        """Confidence interval, for the seeds at hand or as it would be for another number of them."""
        ...


@dataclass(frozen=True)
class Student:
    """mean ± t(level, seeds - 1) deviation / √seeds, widened by the drift below and above."""

    mean: float
    deviation: float
    seeds: int
    drift: Bounds = (0.0, 0.0)

    def interval(self, level: float, seeds: Number | None = None) -> Bounds:
        """Student's t-interval; one seed knows nothing of its spread, hence the whole line."""
        seeds = seeds or self.seeds
        if self.seeds < 2 or seeds < 2:
            return EVERYTHING
        reach = 0.0
        if self.deviation > 0 and math.isfinite(seeds):
            quantile = -float(special.stdtrit(seeds - 1, _tail(level)))
            reach = quantile * self.deviation / math.sqrt(seeds)
        return self.mean - reach - self.drift[0], self.mean + reach + self.drift[1]


@dataclass(frozen=True)
class Binomial:
    """Clopper and Pearson's interval for a share: exact, hence conservative, for any number of seeds."""

    successes: int
    seeds: int

    def interval(self, level: float, seeds: Number | None = None) -> Bounds:
        """Shares for which so many, or so few, successes have probability (1 - level)/2."""
        seeds, share = seeds or self.seeds, self.successes / self.seeds
        if math.isinf(seeds):
            return share, share
        hits, tail = share * seeds, _tail(level)
        low = float(special.betaincinv(hits, seeds - hits + 1, tail)) if self.successes > 0 else 0.0
        high = float(special.betainccinv(hits + 1, seeds - hits, tail)) if share < 1 else 1.0
        return low, high


@dataclass(frozen=True)
class Ranks:
    """Distribution-free interval for a median, from the order statistics of bounds on each sample."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def interval(self, level: float, seeds: Number | None = None) -> Bounds:
        """[lower_(k), upper_(n + 1 - k)] with the largest k such that P(Bin(n, ½) < k) <= (1 - level)/2."""
        own = len(self.lower)
        seeds = seeds or own
        if math.isinf(seeds):
            rank = (own + 1) // 2
        else:
            below = special.bdtr(np.arange(int(seeds)), int(seeds), 0.5)
            rank = int(np.count_nonzero(below <= _tail(level))) * own // int(seeds)
        if rank == 0:
            return EVERYTHING
        return sorted(self.lower)[rank - 1], sorted(self.upper)[own - rank]


@dataclass(frozen=True)
class Point:
    """No error at all."""

    value: float

    def interval(self, level: float, seeds: Number | None = None) -> Bounds:
        """[value, value]."""
        return self.value, self.value


@dataclass(frozen=True)
class Unsettled:
    """No bound at all: the number was read before the regime that the claim speaks of."""

    def interval(self, level: float, seeds: Number | None = None) -> Bounds:
        """The whole line."""
        return EVERYTHING


@dataclass(frozen=True)
class Hull:
    """Everything between the parts: the truth may be any of them, or on the way from one to another."""

    parts: tuple[Spread, ...]

    def interval(self, level: float, seeds: Number | None = None) -> Bounds:
        """The smallest interval that contains those of all parts."""
        lows, highs = zip(*(part.interval(level, seeds) for part in self.parts), strict=True)
        return min(lows), max(highs)


def _tail(level: float) -> float:
    return (1 - level) / 2
