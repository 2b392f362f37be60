"""Level crossings: when a recorded series first reaches a value, and what another one is then."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from descentlab.judging._estimates import Broken, trajectories


def crossing(series: xr.DataArray, below: np.ndarray) -> np.ndarray:
    """The step at which each seed first falls below its level, between records by log-log interpolation.

    +inf where it does not; a seed that is below at its first record crosses at that record.

    >>> steps = np.array([1, 10, 100])
    >>> loss = xr.DataArray([[1.0, 0.1, 0.01]], coords={"step": steps}, dims=("seed", "step"))
    >>> crossing(loss, np.array([0.05])).round(3)
    array([20.])
    """
    series = trajectories(series)
    steps = series["step"].values.astype(float)
    times = []
    for values, level in zip(series.values, below, strict=True):
        under = np.flatnonzero(values <= level)
        if under.size == 0:
            times.append(math.inf)
            continue
        i = int(under[0])
        if i == 0 or steps[i - 1] <= 0 or values[i] <= 0:
            times.append(steps[i])
            continue
        share = np.log(values[i - 1] / level) / np.log(values[i - 1] / values[i])
        times.append(float(np.exp(np.log(steps[i - 1]) + share * np.log(steps[i] / steps[i - 1]))))
    return np.array(times)


def read(series: xr.DataArray, times: np.ndarray) -> np.ndarray:
    """The value of each seed at its own time, between records by log-log interpolation."""
    series = trajectories(series)
    positive = series["step"].values > 0
    steps = np.log(series["step"].values[positive].astype(float))
    if np.any(~(times <= series["step"].values[-1])):
        raise Broken(
            f"{series.name} is recorded to step {series['step'].values[-1]}, {times.max()} is needed."
        )
    logs = np.log(np.maximum(series.values[:, positive].astype(float), 1e-300))
    return np.array([np.exp(np.interp(np.log(t), steps, y)) for t, y in zip(times, logs, strict=True)])
