"""The slides' figures and tables, and those that the laboratory adds, as functions of stored runs.

Single trajectories are those of the first seed. Everything else is the median over seeds and their range,
or a mean with its 95 % interval.
"""

from typing import Any

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
    phases,
    points,
    side_legend,
    threads,
    time_marks,
)
from descentlab.judging import Broken, hitting_time, setting
from descentlab.papers import figure, table
from descentlab.papers.sign_descent import sizes, theorems
from descentlab.papers.sign_descent.stages import EVENTS, SLIDES, softmax, stage_time, stage_times, until
from descentlab.papers.sign_descent.theorems import ADAM, ADAM_NEAR_ZERO, BASE, GD, LONG, SIGN

# By signal strength, hence by signal-noise ratio.
SIGNALS = (0.5, 1.0, 2.0, 3.0, 4.0)
SNR = {
    name: {f"{name}_{signal:g}".replace(".", "_"): settings | {"signal": signal} for signal in SIGNALS}
    for name, settings in sizes.OPTIMIZERS.items()
}
PRECISION = {
    f"{gradient}_{bits}": {"optimizer": "sign", "precision": bits, "gradient": gradient, "detail": False}
    for gradient in ("plain", "stable")
    for bits in (32, 64)
}

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
    ax.set(xscale=scale, xlim=(0.9, max(last, 2.0)) if scale == "log" else (0.0, last), xlabel="$t$")


def key_to_colours(ax: Axes, what: str, linestyle: str = "-") -> None:
    """Legend entries for the two kinds of thin lines."""
    ax.plot([], [], color=BLUE, lw=1.0, ls=linestyle, label=f"positive {what}")
    ax.plot([], [], color=VERMILION, lw=1.0, label=f"negative {what}")


# ---------------------------------------------------------------- stages I and II


@figure(
    runs={"run": BASE},
    claims=(
        "value_noise_grows_linearly",
        "other_products_stay_near_start",
        "query_key_noise_align",
        "alignment_is_balanced",
    ),
)
def figure_stage_one(run: xr.Dataset) -> Canvas:
    """Stage I (t = 0 to 2, above) and stages I and II (t = 0 to 10, below): mean value signal, key and query
    noise of single pairs (s, i), and mean value noise of every sample, one seed. Slides, stages I and II.
    """
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
                ax.set(title=title, xlabel="")
    key_to_colours(axes[0, 1], "key noise after stage II")
    legend(figure)
    return figure


PATTERNS = ("K+, Q+", "K+, Q−", "K−, Q+", "K−, Q−")
# Table 1 as the slides print it.
SLIDES_TABLE_1 = np.array([[486, 1, 0, 25], [244, 4, 9, 250], [223, 10, 4, 221], [37, 2, 3, 481]])


def sign_contingency(run: xr.Dataset, step: int = 10) -> np.ndarray:
    """The number of pairs (s, i) with each sign pattern at the start and at `step`, by seed, (seed, 4, 4)."""
    part = until(run, step).isel(step=[0, -1]).transpose("seed", "step", ...)
    key, query = (part[name].values <= 0 for name in ("key_noise", "query_noise"))
    pattern = (2 * key + query).reshape(*key.shape[:2], -1)
    before, after = (pattern[:, i, None, :] == np.arange(4)[:, None] for i in (0, 1))
    return np.einsum("sap,sbp->sab", before.astype(int), after.astype(int))


@table(runs={"run": BASE}, claims=("query_key_noise_align", "alignment_is_balanced"))
def table_1(run: xr.Dataset) -> tuple[list[str], list[list[Any]]]:
    """Pairs (s, i) by the signs of key and query noise at the start (rows) and at t = 10 (columns), here and
    as Table 1 of the slides has them for 2000 pairs.
    """
    end = int(until(run, 10)["step"].values[-1])
    counts = sign_contingency(run)
    sources = {f"mean of {len(counts)} seeds": counts.mean(0)} if len(counts) > 1 else {}
    sources |= {"first seed": counts[0], "slides": SLIDES_TABLE_1}
    found: list[list[Any]] = []
    for source, counted in sources.items():
        full = np.vstack([counted, counted.sum(0)])
        full = np.column_stack([full, full.sum(1)]).round(1).tolist()
        found += [[source, name, *line] for name, line in zip((*PATTERNS, "column sum"), full, strict=True)]
    return ["", f"t = 0 \\ t = {end}", *PATTERNS, "row sum"], found


# ---------------------------------------------------------------- stages II to IV


def outlook(run: xr.Dataset) -> int:
    """A step by which all stages are over, with room to see what follows; the last one if they are not."""
    last = float(run["step"].values[-1])
    return int(min(last, max(120, 2 * np.median(stage_times(run)["T_query"]))))


def signed_threads(ax: Axes, run: xr.Dataset, name: str, sign: Any) -> None:
    """Noise times a sign: solid what is negative after stage III, the rest dotted, as on the slides."""
    each, negative = rows(run[name] * sign), rows(until(run, 60)[name] * sign)[:, -1] < 0
    threads(ax, run["step"].values, each[negative], VERMILION, most=20)
    threads(ax, run["step"].values, each[~negative], BLUE, most=20, linestyle=":", alpha=0.8)
    ax.axhline(0, color=GREY, lw=0.4, zorder=0)


def noises_along(run: xr.Dataset) -> Movie:
    """Query and key noise of every neuron and sample, first seed, times the sign of its query signal."""
    own = run.isel(seed=0)
    last = own.isel(step=-1)
    sign = xr.where(last["query_signal"] < 0, -1.0, 1.0)
    order = (last["query_noise"].mean("sample") * sign).argsort().values
    found = {f"{name} noise": (own[f"{name}_noise"] * sign).isel(neuron=order) for name in ("query", "key")}
    return Movie({words: noise.transpose("step", "sample", "neuron") for words, noise in found.items()})


@figure(
    runs={"run": BASE},
    claims=(
        "majority_vote_sets_signal_signs",
        "majority_vote_as_printed",
        "query_and_key_signals_oppose",
        "key_noise_turns_before_query_noise",
    ),
    moving=noises_along,
)
def figure_stages_three_four(run: xr.Dataset) -> Canvas:
    """Query and key signals of single neurons and noises of single pairs (s, i), one seed, each times the
    sign of its neuron's final query signal; noise that is negative after stage III is solid, positive noise
    dotted; dashed, measured stage times: T_2 and T_3 above. Slides, stages II to IV.
    """
    figure, axes = panels(2, 4, NARROW)
    # Which way a neuron's signals go is a coin flip; the sign of its query signal makes neurons alike.
    sign = np.sign(run["query_signal"].isel(step=-1))
    names = {"query_signal": QUERY_SIGNAL, "key_signal": KEY_SIGNAL,
             "query_noise": QUERY_NOISE, "key_noise": KEY_NOISE}  # fmt: skip
    # Where stages II and III end, above; where stage IV ends and query noise has turned, below.
    found, shown = stage_times(run), (("T2", "T3"), ("T4", "T_query"))
    for row, end in enumerate((60, outlook(run))):
        part, times = until(run, end), {TIMES[name]: float(found[name][0]) for name in shown[row]}
        for ax, (name, title) in zip(axes[row], names.items(), strict=True):
            if "signal" in name:
                threads(ax, part["step"].values, rows(part[name] * sign), BLACK, alpha=0.5)
                ax.axhline(0, color=GREY, lw=0.4, zorder=0)
            else:
                signed_threads(ax, part, name, sign)
            time_marks(ax, {words: t for words, t in times.items() if t <= end}, labels=row == 1)
            time_axis(ax, part)
            if row == 0:
                ax.set(title=title, xlabel="")
        for left, right in ((0, 1), (2, 3)):
            axes[row, right].sharey(axes[row, left])
            axes[row, right].tick_params(labelleft=False)
            axes[row, left].autoscale_view()
    key_to_colours(axes[0, 2], "noise after stage III", ":")
    axes[0, 0].set_ylabel("stages II, III")
    axes[1, 0].set_ylabel("stages III, IV")
    legend(figure)
    return figure


@figure(
    runs={"run": BASE},
    claims=(
        "softmax_stays_half_before_stage_four",
        "noise_softmax_leaves_first",
        "noise_softmax_decays_exponentially",
        "attention_goes_to_noise",
    ),
)
def figure_softmax(run: xr.Dataset) -> Canvas:
    """Left: softmax outputs of every sample (thin, one seed) and their mean. Right: the odds s/(1 - s) of
    every s_{i,21} as they fall: exp(-ct) has slope 1 here, exp(-ct^2) slope 2. Dotted: s_21 = 0.4, 0.1, 0.01
    and 0.001. Slides, stage IV.
    """
    figure, axes = panels(1, 2, (3.4, 2.4))
    left, right = axes[0]
    for which, color in (("11", BLUE), ("21", VERMILION)):
        threads(left, run["step"].values, rows(softmax(run, which)), color, alpha=0.4)
        band(left, softmax(run, which).mean("sample"), f"mean of $s_{{i,{which}}}$ over samples", color)
    time_axis(left, run, "log")
    left.set_ylabel("softmax output")

    log_s = rows(run["log_softmax_21"])
    with np.errstate(divide="ignore"):
        depth = np.log1p(-np.exp(log_s)) - log_s  # -log of the odds s/(1 - s)
    shown = np.where(depth > 0.05, depth, np.nan)
    threads(right, run["step"].values.astype(float), shown, VERMILION, alpha=0.6)
    for level in (0.4, 0.1, 0.01, 0.001):
        right.axhline(np.log(1 / level - 1), color=GREY, lw=0.5, ls=":", zorder=0)
    guide = np.array([3.0, 300.0])
    right.plot(guide, 2.0 * (guide / 60), color=BLUE, ls="--", label="$e^{-ct}$: slope 1")
    right.plot(guide, 2.0 * (guide / 60) ** 2, color=GREEN, ls="-.", label="$e^{-ct^2}$: slope 2")
    right.set(xscale="log", yscale="log", xlim=(3, 300), ylim=(0.05, 100))
    right.set(xlabel="$t$", ylabel="$-\\log$ odds of $s_{i,21}$")
    legend(figure, columns=2)
    return figure


@figure(
    runs={"run": BASE},
    claims=(
        "value_noise_grows_linearly",
        "query_key_noise_align",
        "query_and_key_signals_oppose",
        "noise_softmax_leaves_first",
        "key_noise_turns_before_query_noise",
        "training_loss_decays_exponentially",
        "value_memorises_noise",
    ),
)
def figure_all_stages(run: xr.Dataset) -> Canvas:
    """All stages on one time axis: median over seeds and range of seeds. Dashed lines are the measured stage
    times (median), ticks those of the slides. After Figure 19 of the paper.
    """
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
    first.set(yscale="log", ylabel="relative size")
    for ax, label in ((second, "share"), (third, "share or output")):
        ax.set(ylim=(-0.04, 1.04), yticks=[0, 0.5, 1], ylabel=label)
    ticks = [time for time in SLIDES.values() if time <= run["step"].values[-1]]
    third.set_xticks(ticks, [str(time) for time in ticks])
    third.set_xticks([], minor=True)
    third.set_xlabel("$t$ (ticks: the slides' stage times)")
    figure.align_ylabels()
    return figure


def span(low: float, high: float) -> str:
    """An interval, open where it is unbounded and empty where it says nothing."""
    if not np.isfinite(low) and not np.isfinite(high):
        return "–"
    return f"{low:.3g} to {high:.3g}" if np.isfinite(high) else f"above {low:.3g}"


@table(
    runs={"run": BASE},
    claims=("key_noise_turns_before_query_noise", "query_key_noise_align", "query_and_key_signals_oppose"),
)
def table_stage_times(run: xr.Dataset) -> tuple[list[str], list[list[Any]]]:
    """Stage times as hitting times, median over seeds, beside the slides' numbers, whose sizes are not known;
    the ratio of the last two depends on no unit of time.
    """
    found: list[list[Any]] = []
    times = stage_times(run)
    for name, event in EVENTS.items():
        estimate = hitting_time(event.series(run), above=event.above, below=event.below)
        middle = f"{estimate.value:.3g}" if np.isfinite(estimate.value) else "not reached"
        measured = [middle, span(*estimate.interval()), span(times[name].min(), times[name].max())]
        found.append([name, event.words, *measured, str(SLIDES[name])])
    with np.errstate(invalid="ignore"):
        ratios = times["T_query"] / times["T_key"]
    try:
        log_ratio = theorems.key_noise_turns_before_query_noise(run)
        interval = span(*np.exp(log_ratio.interval()))
        shown = [f"{np.exp(log_ratio.value):.3g}", interval, span(ratios.min(), ratios.max())]
    except Broken:
        shown = ["not reached", "–", "–"]
    return (
        ["time", "event", "measured", "95 % interval", "range of seeds", "slides"],
        [*found, ["T_query / T_key", "geometric mean", *shown, f"{SLIDES['T_query'] / SLIDES['T_key']:g}"]],
    )


# ---------------------------------------------------------------- Adam and gradient descent


@figure(
    runs={"sign": SIGN, "adam_near_zero": ADAM_NEAR_ZERO, "adam": ADAM},
    claims=("adam_matches_sign_descent", "adam_query_noise_stays_negative", "adam_loss_curve_differs"),
)
def figure_adam(sign: xr.Dataset, adam_near_zero: xr.Dataset, adam: xr.Dataset) -> Canvas:
    """SignGD and Adam with small and with default betas, one seed: noise-signal softmax outputs, query and
    key noise of single pairs (s, i) times the sign of the query signal, and training loss. Slides, Adam
    against SignGD.
    """
    figure, axes = panels(4, 3, (2.2, 1.4), sharex=True, sharey="row")
    runs = {"SignGD": sign, r"Adam, $\beta$ = (0.1, 0.1)": adam_near_zero,
            r"Adam, $\beta$ = (0.9, 0.999)": adam}  # fmt: skip
    end = outlook(sign)
    for column, (title, whole) in zip(axes.T, runs.items(), strict=True):
        run, (softmaxes, query, key, loss) = until(whole, end), column
        steps = run["step"].values
        softmaxes.set_title(title)
        threads(softmaxes, steps, rows(softmax(run, "21")), GREY, alpha=0.5)
        softmaxes.plot(steps, rows(softmax(run, "21")).mean(0), color=BLACK, label="mean over samples")
        side = np.sign(whole["query_signal"].isel(step=-1))
        for ax, name in ((query, "query_noise"), (key, "key_noise")):
            signed_threads(ax, run, name, side)
        band(loss, run["training_loss"], "_", BLACK)
        loss.set_yscale("log")
        time_axis(loss, run)
    for ax, label in zip(axes[:, 0], ("$s_{i,21}$", QUERY_NOISE, KEY_NOISE, "training loss"), strict=True):
        ax.set_ylabel(label)
    figure.align_ylabels()
    key_to_colours(axes[1, 0], "noise after stage III", ":")
    legend(figure)
    return figure


@figure(
    runs={"sign": SIGN, "adam": ADAM, **GD},
    claims=("sign_descent_trains_faster", "training_loss_decays_exponentially", "adam_loss_curve_differs"),
)
def figure_training_loss(sign: xr.Dataset, adam: xr.Dataset, **gd: xr.Dataset) -> Canvas:
    """Training loss of SignGD, Adam and GD, against log t (left) and t (right, where exponential decay is a
    line): median over seeds and range of seeds. Slides, GD against SignGD.
    """
    figure, axes = panels(1, 2, (3.4, 2.4), sharey=True)
    ends = {name: float(np.median(run["training_loss"].isel(step=-1))) for name, run in gd.items()}
    sound = {name: end for name, end in ends.items() if (gd[name]["diverged_at"] < 0).all()}
    best = min(sound, key=lambda name: sound[name], default=None)
    for ax, scale in zip(axes[0], ("log", "linear"), strict=True):
        for name, run in gd.items():
            eta = setting(run, "eta")
            if name == best:
                band(ax, run["training_loss"], rf"GD, best step ($\eta$ = {eta:g})", VERMILION)
                continue
            band(ax, run["training_loss"], "GD, other steps", GREY, linewidth=0.7)
            if scale == "linear" and 0 < ends[name] < np.inf:
                last, words = float(run["step"].values[-1]), rf"$\eta$ = {eta:g}"
                ax.text(last, ends[name], words, ha="right", va="top", fontsize=7, color=GREY)
        band(ax, sign["training_loss"], "SignGD", BLUE)
        band(ax, adam["training_loss"], "Adam", GREEN, linestyle="--")
        ax.set_yscale("log")
        time_axis(ax, sign, scale)
    axes[0, 0].set_ylabel("training loss")
    legend(figure)
    return figure


@figure(
    runs={**SNR["sign"], **SNR["adam"], **SNR["gd"]},
    claims=("gd_generalises_better", "test_loss_stays_constant"),
)
def figure_snr(**runs: xr.Dataset) -> Canvas:
    """Test loss, test error and training loss at the end of training against the signal-noise ratio, mean
    over seeds with 95 % intervals; GD with step size 1. Slides, GD against SignGD.
    """
    figure, axes = panels(1, 3, (2.3, 2.2))
    signs = [runs[name] for name in SNR["sign"]]
    x = [setting(run, "signal") / (setting(run, "sigma_p") * setting(run, "s") ** 0.5) for run in signs]
    kinds = {"sign": (BLUE, "o"), "adam": (GREEN, "s"), "gd": (VERMILION, "^")}
    for ax, name in zip(axes[0], ("test_loss", "test_error", "training_loss"), strict=True):
        for kind, (color, marker) in kinds.items():
            ends = [runs[run][name].isel(step=-1).values for run in SNR[kind]]
            points(ax, x, ends, sizes.TITLES[kind], color, marker)
        ax.set(title=name.replace("_", " "), xlabel=r"$\|\mu\| \,/\, (\sigma_p \sqrt{s})$")
        if name != "test_error":
            ax.set_yscale("log")
    legend(figure)
    return figure


# ---------------------------------------------------------------- precision, and late times


@figure(runs=PRECISION, claims=("key_noise_turns_before_query_noise",))
def figure_precision(**runs: xr.Dataset) -> Canvas:
    """SignGD by precision: exact zeros in the active query and key gradient that a run uses, where a weight
    stands still, and the share of signs that autodiff of the plain softmax loss gets wrong at the weights of
    a run with the stable form. Not in the paper.
    """
    figure, axes = panels(1, 2, (3.0, 2.2))
    zeros, wrong = axes[0]
    kinds = {
        "plain_32": ("32 bits, autodiff", VERMILION, "-"),
        "stable_32": ("32 bits, stable form", ORANGE, "--"),
        "plain_64": ("64 bits, autodiff", BLUE, "-"),
        "stable_64": ("64 bits, stable form", BLACK, "--"),
    }
    for name, (label, color, line) in kinds.items():
        band(zeros, runs[name]["zero_share"], label, color, linestyle=line)
        if name.startswith("plain"):
            stable = runs[name.replace("plain", "stable")]
            band(wrong, stable["plain_wrong_share"], label, color, linestyle=line)
    titles = ("exact zeros in the gradient used", "signs that autodiff gets wrong")
    for ax, title in zip(axes[0], titles, strict=True):
        time_axis(ax, runs["stable_64"], "log")
        ax.set(title=title, ylim=(-0.04, 1.04), ylabel="share")
    legend(figure, columns=2)
    return figure


@figure(
    runs={"run": LONG},
    claims=("test_loss_stays_constant", "training_loss_decays_exponentially", "value_noise_grows_linearly"),
)
def figure_test_loss(run: xr.Dataset) -> Canvas:
    """SignGD at ten times the slides' horizon: training and test loss over time, and the test loss of every
    seed against log(1/L_S), with a line of slope 1. Not in the paper.
    """
    figure, axes = panels(1, 2, (3.0, 2.2))
    both, against = axes[0]
    band(both, run["training_loss"], "training loss $L_S$", BLACK)
    band(both, run["test_loss"], "test loss $L_D$", VERMILION)
    time_axis(both, run, "log")
    both.set(yscale="log", ylim=(max(1e-12, float(run["training_loss"].min())), 10), ylabel="loss")
    depth, test = -np.log(run["training_loss"].values), run["test_loss"].values
    for x, y in zip(depth, test, strict=True):
        against.plot(x[x > 1], y[x > 1], color=VERMILION, lw=0.7, alpha=0.6)
    if (depth > 10).any():
        guide = np.array([max(10.0, depth.max() / 10), depth.max()])
        against.plot(guide, test.max() * guide / guide[-1], color=GREY, ls="--", label="slope 1")
    against.set(xscale="log", yscale="log", xlabel="$\\log(1/L_S)$", ylabel="test loss")
    legend(figure, columns=3)
    return figure


# ---------------------------------------------------------------- over sizes

# The registry looks for claims in `theorems` and here: these come after the slides' own.
OVER_SIZES = (sizes.scaling, sizes.STAGE_TIMES, sizes.generalisation, sizes.GENERALISATION)
LABELS = {"s": "$s$", "sigma_p": r"$\sigma_p$", "m_k": "$m_k$", "sigma_0": r"$\sigma_0$", "eta": r"$\eta$"}
COLOURS = {"T1": SKY, "T2": BLUE, "T3": GREEN, "T4": VERMILION, "T_key": ORANGE, "T_query": PURPLE}


@figure(
    runs={name: overrides for grid in sizes.SIZES.values() for name, overrides in grid.runs.items()},
    claims=tuple(claim.name for claim in sizes.scaling.claims),
    presets=("stage_times",),
)
def figure_stage_times(**data: xr.Dataset) -> Canvas:
    """Stage times of SignGD against sizes, all seeds and their mean, with the powers that follow from sign
    steps for T_2 and T_4 (dashed, through the middle size). Not in the paper.
    """
    figure, axes = panels(1, len(sizes.SIZES), (1.9, 2.4), sharey=True)
    for ax, (size, grid) in zip(axes[0], sizes.SIZES.items(), strict=True):
        runs = [data[name] for name in grid.runs]
        x = np.array([setting(run, size) for run in runs], float)
        middle = len(x) // 2
        for time, colour in COLOURS.items():
            y = np.array([stage_time(time, run) for run in runs])
            ax.plot(x, y.mean(axis=1), color=colour, lw=1.0, label=TIMES[time])
            ax.plot(np.repeat(x, y.shape[1]), y.ravel(), ".", color=colour, ms=2.5, alpha=0.6)
            if time in sizes.DERIVED:
                line = y[middle].mean() * (x / x[middle]) ** sizes.DERIVED[time][size]
                ax.plot(x, line, color=BLACK, lw=0.8, ls=(0, (4, 2)), label="derived power")
        ax.set(xscale="log", yscale="log", xlabel=LABELS[size])
        ends = x.min(), x[middle], x.max()
        ax.set_xticks(ends, [f"{v:.3g}" for v in ends])
        ax.minorticks_off()
    axes[0, 0].set_ylabel("step")
    legend(figure, columns=7)
    return figure


HALF_WAY = 0.25  # test error, half way from guessing to none


@figure(
    runs=sizes.map_runs(*sizes.OPTIMIZERS),
    claims=tuple(claim.name for claim in sizes.generalisation.claims),
    presets=("generalisation",),
)
def figure_generalisation(**data: xr.Dataset) -> Canvas:
    """Test error at the end of training over signal strength and sample count, mean over seeds. Black: where
    it crosses 1/4, with 95 % of bootstrapped curves. Not in the paper.
    """
    figure, axes = panels(1, len(sizes.OPTIMIZERS), (2.7, 2.2), sharey=True)
    for ax, (name, title) in zip(axes[0], sizes.TITLES.items(), strict=True):
        errors = sizes.error_map(name, data)
        phases(ax, errors, "signal", "n", HALF_WAY, vmin=0, vmax=0.5, bar=ax is axes[0, -1])
        ax.set(title=title, xlabel="signal strength", ylabel="samples $n$")
        ax.set_xticks(sizes.SIGNALS[::2], [f"{x:g}" for x in sizes.SIGNALS[::2]])
        ax.set_yticks(errors["n"].values, [str(n) for n in errors["n"].values])
        ax.minorticks_off()
        ax.label_outer()
    return figure
