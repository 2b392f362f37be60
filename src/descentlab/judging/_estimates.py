"""Estimates: a number measured over seeds, with an interval at any confidence level.

A measure reduces a trajectory to one number per seed and hands these to one of the constructors here,
which choose the interval that suits the kind of number:

    mean          Student's t over seeds               real samples
    difference    the same, on paired differences      orders: a exceeds b
    share         Clopper and Pearson                  booleans
    median        order statistics                     samples that may be censored (+inf)
    exact         a point                              what does not depend on the seed

>>> low, high = mean([0.9, 1.0, 1.1]).interval(0.95)
>>> round(low, 3), round(high, 3)
(0.752, 1.248)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from descentlab.judging._intervals import Binomial, Bounds, Number, Point, Ranks, Spread, Student

# NumPy's own ArrayLike refuses tuples when it is checked at run time.
Samples = ArrayLike | Sequence[Any]
Named = Mapping[str, Any] | None


class Broken(ValueError):  # noqa: N818, what it says is a verdict
    """Data from which nothing can be measured: missing, non-finite or diverged."""


@dataclass(frozen=True)
class Estimate:
    """A measured number, its error, and the range of steps or sizes that it was measured on."""

    value: float
    seeds: int
    spread: Spread
    range: Mapping[str, Bounds] = field(default_factory=dict[str, Bounds])
    notes: Mapping[str, float] = field(default_factory=dict[str, float])
    # What would narrow the interval where no number of seeds does.
    lacks: str = "more steps or a larger size"

    def __post_init__(self) -> None:
        # A median of censored times may be infinite; nothing else may.
        if math.isnan(self.value) or (math.isinf(self.value) and not isinstance(self.spread, Ranks)):
            raise Broken(f"The estimate is {self.value}.")

    def interval(self, level: float = 0.95, seeds: Number | None = None) -> Bounds:
        """Confidence interval at this level; `seeds` asks for the one that so many seeds would give."""
        if not 0 <= level < 1:
            raise ValueError(f"level must be in [0, 1), got {level}.")
        return self.spread.interval(level, seeds)

    def noting(self, **notes: Any) -> Estimate:
        """The same estimate with more notes: numbers, or arrays of one number without dimensions."""
        return replace(self, notes={**self.notes, **_floats(notes)})


def student(samples: Samples, drift: Bounds = (0.0, 0.0), floor: float = 0.0) -> Student:
    """Student's spread of per-seed samples, whose deviation is taken to be at least `floor`."""
    values = _finite(samples)
    deviation = float(values.std(ddof=1)) if values.size > 1 else math.inf
    return Student(float(values.mean()), max(deviation, floor), values.size, drift)


def mean(
    samples: Samples, *, drift: Bounds = (0.0, 0.0), resolution: Number = 0.0,
    range: Named = None, notes: Named = None,
) -> Estimate:  # fmt: skip
    """Mean over seeds, with Student's interval, which `drift` >= 0 widens below and above.

    `resolution` is the least step a sample can take, such as 1/n for a share of n: equal samples then say
    no more than that their deviation is below it.
    """
    if min(drift) < 0:
        raise ValueError(f"drift must be two non-negative numbers, got {drift}.")
    spread = student(samples, drift, float(resolution))
    return Estimate(spread.mean, spread.seeds, spread, _bounds(range), _floats(notes))


def difference(larger: Samples, smaller: Samples, **further: Any) -> Estimate:
    """Mean over seeds of larger - smaller, paired by seed; the order larger > smaller predicts [0, inf)."""
    return mean(_finite(larger) - _finite(smaller), **further)


def share(successes: Samples, *, range: Named = None, notes: Named = None) -> Estimate:
    """Share of seeds that succeed, with Clopper and Pearson's interval."""
    hits = _finite(successes) != 0
    spread = Binomial(int(hits.sum()), hits.size)
    return Estimate(float(hits.mean()), hits.size, spread, _bounds(range), _floats(notes))


def exact(value: Any, *, seeds: int = 1, range: Named = None, notes: Named = None) -> Estimate:
    """A number that does not depend on the seed: the interval is a point."""
    return Estimate(float(value), seeds, Point(float(value)), _bounds(range), _floats(notes))


def median(
    samples: Samples, *, at_least: Samples | None = None, range: Named = None, notes: Named = None
) -> Estimate:
    """Median over seeds, with an interval from order statistics; +inf stands for a censored sample.

    `at_least` is for samples of which one only knows that the truth lies in [at_least, sample].
    """
    upper = np.asarray(samples, dtype=float).ravel()
    lower = upper if at_least is None else np.asarray(at_least, dtype=float).ravel()
    if upper.size == 0 or np.isnan(upper).any() or np.isnan(lower).any():
        raise Broken(f"A median needs samples that are not NaN, got {upper.tolist()}.")
    # The upper of the two middle samples, so that half of the seeds censored give inf.
    value = float(np.sort(upper)[upper.size // 2])
    spread = Ranks(tuple(lower.tolist()), tuple(upper.tolist()))
    return Estimate(value, upper.size, spread, _bounds(range), _floats(notes))


def check_finite(series: xr.DataArray) -> xr.DataArray:
    """The series itself; Broken, with variable, seed and step, if a value is not finite."""
    bad = np.argwhere(~np.isfinite(series.values))
    if bad.size > 0:
        refuse(series, bad[0], "which is not finite")
    return series


def trajectories(series: xr.DataArray) -> xr.DataArray:
    """The series as (seed, step), finite, steps increasing; Broken if it is not of that kind."""
    steps_known = "step" in series.coords  # pyright: ignore[reportUnknownMemberType], xarray's generic
    if set(series.dims) != {"seed", "step"} or not steps_known:
        raise Broken(f"{series.name} must have dimensions seed and step, and step values; got {series.dims}.")
    if series.sizes["seed"] == 0 or series.sizes["step"] == 0 or np.any(np.diff(series["step"].values) <= 0):
        raise Broken(f"{series.name} must have seeds and increasing steps; got {dict(series.sizes)}.")
    return check_finite(series.transpose("seed", "step"))


def refuse(series: xr.DataArray, where: np.ndarray, why: str) -> NoReturn:
    """Raises Broken with the variable, its value and the place where it lies."""
    places = [f"{dim} {series[dim].values[i]}" for dim, i in zip(series.dims, where, strict=True)]
    raise Broken(f"{series.name or 'series'} is {series.values[tuple(where)]} at {', '.join(places)}, {why}.")


def _finite(samples: Samples) -> np.ndarray:
    values = np.asarray(samples, dtype=float).ravel()
    if values.size == 0:
        raise Broken("There are no seeds.")
    if not np.isfinite(values).all():
        seed = int(np.flatnonzero(~np.isfinite(values))[0])
        raise Broken(f"The sample of seed {seed} is {values[seed]}, which is not finite.")
    return values


def _bounds(range: Named) -> dict[str, Bounds]:
    return {name: (float(low), float(high)) for name, (low, high) in (range or {}).items()}


def _floats(notes: Named) -> dict[str, float]:
    return {name: float(value) for name, value in (notes or {}).items()}
