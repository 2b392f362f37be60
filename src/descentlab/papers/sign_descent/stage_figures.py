"""Drawings of the stages that the slides tell apart, as functions of stored runs.

Single trajectories are those of the first seed.
"""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

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
    side_legend,
    style,
    threads,
    time_marks,
)
from descentlab.papers.sign_descent.stages import SLIDES, softmax, stage_times, until

NARROW = (1.85, 1.7)
TIMES = {"T1": "$T_1$", "T2": "$T_2$", "T3": "$T_3$", "T4": "$T_4$", "T_key": "$T_K$", "T_query": "$T_Q$"}
QUERY_NOISE = r"$\langle w_{Q,s}, y_i\xi_i\rangle$"
KEY_NOISE = r"$\langle w_{K,s}, y_i\xi_i\rangle$"
QUERY_SIGNAL, KEY_SIGNAL = r"$\langle w_{Q,s}, \mu\rangle$", r"$\langle w_{K,s}, \mu\rangle$"
VALUE_NOISE, VALUE_SIGNAL = r"$\langle v, y_i\xi_i\rangle$", r"$\langle v, \mu\rangle$"


def rows(series: xr.DataArray) -> np.ndarray:
    """The trajectories of the first seed, one per row."""
    steps = series.isel(seed=0).transpose("step", ...).values
    return steps.reshape(steps.shape[0], -1).T.astype(float)


def time_axis(ax: Axes, run: xr.Dataset, scale: str = "linear") -> None:
    """The axis of steps, over all of the run; a log axis starts just before step 1."""
    last = float(run["step"].values[-1])
    ax.set_xscale(scale)
    ax.set_xlim((0.9, max(last, 2.0)) if scale == "log" else (0.0, last))
    ax.set_xlabel("$t$")


# ---------------------------------------------------------------- stages I and II


@style()
def draw_stage_one(run: xr.Dataset) -> Canvas:
    """Value signal, key noise, query noise and value noise, in stage I above and in stages I and II below."""
    figure, axes = panels(2, 4, NARROW, sharey="row")
    positive = rows(until(run, 10)["key_noise"])[:, -1] > 0
    for row, end in enumerate((2, 10)):
        part = until(run, end)
        steps = part["step"].values
        signal, key, query, value = axes[row]
        threads(signal, steps, rows(part["value_signal"]), BLACK, linewidth=1.2, alpha=1.0)
        for ax, name in ((key, "key_noise"), (query, "query_noise")):
            each = rows(part[name])
            threads(ax, steps, each[positive], BLUE, most=30)
            threads(ax, steps, each[~positive], VERMILION, most=30)
        threads(value, steps, rows(part["value_noise"]), GREEN)
        value.plot(steps, rows(part["value_noise"]).mean(0), color=BLACK, label="mean over samples")
        for ax, title in zip(axes[row], (VALUE_SIGNAL, KEY_NOISE, QUERY_NOISE, VALUE_NOISE), strict=True):
            ax.axhline(0, color=GREY, lw=0.4, zorder=0)
            time_axis(ax, part)
            ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            if row == 0:
                ax.set_title(title)
                ax.set_xlabel("")
    key_to_colours(axes[0, 1], "positive key noise after stage II", "negative key noise after stage II")
    legend(figure)
    return figure


def key_to_colours(ax: Axes, positive: str, negative: str, linestyle: str = "-") -> None:
    """Legend entries for the two kinds of thin lines."""
    ax.plot([], [], color=BLUE, lw=1.0, ls=linestyle, label=positive)
    ax.plot([], [], color=VERMILION, lw=1.0, label=negative)


# ---------------------------------------------------------------- stages II to IV


def outlook(run: xr.Dataset) -> int:
    """A step by which all stages are over, with room to see what follows; the last one if they are not."""
    last = float(run["step"].values[-1])
    return int(min(last, max(120, 2 * np.median(stage_times(run)["T_query"]))))


@style()
def draw_stages_three_four(run: xr.Dataset) -> Canvas:
    """Query and key signals and noises, stages II and III above, III and IV below."""
    figure, axes = panels(2, 4, NARROW)
    # Which way a neuron's signals go is a coin flip; the sign of its query signal makes neurons alike.
    sign = np.sign(run["query_signal"].isel(step=-1))
    titles = (QUERY_SIGNAL, KEY_SIGNAL, QUERY_NOISE, KEY_NOISE)
    names = dict(zip(("query_signal", "key_signal", "query_noise", "key_noise"), titles, strict=True))
    # Where stages II and III end, above; where stage IV ends and query noise has turned, below.
    found, shown = stage_times(run), (("T2", "T3"), ("T4", "T_query"))
    for row, end in enumerate((60, outlook(run))):
        part, times = until(run, end), {TIMES[name]: float(found[name][0]) for name in shown[row]}
        for ax, (name, title) in zip(axes[row], names.items(), strict=True):
            each = rows(part[name] * sign)
            if "signal" in name:
                threads(ax, part["step"].values, each, BLACK, alpha=0.5)
            else:
                signed_threads(ax, part["step"].values, each, rows(until(run, 60)[name] * sign)[:, -1] < 0)
            ax.axhline(0, color=GREY, lw=0.4, zorder=0)
            time_marks(ax, {words: t for words, t in times.items() if t <= end}, labels=row == 1)
            time_axis(ax, part)
            if row == 0:
                ax.set_title(title)
                ax.set_xlabel("")
        for left, right in ((0, 1), (2, 3)):
            axes[row, right].sharey(axes[row, left])
            axes[row, right].tick_params(labelleft=False)
            axes[row, left].autoscale_view()
    key_to_colours(axes[0, 2], "positive noise after stage III", "negative noise after stage III", ":")
    axes[0, 0].set_ylabel("stages II, III")
    axes[1, 0].set_ylabel("stages III, IV")
    legend(figure)
    return figure


def noises_along(run: xr.Dataset) -> Movie:
    """Query and key noise of every neuron and sample, first seed, times the sign of its query signal."""
    own = run.isel(seed=0)
    last = own.isel(step=-1)
    sign = xr.where(last["query_signal"] < 0, -1.0, 1.0)
    order = (last["query_noise"].mean("sample") * sign).argsort().values
    names = {"query noise": "query_noise", "key noise": "key_noise"}
    found = {words: (own[name] * sign).isel(neuron=order) for words, name in names.items()}
    return Movie({words: noise.transpose("step", "sample", "neuron") for words, noise in found.items()})


def signed_threads(ax: Axes, steps: np.ndarray, each: np.ndarray, negative: np.ndarray) -> None:
    """Negative trajectories solid, positive ones dotted, as on the slides."""
    threads(ax, steps, each[negative], VERMILION, most=20)
    threads(ax, steps, each[~negative], BLUE, most=20, linestyle=":", alpha=0.8)


@style()
def draw_softmax(run: xr.Dataset) -> Canvas:
    """s_11 and s_21 over t, and the fall of s_21 under its two rival laws."""
    figure, axes = panels(1, 2, (3.4, 2.4))
    left, right = axes[0]
    for which, color in (("11", BLUE), ("21", VERMILION)):
        threads(left, run["step"].values, rows(softmax(run, which)), color, alpha=0.4)
        band(left, softmax(run, which).mean("sample"), f"mean of $s_{{i,{which}}}$ over samples", color)
    time_axis(left, run, "log")
    left.set_ylabel("softmax output")

    log_s = rows(run["log_softmax_21"])
    steps = run["step"].values.astype(float)
    with np.errstate(divide="ignore"):
        depth = np.log1p(-np.exp(log_s)) - log_s  # -log of the odds s/(1 - s)
    threads(right, steps, np.where(depth > 0.05, depth, np.nan), VERMILION, alpha=0.6)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_ylim(0.05, 100)
    right.set_xlim(3, 300)
    for level in (0.4, 0.1, 0.01, 0.001):
        right.axhline(np.log(1 / level - 1), color=GREY, lw=0.5, ls=":", zorder=0)
    guide = np.array([3.0, 300.0])
    for power, law, color, line in (
        (1, "$e^{-ct}$: slope 1", BLUE, "--"),
        (2, "$e^{-ct^2}$: slope 2", GREEN, "-."),
    ):
        right.plot(guide, 2.0 * (guide / 60) ** power, color=color, ls=line, label=law)
    right.set_xlabel("$t$")
    right.set_ylabel("$-\\log$ odds of $s_{i,21}$")
    legend(figure, columns=2)
    return figure


@style()
def draw_all_stages(run: xr.Dataset) -> Canvas:
    """What each stage moves, on one time axis, with measured times as lines and the slides' as ticks."""
    figure, axes = panels(3, 1, (7.0, 1.4), sharex=True)
    first, second, third = axes[:, 0]
    noise, loss = run["value_noise"].mean("sample"), run["training_loss"]
    band(first, noise / abs(noise).max("step"), "mean value noise\nover its maximum", GREEN)
    band(first, loss / loss.isel(step=0), "training loss\nover its start", BLACK)
    band(second, run["noise_alignment"], "query and key\nnoise agree", BLUE)
    band(second, run["signals_oppose"], "query and key\nsignals oppose", ORANGE)
    band(third, softmax(run, "21").mean("sample"), "mean of $s_{i,21}$\nover samples", VERMILION)
    band(third, run["key_turned"], "key noise has query\nsignal's sign", PURPLE)
    band(third, run["query_turned"], "query noise has query\nsignal's sign", SKY)
    times = {TIMES[name]: float(np.median(each)) for name, each in stage_times(run).items()}
    for ax in axes[:, 0]:
        time_marks(ax, times, labels=ax is first)
        time_axis(ax, run, "log")
        ax.set_xlabel("")
        side_legend(ax)
    first.set_yscale("log")
    first.set_ylabel("relative size")
    for ax in (second, third):
        ax.set_ylim(-0.04, 1.04)
        ax.set_yticks([0, 0.5, 1])
        ax.set_ylabel("share")
    third.set_ylabel("share or output")
    ticks = [time for time in SLIDES.values() if time <= run["step"].values[-1]]
    third.set_xticks(ticks, [str(time) for time in ticks])
    third.set_xticks([], minor=True)
    third.set_xlabel("$t$ (ticks: the slides' stage times)")
    figure.align_ylabels()
    return figure
