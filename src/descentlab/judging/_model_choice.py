"""Rival laws: which of two laws with two parameters each fits a trajectory better."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from descentlab.judging._estimates import Broken, Estimate, mean, trajectories
from descentlab.judging._exponents import FEWEST_RECORDS, logarithms, misfit, window_of

# Two-parameter laws log y = offset(t) + a - c g(t): the shape g, the offset, and the t they must exceed.
LAWS: dict[str, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    "exponential": (lambda t: t, np.zeros_like, -math.inf),
    "gaussian": (np.square, np.zeros_like, -math.inf),
    "power": (np.log, np.zeros_like, 0.0),
    "log_power": (np.log, lambda t: np.log(np.log(t)), 1.0),
}


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
    scores = []
    for seed, (low, high) in enumerate(zip(lows, highs, strict=True)):
        inside = (steps >= low) & (steps <= high) & (steps > after)
        if inside.sum() < FEWEST_RECORDS:
            raise Broken(
                f"{series.name} has {inside.sum()} records of seed {seed} in steps {low:g} to {high:g}, "
                f"{FEWEST_RECORDS} are needed."
            )
        one = series.isel(seed=[seed])
        log_y = one.values[0, inside] if log else logarithms(one, inside)[0]
        own, other = (
            misfit(g(steps[inside]), log_y - offset(steps[inside]))
            for g, offset, _ in (LAWS[law], LAWS[rival])
        )
        scores.append(0.5 * np.log(other / own))
    return np.array(scores)
