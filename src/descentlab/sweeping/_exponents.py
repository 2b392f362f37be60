"""Exponents of what a sweep gathers, in each of its settings."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from descentlab.judging import Broken, resampled

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
