"""Exponents in time and in a size, with intervals that hold seed spread and finite-horizon drift.

A measured exponent is a local slope b(t) = d log y / d log t, while theorems speak of its limit. Corrections
to a power law make b drift: t^-a (1 + c t^-β) like t^-β, which is fast; t^-a log t like 1/log t, the slowest
that theory commonly meets. With s = 1 + log t and b₁, b₂, b₃ the slopes in the thirds of the window (in
log t), the interval is the hull of Student's intervals, over seeds, of b₃ and of

    b∞                 of the fit log y = a + b∞ log t + c log s    in general: the drift may go on like 1/s
    b₃ + κ (b₃ - b₂)   κ = 2 r/(1 - r), r = (b₃ - b₂)/(b₂ - b₁)     if the drift fades clearly faster
    ±inf               on the side it is heading to                 if it grows, or fades clearly more slowly
    the slopes in all sixths                                        if the slope swings up and down

where "clearly" is a one-sided t-test over seeds. docs/verdicts.md says how often this goes wrong. For an
exponent in a size, the size takes the place of t.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from descentlab.judging._estimates import Broken, Estimate, refuse, student, trajectories
from descentlab.judging._intervals import Bounds, Hull, Student

# The default window drops this share of the range of log t, at its start, where constants rule.
TRANSIENT = 0.25
# A drift below this is none: rounding makes as much even in exact laws.
NEGLIGIBLE = 0.005
# Of the one-sided tests above, and how much faster than 1/s is clearly faster: tuned on planted laws.
SIGNIFICANCE = 0.025
FASTER = 0.6
SAFETY = 2.0
FEWEST_RECORDS = 4
FEWEST_SIZES = 7  # two intervals for each third of the range
Arrays = Sequence[np.ndarray]


def exponent(series: xr.DataArray, against: xr.DataArray | None = None, window: Any = None) -> Estimate:
    """Log-log slope of the series against its step, or against another series recorded with it."""
    series = trajectories(series)
    steps, inside = records(series, window)
    thirds = parts_of(steps, 3)
    x = xr.zeros_like(series, dtype=float) + series["step"] if against is None else trajectories(against)
    if x.shape != series.shape or np.any(x["step"].values != series["step"].values):
        raise Broken(f"{series.name} and {x.name} must be recorded at the same steps for the same seeds.")
    log_x, log_y = logarithms(x, inside), logarithms(series, inside)
    origin = min(0.0, log_x[0, 0]) if against is None else log_x[:, :1]
    sixths = [half for third in thirds for half in np.array_split(third, 2)]
    ends = {"step": (float(steps[0]), float(steps[-1]))}
    return _settling(log_x, log_y, 1 + np.abs(log_x - origin), thirds, sixths, ends)


def size_exponent(name: str, sizes: Arrays, values: Arrays, regime: Arrays | None = None) -> Estimate:
    """The exponent p of value ~ size^p; `sizes` and `values` hold an array of seeds for each size.

    Sizes are listed in the direction of the theorem's regime. `regime` is the number >= 1 that the theorem
    takes to be large, by default the size itself, or how far it has come: drift is expected to fade no
    slower than 1/log of it.
    """
    x, y = np.stack(sizes, axis=1).astype(float), np.stack(values, axis=1).astype(float)
    if x.shape[1] < FEWEST_SIZES:
        raise Broken(f"An exponent in {name} needs {FEWEST_SIZES} sizes, got {x.shape[1]}.")
    if not (np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)).all():
        raise Broken(f"An exponent in {name} needs positive numbers at all sizes.")
    log_x = np.log(x)
    if regime is not None:
        large = np.log(np.stack(regime, axis=1))
    elif (np.diff(log_x) > 0).all() and x.min() >= 1:
        large = log_x
    else:
        large = np.abs(log_x - log_x[:, :1])
    ends = {name: (float(x.min()), float(x.max()))}
    return _settling(log_x, np.log(y), 1 + large, _shared(x.shape[1], 3), _shared(x.shape[1], 6), ends)


def _settling(
    log_x: np.ndarray,
    log_y: np.ndarray,
    clock: np.ndarray,
    thirds: Arrays,
    sixths: Arrays,
    range: Mapping[str, Bounds],
) -> Estimate:
    """The slope that log y against log x (both by seed) settles to, from those in parts of the range.

    `thirds` and `sixths` pick the points of each part; `clock` is the s of the slowest drift expected.
    """
    coarse, fine = (
        np.stack([slopes(log_x[:, part], log_y[:, part]) for part in parts]) for parts in (thirds, sixths)
    )
    limits = np.array([_limit(*seed) for seed in zip(log_x, log_y, clock, strict=True)])
    inverse = [float(np.mean(1 / clock[:, part])) for part in thirds]
    lasting = (inverse[1] - inverse[2]) / max(inverse[0] - inverse[1], 1e-12)
    b1, b2, b3 = (float(slope.mean()) for slope in coarse)
    return Estimate(
        value=b3,
        seeds=log_y.shape[0],
        spread=Hull((student(coarse[2]), *_leads_to(coarse, fine, limits, min(max(lasting, 0.0), 0.95)))),
        range=range,
    ).noting(slope_1=b1, slope_2=b2, slope_3=b3, drift=b3 - b2, extrapolated=limits.mean())


def _leads_to(coarse: np.ndarray, fine: np.ndarray, limits: np.ndarray, lasting: float) -> list[Student]:
    """Where the drift of the slopes in thirds and sixths may lead; `lasting` is the r of a drift like 1/s."""
    swings = np.diff(fine, axis=0)
    if any(_exceeds(d, NEGLIGIBLE) for d in swings) and any(_exceeds(-d, NEGLIGIBLE) for d in swings):
        return [student(slope) for slope in fine]
    early, late = np.diff(coarse, axis=0)
    heading = math.copysign(1.0, late.mean())
    if _exceeds(heading * late, NEGLIGIBLE) and _exceeds(heading * (late - lasting * early), 0.0):
        return [student(coarse[2], drift=(math.inf, 0.0) if heading < 0 else (0.0, math.inf))]
    since = math.copysign(1.0, early.mean())
    if _exceeds(since * early, NEGLIGIBLE) and _exceeds(since * (FASTER * lasting * early - late), 0.0):
        # The upper confidence bound of r: noise must not make a drift look over.
        _, most = student(since * late).interval(1 - 2 * SIGNIFICANCE)
        ratio = min(max(most, 0.0) / abs(early.mean()), lasting)
        return [student(coarse[2] + SAFETY * ratio / (1 - ratio) * late)]
    return [student(limits)]


def window_of(steps: np.ndarray, window: Any) -> tuple[Any, Any]:
    """The window, by default the last three quarters of the range of log t."""
    if window is not None:
        low, high = window
        if np.any(np.asarray(low) >= np.asarray(high)):
            raise ValueError(f"window must be (low, high) with low < high, got {window}.")
        return low, high
    positive = steps[steps > 0]
    if positive.size == 0:
        raise Broken("No record has a positive step.")
    return float(positive[0] ** (1 - TRANSIENT) * positive[-1] ** TRANSIENT), float(positive[-1])


def records(series: xr.DataArray, window: Any) -> tuple[np.ndarray, np.ndarray]:
    """The positive steps in the window, and which of all records they are."""
    steps = series["step"].values.astype(float)
    low, high = window_of(steps, window)
    inside = (steps >= low) & (steps <= high) & (steps > 0)
    return steps[inside], inside


def parts_of(steps: np.ndarray, count: int) -> list[np.ndarray]:
    """The records in parts of equal length in log t, each with enough of them to fit a line."""
    first, last = (float(steps[0]), float(steps[-1])) if steps.size > 0 else (1.0, 1.0)
    edges = np.geomspace(first, last, count + 1)[1:-1]
    part = np.searchsorted(edges, steps)
    parts = [np.flatnonzero(part == i) for i in range(count)]
    fewest = min(own.size for own in parts)
    if fewest < FEWEST_RECORDS:
        raise Broken(
            f"Each of the {count} parts of the window (equal in log t) needs {FEWEST_RECORDS} records, "
            f"got {fewest}: record more steps or widen the window."
        )
    return parts


def _shared(points: int, count: int) -> list[np.ndarray]:
    """The points of each of several parts of a grid; neighbouring parts share the point between them."""
    parts = np.array_split(np.arange(points - 1), count)
    return [np.append(part, part[-1] + 1) for part in parts]


def logarithms(series: xr.DataArray, inside: np.ndarray) -> np.ndarray:
    """log y at the records inside the window; Broken, with the place, where y is not positive."""
    bad = np.argwhere((series.values <= 0) & inside)
    if bad.size > 0:
        refuse(series, bad[0], "where a law needs a positive value")
    return np.log(series.values[:, inside])


def slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slope of each row."""
    x = x - x.mean(axis=1, keepdims=True)
    if np.any(np.abs(x).max(axis=1) < 1e-12):
        raise Broken("What the slope is taken against stands still in a part of the window.")
    return (x * y).sum(axis=1) / (x * x).sum(axis=1)


def _limit(log_x: np.ndarray, log_y: np.ndarray, clock: np.ndarray) -> float:
    """The b∞ of log y = a + b∞ log x + c log s."""
    design = np.stack([np.ones_like(log_x), log_x, np.log(clock)], axis=1)
    return float(np.linalg.lstsq(design, log_y, rcond=None)[0][1])


def _exceeds(samples: np.ndarray, bound: float) -> bool:
    """Whether the mean exceeds the bound and, by a one-sided t-test over seeds, zero."""
    spread = student(samples)
    return spread.mean > bound and spread.interval(1 - 2 * SIGNIFICANCE)[0] > 0
