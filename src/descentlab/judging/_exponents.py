"""Laws: exponents of trajectories, with intervals that hold seed spread and finite-horizon drift.

A measured exponent is a local slope b(t) = d log y / d log t, while theorems speak of its limit. Corrections
to a power law make b drift: t^-a (1 + c t^-β) like t^-β, which is fast; t^-a log t like 1/log t, the slowest
that theory commonly meets. With s = 1 + log t and b₁, b₂, b₃ the slopes in the thirds of the window (in
log t), the interval is the hull of Student's intervals, over seeds, of b₃ and of

    b∞                 of the fit log y = a + b∞ log t + c log s    in general: the drift may go on like 1/s
    b₃ + κ (b₃ - b₂)   κ = 2 r/(1 - r), r = (b₃ - b₂)/(b₂ - b₁)     if the drift fades clearly faster
    ±inf               on the side it is heading to                 if it grows, or fades clearly more slowly
    the slopes in all sixths                                        if the slope swings up and down

where "clearly" is a one-sided t-test over seeds. docs/verdicts.md says how often this goes wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy import optimize, special

from descentlab.judging._estimates import Broken, Estimate, refuse, student, trajectories
from descentlab.judging._intervals import Hull, Student

# The default window drops this share of the range of log t, at its start, where constants rule.
TRANSIENT = 0.25
# A drift below this is none: rounding makes as much even in exact laws.
NEGLIGIBLE = 0.005
# Of the one-sided tests above, and how much faster than 1/s is clearly faster: tuned on planted laws.
SIGNIFICANCE = 0.025
FASTER = 0.6
SAFETY = 2.0
FEWEST_RECORDS = 4
# Stretch exponents are looked for in this range: beyond it a law is a jump or a constant.
STRETCHES = (-4.0, 8.0)


def exponent(series: xr.DataArray, against: xr.DataArray | None = None, window: Any = None) -> Estimate:
    """Log-log slope of the series against its step, or against another series recorded with it."""
    series = trajectories(series)
    steps, inside = _records(series, window)
    thirds = _parts(steps, 3)
    x = xr.zeros_like(series, dtype=float) + series["step"] if against is None else trajectories(against)
    if x.shape != series.shape or np.any(x["step"].values != series["step"].values):
        raise Broken(f"{series.name} and {x.name} must be recorded at the same steps for the same seeds.")
    log_x, log_y = logarithms(x, inside), logarithms(series, inside)
    origin = min(0.0, log_x[0, 0]) if against is None else log_x[:, :1]
    halves = [half for third in thirds for half in np.array_split(third, 2)]
    return settling(
        log_x, log_y, 1 + np.abs(log_x - origin), thirds, halves,
        range={"step": (float(steps[0]), float(steps[-1]))},
    )  # fmt: skip


def settling(
    log_x: np.ndarray,
    log_y: np.ndarray,
    clock: np.ndarray,
    thirds: Sequence[np.ndarray],
    sixths: Sequence[np.ndarray],
    range: Mapping[str, tuple[float, float]],
) -> Estimate:
    """The slope that log y against log x (both by seed) settles to, from those in parts of the range.

    `thirds` and `sixths` pick the points of each part; `clock` is the s of the slowest drift expected.
    """
    slopes = np.stack([_slope(log_x[:, part], log_y[:, part]) for part in thirds])
    finer = np.stack([_slope(log_x[:, part], log_y[:, part]) for part in sixths])
    limits = np.array([_limit(*seed) for seed in zip(log_x, log_y, clock, strict=True)])
    inverse = [float(np.mean(1 / clock[:, part])) for part in thirds]
    lasting = (inverse[1] - inverse[2]) / max(inverse[0] - inverse[1], 1e-12)

    notes = {f"slope_{i + 1}": float(slope.mean()) for i, slope in enumerate(slopes)}
    return Estimate(
        value=notes["slope_3"],
        seeds=log_y.shape[0],
        spread=Hull((student(slopes[2]), *_leads_to(slopes, finer, limits, min(max(lasting, 0.0), 0.95)))),
        range=range,
        notes=notes | {"drift": notes["slope_3"] - notes["slope_2"], "extrapolated": float(limits.mean())},
    )


def _leads_to(slopes: np.ndarray, sixths: np.ndarray, limits: np.ndarray, lasting: float) -> list[Student]:
    """Where the drift of the slope may lead. `lasting` is the r of a drift like 1/s."""
    swings = np.diff(sixths, axis=0)
    if any(_exceeds(d, NEGLIGIBLE) for d in swings) and any(_exceeds(-d, NEGLIGIBLE) for d in swings):
        return [student(slope) for slope in sixths]
    early, late = np.diff(slopes, axis=0)
    heading = math.copysign(1.0, late.mean())
    if _exceeds(heading * late, NEGLIGIBLE) and _exceeds(heading * (late - lasting * early), 0.0):
        return [student(slopes[2], drift=(math.inf, 0.0) if heading < 0 else (0.0, math.inf))]
    since = math.copysign(1.0, early.mean())
    if _exceeds(since * early, NEGLIGIBLE) and _exceeds(since * (FASTER * lasting * early - late), 0.0):
        # The upper confidence bound of r: noise must not make a drift look over.
        _, most = student(since * late).interval(1 - 2 * SIGNIFICANCE)
        ratio = min(max(most, 0.0) / abs(early.mean()), lasting)
        return [student(slopes[2] + SAFETY * ratio / (1 - ratio) * late)]
    return [student(limits)]


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
        notes={"whole": float(whole.mean()), "drift": float((late - whole).mean())},
    )


def stretches(
    series: xr.DataArray, window: Any = None, log: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The p of y = A exp(-c t^p) of each seed, in the later half of the window and in all; and its steps.

    That is 1 + d log(rate)/d log t for the rate -d log y/dt, here by least squares on
    log y = a - c (t^p - 1)/p. NaN where a series does not fall. `log` says that the series is log y
    already, as it must be where y itself would underflow.
    """
    series = trajectories(series)
    steps, inside = _records(series, window)
    log_y = series.values[:, inside] if log else logarithms(series, inside)
    later = _parts(steps, 2)[1]
    falls = log_y[:, later[0]] > log_y[:, -1]
    whole = np.array([_shape(steps, seed) for seed in log_y])
    late = np.array([_shape(steps[later], seed[later]) for seed in log_y])
    return np.where(falls, late, np.nan), whole, steps


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


def _records(series: xr.DataArray, window: Any) -> tuple[np.ndarray, np.ndarray]:
    """The positive steps in the window, and which of all records they are."""
    steps = series["step"].values.astype(float)
    low, high = window_of(steps, window)
    inside = (steps >= low) & (steps <= high) & (steps > 0)
    return steps[inside], inside


def _parts(steps: np.ndarray, count: int) -> list[np.ndarray]:
    """The records in parts of equal length in log t, each with enough of them to fit a line."""
    edges = np.geomspace(steps[0], steps[-1], count + 1)[1:-1] if steps.size > 0 else np.zeros(count - 1)
    part = np.searchsorted(edges, steps)
    parts = [np.flatnonzero(part == i) for i in range(count)]
    fewest = min(own.size for own in parts)
    if fewest < FEWEST_RECORDS:
        raise Broken(
            f"Each of the {count} parts of the window (equal in log t) needs {FEWEST_RECORDS} records, "
            f"got {fewest}: record more steps or widen the window."
        )
    return parts


def logarithms(series: xr.DataArray, inside: np.ndarray) -> np.ndarray:
    """log y at the records inside the window; Broken, with the place, where y is not positive."""
    bad = np.argwhere((series.values <= 0) & inside)
    if bad.size > 0:
        refuse(series, bad[0], "where a law needs a positive value")
    return np.log(series.values[:, inside])


def _slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
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


def _shape(steps: np.ndarray, log_y: np.ndarray) -> float:
    """The p that fits log y = a - c (t^p - 1)/p best, a and c being projected out."""
    times = steps / steps[-1]

    def misses(p: float) -> float:
        return misfit(special.boxcox(times, p), log_y)

    grid = np.linspace(*STRETCHES, 49)
    best = int(np.argmin([misses(float(p)) for p in grid]))
    bracket = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    fit: Any = optimize.minimize_scalar(misses, bounds=bracket, method="bounded", options={"xatol": 1e-8})
    return float(fit.x)


def misfit(x: np.ndarray, y: np.ndarray) -> float:
    """Mean squared residual of the line through (x, y), not below rounding."""
    x, y = x - x.mean(), y - y.mean()
    rounding = (1e-13 * (1 + np.abs(y).max())) ** 2
    return float(np.mean((y - x * (x @ y) / max(x @ x, 1e-300)) ** 2) + rounding)


FEWEST_SIZES = 7  # two intervals for each third of the range


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
