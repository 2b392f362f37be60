"""What the claims of in_context_regression measure on recorded runs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from descentlab.judging import Broken, Estimate, crossing, exact, mean, setting, share, size_exponent, stretch
from descentlab.papers.in_context_regression.setting import LENGTHS

SHIFTS = ("none", "task", "query", "covariate")
# The excess loss, over its start, between which decay to the limit is read: where one mode rules, above what
# the solver leaves.
DECAY = (1e-6, 1e-14)


def over(run: xr.Dataset) -> dict[str, tuple[float, float]]:
    """The steps of a run."""
    steps = run["step"].values
    return {"step": (float(steps[0]), float(steps[-1]))}


# ---------------------------------------------------------------- one run


def last_distance(run: xr.Dataset) -> Estimate:
    """The larger of the relative distances of W_PV and W_KQ from their limits, at the end."""
    last = run["distance"].isel(step=-1)
    notes = {"W_PV": float(last.isel(matrix=0).mean()), "W_KQ": float(last.isel(matrix=1).mean())}
    return mean(last.max("matrix").values, range=over(run), notes=notes)


def last_loss(run: xr.Dataset) -> Estimate:
    """The loss at the end over the least of all weights, minus 1."""
    above = run["loss"].isel(step=-1).values / run["least_loss"].values - 1
    return mean(above, range=over(run), notes={"least_loss": float(run["least_loss"].mean())})


def lowest_loss(run: xr.Dataset) -> Estimate:
    """The lowest loss of all seeds and records over the least of all weights, minus 1."""
    lowest = run["loss"].min("step").values / run["least_loss"].values - 1
    return exact(lowest.min(), seeds=lowest.size, range=over(run), notes={"highest_seed": lowest.max()})


def share_at_the_minimum(run: xr.Dataset) -> Estimate:
    """The share of seeds that end within 1e-6 of the least loss."""
    above = run["loss"].isel(step=-1).values / run["least_loss"].values - 1
    return share(above < 1e-6, range=over(run), notes={"highest": above.max(), "lowest": above.min()})


def largest(name: str) -> Callable[[xr.Dataset], Estimate]:
    """The largest value of a recorded quantity along the run."""
    return lambda run: mean(run[name].max("step").values, range=over(run))


def decay_window(run: xr.Dataset) -> tuple[float, float]:
    """The steps between which the excess loss of every seed is in the range DECAY."""
    start = run["excess_loss"].isel(step=0).values
    begin, end = (crossing(run["excess_loss"], share * start) for share in DECAY)
    if not np.isfinite(end).all() or begin.max() >= end.min():
        raise Broken(f"The excess loss does not fall to {DECAY[1]:g} of its start, or too fast to be read.")
    return float(begin.max()), float(end.min())


def decay(run: xr.Dataset) -> Estimate:
    """The p of exp(-c t^p) for the excess loss near the limit."""
    return stretch(run["excess_loss"], window=decay_window(run))


def decay_rate(run: xr.Dataset) -> Estimate:
    """The rate of decay of the excess loss over twice the Hessian's least curvature at the limit.

    By least squares over the later half of the window, as the slowest mode alone is left in the end. Between
    the halves the rate falls by `drift`, which the interval goes on with once more.
    """
    low, high = decay_window(run)
    steps = run["step"].values.astype(float)
    unit = 2 * setting(run, "eta") * run["rate"].values

    def rates(begin: float, end: float) -> np.ndarray:
        inside = (steps >= begin) & (steps <= end)
        logs = np.log(run["excess_loss"].transpose("seed", "step").values[:, inside])
        return -np.polyfit(steps[inside], logs.T, 1)[0] / unit

    early, late = rates(low, (low + high) / 2), rates((low + high) / 2, high)
    drift = float((early - late).mean())
    return mean(
        late, drift=(max(drift, 0.0), max(-drift, 0.0)), range={"step": (low, high)}, notes={"drift": drift}
    )


# ---------------------------------------------------------------- test prompts


def drawn_error(run: xr.Dataset) -> Estimate:
    """The error on drawn test prompts over Theorem 4.2's, mean over lengths."""
    ratio = run["sampled_error"].values / run["printed_error"].values[:, : len(LENGTHS)]
    exact = run["error"].values / run["printed_error"].values - 1
    notes = {f"at_{M}": float(r) for M, r in zip(LENGTHS, ratio.mean(axis=0), strict=True)}
    notes["exact_error_off_by"] = float(np.abs(exact).max())
    return mean(ratio.mean(axis=1), range={"M": (LENGTHS[0], LENGTHS[-1])}, notes=notes)


def test_length(run: xr.Dataset) -> Estimate:
    """The exponent in M of the exact test error above that of infinite prompts."""
    error = run["error"].transpose("seed", "length").values
    sizes = [np.full(error.shape[0], float(M)) for M in LENGTHS]
    estimate = size_exponent("M", sizes, list((error[:, :-1] - error[:, -1:]).T))
    return replace(estimate, notes={**estimate.notes, "floor": float(error[:, -1].mean())})


def in_N(read: Callable[[xr.Dataset], np.ndarray]) -> Callable[..., Estimate]:
    """The exponent in N of what is read off each run of a grid."""

    def measure(**runs: xr.Dataset) -> Estimate:
        values = [read(run) for run in runs.values()]
        sizes = [
            np.full(one.shape, float(setting(run, "N")))
            for one, run in zip(values, runs.values(), strict=True)
        ]
        estimate = size_exponent("N", sizes, values)
        ends = {"first": float(values[0].mean()), "last": float(values[-1].mean())}
        return replace(estimate, notes={**estimate.notes, **ends})

    return measure


def floor(run: xr.Dataset) -> np.ndarray:
    """The exact error on infinite test prompts."""
    return run["error"].values[:, -1]


def error_under(shift: str) -> Callable[[xr.Dataset], np.ndarray]:
    """The relative test error at M points under a shift."""
    return lambda run: run["relative_error"].values[:, SHIFTS.index(shift)]


def covariate_error(**runs: xr.Dataset) -> Estimate:
    """The relative error at the longest prompts, inputs c times as large, over (c^2 - 1)^2."""
    last = list(runs.values())[-1]
    c, N = setting(last, "c"), float(setting(last, "N"))
    error = error_under("covariate")(last)
    own = float(error_under("none")(last).mean())
    return mean(
        error / (c**2 - 1) ** 2,
        range={"N": (N, N)},
        notes={"relative_error": float(error.mean()), "without_shift": own},
    )


# ---------------------------------------------------------------- the start


def plateau(**runs: xr.Dataset) -> Estimate:
    """|Lambda^2|_F times the slope, in log 1/s, of the time at which u is half its limit."""
    hits = np.stack([run["hit"].isel(step=-1).values for run in runs.values()], axis=1)
    if not (hits >= 0).all():
        raise Broken("A run does not leave the plateau.")
    one = next(iter(runs.values()))
    scales = np.array([setting(run, "s") for run in runs.values()])
    times = hits * setting(one, "eta") * one["growth"].values[:, None]
    slopes = np.polyfit(-np.log(scales), times.T, 1)[0]
    # The smallest starts alone: what is left of the finite start goes on once more.
    late = np.polyfit(-np.log(scales[-3:]), times[:, -3:].T, 1)[0]
    drift = abs(float((late - slopes).mean()))
    return mean(late, drift=(drift, drift), range={"s": (scales.min(), scales.max())}, notes={"drift": drift})
