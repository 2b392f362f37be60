"""Estimates: a number measured over seeds, with an interval at any confidence level.

A measure reduces a trajectory to one number per seed and hands these to one of the constructors here,
which choose the interval that suits the kind of number:

    mean          Student's t over seeds               real samples
    difference    the same, on paired differences      orders: a exceeds b
    share         Clopper and Pearson                  booleans
    median        order statistics                     samples that may be censored (+inf)
    exact         a point                              what does not depend on the seed
    hitting_time  a median                             when a series first crosses a value
    log_ratio     a mean                               which of two hitting times is later

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
from descentlab.judging._intervals import Interval as Interval

# NumPy's own ArrayLike refuses tuples when it is checked at run time.
Samples = ArrayLike | Sequence[Any]


class Broken(ValueError):  # noqa: N818, what it says is a verdict
    """Data from which nothing can be measured: missing, non-finite or diverged."""


@dataclass(frozen=True)
class Estimate:
    """A measured number, its error, and the range of steps or sizes that it was measured on."""

    value: float
    seeds: int
    spread: Spread
    range: Mapping[str, Bounds] = field(default_factory=dict)
    notes: Mapping[str, float] = field(default_factory=dict)
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
    samples: Samples,
    *,
    drift: Bounds = (0.0, 0.0),
    resolution: Number = 0.0,
    range: Mapping[str, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Estimate:
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


def share(
    successes: Samples, *, range: Mapping[str, Any] | None = None, notes: Mapping[str, Any] | None = None
) -> Estimate:
    """Share of seeds that succeed, with Clopper and Pearson's interval."""
    hits = _finite(successes) != 0
    spread = Binomial(int(hits.sum()), hits.size)
    return Estimate(float(hits.mean()), hits.size, spread, _bounds(range), _floats(notes))


def exact(
    value: Any,
    *,
    seeds: int = 1,
    range: Mapping[str, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Estimate:
    """A number that does not depend on the seed: the interval is a point."""
    return Estimate(float(value), seeds, Point(float(value)), _bounds(range), _floats(notes))


def median(
    samples: Samples,
    *,
    at_least: Samples | None = None,
    range: Mapping[str, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
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


def first_step(
    series: xr.DataArray, *, below: Number | None = None, above: Number | None = None
) -> np.ndarray:
    """First recorded step of each seed with value <= below (or >= above); +inf where there is none."""
    return _hits(series, below, above)[1]


def hitting_time(
    series: xr.DataArray, *, below: Number | None = None, above: Number | None = None
) -> Estimate:
    """Median over seeds of the first step with value <= below (or >= above).

    A hit is known to lie after the previous record, a censored one after the last: the interval holds both.
    """
    lower, upper = _hits(series, below, above)
    steps = series["step"].values
    censored = float(np.isinf(upper).sum())
    return median(upper, at_least=lower, range={"step": (steps[0], steps[-1])}, notes={"censored": censored})


def log_ratio(later: Samples, earlier: Samples, horizon: Number, resolution: Number = 0.0) -> Estimate:
    """Mean over seeds of log(later / earlier) for paired hitting times; later > earlier predicts [0, inf).

    A censored time (+inf) is only known to exceed the horizon, so the ratio is bounded on one side only.
    With the horizon in its place, the mean is bounded on that side, and the interval is open on the other.
    `resolution` is the largest log(step / previous step) of the records: either time may be off by so much.
    """
    later, earlier = np.asarray(later, dtype=float).ravel(), np.asarray(earlier, dtype=float).ravel()
    both = np.isinf(later) & np.isinf(earlier)
    if both.any():
        seed = int(np.flatnonzero(both)[0])
        raise Broken(f"Seed {seed} reaches neither event by step {horizon}.")
    if min(later.min(), earlier.min()) <= 0:
        raise Broken("A hitting time is 0: its ratio to another is undefined.")
    samples = np.log(np.minimum(later, horizon) / np.minimum(earlier, horizon))
    down = math.inf if np.isinf(earlier).any() else resolution
    up = math.inf if np.isinf(later).any() else resolution
    censored = float(np.isinf(later).sum() + np.isinf(earlier).sum())
    return mean(samples, drift=(down, up), range={"step": (0, horizon)}, notes={"censored": censored})


def log_gap(times: Samples, steps: Samples) -> float:
    """Largest log(time / the record before it) of hitting times: how far one may be off, in log_ratio."""
    steps, hits = np.asarray(steps, dtype=float), np.asarray(times, dtype=float)
    hits = hits[np.isfinite(hits)]
    before = steps[np.maximum(np.searchsorted(steps, hits) - 1, 0)]
    if np.any(before <= 0):
        return math.inf
    return float(np.log(hits / before).max(initial=0.0))


def check_finite(series: xr.DataArray) -> xr.DataArray:
    """The series itself; Broken, with variable, seed and step, if a value is not finite."""
    bad = np.argwhere(~np.isfinite(series.values))
    if bad.size > 0:
        refuse(series, bad[0], "which is not finite")
    return series


def trajectories(series: xr.DataArray) -> xr.DataArray:
    """The series as (seed, step), finite, steps increasing; Broken if it is not of that kind."""
    if set(series.dims) != {"seed", "step"} or "step" not in series.coords:
        raise Broken(f"{series.name} must have dimensions seed and step, and step values; got {series.dims}.")
    if series.sizes["seed"] == 0 or series.sizes["step"] == 0 or np.any(np.diff(series["step"].values) <= 0):
        raise Broken(f"{series.name} must have seeds and increasing steps; got {dict(series.sizes)}.")
    return check_finite(series.transpose("seed", "step"))


def refuse(series: xr.DataArray, where: np.ndarray, why: str) -> NoReturn:
    """Raises Broken with the variable, its value and the place where it lies."""
    places = [
        f"{dim} {series[dim].values[i] if dim in series.coords else i}"
        for dim, i in zip(series.dims, where, strict=True)
    ]
    raise Broken(f"{series.name or 'series'} is {series.values[tuple(where)]} at {', '.join(places)}, {why}.")


def _hits(series: xr.DataArray, below: Number | None, above: Number | None) -> tuple[np.ndarray, np.ndarray]:
    """The record before the hit, and the hit, of each seed."""
    if (below is None) == (above is None):
        raise ValueError(f"Give one of below and above, got below={below}, above={above}.")
    series = trajectories(series)
    reached = series.values <= below if below is not None else series.values >= above
    steps = series["step"].values.astype(float)
    # A sentinel record at the end stands for "never".
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), steps.size)
    before = np.maximum(first - 1, 0)
    return steps[before], np.append(steps, math.inf)[first]


def _finite(samples: Samples) -> np.ndarray:
    values = np.asarray(samples, dtype=float).ravel()
    if values.size == 0:
        raise Broken("There are no seeds.")
    if not np.isfinite(values).all():
        seed = int(np.flatnonzero(~np.isfinite(values))[0])
        raise Broken(f"The sample of seed {seed} is {values[seed]}, which is not finite.")
    return values


def _bounds(range: Mapping[str, Any] | None) -> dict[str, Bounds]:
    return {name: (float(low), float(high)) for name, (low, high) in (range or {}).items()}


def _floats(notes: Mapping[str, Any] | None) -> dict[str, float]:
    return {name: float(value) for name, value in (notes or {}).items()}
