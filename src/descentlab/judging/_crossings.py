"""Level crossings: when a series first reaches a level, and what another series is at that time.

`first_crossing` is the one place where crossings are found. The other functions here call it on series
with dimensions seed and step; phase diagrams call it along a setting of a grid.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import xarray as xr

from descentlab.judging._estimates import Broken, Estimate, Samples, mean, median, trajectories
from descentlab.judging._intervals import Number

Direction = Literal["below", "above", "either"]
Between = Literal["before", "record", "linear", "log x", "log y", "log-log"]
Level = Number | np.ndarray | None  # an array has a number for each seed


def first_crossing(
    x: Samples, y: Samples, level: Samples, direction: Direction = "below", between: Between = "record",
    never: Samples = math.inf, where: Samples = True,
) -> np.ndarray:  # fmt: skip
    """The x at which each series y (along its last axis) first reaches its level; `never` if it does not.

    `direction`: a record reaches the level if y <= level ("below"), if y >= level ("above"), or if it and
    the record before it are not on the same side of the level ("either"). Records at which `where` is
    false do not count.

    `between`: the result is the x of the first record that counts ("record"), the x of the record before
    it ("before"), or the point between the two at which a straight line meets the level. The line is drawn
    on the given axes: "linear", "log x", "log y" or "log-log". If the record before has reached the level
    too, or if a logarithm does not exist, the result is the x of the record.

    `x` may be another series. The result is then the value of that series at the crossing.

    >>> first_crossing([1.0, 10.0, 100.0], [[1.0, 0.1, 0.01]], 0.05, between="log-log").round(3)
    array([20.])
    """
    y = np.asarray(y)
    x = np.broadcast_to(np.asarray(x, dtype=float), y.shape)
    # A plain number is compared in the precision of y, an array of levels in the larger precision.
    level = np.asarray(level)[..., None] if np.ndim(level) > 0 else level
    if direction == "either":
        side = np.sign(y - level)
        reached = np.insert(side[..., 1:] * side[..., :-1] <= 0, 0, False, axis=-1)
    else:
        reached = y <= level if direction == "below" else y >= level
    counts = reached & np.asarray(where)
    after = counts.argmax(axis=-1)[..., None]
    before = np.maximum(after - 1, 0)
    (x0, y0), (x1, y1) = ([np.take_along_axis(a, i, -1) for a in (x, y)] for i in (before, after))
    place = x0 if between == "before" else x1
    if between not in ("before", "record"):
        log_x, log_y = between in ("log x", "log-log"), between in ("log y", "log-log")
        new = ~np.take_along_axis(reached, before, -1)
        exists = ((x0 > 0) & (x1 > 0) | (not log_x)) & ((y0 > 0) & (y1 > 0) | (not log_y))
        with np.errstate(all="ignore"):  # where there is no line
            down = np.log(y0 / level) if log_y else y0 - level
            drop = np.log(y0 / y1) if log_y else down - (y1 - level)
            share = np.where(drop == 0, 0.5, down / drop)
            line = np.exp(np.log(x0) + share * np.log(x1 / x0)) if log_x else x0 + share * (x1 - x0)
        place = np.where(new & exists, line, x1)
    return np.where(counts.any(axis=-1), place[..., 0], never)


def first_step(
    series: xr.DataArray, *, below: Level = None, above: Level = None,
    between: Between = "record", never: Number = math.inf,
) -> np.ndarray:  # fmt: skip
    """First step of each seed with value <= below (or >= above); `never` if none. See `first_crossing`."""
    series, steps = trajectories(series), series["step"].values
    if below is not None and above is None:
        return first_crossing(steps, series.values, below, "below", between, never)
    if above is not None and below is None:
        return first_crossing(steps, series.values, above, "above", between, never)
    raise ValueError(f"Give one of below and above, got below={below}, above={above}.")


def crossing(series: xr.DataArray, below: np.ndarray) -> np.ndarray:
    """The step at which each seed first falls to its level, between records by log-log interpolation.

    +inf where it does not; a seed that is below its level at the first record crosses it there.
    """
    return first_step(series, below=below, between="log-log")


def read(series: xr.DataArray, times: np.ndarray) -> np.ndarray:
    """The value of each seed at its own time, between records by log-log interpolation."""
    series = trajectories(series)
    steps = series["step"].values.astype(float)
    if np.any(~(times <= steps[-1])):
        raise Broken(f"{series.name} is recorded to step {steps[-1]:g}, {times.max():g} is needed.")
    positive = steps > 0
    logs = np.log(np.maximum(series.values[:, positive].astype(float), 1e-300))
    pairs = zip(np.log(times), logs, strict=True)
    found: list[Any] = [np.interp(time, np.log(steps[positive]), own) for time, own in pairs]
    return np.exp(found)


def hitting_time(
    series: xr.DataArray, *, below: Number | None = None, above: Number | None = None
) -> Estimate:
    """Median over seeds of the first step with value <= below (or >= above).

    A hit is known to lie after the previous record, a censored one after the last: the interval holds both.
    """
    steps = series["step"].values
    upper = first_step(series, below=below, above=above)
    lower = first_step(series, below=below, above=above, between="before", never=float(steps[-1]))
    estimate = median(upper, at_least=lower, range={"step": (steps[0], steps[-1])})
    return estimate.noting(censored=np.isinf(upper).sum())


def log_ratio(later: Samples, earlier: Samples, horizon: Number, resolution: Number = 0.0) -> Estimate:
    """Mean over seeds of log(later / earlier) for paired hitting times; later > earlier predicts [0, inf).

    A censored time (+inf) is only known to exceed the horizon, so the ratio is bounded on one side only.
    With the horizon in its place, the mean is bounded on that side, and the interval is open on the other.
    `resolution` is the largest log(step / previous step) of the records: either time may be off by so much.
    """
    later, earlier = np.asarray(later, dtype=float).ravel(), np.asarray(earlier, dtype=float).ravel()
    both = np.isinf(later) & np.isinf(earlier)
    if both.any():
        raise Broken(f"Seed {int(both.argmax())} reaches neither event by step {horizon}.")
    if min(later.min(), earlier.min()) <= 0:
        raise Broken("A hitting time is 0: its ratio to another is undefined.")
    samples = np.log(np.minimum(later, horizon) / np.minimum(earlier, horizon))
    down = math.inf if np.isinf(earlier).any() else resolution
    up = math.inf if np.isinf(later).any() else resolution
    estimate = mean(samples, drift=(down, up), range={"step": (0, horizon)})
    return estimate.noting(censored=np.isinf([later, earlier]).sum())


def log_gap(times: Samples, steps: Samples) -> float:
    """Largest log(time / the record before it) of hitting times: the error of a time in `log_ratio`."""
    steps, hits = np.asarray(steps, dtype=float), np.asarray(times, dtype=float)
    hits = hits[np.isfinite(hits)]
    before = steps[np.maximum(np.searchsorted(steps, hits) - 1, 0)]
    if np.any(before <= 0):
        return math.inf
    return float(np.log(hits / before).max(initial=0.0))
