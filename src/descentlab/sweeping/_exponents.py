"""Exponents of what a sweep gathers, in each of its settings, by the rule that claims over sizes use."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from descentlab.judging import FEWEST_SIZES, Broken, around, size_exponent, slopes, student

BEND = 0.1  # by which the slopes of both halves may differ, of the exponent or of one, in what is a power law


@dataclass(frozen=True)
class Fit:
    """An exponent in a setting and its 95 % interval, both by `size_exponent`; docs/sweeps.md says more.

    Fewer than seven values do not show the drift: then `value` is the slope over all of them, `low` and
    `high` are infinite, and `power_law` is None. `drift` is the slope of the upper half minus that of the
    lower half; nan with two values. `power_law` says whether it is surely small, or surely not; None where
    the seeds are too few to tell. `points` counts the values, and `left_out` the cells that were not used.
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

    A row is a cell of the other dimensions; log y is averaged over rows. A cell is sound if it is finite in
    every seed. Values of the setting without a sound cell are left out, then rows with a cell that is not
    sound.

    >>> x = np.array([1.0, 2.0, 4.0])
    >>> y = xr.DataArray([3 * x**2, 5 * x**2, 4 * x**2], {"x": x}, ("seed", "x"))
    >>> round(exponent_in(y, "x").value, 6)
    2.0
    """
    (along,) = series[name].dims
    others = [d for d in series.dims if d not in ("seed", along)]
    series = series.sortby(name)
    rows = series.stack(other=others) if others else series.expand_dims("other")
    x, y = series[name].values.astype(float), rows.transpose("other", "seed", along).values.astype(float)
    if np.any(x <= 0) or np.any(y <= 0):
        raise Broken(f"An exponent of {series.name} in {name} needs positive numbers.")
    sound = np.isfinite(y).all(axis=1)
    used = sound.any(axis=0)
    whole = sound[:, used].all(axis=1)
    if used.sum() < 2:
        raise Broken(f"An exponent in {name} needs two values at least, got {used.sum()} with sound cells.")
    if not whole.any():
        raise Broken(f"An exponent in {name} needs a row in which all cells are finite in every seed.")
    x, log_y = x[used], np.log(y[whole][..., used]).mean(axis=0)
    seeds, points = log_y.shape
    log_x = np.broadcast_to(np.log(x), log_y.shape)
    halves = slice(points // 2 + 1), slice((points - 1) // 2, None)
    lower, upper = (slopes(log_x[:, half], log_y[:, half]) for half in halves)
    drift = float((upper - lower).mean()) if points > 2 else math.nan
    left_out = sound.size - int(whole.sum()) * points
    if points < FEWEST_SIZES:
        value = float(slopes(log_x, log_y).mean())
        return Fit(value, -math.inf, math.inf, drift, seeds, points, None, left_out)
    estimate = size_exponent(str(name), [np.full(seeds, size) for size in x], list(np.exp(log_y).T))
    low, high = estimate.interval(0.95)
    small = around(0.0, BEND * max(1.0, abs(estimate.value)))
    bounds = student(upper - lower).interval(0.95)
    power_law = small.holds(*bounds) if small.decides(*bounds) else None
    return Fit(estimate.value, float(low), float(high), drift, seeds, points, power_law, left_out)
