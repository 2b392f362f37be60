"""The claims of in_context_regression: Theorems 4.1 and 4.2, the shifts of Section 4.2, and some of ours."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from descentlab.judging import (
    Assumption,
    Broken,
    Estimate,
    Grid,
    around,
    at_least,
    at_most,
    crossing,
    data_mutant,
    exact,
    is_one_of,
    mean,
    mutant,
    setting,
    share,
    size_exponent,
    stretch,
    theorem,
    times,
)
from descentlab.papers.in_context_regression import LENGTHS, SHIFTS

# ---------------------------------------------------------------- runs, as overrides of a preset

Overrides = dict[str, Any]

# The error on drawn prompts, which elsewhere the exact error saves.
DRAWN: Overrides = {"samples": 2048}
# All weights Gaussian: the blocks that the theorem's start leaves at zero are trained too.
ANYWHERE: Overrides = {"start": "anywhere", "s": 0.5}
# A hundred times the preset's scale: ten thousand times s^2.
LARGE: Overrides = {"s": times(100.0)}
# Training and test prompts of the same length, longer and longer.
LONGER = Grid("N", [{"N": times(4.0**i), "M": times(4.0**i)} for i in range(7)])
# Ever smaller starts.
SCALES = Grid("s", [{"s": times(0.1**i)} for i in range(7)])

# ---------------------------------------------------------------- what is assumed

SMALL = Assumption(
    "s^2 |Gamma| sqrt(d) < 2", lambda p: p.start_over_bound < 1, lambda p: 2 * p.start_over_bound
)
FLOW = is_one_of("algorithm", "flow")
SETTING = (FLOW, is_one_of("start", "theorem"), is_one_of("balance", 1.0))
ASSUMED = (*SETTING, is_one_of("noise", 0.0), SMALL)
PRESETS = ("tiny", "quick", "paper")

# ---------------------------------------------------------------- mutants of several claims

STOPPED = mutant("stopped on the plateau", steps=20)
UNBALANCED = mutant("a heavier W_KQ at the start", balance=10.0)

# ---------------------------------------------------------------- Theorem 4.1: training

convergence = theorem("Theorem 4.1", assumes=ASSUMED, presets=PRESETS)


@convergence.claim(
    predicts=at_most(1e-6),
    margin="Far below 1/N^2, which another Gamma would show, and above the solver's error.",
    mutants=(STOPPED, UNBALANCED),
)
def flow_converges_to_the_limit(run: xr.Dataset) -> Estimate:
    """W_PV and W_KQ end within 1e-6 of tr(Gamma^-2)^(1/4) [0 0; 0' 1] and tr(Gamma^-2)^(-1/4)
    [Gamma^-1 0; 0' 0].

    Measured: the larger of their relative distances.
    """
    last = run["distance"].isel(step=-1)
    W_PV, W_KQ = last.transpose("matrix", "seed")
    return mean(last.max("matrix").values).noting(W_PV=W_PV.mean(), W_KQ=W_KQ.mean())


def above_least(run: xr.Dataset) -> np.ndarray:
    """The loss at the end over the least of all weights, minus 1, of each seed."""
    return run["loss"].isel(step=-1).values / run["least_loss"].values - 1


@convergence.claim(
    predicts=around(0.0, 1e-9),
    margin="The square of the distance, with room for rounding.",
    mutants=(STOPPED, data_mutant("a loss 0.1 % higher", lambda run: run.assign(loss=1.001 * run["loss"]))),
)
def loss_reaches_its_minimum(run: xr.Dataset) -> Estimate:
    """The loss ends within 1e-9 of (tr Lambda - tr Lambda^2 Gamma^-1) / 2, the least of all weights."""
    return mean(above_least(run)).noting(least_loss=run["least_loss"].mean())


@convergence.claim(
    cite="Theorem 4.1, global minimum",
    predicts=at_least(-1e-9),
    margin="A bound, up to rounding; one seed below it would refute it.",
    bound="lower",
    runs={"run": ANYWHERE},
    assumes=(FLOW,),
    mutants=(
        data_mutant("a minimum 1 % higher", lambda run: run.assign(least_loss=1.01 * run["least_loss"])),
    ),
)
def no_weights_do_better(run: xr.Dataset) -> Estimate:
    """From Gaussian weights in all blocks, the loss of no seed ever falls below that least value."""
    lowest = run["loss"].min("step").values / run["least_loss"].values - 1
    return exact(lowest.min(), seeds=lowest.size).noting(highest_seed=lowest.max())


ours = theorem("ours", kind="ours", assumes=SETTING, presets=PRESETS)


@ours.claim(
    cite="ours: beyond Assumption 3.3",
    predicts=at_least(0.95),
    margin="A share of seeds: one in twenty may be late.",
    runs={"run": ANYWHERE},
    assumes=(FLOW,),
    mutants=(STOPPED,),
)
def every_start_reaches_the_minimum(run: xr.Dataset) -> Estimate:
    """From Gaussian weights in all blocks the flow still comes within 1e-6 of the least loss."""
    above = above_least(run)
    return share(above < 1e-6).noting(highest=above.max(), lowest=above.min())


# ---------------------------------------------------------------- its proof

kept = theorem("Lemma 5.2", kind="lemma", bound="equality", assumes=SETTING, presets=PRESETS)


@kept.claim(
    predicts=at_most(1e-9),
    margin="Zero, up to rounding that may add up along a run.",
    mutants=(
        mutant("Gaussian weights in all blocks", start="anywhere"),
        mutant("fresh prompts", algorithm="online", steps=100),
    ),
)
def parameters_stay_in_block_form(run: xr.Dataset) -> Estimate:
    """All entries but u, the last of W_PV, and the first d x d of W_KQ stay at zero."""
    return mean(run["outside"].max("step").values)


@kept.claim(
    cite="Theorem 4.1, its proof: u^2 = tr(U'U)",
    predicts=at_most(1e-6),
    margin="Equal for the flow; the solver's tolerance is 1e-10 a step.",
    mutants=(UNBALANCED, mutant("long steps", algorithm="descent", eta=0.1, steps=200)),
)
def balance_is_kept(run: xr.Dataset) -> Estimate:
    """u^2 and |U|_F^2 stay equal, to one in a million."""
    return mean(run["imbalance"].max("step").values)


# The excess loss, over its start, between which decay to the limit is read: where one mode rules, above what
# the solver leaves.
DECAY = (1e-6, 1e-14)


def decay_window(run: xr.Dataset) -> tuple[float, float]:
    """The steps between which the excess loss of every seed is in the range DECAY."""
    start = run["excess_loss"].isel(step=0).values
    begin, end = (crossing(run["excess_loss"], part * start) for part in DECAY)
    if not np.isfinite(end).all() or begin.max() >= end.min():
        raise Broken(f"The excess loss does not fall to {DECAY[1]:g} of its start, or too fast to be read.")
    return float(begin.max()), float(end.min())


def slow_decay(run: xr.Dataset) -> xr.Dataset:
    """An excess loss that falls like t^-12: as far, in the end, but by a power law."""
    law = np.maximum(run["step"].astype(float), 1.0) ** -12.0
    return run.assign(excess_loss=xr.ones_like(run["excess_loss"]) * law)


near_the_limit = theorem("Lemma 5.4 (PL inequality)", kind="lemma", assumes=ASSUMED, presets=PRESETS)


@near_the_limit.claim(
    predicts=around(1.0, 0.1),
    margin="A tenth: p = 0 is a power law, and other modes fade on the way.",
    mutants=(data_mutant("a power of t", slow_decay),),
)
def convergence_is_exponential(run: xr.Dataset) -> Estimate:
    """Near the limit the excess loss falls like exp(-c t^p) with p = 1."""
    return stretch(run["excess_loss"], window=decay_window(run))


# ---------------------------------------------------------------- ours: how fast, and from where


@ours.claim(
    cite="ours: the Hessian at Theorem 4.1's limit",
    predicts=around(1.0, 0.05),
    margin="A twentieth: the next eigenvalue is further away than that in all presets.",
    mutants=(data_mutant("half the curvature", lambda run: run.assign(rate=run["rate"] / 2)),),
)
def rate_is_the_least_curvature(run: xr.Dataset) -> Estimate:
    """c is twice the least positive eigenvalue of the Hessian at the limit.

    Measured: the rate of decay of the excess loss over that, by least squares over the later half of the
    window, as the slowest mode alone is left in the end. Between the halves the rate falls by `drift`, which
    the interval goes on with once more.
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
    reach = (max(drift, 0.0), max(-drift, 0.0))
    return mean(late, drift=reach, range={"step": (low, high)}).noting(drift=drift)


@ours.claim(
    cite="ours: Lemma 5.2 linearised at zero",
    predicts=around(1.0, 0.02),
    margin="Exact as s goes to zero; a fiftieth for what is left of a finite start.",
    runs=SCALES.runs,
    mutants=(data_mutant("twice the growth", lambda run: run.assign(growth=2 * run["growth"])),),
)
def plateau_lasts_log_1_over_s(**runs: xr.Dataset) -> Estimate:
    """The time until u is half its limit grows like log(1/s) / |Lambda^2|_F.

    Measured: |Lambda^2|_F times the slope of that time in log 1/s.
    """
    hits = np.stack([run["hit"].isel(step=-1).values for run in runs.values()], axis=1)
    if not (hits >= 0).all():
        raise Broken("A run does not leave the plateau.")
    one = next(iter(runs.values()))
    scales = np.array([setting(run, "s") for run in runs.values()])
    lasted = hits * setting(one, "eta") * one["growth"].values[:, None]
    slopes = np.polyfit(-np.log(scales), lasted.T, 1)[0]
    # The smallest starts alone: what is left of the finite start goes on once more.
    late = np.polyfit(-np.log(scales[-3:]), lasted[:, -3:].T, 1)[0]
    drift = abs(float((late - slopes).mean()))
    return mean(late, drift=(drift, drift), range={"s": (scales.min(), scales.max())}).noting(drift=drift)


@ours.claim(
    cite="ours: beyond Theorem 4.1's bound on s",
    predicts=at_most(1e-6),
    margin="As for the small start.",
    runs={"run": LARGE},
    mutants=(mutant("stopped at once", steps=1),),
)
def large_start_converges_too(run: xr.Dataset) -> Estimate:
    """From a hundred times the preset's s, beyond the bound s^2 |Gamma| sqrt(d) < 2, the flow ends within
    1e-6 of the same limit.
    """
    return flow_converges_to_the_limit(run)


# ---------------------------------------------------------------- Theorem 4.2: test prompts

testing = theorem("Theorem 4.2", assumes=ASSUMED, presets=PRESETS)


@testing.claim(
    statement=f"On drawn test prompts of {LENGTHS[0]} to {LENGTHS[-1]} points the squared error is "
    "(1/M) tr(Sigma Gamma^-2 Lambda) plus the part of order 1/N^2.",
    predicts=around(1.0, 0.1),
    margin="A tenth: what the drawn prompts of some seeds can tell.",
    runs={"run": DRAWN},
    mutants=(STOPPED,),
)
def error_against_test_length(run: xr.Dataset) -> Estimate:
    """The error on drawn test prompts over Theorem 4.2's, mean over lengths."""
    printed = run["printed_error"].values
    ratio = run["sampled_error"].values / printed[:, :-1]
    return mean(ratio.mean(axis=1), range={"M": (LENGTHS[0], LENGTHS[-1])}).noting(
        **{f"at_{M}": r for M, r in zip(LENGTHS, ratio.mean(axis=0), strict=True)},
        exact_error_off_by=np.abs(run["error"].values / printed - 1).max(),
    )


def slow_in_M(run: xr.Dataset) -> xr.Dataset:
    """A test error whose part above its floor falls like M^-1/2."""
    law = xr.DataArray([*(M**-0.5 for M in LENGTHS), 0.0], dims="length")
    return run.assign(error=run["error"].isel(length=-1) + law)


@testing.claim(
    predicts=around(-1.0, 0.05),
    margin="A tenth of the distance to 1/sqrt(M).",
    mutants=(data_mutant("like M^-1/2", slow_in_M),),
)
def error_falls_like_1_over_M(run: xr.Dataset) -> Estimate:
    """The exact test error above that of infinite prompts goes like 1/M."""
    error = run["error"].transpose("seed", "length").values
    sizes = [np.full(error.shape[0], float(M)) for M in LENGTHS]
    estimate = size_exponent("M", sizes, list((error[:, :-1] - error[:, -1:]).T))
    return estimate.noting(floor=error[:, -1].mean())


def in_N(read: Callable[[xr.Dataset], np.ndarray], /, **runs: xr.Dataset) -> Estimate:
    """The exponent in N of what is read off each run of a grid."""
    values = [read(run) for run in runs.values()]
    sizes = [np.full(values[0].shape, float(setting(run, "N"))) for run in runs.values()]
    return size_exponent("N", sizes, values).noting(first=values[0].mean(), last=values[-1].mean())


def floor(run: xr.Dataset) -> np.ndarray:
    """The exact error on infinite test prompts."""
    return run["error"].values[:, -1]


@testing.claim(
    predicts=around(-2.0, 0.1),
    margin="A tenth of the distance to 1/N.",
    runs=LONGER.runs,
    mutants=(data_mutant("like 1/N", lambda run: run.assign(error=run["error"] * setting(run, "N"))),),
)
def floor_falls_like_1_over_N2(**runs: xr.Dataset) -> Estimate:
    """The error on infinite test prompts goes like 1/N^2 in the length of training prompts."""
    return in_N(floor, **runs)


# ---------------------------------------------------------------- Section 4.2: shifts


def error_under(shift: str, run: xr.Dataset) -> np.ndarray:
    """The relative test error at M points under a shift."""
    return run["relative_error"].values[:, SHIFTS.index(shift)]


def swapped(run: xr.Dataset, shift: str, other: str) -> xr.Dataset:
    """The errors under one shift in the place of those under another."""
    own = run["relative_error"].copy()
    own[{"shift": SHIFTS.index(shift)}] = own.isel(shift=SHIFTS.index(other))
    return run.assign(relative_error=own)


shifts = theorem("Section 4.2", kind="remark", assumes=ASSUMED, presets=PRESETS)
HARMLESS = {
    "task": "With all w in the direction of the least variance",
    "query": "With the query's variances in reverse order and four times as large",
}
for shift, change in HARMLESS.items():
    shifts.claim(
        name=f"{shift}_shift_is_harmless",
        cite=f"Section 4.2, {shift} shifts",
        statement=f"{change}, the relative error still goes like 1/M for M = N points.",
        predicts=around(-1.0, 0.1),
        margin="A tenth of the exponent; a shift that harms leaves 0.",
        runs=LONGER.runs,
        mutants=(data_mutant("covariates shifted too", partial(swapped, shift=shift, other="covariate")),),
    )(partial(in_N, partial(error_under, shift)))


@shifts.claim(
    cite="Section 4.2, covariate shifts",
    predicts=around(1.0, 0.02),
    margin="A fiftieth, for prompts that are finite.",
    runs=LONGER.runs,
    assumes=(*ASSUMED, Assumption("c is not 1", lambda p: p.c != 1.0)),
    mutants=(data_mutant("no shift", partial(swapped, shift="covariate", other="none")),),
)
def covariate_shift_fails(**runs: xr.Dataset) -> Estimate:
    """With inputs c times as large the answer is c^2 times the label, however long the prompts: the relative
    error goes to (c^2 - 1)^2.

    Measured: the relative error at the longest prompts over (c^2 - 1)^2.
    """
    last = list(runs.values())[-1]
    c, N, error = setting(last, "c"), setting(last, "N"), error_under("covariate", last)
    estimate = mean(error / (c**2 - 1) ** 2, range={"N": (N, N)})
    return estimate.noting(relative_error=error.mean(), without_shift=error_under("none", last).mean())
