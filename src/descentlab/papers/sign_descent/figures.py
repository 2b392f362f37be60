"""The slides' figures and tables, and those that the laboratory adds, as functions of stored runs.

Single trajectories are those of the first seed. Everything else is the median over seeds and their range,
or a mean with its 95 % interval.
"""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Canvas

from descentlab.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILION,
    band,
    legend,
    panels,
    points,
    style,
    threads,
)
from descentlab.judging import setting
from descentlab.papers import Figure, Table
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
from descentlab.papers.sign_descent.stage_figures import (
    KEY_NOISE,
    QUERY_NOISE,
    draw_all_stages,
    draw_softmax,
    draw_stage_one,
    draw_stages_three_four,
    key_to_colours,
    noises_along,
    outlook,
    rows,
    signed_threads,
    time_axis,
)
from descentlab.papers.sign_descent.stages import (
    softmax,
    until,
)
from descentlab.papers.sign_descent.tables import rows_stage_times, rows_table_1

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
