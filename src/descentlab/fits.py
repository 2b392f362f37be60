"""Fits over a grid: exponents in a setting, and where a phase diagram turns, with intervals over seeds.

Both resample seeds, whole columns of the grid at once, since a seed draws the same task in every cell. A
bootstrap of few seeds is too narrow (Hesterberg: What teachers should know about the bootstrap, 2015), so its
percentiles are moved away from the estimate, by what Student's t is over the normal law, times
sqrt(n / (n - 1)). For a mean that is about Student's interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import xarray as xr
from scipy import special

from descentlab.estimate import Broken

RESAMPLES = 2000
FEWEST_SEEDS = 3
TAIL = 0.025
BEND = 0.1  # by which the slopes of both halves may differ, of the exponent or of one, in what is a power law


@dataclass(frozen=True)
class Fit:
    """An exponent: the slope of log y against log x over all the range, its 95 % interval, and its drift.

    The interval is the hull of those of the whole range and of its lower and upper half, so that a law that
    bends has a wide one. `drift` is the upper half's slope minus the lower one's; nan with two values.
    `power_law` says whether the drift, with its own interval, is small (true) or not (false): then there is
    no exponent over this range, whatever `value` is. None where seeds or values are too few to tell.
    `left_out` counts the cells that were not finite in every seed.
    """

    value: float
    low: float
    high: float
    drift: float
    seeds: int
    points: int
    power_law: bool | None = None
    left_out: int = 0


def exponent_in(series: xr.DataArray, name: Hashable) -> Fit:
    """The exponent of a positive quantity in the coordinate `name`, one number per seed and cell.

    Other dimensions of the grid have intercepts of their own: the slope is common to them. Cells that are
    not finite in every seed are left out.

    >>> x = np.array([1.0, 2.0, 4.0])
    >>> y = xr.DataArray([3 * x**2, 5 * x**2, 4 * x**2], {"x": x}, ("seed", "x"))
    >>> round(exponent_in(y, "x").value, 6)
    2.0
    """
    size = series[name]
    (along,) = size.dims
    others = [d for d in series.dims if d not in ("seed", along)]
    y = series.stack(other=others) if others else series.expand_dims("other")
    y = y.transpose("seed", "other", along)
    if np.any(size.values <= 0) or np.any(y.values <= 0):
        raise Broken(f"An exponent of {series.name} in {name} needs positive numbers.")
    log_x, log_y = np.log(size.values.astype(float)), np.log(y.values.astype(float))
    seeds, points = y.sizes["seed"], log_x.size
    if points < 2:
        raise Broken(f"An exponent in {name} needs two values at least, got {points}.")
    order = np.argsort(log_x)
    halves = [order[: points // 2 + 1], order[(points - 1) // 2 :]] if points > 2 else []
    slopes = [_slopes(log_x[part], log_y[..., part], name) for part in (order, *halves)]
    value = float(slopes[0].mean())
    bounds = [resampled(own, lambda mean: mean) for own in slopes]
    drifts = slopes[2] - slopes[1] if halves else np.full(seeds, math.nan)
    low, high = min(b[0] for b in bounds), max(b[1] for b in bounds)
    return Fit(
        value, float(low), float(high), float(drifts.mean()), seeds, points,
        _small(drifts, BEND * max(1.0, abs(value))), int((~np.isfinite(log_y).all(axis=0)).sum()),
    )  # fmt: skip


def _small(drifts: np.ndarray, bound: float) -> bool | None:
    """Whether the mean over seeds lies within +-bound, as its interval says; None where that says neither."""
    if np.isnan(drifts).any():
        return None
    low, high = resampled(drifts, lambda mean: mean)
    if -bound <= low and high <= bound:
        return True
    return False if low > bound or high < -bound else None


def _slopes(log_x: np.ndarray, log_y: np.ndarray, name: Hashable) -> np.ndarray:
    """Each seed's least-squares slope, with an intercept for each of the other cells."""
    sound = np.isfinite(log_y).all(axis=0)
    x = np.where(sound, log_x, 0.0)
    centred = np.where(sound, log_x - x.sum(1, keepdims=True) / np.maximum(sound.sum(1, keepdims=True), 1), 0)
    if (centred**2).sum() < 1e-24:
        raise Broken(f"An exponent in {name} needs two sound cells in a part of the range.")
    return (centred * np.where(sound, log_y, 0.0)).sum(axis=(1, 2)) / (centred**2).sum()


def resampled(samples: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The 95 % interval (low, high) of a statistic of the mean over seeds, the first axis of the samples.

    A statistic that is nan for some resamples is taken to lie anywhere. Two seeds say nothing.
    """
    seeds, value = samples.shape[0], statistic(samples.mean(axis=0))
    if seeds < FEWEST_SEEDS:
        return np.stack([np.full_like(value, -math.inf), np.full_like(value, math.inf)])
    drawn = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))
    found = statistic(samples[drawn].mean(axis=1))
    student = special.stdtrit(seeds - 1, 1 - TAIL) / special.ndtri(1 - TAIL)
    wider = math.sqrt(seeds / (seeds - 1)) * student
    ends = []
    for tail, gap in ((TAIL, -math.inf), (1 - TAIL, math.inf)):
        end = np.quantile(np.where(np.isnan(found), gap, found), tail, axis=0, method="closest_observation")
        ends.append(np.where(np.isnan(value), end, value + wider * (end - value)))
    return np.stack(ends)


def transition(series: xr.DataArray, x: Hashable, level: float) -> xr.Dataset:
    """Where the mean over seeds first crosses a level along `x`, between cells, at each value of the rest.

    `place` is nan where it does not cross; `low` and `high` hold 95 % of the places of resampled seeds, with
    +-inf where too many of them do not cross.
    """
    (along,) = series[x].dims
    rest = [d for d in series.dims if d not in ("seed", along)]
    values = series.transpose("seed", *rest, along).values.astype(float)
    sizes = series[x].values.astype(float)

    def place(mean: np.ndarray) -> np.ndarray:
        return _crossings(sizes, mean, level)

    found, (low, high) = place(values.mean(axis=0)), resampled(values, place)
    coords = {k: v for k, v in series.coords.items() if set(v.dims) <= set(rest)}
    return xr.Dataset({k: (rest, v) for k, v in (("place", found), ("low", low), ("high", high))}, coords)


def _crossings(sizes: np.ndarray, values: np.ndarray, level: float) -> np.ndarray:
    """Where series along the last axis first cross a level, by linear interpolation; nan where not."""
    order = np.argsort(sizes)
    sizes, above = sizes[order], values[..., order] - level
    crosses = np.sign(above[..., 1:]) * np.sign(above[..., :-1]) <= 0
    first = crosses.argmax(axis=-1)[..., None]
    before, after = (np.take_along_axis(above, first + k, -1)[..., 0] for k in (0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(before == after, 0.5, before / (before - after))
    at = sizes[first[..., 0]] + share * (sizes[first[..., 0] + 1] - sizes[first[..., 0]])
    return np.where(crosses.any(axis=-1), at, math.nan)
