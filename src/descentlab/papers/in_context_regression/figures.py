"""The figures of in_context_regression as functions of stored runs. Time is eta times the step."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from descentlab.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Movie,
    band,
    legend,
    panels,
    points,
    threads,
)
from descentlab.judging import crossing, setting, times
from descentlab.papers import figure
from descentlab.papers.in_context_regression import LENGTHS, theorems

ONLINE = {
    "algorithm": "online", "precision": 32, "eta": 0.02, "batch": 256,
    "steps": lambda steps: min(steps // 8, 5000),
}  # fmt: skip
DASHED, DOTTED = (0, (4, 2)), (0, (1, 1.5))
LEAST = 1e-18  # below it a squared distance is the solver's error
SHIFTS = {
    "none": ("as in training", BLACK, "o"), "task": ("task shift", BLUE, "s"),
    "query": ("query shift", GREEN, "^"), "covariate": ("covariate shift", VERMILION, "D"),
}  # fmt: skip


def timed(run: xr.Dataset) -> xr.Dataset:
    """The run against time, after step 0."""
    later = run.isel(step=run["step"].values > 0)
    return later.assign_coords(step=later["step"] * setting(run, "eta"))


def seeds(ax: Axes, series: xr.DataArray, color: str, label: str, linestyle: Any = "-") -> None:
    """Every seed as a line, where it is above what the solver leaves."""
    values = series.transpose("seed", "step").values
    shown = np.where(values > LEAST, values, np.nan)
    threads(ax, series["step"].values, shown, color, label=label, linewidth=0.8, linestyle=linestyle)


# ---------------------------------------------------------------- training


@figure(
    claims=(
        "flow_converges_to_the_limit",
        "loss_reaches_its_minimum",
        "parameters_stay_in_block_form",
        "balance_is_kept",
        "convergence_is_exponential",
        "rate_is_the_least_curvature",
    ),
)
def training(run: xr.Dataset) -> Canvas:
    """Gradient flow, every seed (a random Theta each): the loss above the least of all weights, with the
    decay that the least curvature at the limit gives (dashed); the distances of both matrices from Theorem
    4.1's limit; u; and what the flow keeps at zero. Zeros are on the axis; curves end where the solver's
    error is.
    """
    figure, axes = panels(1, 4, (2.2, 2.1))
    excess, distance, value, kept = axes[0]
    own = timed(run)
    time = own["step"].values
    seeds(excess, own["excess_loss"], BLUE, "every seed")
    rate, begin = float(run["rate"].values[0]), float(own["excess_loss"].isel(step=0).mean())
    middle = own["excess_loss"].median("seed").values
    end = np.flatnonzero(middle > 1e-14 * begin)[-1]
    law = middle[end] * np.exp(-2 * rate * (time - time[end]))
    shown = (law < begin) & (law > LEAST)
    excess.plot(time[shown], law[shown], color=BLACK, ls=DASHED, lw=0.9, label=r"$e^{-2\lambda_{\min}t}$")
    for k, (name, color) in enumerate({"$W^{PV}$": VERMILION, "$W^{KQ}$": GREEN}.items()):
        seeds(distance, own["distance"].isel(matrix=k), color, name)
    for ax, title in ((excess, "loss above its least"), (distance, "relative distance to the limit")):
        ax.set(yscale="log", title=title, xlabel="time", xlim=(0, min(1.3 * time[end], time[-1])))
    threads(value, time, own["u"].transpose("seed", "step").values, BLUE, linewidth=0.8)
    value.axhline(float(own["u"].isel(step=-1).mean()), color=BLACK, lw=0.8, ls=DOTTED, zorder=0)
    value.set(title="$u$", xlabel="time", xscale="log", ylim=(0, None))
    for name, (label, color, line) in {
        "imbalance": (r"$|u^2 - \|U\|^2|$ over their sum", PURPLE, "-"),
        "outside": ("norm outside $u$ and $U$", ORANGE, DASHED),
    }.items():
        # Zeros lie on the axis below.
        band(kept, own[name].clip(min=1e-17), label, color, linestyle=line)
    kept.set(yscale="log", xscale="log", title="kept at zero", xlabel="time", ylim=(5e-18, 1e-5))
    legend(figure)
    return figure


STARTS: dict[str, tuple[theorems.Overrides, str, str, Any]] = {
    "small": ({"s": times(0.01)}, r"$s/100$", SKY, "-"),
    "own": ({}, "the preset's $s$", BLUE, "-"),
    "larger": ({"s": times(10.0)}, r"$10\,s$", ORANGE, "-"),
    "large": (theorems.LARGE, r"$100\,s$", VERMILION, "-"),
    "minus": ({"start": "minus"}, r"$-\Theta\Theta'$", GREEN, DASHED),
    "anywhere": (theorems.ANYWHERE, "all blocks Gaussian", PURPLE, DASHED),
}


@figure(
    runs={name: start[0] for name, start in STARTS.items()} | theorems.SCALES.runs,
    claims=(
        "large_start_converges_too",
        "plateau_lasts_log_1_over_s",
        "no_weights_do_better",
        "every_start_reaches_the_minimum",
    ),
)
def starts(**runs: xr.Dataset) -> Canvas:
    """Starts of other scales and signs, and in all blocks: the loss above its least, where every seed ends,
    and how long the plateau near zero lasts. Scales beyond the theorem's bound converge too; Gaussian weights
    in all blocks may end at other local minima.
    """
    figure, axes = panels(1, 3, (2.7, 2.3))
    losses, ends, plateau = axes[0]
    for k, (name, (_, label, color, line)) in enumerate(STARTS.items()):
        own = timed(runs[name])
        seeds(losses, own["excess_loss"], color, label, line)
        above = own["excess_loss"].isel(step=-1) / own["least_loss"]
        spread = k + np.linspace(-0.2, 0.2, above.size)
        ends.plot(spread, above.clip(min=1e-17), "o", color=color, ms=3, mfc="none")
    losses.set(xscale="log", yscale="log", title="loss above its least", xlabel="time", ylim=(1e-12, None))
    ends.set_xticks(range(len(STARTS)), [start[1] for start in STARTS.values()], rotation=35, ha="right")
    ends.set(yscale="log", title="at the end, over the least")
    grid = [runs[name] for name in theorems.SCALES.runs]
    scales = np.array([setting(run, "s") for run in grid])
    times = [run["hit"].isel(step=-1).values * setting(run, "eta") for run in grid]
    points(plateau, list(scales), times, r"time to $u_\ast/2$", BLUE)
    slope = 1 / float(grid[0]["growth"].values[0])
    law = float(times[-1].mean()) - slope * np.log(scales / scales[-1])
    label = r"slope $1/\|\Lambda^2\|_F$ in $\log 1/s$"
    plateau.plot(scales, law, color=BLACK, ls=DASHED, lw=0.9, label=label, zorder=3)
    plateau.set(xscale="log", title="length of the plateau", xlabel="$s$", ylim=(0, None))
    legend(figure, columns=4)
    return figure


@figure(runs={"flow": {}, "online": ONLINE}, claims=("parameters_stay_in_block_form",))
def algorithms(flow: xr.Dataset, online: xr.Dataset) -> Canvas:
    """Gradient flow beside descent on fresh prompts, whose noise leaves the block form."""
    figure, axes = panels(1, 3, (2.6, 2.1))
    batch = setting(online, "batch")
    names = {"excess_loss": "loss above its least", "outside": "share of norm outside $u$ and $U$",
             "u": "$u$"}  # fmt: skip
    last = float(timed(online)["step"].values[-1])
    for ax, (name, title) in zip(axes[0], names.items(), strict=True):
        for run, label, color in ((flow, "flow", BLUE), (online, f"{batch} fresh prompts a step", VERMILION)):
            own = timed(run)
            seeds(ax, own[name].isel(step=own["step"].values <= last), color, label)
        ax.set(xscale="log", yscale="linear" if name == "u" else "log", title=title, xlabel="time")
    legend(figure)
    return figure


# ---------------------------------------------------------------- test prompts


@figure(runs={"run": theorems.DRAWN}, claims=("error_against_test_length", "error_falls_like_1_over_M"))
def test_length(run: xr.Dataset) -> Canvas:
    """The trained network on drawn test prompts of M points, mean and 95 % interval over seeds, against
    Theorem 4.2 and its two parts.
    """
    figure, axes = panels(1, 2, (3.0, 2.3))
    error, ratio = axes[0]
    drawn = run["sampled_error"].transpose("seed", "drawn").values
    printed = run["printed_error"].transpose("seed", "length").values[0]
    x, floor = np.array(LENGTHS, float), printed[-1]
    points(error, list(x), list(drawn.T), "drawn prompts", BLUE)
    error.plot(x, printed[:-1], color=BLACK, lw=1.0, label="Theorem 4.2")
    error.plot(x, printed[:-1] - floor, color=GREY, lw=0.9, ls=DASHED, label="its part $1/M$")
    error.axhline(floor, color=GREY, lw=0.9, ls=DOTTED, label="its part $1/N^2$")
    error.set(xscale="log", yscale="log", xlabel="$M$", title=f"squared error, $N$ = {setting(run, 'N')}")
    points(ratio, list(x), list((drawn / printed[None, :-1]).T), "drawn prompts", BLUE)
    ratio.axhline(1, color=BLACK, lw=1.0)
    ratio.set(xscale="log", xlabel="$M$", title="over Theorem 4.2's")
    legend(figure)
    return figure


@figure(
    runs=theorems.LONGER.runs,
    claims=(
        "floor_falls_like_1_over_N2",
        "task_shift_is_harmless",
        "query_shift_is_harmless",
        "covariate_shift_fails",
    ),
)
def shifts(**runs: xr.Dataset) -> Canvas:
    """Left: test error over the labels' variance, trained and tested at N = M points, under shifts of the
    task, of the query, and of the inputs (c times as large). Right: the error on infinite prompts.
    """
    figure, axes = panels(1, 2, (3.0, 2.5))
    shifts, floor = axes[0]
    grid = list(runs.values())
    sizes = np.array([float(setting(run, "N")) for run in grid])
    for name, (label, color, marker) in SHIFTS.items():
        points(shifts, list(sizes), [theorems.error_under(name, run) for run in grid], label, color, marker)
    last = float(theorems.error_under("none", grid[-1]).mean())
    shifts.plot(sizes, last / 2 * sizes[-1] / sizes, color=GREY, ls=DASHED, lw=0.9, label="slope $-1$")
    level = (setting(grid[0], "c") ** 2 - 1) ** 2
    shifts.axhline(level, color=GREY, ls=DOTTED, lw=0.9, label="$(c^2-1)^2$")
    shifts.set(xscale="log", yscale="log", xlabel="$N = M$", title="error over the labels' variance")
    points(floor, list(sizes), [theorems.floor(run) for run in grid], "trained at $N$", PURPLE)
    law = float(theorems.floor(grid[-1]).mean()) * (sizes[-1] / sizes) ** 2
    floor.plot(sizes, law, color=BLACK, ls=DASHED, lw=0.9, label="slope $-2$")
    floor.set(xscale="log", yscale="log", xlabel="$N$", title=r"squared error, $M = \infty$")
    legend(figure, columns=5)
    return figure


# ---------------------------------------------------------------- matrices


def matrices_along(run: xr.Dataset) -> Movie:
    """W_PV and W_KQ of the first seed."""
    own = run.isel(seed=0)
    return Movie({name: own[name].transpose("step", "row", "column") for name in ("W_PV", "W_KQ")})


@figure(runs={"run": {"detail": True}}, claims=("parameters_stay_in_block_form",), moving=matrices_along)
def matrices(run: xr.Dataset) -> Canvas:
    """W_KQ of the first seed from the start, over the end of the plateau, to its limit. The last row and
    column stay zero.
    """
    own = run.isel(seed=0)
    steps, hit = run["step"].values, float(own["hit"].isel(step=-1))
    end = float(crossing(run["excess_loss"], 1e-6 * run["excess_loss"].isel(step=0).values)[0])
    met, done = (t if 0 < t < steps[-1] else float(steps[-1]) for t in (hit, end))
    moments = sorted({0, *(int(np.searchsorted(steps, t)) for t in (met, (met * done) ** 0.5, steps[-1]))})
    figure, axes = panels(1, len(moments) + 1, (1.6, 1.9))
    limit = own["limit_W_KQ"].values
    size = float(np.abs(limit).max())
    shown = {f"time {steps[i] * setting(run, 'eta'):.3g}": own["W_KQ"].values[i] for i in moments}
    for ax, (title, matrix) in zip(axes[0], {**shown, "limit": limit}.items(), strict=True):
        ax.imshow(matrix, cmap="RdBu_r", vmin=-size, vmax=size, interpolation="none")
        ax.set(xticks=[], yticks=[], title=title)
        ax.axhline(len(limit) - 1.5, color=BLACK, lw=0.5)
        ax.axvline(len(limit) - 1.5, color=BLACK, lw=0.5)
        ax.spines[:].set_visible(True)
    figure.colorbar(axes[0, -1].images[0], ax=axes, shrink=0.7, aspect=20, label="entry of $W^{KQ}$")
    return figure
