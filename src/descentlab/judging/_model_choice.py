"""Laws of decay: the p of y = A exp(-c t^p), and which of two laws fits a trajectory better.

Both fit log y by least squares, with a level and a rate of its own for each seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from scipy import optimize, special  # pyright: ignore[reportMissingTypeStubs], SciPy has no types

from descentlab.judging._estimates import Broken, Estimate, mean, student, trajectories
from descentlab.judging._exponents import FEWEST_RECORDS, logarithms, parts_of, records, window_of
from descentlab.judging._intervals import Hull

# The p of exp(-c t^p) is searched in this range: beyond it a law is a jump or a constant.
STRETCHES = (-4.0, 8.0)

# Two-parameter laws log y = offset(t) + a - c g(t): the shape g, the offset, and the t they must exceed.
Shape = Callable[[np.ndarray], np.ndarray]
LAWS: dict[str, tuple[Shape, Shape, float]] = {
    "exponential": (np.positive, np.zeros_like, -math.inf),
    "gaussian": (np.square, np.zeros_like, -math.inf),
    "power": (np.log, np.zeros_like, 0.0),
    "log_power": (np.log, lambda t: np.log(np.log(t)), 1.0),
}


def stretch(series: xr.DataArray, window: Any = None, log: bool = False) -> Estimate:
    """The p of y = A exp(-c t^p): 1 for exponential decay, 2 for Gaussian, 0 for a power law.

    The interval is the hull for the later half of the window (in log t) and for going on once more by its
    difference to the whole.
    """
    late, whole, steps = stretches(series, window, log)
    # A fit at the edge of the search bounds nothing.
    low_edge, high_edge = (bool(np.isclose(late, edge, atol=0.01).any()) for edge in STRETCHES)
    rises = bool(np.isnan(late).any())
    if rises:
        late, whole = np.zeros_like(late), np.zeros_like(whole)
    drift = (math.inf if rises or low_edge else 0.0, math.inf if rises or high_edge else 0.0)
    return Estimate(
        value=float(late.mean()),
        seeds=late.size,
        spread=Hull((student(late, drift), student(2 * late - whole))),
        range={"step": (float(steps[0]), float(steps[-1]))},
    ).noting(whole=whole.mean(), drift=(late - whole).mean())


def stretches(
    series: xr.DataArray, window: Any = None, log: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The p of y = A exp(-c t^p) of each seed, in the later half of the window and in all; and its steps.

    That is 1 + d log(rate)/d log t for the rate -d log y/dt, here by least squares on
    log y = a - c (t^p - 1)/p. NaN where a series does not fall. `log` says that the series is log y
    already, as it must be where y itself would underflow.
    """
    series = trajectories(series)
    steps, inside = records(series, window)
    log_y = series.values[:, inside] if log else logarithms(series, inside)
    later = parts_of(steps, 2)[1]
    falls = log_y[:, later[0]] > log_y[:, -1]
    whole = np.array([_best_stretch(steps, seed) for seed in log_y])
    late = np.array([_best_stretch(steps[later], seed[later]) for seed in log_y])
    return np.where(falls, late, np.nan), whole, steps


def rivals(series: xr.DataArray, law: str, rival: str, window: Any = None, log: bool = False) -> Estimate:
    """The mean over seeds of `preference`; the order "the law fits better" predicts [0, inf)."""
    scores = preference(series, law, rival, window, log)
    low, high = window_of(series["step"].values.astype(float), window)
    return mean(scores, range={"step": (np.min(low), np.max(high))})


def preference(
    series: xr.DataArray, law: str, rival: str, window: Any = None, log: bool = False
) -> np.ndarray:
    """½ log(RSS of the rival / RSS of the law) of each seed, fitted to log y: positive favours the law.

    That is the difference of Gaussian log-likelihoods per record; both laws have two parameters. `window`
    is (low, high), each a step or one step per seed.
    """
    for name in (law, rival):
        if name not in LAWS:
            raise ValueError(f"A law is one of {', '.join(LAWS)}; got {name!r}.")
    series, steps = trajectories(series), series["step"].values.astype(float)
    lows, highs = (np.broadcast_to(end, series.sizes["seed"]) for end in window_of(steps, window))
    after = max(LAWS[law][2], LAWS[rival][2])
    scores: list[float] = []
    for seed, (low, high) in enumerate(zip(lows, highs, strict=True)):
        inside = (steps >= low) & (steps <= high) & (steps > after)
        if inside.sum() < FEWEST_RECORDS:
            raise Broken(
                f"{series.name} has {inside.sum()} records of seed {seed} in steps {low:g} to {high:g}, "
                f"{FEWEST_RECORDS} are needed."
            )
        one, t = series.isel(seed=[seed]), steps[inside]
        log_y = one.values[0, inside] if log else logarithms(one, inside)[0]
        own, other = (_misfit(g(t), log_y - offset(t)) for g, offset, _ in (LAWS[law], LAWS[rival]))
        scores.append(0.5 * math.log(other / own))
    return np.array(scores)


def _best_stretch(steps: np.ndarray, log_y: np.ndarray) -> float:
    """The p for which log y = a - c (t^p - 1)/p fits best, with the best a and c for each p."""
    times = steps / steps[-1]

    def misfit(p: float) -> float:
        return _misfit(special.boxcox(times, p), log_y)

    grid = np.linspace(*STRETCHES, 49)
    best = int(np.argmin([misfit(float(p)) for p in grid]))
    bracket = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    fit: Any = optimize.minimize_scalar(  # pyright: ignore[reportUnknownMemberType], SciPy has no types
        misfit, bounds=bracket, method="bounded", options={"xatol": 1e-8}
    )
    return float(fit.x)


def _misfit(x: np.ndarray, y: np.ndarray) -> float:
    """Mean squared residual of the line through (x, y), not below rounding."""
    x, y = x - x.mean(), y - y.mean()
    rounding = (1e-13 * (1 + np.abs(y).max())) ** 2
    return float(np.mean((y - x * (x @ y) / max(x @ x, 1e-300)) ** 2) + rounding)
