"""Fits over a grid: exponents in a setting, and where a phase diagram turns, with intervals over seeds.

Both resample seeds, whole columns of the grid at once, since a seed draws the same task in every cell. A
bootstrap of few seeds is too narrow (Hesterberg: What teachers should know about the bootstrap, 2015), so its
percentiles are moved away from the estimate, by what Student's t is over the normal law, times
sqrt(n / (n - 1)). For a mean that is about Student's interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

import numpy as np
import xarray as xr
from scipy import special

RESAMPLES = 2000
FEWEST_SEEDS = 3
TAIL = 0.025


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
