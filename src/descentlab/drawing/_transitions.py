"""Where a phase diagram turns, with an interval over seeds.

The bootstrap resamples seeds, whole columns of the grid at once, since a seed draws the same task in every
cell. A bootstrap of few seeds is too narrow (Hesterberg: What teachers should know about the bootstrap,
2015), so its percentiles are moved away from the estimate: by the quantile of Student's t over that of the
normal law, times sqrt(n / (n - 1)). For a mean that is about Student's interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

import numpy as np
import xarray as xr
from scipy import special

from descentlab.judging import first_crossing

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

    def end(tail: float, gap: float) -> np.ndarray:
        drawn = np.where(np.isnan(found), gap, found)
        percentile = np.quantile(drawn, tail, axis=0, method="closest_observation")
        return np.where(np.isnan(value), percentile, value + wider * (percentile - value))

    return np.stack([end(TAIL, -math.inf), end(1 - TAIL, math.inf)])


def transition(series: xr.DataArray, x: Hashable, level: float) -> xr.Dataset:
    """Where the mean over seeds first crosses a level along `x`, between cells, at each value of the rest.

    `place` is nan where it does not cross; `low` and `high` hold 95 % of the places of resampled seeds, with
    +-inf where too many of them do not cross.
    """
    (along,) = series[x].dims
    rest = [d for d in series.dims if d not in ("seed", along)]
    series = series.sortby(x).transpose("seed", *rest, along)
    values, sizes = series.values.astype(float), series[x].values

    def place(mean: np.ndarray) -> np.ndarray:
        return first_crossing(sizes, mean, level, "either", "linear", never=math.nan)

    low, high = resampled(values, place)
    found = {"place": place(values.mean(axis=0)), "low": low, "high": high}
    like = series.isel({"seed": 0, along: 0}, drop=True).drop_attrs(deep=False)
    return xr.Dataset({name: like.copy(data=places) for name, places in found.items()})
