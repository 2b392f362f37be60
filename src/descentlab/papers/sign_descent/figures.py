"""The slides' figures and tables, and those that the laboratory adds, as functions of stored runs.

Single trajectories are those of the first seed. Everything else is the median over seeds and their range,
or a mean with its 95 % interval.
"""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from descentlab.moving import Movie
from descentlab.paper import Figure, Table
from descentlab.papers.sign_descent.runs import (
    ADAM,
    ADAM_NEAR_ZERO,
    BASE,
    GD,
    LONG,
    PRECISION,
    SIGN,
    SNR_ADAM,
    SNR_GD,
    SNR_SIGN,
    numbered,
)
from descentlab.papers.sign_descent.stages import (
    SLIDES,
    softmax,
    stage_times,
    until,
)
from descentlab.papers.sign_descent.tables import rows_stage_times, rows_table_1
from descentlab.plot import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    band,
    legend,
    panels,
    points,
    side_legend,
    style,
    threads,
    time_marks,
)
from descentlab.scaling import setting

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


# ---------------------------------------------------------------- Adam and gradient descent


@style()
def draw_adam(sign: xr.Dataset, adam_near_zero: xr.Dataset, adam: xr.Dataset) -> Canvas:
    """SignGD and Adam side by side: s_21, query noise, key noise and training loss."""
    figure, axes = panels(4, 3, (2.2, 1.4), sharex=True, sharey="row")
    titles = ("SignGD", r"Adam, $\beta$ = (0.1, 0.1)", r"Adam, $\beta$ = (0.9, 0.999)")
    runs = dict(zip(titles, (sign, adam_near_zero, adam), strict=True))
    end = outlook(sign)
    for column, (title, whole) in zip(axes.T, runs.items(), strict=True):
        run, (softmaxes, query, key, loss) = until(whole, end), column
        steps = run["step"].values
        softmaxes.set_title(title)
        threads(softmaxes, steps, rows(softmax(run, "21")), GREY, alpha=0.5)
        softmaxes.plot(steps, rows(softmax(run, "21")).mean(0), color=BLACK, label="mean over samples")
        side = np.sign(whole["query_signal"].isel(step=-1))
        for ax, name in ((query, "query_noise"), (key, "key_noise")):
            signed_threads(ax, steps, rows(run[name] * side), rows(until(run, 60)[name] * side)[:, -1] < 0)
            ax.axhline(0, color=GREY, lw=0.4, zorder=0)
        band(loss, run["training_loss"], "_", BLACK)
        loss.set_yscale("log")
        time_axis(loss, run)
    for ax, label in zip(axes[:, 0], ("$s_{i,21}$", QUERY_NOISE, KEY_NOISE, "training loss"), strict=True):
        ax.set_ylabel(label)
    figure.align_ylabels()
    key_to_colours(axes[1, 0], "positive noise after stage III", "negative noise after stage III", ":")
    legend(figure)
    return figure


@style()
def draw_training_loss(sign: xr.Dataset, adam: xr.Dataset, **gd: xr.Dataset) -> Canvas:
    """The training loss of SignGD, Adam and GD, against log t and against t."""
    figure, axes = panels(1, 2, (3.4, 2.4), sharey=True)
    ends = {name: float(np.median(run["training_loss"].isel(step=-1))) for name, run in gd.items()}
    sound = {name: end for name, end in ends.items() if (gd[name]["diverged_at"] < 0).all()}
    best = min(sound, key=lambda name: sound[name], default=None)
    for ax, scale in zip(axes[0], ("log", "linear"), strict=True):
        for eta, (name, run) in zip(GD, gd.items(), strict=True):
            if name == best:
                band(ax, run["training_loss"], rf"GD, best step ($\eta$ = {eta:g})", VERMILION)
            else:
                band(ax, run["training_loss"], "GD, other steps", GREY, linewidth=0.7)
                if scale == "linear" and 0 < ends[name] < np.inf:
                    last = float(run["step"].values[-1])
                    ax.text(
                        last, ends[name], rf"$\eta$ = {eta:g}", ha="right", va="top", fontsize=7, color=GREY
                    )
        band(ax, sign["training_loss"], "SignGD", BLUE)
        band(ax, adam["training_loss"], "Adam", GREEN, linestyle="--")
        ax.set_yscale("log")
        time_axis(ax, sign, scale)
    axes[0, 0].set_ylabel("training loss")
    legend(figure)
    return figure


def signal_noise_ratio(run: xr.Dataset) -> float:
    """|mu| / (sigma_p sqrt(s)) by the settings that a stored run carries."""
    return setting(run, "signal") / (setting(run, "sigma_p") * setting(run, "s") ** 0.5)


@style()
def draw_snr(**runs: xr.Dataset) -> Canvas:
    """Test loss, test error and training loss after training, against the signal-noise ratio."""
    figure, axes = panels(1, 3, (2.3, 2.2))
    x = [signal_noise_ratio(runs[name]) for name in numbered("sign", SNR_SIGN)]
    kinds = (("sign", "SignGD", BLUE, "o"), ("adam", "Adam", GREEN, "s"), ("gd", "GD", VERMILION, "^"))
    titles = {"test_loss": "test loss", "test_error": "test error", "training_loss": "training loss"}
    for ax, (name, title) in zip(axes[0], titles.items(), strict=True):
        for kind, label, color, marker in kinds:
            own = [run for run_name, run in runs.items() if run_name.startswith(f"{kind}_")]
            points(ax, x, [run[name].isel(step=-1).values for run in own], label, color, marker)
        ax.set_title(title)
        ax.set_xlabel(r"$\|\mu\| \,/\, (\sigma_p \sqrt{s})$")
        if name != "test_error":
            ax.set_yscale("log")
    legend(figure)
    return figure


# ---------------------------------------------------------------- precision


@style()
def draw_precision(**runs: xr.Dataset) -> Canvas:
    """Exact zeros in the gradient that is used, and signs that autodiff would get wrong, by precision."""
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
        time_axis(zeros, runs[name], "log")
    for name in ("plain_32", "plain_64"):
        label, color, line = kinds[name]
        stable = runs[name.replace("plain", "stable")]
        band(wrong, stable["plain_wrong_share"], label, color, linestyle=line)
        time_axis(wrong, stable, "log")
    zeros.set_title("exact zeros in the gradient used")
    wrong.set_title("signs that autodiff gets wrong")
    for ax in axes[0]:
        ax.set_ylim(-0.04, 1.04)
        ax.set_ylabel("share")
    legend(figure, columns=2)
    return figure


@style()
def draw_test_loss(run: xr.Dataset) -> Canvas:
    """Training and test loss far beyond the slides' horizon, and one against the other."""
    figure, axes = panels(1, 2, (3.0, 2.2))
    both, against = axes[0]
    band(both, run["training_loss"], "training loss $L_S$", BLACK)
    band(both, run["test_loss"], "test loss $L_D$", VERMILION)
    time_axis(both, run, "log")
    both.set_yscale("log")
    both.set_ylim(max(1e-12, float(run["training_loss"].min())), 10)
    both.set_ylabel("loss")
    depth = -np.log(run["training_loss"].values)
    for x, y in zip(depth, run["test_loss"].values, strict=True):
        late = x > 1
        against.plot(x[late], y[late], color=VERMILION, lw=0.7, alpha=0.6)
    if (depth > 10).any():
        guide = np.array([max(10.0, depth.max() / 10), depth.max()])
        against.plot(
            guide, run["test_loss"].values.max() * guide / guide[-1], color=GREY, ls="--", label="slope 1"
        )
    against.set_xscale("log")
    against.set_yscale("log")
    against.set_xlabel("$\\log(1/L_S)$")
    against.set_ylabel("test loss")
    legend(figure, columns=3)
    return figure


FIGURES: tuple[Figure | Table, ...] = (
    Figure(
        "figure_stage_one",
        "Stage I (t = 0 to 2, above) and stages I and II (t = 0 to 10, below): mean value signal, key and "
        "query noise of single pairs (s, i), and mean value noise of every sample, one seed. Slides, stages"
        " I and II.",
        draw_stage_one,
        runs={"run": BASE},
        claims=(
            "value_noise_grows_linearly",
            "other_products_stay_near_start",
            "query_key_noise_align",
            "alignment_is_balanced",
        ),
    ),
    Table(
        "table_1",
        "Pairs (s, i) by the signs of key and query noise at the start (rows) and at t = 10 (columns), here"
        " and as Table 1 of the slides has them for 2000 pairs.",
        rows_table_1,
        runs={"run": BASE},
        claims=("query_key_noise_align", "alignment_is_balanced"),
    ),
    Figure(
        "figure_stages_three_four",
        "Query and key signals of single neurons and noises of single pairs (s, i), one seed, each times "
        "the sign of its neuron's final query signal; noise that is negative after stage III is solid, "
        "positive noise dotted; dashed, measured stage times: T_2 and T_3 above. Slides, stages II to IV.",
        draw_stages_three_four,
        moving=noises_along,
        runs={"run": BASE},
        claims=(
            "majority_vote_sets_signal_signs",
            "majority_vote_as_printed",
            "query_and_key_signals_oppose",
            "key_noise_turns_before_query_noise",
        ),
    ),
    Figure(
        "figure_softmax",
        "Left: softmax outputs of every sample (thin, one seed) and their mean. Right: the odds s/(1 - s) of "
        "every s_{i,21} as they fall: exp(-ct) has slope 1 here, exp(-ct^2) slope 2. Dotted: s_21 = 0.4, "
        "0.1, 0.01 and 0.001. Slides, stage IV.",
        draw_softmax,
        runs={"run": BASE},
        claims=(
            "softmax_stays_half_before_stage_four",
            "noise_softmax_leaves_first",
            "noise_softmax_decays_exponentially",
            "attention_goes_to_noise",
        ),
    ),
    Figure(
        "figure_all_stages",
        "All stages on one time axis: median over seeds and range of seeds. Dashed lines are the measured "
        "stage times (median), ticks those of the slides. After Figure 19 of the paper.",
        draw_all_stages,
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
    ),
    Table(
        "table_stage_times",
        "Stage times as hitting times, median over seeds, beside the slides' numbers, whose sizes are not "
        "known; the ratio of the last two depends on no unit of time.",
        rows_stage_times,
        runs={"run": BASE},
        claims=(
            "key_noise_turns_before_query_noise",
            "query_key_noise_align",
            "query_and_key_signals_oppose",
        ),
    ),
    Figure(
        "figure_adam",
        "SignGD and Adam with small and with default betas, one seed: noise-signal softmax outputs, query "
        "and key noise of single pairs (s, i) times the sign of the query signal, and training loss. "
        "Slides, Adam against SignGD.",
        draw_adam,
        runs={"sign": SIGN, "adam_near_zero": ADAM_NEAR_ZERO, "adam": ADAM},
        claims=("adam_matches_sign_descent", "adam_query_noise_stays_negative", "adam_loss_curve_differs"),
    ),
    Figure(
        "figure_training_loss",
        "Training loss of SignGD, Adam and GD, against log t (left) and t (right, where exponential decay "
        "is a line): median over seeds and range of seeds. Slides, GD against SignGD.",
        draw_training_loss,
        runs={"sign": SIGN, "adam": ADAM, **numbered("gd", GD)},
        claims=(
            "sign_descent_trains_faster",
            "training_loss_decays_exponentially",
            "adam_loss_curve_differs",
        ),
    ),
    Figure(
        "figure_snr",
        "Test loss, test error and training loss at the end of training against the signal-noise ratio, "
        "mean over seeds with 95 % intervals; GD with step size 1. Slides, GD against SignGD.",
        draw_snr,
        runs={**numbered("sign", SNR_SIGN), **numbered("adam", SNR_ADAM), **numbered("gd", SNR_GD)},
        claims=("gd_generalises_better", "test_loss_stays_constant"),
    ),
    Figure(
        "figure_precision",
        "SignGD by precision: exact zeros in the active query and key gradient that a run uses, where a "
        "weight stands still, and the share of signs that autodiff of the plain softmax loss gets wrong at "
        "the weights of a run with the stable form. Not in the paper.",
        draw_precision,
        runs=PRECISION,
        claims=("key_noise_turns_before_query_noise",),
    ),
    Figure(
        "figure_test_loss",
        "SignGD at ten times the slides' horizon: training and test loss over time, and the test loss of "
        "every seed against log(1/L_S), with a line of slope 1. Not in the paper.",
        draw_test_loss,
        runs={"run": LONG},
        claims=(
            "test_loss_stays_constant",
            "training_loss_decays_exponentially",
            "value_noise_grows_linearly",
        ),
    ),
)
