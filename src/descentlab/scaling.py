"""Scaling: how what is read off runs depends on a size, over a grid of sizes.

A claim that ranges over sizes declares a grid: one setting, its values, and what else moves with it. Its
measure gets the dataset of each size. What is read off a run (a time, a prefactor) becomes one number per
seed and size; `size_exponent` is the slope of their logarithms, with the drift over sub-ranges in the
interval, as for exponents in time (law.py). Sizes are listed in the direction of the theorem's regime.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from descentlab.estimate import Broken, Estimate, trajectories
from descentlab.law import settling

FEWEST_SIZES = 7  # two intervals for each third of the range


@dataclass(frozen=True)
class Grid:
    """Runs of a preset at several sizes. `cells` are their overrides; `settings` are common to all.

    Overrides may be functions of the preset's own value, so that the grid moves with its base.

    >>> Grid("D", [{"D": 36}, {"D": 72}], {"reduced": True}).runs["D_1"]
    {'reduced': True, 'D': 72}
    """

    over: str
    cells: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """The runs by name, as a claim or a figure takes them."""
        return {f"{self.over}_{i}": {**self.settings, **cell} for i, cell in enumerate(self.cells)}


def times(factor: float) -> Callable[[Any], Any]:
    """A preset's own value times a factor; whole numbers stay whole, and positive.

    >>> times(0.4)(10), times(0.5)(0.3)
    (4, 0.15)
    """
    return lambda value: max(1, round(value * factor)) if isinstance(value, int) else value * factor


def setting(run: xr.Dataset, name: str) -> Any:
    """A setting of a stored run."""
    return json.loads(run.attrs["about"])["settings"][name]


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


def size_exponent(
    name: str,
    sizes: Sequence[np.ndarray],
    values: Sequence[np.ndarray],
    regime: Sequence[np.ndarray] | None = None,
) -> Estimate:
    """The exponent p of value ~ size^p; `sizes` and `values` hold an array of seeds for each size.

    Drift is expected to fade no slower than 1/log of `regime`, the number >= 1 that the theorem takes to be
    large; by default the size itself, or how far it has come.
    """
    x, y = np.stack(sizes, axis=1).astype(float), np.stack(values, axis=1).astype(float)
    if x.shape[1] < FEWEST_SIZES:
        raise Broken(f"An exponent in {name} needs {FEWEST_SIZES} sizes, got {x.shape[1]}.")
    if not (np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)).all():
        raise Broken(f"An exponent in {name} needs positive numbers at all sizes.")
    intervals = np.arange(x.shape[1] - 1)

    def points(parts: int) -> list[np.ndarray]:
        """The sizes at the ends of the intervals of each part: neighbouring parts share one."""
        return [np.append(own, own[-1] + 1) for own in np.array_split(intervals, parts)]

    log_x = np.log(x)
    if regime is None:
        regime = list(
            x.T if (np.diff(log_x) > 0).all() and x.min() >= 1 else np.exp(np.abs(log_x - log_x[:, :1])).T
        )
    return settling(
        log_x, np.log(y), 1 + np.log(np.stack(regime, axis=1)), points(3), points(6),
        range={name: (float(x.min()), float(x.max()))},
    )  # fmt: skip
