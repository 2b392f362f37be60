"""The paper's figures, and those that the laboratory adds, as functions of stored runs.

Matrices are those of the first seed, all else is of the seeds whose stage 1 ends, or of all if none does.
Blue is the proximal method, vermilion SGD, black the population process.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator
from scipy import special

from descentlab.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    band,
    legend,
    panels,
    threads,
    time_marks,
)
from descentlab.judging import Broken, Claim, setting
from descentlab.papers import Study, figure, sparse_bigrams, table
from descentlab.papers.sparse_bigrams import theorems
from descentlab.papers.sparse_bigrams.theorems import OVER_SIZES, final_errors, good, part

Data: TypeAlias = xr.Dataset
Samples: TypeAlias = Sequence[np.ndarray]
DOTTED, DASHED, DASH_DOT = (0, (1, 1.5)), (0, (4, 1.5)), (0, (4, 1.5, 1, 1.5))
BEHIND: dict[str, Any] = {"color": GREY, "zorder": 0}
LARGE_STEP, PROXIMAL = ("SGD, large step", VERMILION, DASHED), ("proximal", BLUE, "-")
SIGNALS = {"a_V": "$a_V$", "a_A": "$a_A$", "Delta_V": r"$|\Delta_V|_\mu$", "Delta_A": r"$|\Delta_A|_\mu$"}
NO_DISTANCE = 1e-12  # what is below is rounding
TITLES = {"one_T": "stage 1", "two_T": r"stage 2, noise < $\lambda$", "cheapest_T": "cheapest stage 2"}
# With their panels, in the order of the claims.
STAGES = {
    "one_T": (theorems.STAGE_ONE_IN_T, 0, "stage 1", VERMILION, "s"),
    "two_T": (theorems.STAGE_TWO_IN_T, 0, r"stage 2, noise below $\lambda$", PURPLE, "^"),
    "cheapest_T": (theorems.CHEAPEST_IN_T, 0, "stage 2, cheapest batch", BLUE, "o"),
    "two_N": (theorems.STAGE_TWO_IN_N, 1, "stage 2", BLUE, "o"),
    "two_Q": (theorems.STAGE_TWO_IN_Q, 2, "stage 2", BLUE, "o"),
    "two_accuracy": (theorems.ACCURACY, 3, "stage 2 and last stage", GREEN, "D"),
}
FOUR = {
    "proximal": theorems.PROXIMAL, "sgd": theorems.SGD, "sgd_rounded": theorems.SGD_ROUNDED,
    "small_step": theorems.SMALL_STEP,
}  # fmt: skip


# ---------------------------------------------------------------- seeds, stages and marks


def curve(ax: Axes, series: xr.DataArray, label: Any, color: Any, linestyle: Any) -> None:
    """Median and range of seeds; on a log axis what is rounding is a gap."""
    shown = series.where(series > NO_DISTANCE) if ax.get_yscale() == "log" else series
    band(ax, shown, label, color, linestyle=linestyle)


def mark_end(ax: Axes, run: Data, stage: int, label: str) -> None:
    """The end of a stage, where it has one: the median, named above the panel, and the range of seeds."""
    ends = run["final_began"].values[:, stage : stage + 1]
    if ends.size and ends.min() >= 0:
        time_marks(ax, {label: float(np.median(ends))}, labels=True)
        ax.axvspan(ends.min(), ends.max(), alpha=0.15, lw=0, **BEHIND)


def since_stage_one(run: Data, series: xr.DataArray) -> xr.DataArray:
    """A series against the steps since its seed ended stage 1, interpolated, where all seeds have it."""
    ends = np.maximum(run["final_began"].values[:, 1].astype(float), 0)
    steps, values = run["step"].values.astype(float), series.transpose("seed", "step").values
    grid = steps - np.round(np.median(ends))
    moved = [np.interp(grid + end, steps, row, np.nan, np.nan) for end, row in zip(ends, values, strict=True)]
    common = np.where(np.isfinite(moved).all(axis=0), moved, np.nan)
    return xr.DataArray(common, {"step": grid}, ("seed", "step"))


def time_axes(axes: np.ndarray, words: str) -> None:
    """Time from the end of stage 1 on, named under the last row of panels."""
    for ax in axes.ravel():
        time_marks(ax, {"": 0.0})
        ax.set_xlabel(words if ax in axes[-1] else "")


def until_rounded(run: Data, name: str) -> xr.DataArray:
    """A probe until A is rounded."""
    return run[name].where(run["stage"] <= 1)


def spread(ax: Axes, x: Any, samples: Samples, label: str, color: str, marker: str, line: Any = "") -> None:
    """Median over seeds and their range against x; open where some are infinite, which are left out."""
    found = [one[np.isfinite(one)] if np.isfinite(one).any() else np.full(1, np.nan) for one in samples]
    middle, low, high = (np.array([of(one) for one in found]) for of in (np.median, np.min, np.max))
    bars = [middle - low, high - middle]
    ax.errorbar(x, middle, bars, color=color, ls=line, lw=1.0, elinewidth=0.8, capsize=1.5)
    for at, y, one in zip(x, middle, samples, strict=True):
        fill = color if np.isfinite(one).all() else "white"
        ax.plot(at, y, marker, color=color, mfc=fill, ms=3.8, mew=0.9)
    ax.plot([], [], marker=marker, ls=line, color=color, lw=1.0, ms=3.8, label=label)


def log_axes(ax: Axes, ticks: Sequence[Any] = ()) -> None:
    """Log axes, with these ticks for x; where there are few decades, with some numbers in each."""
    ax.set(xscale="log", yscale="log")
    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        axis.set_minor_formatter(NullFormatter())
        if high < min(200 * low, 1e5):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 20 * low else (1.0, 3.0)))
            axis.set_major_formatter("{x:,g}")
    if ticks:
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.xaxis.set_minor_locator(NullLocator())


# ---------------------------------------------------------------- one task


@figure(
    runs=FOUR,
    claims=(
        "proximal_recovers",
        "sgd_fails_with_large_step",
        "sgd_is_slow_with_small_step",
        "sgd_fails_even_after_rounding",
    ),
)
def figure_1(proximal: Data, sgd: Data, small_step: Data, sgd_rounded: Data) -> Canvas:
    """Distance to the ground truth: the proximal method, and SGD with its step (large) or a tenth of it
    (small) after stage 1, all on as many samples. In the end A is rounded, that is, thresholded and
    normalised, and then V trained alone; dotted: SGD granted the same. Stars: the end after rounding; of the
    small step only A is rounded. Medians over seeds and their range. Figure 1.
    """
    figure, axes = panels(1, 2, (3.6, 2.5))
    proximal, sgd, small_step, sgd_rounded = (good(one) for one in (proximal, sgd, small_step, sgd_rounded))
    names = {"value_error": r"$|V - P|_\mu$", "attention_error": r"$|A - Q|_\mu$"}
    for ax, (name, title) in zip(axes[0], names.items(), strict=True):
        ax.set_yscale("log")
        curve(ax, small_step[name], "SGD, small step", ORANGE, DASH_DOT)
        curve(ax, sgd[name], *LARGE_STEP)
        last = sgd_rounded[name].where(sgd_rounded["stage"] == 2)
        curve(ax, last, "SGD, large step, rounded as well", PURPLE, DOTTED)
        curve(ax, proximal[name], *PROXIMAL)
        stars = [(sgd_rounded[name], PURPLE, 13), (proximal[name], BLUE, 7)]
        if name == "attention_error":
            stars.append((small_step["star_error"], ORANGE, 7))
        for errors, color, size in stars:
            at = errors["step"].values[-1], float(errors.isel(step=-1).median())
            ax.plot(*at, "*", color=color, ms=size, mec="white", mew=0.4, clip_on=False, zorder=5)
        mark_end(ax, proximal, 1, "stage 1 ends")
        mark_end(ax, proximal, 2, "rounding")
        ax.set(xlabel="step", ylabel=title, xlim=(0, 1.01 * float(proximal["step"].values[-1])))
    axes[0, 0].plot([], [], "*", color=GREY, ms=9, label="end, after rounding")
    legend(figure, 5)
    return figure


def matrices(run: Data) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Q and P, and A and V in the end, of the first seed; a row of Q and A is a trigger."""
    first = run.isel(seed=0)
    A, Q = first["final_params_A"].values, np.zeros_like(first["final_params_A"].values)
    np.put_along_axis(Q, first["positions"].values, first["position_weights"].values, axis=1)
    if setting(run, "attention") == "softmax":
        A = special.softmax(A, axis=1)
    return {"truth": (Q, first["P"].values), setting(run, "attention"): (A, first["final_params_V"].values)}


@figure(runs={"softmax": theorems.SOFTMAX, "linear": theorems.LINEAR}, claims=("softmax_matches_linear",))
def figure_2(softmax: Data, linear: Data) -> Canvas:
    """Softmax and linear attention at T = 50, N = 10, Q = 2: the truth Q and P, and A and V after training,
    first seed, all on the same scale of colours. Right: the population loss above that of the truth, a line a
    seed. Figure 2.
    """
    figure = Canvas(figsize=(7.6, 2.75), layout="constrained")
    grid = figure.add_gridspec(3, 3, width_ratios=(3.3, 0.95, 2.1))
    rows = {**matrices(linear), **matrices(softmax)}
    axes = np.array([[figure.add_subplot(grid[i, j]) for j in range(2)] for i in range(3)])
    for row, (word, shown) in zip(axes, rows.items(), strict=True):
        for ax, matrix, truth in zip(row, shown, rows["truth"], strict=True):
            most = float(truth.max())
            image = ax.imshow(matrix, cmap="RdBu_r", vmin=-most, vmax=most, interpolation="none")
            ax.spines[:].set_visible(True)
            ax.set(xticks=[], yticks=[])
            if ax is axes[0, 1]:
                figure.colorbar(image, ax=axes[:, 1], aspect=28, pad=0.08)
        row[0].set_ylabel(word)
    axes[0, 0].set_title("$Q$ and $A$: triggers down, positions across")
    axes[0, 1].set_title("$P$ and $V$")
    ax = figure.add_subplot(grid[:, 2])
    ax.set_yscale("log")
    for run, label, color, line in ((linear, "linear", BLUE, "-"), (softmax, "softmax", VERMILION, DASHED)):
        loss = run["excess_loss"].transpose("seed", "step").values
        threads(ax, run["step"].values, loss, color, label=label, linestyle=line, linewidth=0.7)
    ax.set(xlabel="step", title="loss above that of the truth", xlim=(0, float(linear["step"].values[-1])))
    ax.legend()
    return figure


@figure(
    runs={
        "sgd": theorems.SGD,
        "proximal": theorems.PROXIMAL,
        "population": theorems.POPULATION,
        "all_weights": theorems.ALL_WEIGHTS,
    },
    claims=(
        "sgd_leaves_population",
        "proximal_stays_near_population",
        "value_noise_stays_small",
        "population_stays_on_the_line",
    ),
)
def figure_3(sgd: Data, proximal: Data, population: Data, all_weights: Data) -> Canvas:
    """Signals a_V and a_A, coordinates of V and A on the line from the start to the truth, and distances
    Delta_V and Delta_A from it, until A is rounded. Medians over seeds and their range; time counts from the
    end of a seed's stage 1. Top right: above the dotted line noise outweighs signal in A. Bottom right:
    population descent of all weights against that of two numbers, differences of signals and distances over
    lengths, the largest of all seeds; dotted: what the claim allows. Figure 3.
    """
    figure, axes = panels(2, 3, (2.5, 1.8), sharex=True)
    noisy = ((good(sgd), *LARGE_STEP), (good(proximal), *PROXIMAL))
    for ax, (name, title) in zip(axes[:, :2].ravel(), SIGNALS.items(), strict=True):
        ax.set(title=title, yscale="log" if name.startswith("Delta") else "linear")
        for run, *look in noisy:
            curve(ax, since_stage_one(run, until_rounded(run, name)), *look)
        if not name.startswith("Delta"):
            curve(ax, since_stage_one(population, population[name]), "population", BLACK, DOTTED)
    ratio, off = axes[:, 2]
    for run, *look in noisy:
        # While stage 1 lasts the signal may be zero or negative.
        signal = (run["a_A"] * run["attention_size"]).where(run["stage"] >= 1)
        curve(ratio, since_stage_one(run, until_rounded(run, "Delta_A") / signal.where(signal > 0)), *look)
    ratio.axhline(1, lw=0.8, ls=":", **BEHIND)
    ratio.set(title=r"$|\Delta_A|_\mu\,/\,a_A|Q - 11^\top\!/T|_\mu$", ylim=(0, None))
    draw_off_line(off, population, all_weights)
    time_axes(axes, "steps since the end of stage 1")
    legend(figure)
    return figure


def draw_off_line(ax: Axes, population: Data, all_weights: Data) -> None:
    """How far population descent of all weights is from the process of two numbers."""
    gaps = {
        "$a_V$": (abs(all_weights["a_V"] - population["a_V"]), BLUE, "-"),
        "$a_A$": (abs(all_weights["a_A"] - population["a_A"]), VERMILION, DASHED),
        r"$|\Delta_V|_\mu$": (all_weights["Delta_V"] / all_weights["value_size"], GREEN, DASH_DOT),
        r"$|\Delta_A|_\mu$": (all_weights["Delta_A"] / all_weights["attention_size"], ORANGE, DOTTED),
    }
    lines = []
    for gap, color, line in gaps.values():
        most = since_stage_one(all_weights, gap).max("seed")
        lines += ax.plot(most["step"].values, most.where(most > 0), color=color, ls=line, lw=0.9)
    ax.axhline(1e-9, lw=0.8, ls=":", **BEHIND)
    ax.set(title="population: off the line", yscale="log", ylim=(1e-18, 1e-3))
    ax.legend(lines, list(gaps), ncols=2, loc="upper right", borderaxespad=0, labelspacing=0.2)


@figure(
    runs={"proximal": theorems.PROXIMAL, "sgd": theorems.SGD},
    claims=("normalisation_helps", "proximal_beats_sgd"),
)
def figure_4(proximal: Data, sgd: Data) -> Canvas:
    """One less the cosine with the ground truth, until A is rounded: of A - 11'/T as it is, and if A were
    thresholded and normalised at this step; and of V - mu1'. Medians over seeds and their range; grey: the
    end of stage 1. Figure 4.
    """
    figure, axes = panels(1, 3, (2.5, 2.2), sharey=True)
    sgd, proximal = good(sgd), good(proximal)
    names = {"attention_cosine": "$A$ as it is", "star_cosine": "$A$ normalised", "value_cosine": "$V$"}
    for ax, (name, title) in zip(axes[0], names.items(), strict=True):
        ax.set_yscale("log")
        for run, *look in ((sgd, *LARGE_STEP), (proximal, *PROXIMAL)):
            curve(ax, 1 - until_rounded(run, name).isel(step=slice(1, None)), *look)
        mark_end(ax, proximal, 1, "stage 1 ends")
        ax.set(xlabel="step", xlim=(0, float(sgd["step"].values[-1])))
        ax.text(0.97, 0.97, title, transform=ax.transAxes, ha="right", va="top")
    axes[0, 0].set_ylabel("1 $-$ cosine with the truth")
    legend(figure)
    return figure


@figure(
    runs={
        "at_scale": theorems.AT_SCALE,
        "sgd_at_scale": theorems.SGD_AT_SCALE,
        "real_at_scale": theorems.REAL_AT_SCALE,
        "same_simulated": theorems.SAME_SIMULATED,
        "real": theorems.PROXIMAL,
        "simulated": theorems.SIMULATED,
    },
    claims=("simulation_matches_minibatches", "simulation_matches_at_scale", "proximal_recovers_at_scale"),
)
def figure_5(
    at_scale: Data, sgd_at_scale: Data, real_at_scale: Data, same_simulated: Data, real: Data, simulated: Data
) -> Canvas:
    """Signals and distances from the line with simulated batches, whose noise is Gaussian with the covariance
    of real ones. Top: at scale, proximal steps and SGD. Middle: real against simulated batches at these
    sizes, but smaller, from the line. Bottom: the same at the preset's sizes. Medians over seeds and their
    range; time counts from the end of a seed's stage 1, until A is rounded. Figure 5.
    """
    figure, axes = panels(3, 4, (1.9, 1.55), sharex="row")
    sides = ("proximal, real batches", BLACK, "-"), ("proximal, simulated batches", BLUE, DASHED)
    rows = (
        ((sgd_at_scale, "SGD, simulated batches", VERMILION, DASH_DOT), (at_scale, *sides[1])),
        ((real_at_scale, *sides[0]), (same_simulated, *sides[1])),
        ((real, *sides[0]), (simulated, *sides[1])),
    )
    for i, sides in enumerate(rows):
        for ax, (name, title) in zip(axes[i], SIGNALS.items(), strict=True):
            ax.set_yscale("log" if name.startswith("Delta") and i != 1 else "linear")
            for run, *look in sides:
                curve(ax, since_stage_one(good(run), until_rounded(good(run), name)), *look)
            ax.set_title(title if i == 0 else "")
        sizes = ", ".join(f"${name}$ = {setting(sides[0][0], name):,}" for name in "TN")
        axes[i, 0].set_ylabel(f"{sizes}\nbatch {setting(sides[0][0], 'batch'):,}")
    time_axes(axes, "steps since stage 1")
    figure.align_ylabels(axes[:, 0])
    legend(figure)
    return figure


# ---------------------------------------------------------------- over sizes


def exponent(claim: Claim, data: Mapping[str, Data]) -> tuple[float, str]:
    """The exponent that a claim on sizes measures, and its interval in words; nan where it is not known."""
    try:
        estimate = claim(**data)
    except Broken:
        return np.nan, "unknown"
    low, high = np.round(estimate.interval(), 2) + 0.0
    around = f"{low:.2f} to {high:.2f}" if np.isfinite(high - low) else "unsettled"
    return estimate.value, f"{estimate.value:.2f} ({around})"


def needs(of: Callable[..., np.ndarray], over: str, data: Mapping[str, Data]) -> tuple[np.ndarray, Samples]:
    """Sizes, and the samples that the runs of each need, by seed; infinite where that is not known."""
    groups = theorems.grouped(over, dict(data))
    found = []
    for group in groups.values():
        try:
            found.append(of(group))
        except Broken:
            found.append(np.full(group[0].sizes["seed"], np.inf))
    return np.array(list(groups)), found


@figure(
    runs={"scratch": theorems.PROXIMAL, **theorems.SCRATCH_AND_TUNED, **theorems.CORRELATIONS.runs},
    claims=("transfer_skips_stage_one",),
)
def figure_6(scratch: Data, **data: Data) -> Canvas:
    """Transfer. Left: samples of stage 1 from scratch, and of fine-tuning a pre-trained V until both signals
    are one half and rounding gives the pattern, each at its cheapest batch, against T; above, the exponent of
    their quotient and its 95 % interval. Right: samples of fine-tuning with the preset's batch against the
    correlation of the pre-trained P^ with P. Medians over seeds and their range; open marks leave out seeds
    that do not get there. Theorem 4.1.
    """
    figure, axes = panels(1, 2, (3.6, 2.5))
    (over_T, over_c), one, other = axes[0], part("scratch_", data), part("tuned_", data)
    look = "from scratch, stage 1 alone", VERMILION, "s", DASHED
    spread(over_T, *needs(theorems.first_stage_samples, "T", one), *look)
    look = "fine-tuned, all samples", BLUE, "o", "-"
    spread(over_T, *needs(theorems.least_samples, "T", other), *look)
    log_axes(over_T)
    _, saved = exponent(theorems.transfer_skips_stage_one, one | other)
    over_T.set(xlabel="$T$", ylabel="samples", title=f"exponent of the quotient: {saved}")
    spread(over_c, *needs(theorems.least_samples, "correlation", part("correlation_", data)), *look)
    base = theorems.least_samples([scratch])
    base = base[np.isfinite(base)]
    if base.size:
        over_c.axhline(np.median(base), color=VERMILION, lw=1.0, ls=DOTTED, label="from scratch, all samples")
        over_c.axhspan(base.min(), base.max(), color=VERMILION, alpha=0.15, lw=0)
    over_c.set(xlabel=r"correlation of $\hat P$ with $P$", ylabel="samples", ylim=(0, None), xlim=(0, 1.04))
    legend(figure)
    return figure


@figure(
    runs={f"{key}_{name}": run for key, (grid, *_) in STAGES.items() for name, run in grid.runs.items()},
    claims=tuple(claim.name for claim in OVER_SIZES),
)
def samples_over_sizes(**data: Data) -> Canvas:
    """Samples of stage 1, at the batch with which noise and signal in A are as large at its end; of stage 2,
    until both signals are one half and rounding gives the pattern, at a batch whose noise is below lambda and
    at the cheapest one that serves all seeds; and the larger relative error of A and V that the whole
    algorithm leaves, against its samples after stage 1. Medians over seeds and their range, power laws with
    their exponents and 95 % intervals, and guides in grey; open marks leave out seeds that fail. Theorem 3.1.
    """
    figure, axes = panels(1, 4, (1.95, 2.3))
    laws: list[list[str]] = [[] for _ in axes[0]]
    for (name, (_, i, *look)), claim in zip(STAGES.items(), OVER_SIZES, strict=True):
        (stage, size), own, ax = name.split("_"), part(f"{name}_", data), axes[0, i]
        if size == "accuracy":
            x, y = theorems.errors_and_samples(own)
        else:
            of = theorems.first_stage_samples if stage == "one" else theorems.least_samples
            x, y = needs(of, size, own)
        spread(ax, x, y, *look)
        power, words = exponent(claim, own)
        away = np.log(x) - np.log(x).mean()
        ax.plot(x, np.exp(np.mean(np.log(y)) + power * away), color=look[1], lw=0.9)
        laws[i].append(f"{TITLES.get(name, 'exponent')}: {words}")
        if stage == "cheapest":
            guides = {"slope 1": (DASHED, x), "slope 1/2": (DOTTED, x**0.5), "log $T$": (DASH_DOT, np.log(x))}
            for label, (line, shape) in guides.items():
                ax.plot(x, np.min(y) / 2 * shape / shape[0], lw=0.8, ls=line, label=label, **BEHIND)
    sizes = {"T": (), "N": (3, 6, 12, 24, 40), "Q": (2, 4, 8, 12), r"\mathrm{samples}": ()}
    for ax, law, (size, ticks) in zip(axes[0], laws, sizes.items(), strict=True):
        ax.set_title("\n".join(law), fontsize=8)
        ax.set_xlabel(f"${size}$")
        log_axes(ax, ticks)
    axes[0, 0].set_ylabel("samples")
    axes[0, 3].set_ylabel("relative error")
    legend(figure, 6)
    return figure


# ---------------------------------------------------------------- controls


@figure(runs=theorems.LAMBDAS.runs, claims=("proximal_recovers", "normalisation_helps"))
def lambda_window(**data: Data) -> Canvas:
    """Relative errors of the proximal method against the weight lambda of the l1 norm, medians over seeds and
    their range. To leading order lambda should exceed the noise of an entry of A in one step and stay below
    its gradient a_V K_P/Q, K_P = |P - mu1'|^2. Both grow with a_V, so that this window moves, from where
    stage 1 ends (dark) to a_V = 1/2 (light). Dotted: what counts as recovered.
    """
    figure, axes = panels(1, 1, (5.2, 2.6))
    ax, kept = axes[0, 0], [good(run) for run in data.values()]
    weights = np.array([setting(run, "lam") for run in kept])
    # A log axis has no zero: it stands at half of the first weight.
    x = np.where(weights > 0, weights, (weights[weights > 0].min() if weights.any() else 1.0) / 2)
    before, rounded, value = zip(*(final_errors(run) for run in kept), strict=True)
    spread(ax, x, before, "$A$ before rounding", VERMILION, "s", DASHED)
    spread(ax, x, rounded, "$A$ in the end", BLUE, "o", "-")
    spread(ax, x, value, "$V$ in the end", GREEN, "D", DASH_DOT)
    if weights.any():
        run, Q = kept[int(np.argmax(weights))], setting(kept[0], "Q")
        noise = theorems.noise_over_lam(run) * setting(run, "lam") / theorems.HALF
        bound = float((run["value_size"] ** 2).mean()) / Q
        level = setting(run, "switch") / (Q * setting(run, "N"))
        for a_V, label, shade in ((level, "as stage 1 ends", 0.3), (0.5, "at $a_V = 1/2$", 0.15)):
            ax.axvspan(a_V * noise, a_V * bound, alpha=shade, lw=0, label=f"window {label}", **BEHIND)
    ax.axhline(theorems.STAR, lw=0.8, ls=":", **BEHIND)
    ax.set(xlabel=r"$\lambda$", ylabel="relative error")
    log_axes(ax, list(x))
    ax.set_xticklabels([f"{weight:.3g}" for weight in weights])
    legend(figure, 3)
    return figure


@table(
    runs=FOUR,
    claims=(
        "stage_one_ends",
        "proximal_recovers",
        "sgd_fails_with_large_step",
        "sgd_fails_even_after_rounding",
    ),
)
def controls(**data: Data) -> tuple[list[str], list[list[Any]]]:
    """Relative errors |A - Q|/|Q| of A at the end of stage 2 and of A rounded, and |V - P|/|P - mu1'| in the
    end: medians over seeds and their range, without seeds whose stage 1 failed.
    """
    found = []
    names = ("proximal", "SGD, large step", "the same, rounded", "SGD, small step")
    for name, run in zip(names, data.values(), strict=True):
        errors = [f"{np.median(e):.3g} ({e.min():.3g} to {e.max():.3g})" for e in final_errors(good(run))]
        samples = f"{theorems.samples_a_step(run) * int(run['step'].values[-1]):,.0f}"
        failed = f"{(~theorems.passed(run)).sum()} of {run.sizes['seed']}"
        found.append([name, *errors, samples, failed])
    return ["algorithm", "A before rounding", "A rounded", "V in the end", "samples", "stage 1 failed"], found


SAMPLES = Study(
    "samples",
    "samples of both stages against T, N, Q and the accuracy asked for",
    sparse_bigrams.PRESETS["quick"],
    {name: (grid,) for name, (grid, *_) in STAGES.items()},
    tuple(claim.name for claim in OVER_SIZES),
    ("samples_over_sizes",),
)
