"""The paper's figures, and those that the laboratory adds, as functions of stored runs.

Matrices are those of the first seed. Everything else is the median over seeds and their range, every seed,
or an exponent with its 95 % interval. What a run does not record is left out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator, NullFormatter

from descentlab.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    Movie,
    band,
    legend,
    panels,
)
from descentlab.judging import Broken, Estimate, setting
from descentlab.papers import figure, table
from descentlab.papers.bilinear_teachers import theorems

NARROW = (2.45, 2.2)
TEACHERS = {
    "cnn": ("CNN", BLUE), "gcn": ("GCN", VERMILION),
    "token_selection": ("token selection", GREEN), "group_sparse": ("group sparse", PURPLE),
}  # fmt: skip
ACTIVATIONS = {"relu": ("ReLU", "-"), "leaky_relu": ("LeakyReLU", (0, (3, 1.5))), "identity": ("linear", "-")}
# A run this near to the form of Lemma D.2 is on it, up to rounding.
ON_LINE = 1e-6
# Lines of a slope in log-log panels.
SLOPES = {-0.5: ("slope $-1/2$", (0, (1, 1.5))), -1.0: ("slope $-1$", (0, (5, 2)))}
SYMBOLS = {"D": "$D$", "K": "$K$", "V": r"$\|V^\ast\|_F$", "eta": r"$\eta$"}
# What the exponents are of, and what is fitted.
QUANTITIES = {
    "attention_recovery": (r"$\|S - S^\ast\|_F$", r"$\sqrt{\eta T}\,\|S - S^\ast\|_F$"),
    "value_recovery": (r"$\|W_V - V^\ast\|_F$", r"$\sqrt{\eta T}\,\|W_V - V^\ast\|_F$"),
    "excess_loss": (r"$L - L_{\mathrm{opt}}$", r"$\eta T\,(L - L_{\mathrm{opt}})$"),
    "hitting_time": (r"$T^\ast$", r"$\eta T^\ast$"),
}


def time_axis(ax: Axes, *runs: xr.Dataset, title: str = "") -> None:
    """A log axis of steps, over all of the runs; and the title."""
    last = max(2.0, *(float(run["step"].values[-1]) for run in runs))
    ax.set(xscale="log", xlim=(0.9, last), xlabel="$T$", title=title)


def curve(ax: Axes, run: xr.Dataset, name: str, label: str, color: str, linestyle: Any = "-") -> None:
    """What a run has recorded under a name, if it has, after step 0; zeros are gaps on a log axis."""
    if name in run:
        found = run[name].isel(step=run["step"].values > 0)
        found = abs(found).where(found != 0) if ax.get_yscale() == "log" else found
        band(ax, found, label, color, linestyle=linestyle)


def guide(ax: Axes, power: Any, series: list[xr.DataArray], factor: Any) -> None:
    """A line of this slope over the last three decades, at a multiple of the largest of the series."""
    last = max((float(one["step"].values[-1]) for one in series), default=1.0)
    top = max((float(one.isel(step=-1).median()) for one in series), default=0.0)
    t = np.array([max(1.0, last / 1e3), last])
    if top > 0:
        label, line = SLOPES[power]
        ax.plot(t, factor * top * (t / last) ** power, color=GREY, ls=line, lw=1.0, label=label, zorder=1)


def mark(ax: Axes, time: Any, label: str = r"$T^\ast$", height: Any = 0.03) -> None:
    """A time as a thin vertical line, named inside the panel."""
    if np.isfinite(time):
        ax.axvline(time, color=GREY, lw=0.6, ls=(0, (4, 2)), zorder=0)
        ax.annotate(
            label, (time, height), (3, 0), xycoords=("data", "axes fraction"), textcoords="offset points",
            fontsize=7, color=GREY, annotation_clip=True,
        )  # fmt: skip


def level(ax: Axes, value: float) -> None:
    """A value as a thin dotted line."""
    ax.axhline(value, color=GREY, lw=0.8, ls=":", zorder=0)


def half_time(run: xr.Dataset) -> float:
    """T*, median over seeds."""
    return float(np.median(theorems.hitting_time(run)))


# ---------------------------------------------------------------- the paper's figures


@figure(runs={"run": theorems.FULL}, claims=("other_blocks_stay_negligible",))
def figure_1(run: xr.Dataset) -> Canvas:
    """The full student after training, one seed, with its position coordinates turned from encodings into
    positions: W_V, W_KQ (lines part features from positions), and the share of their norms outside the blocks
    that the position-only student keeps. Dotted: a tenth. Figure 1.
    """
    figure, axes = panels(1, 3, (2.45, 2.5))
    d, titles = setting(run, "d"), {"value_weights": "$W_V$", "attention_weights": "$W_{KQ}$"}
    for ax, (name, title) in zip(axes[0], titles.items(), strict=False):
        matrix = run[name].isel(seed=0).values
        size = float(np.abs(matrix).max()) or 1.0
        image = ax.imshow(matrix, cmap="RdBu_r", vmin=-size, vmax=size, aspect="auto", interpolation="none")
        figure.colorbar(image, ax=ax, orientation="horizontal", shrink=0.85, aspect=22, pad=0.03)
        ax.spines[:].set_visible(True)
        ax.axvline(d - 0.5, color=BLACK, lw=0.5)
        ax.set(title=title, xlabel="features | positions", ylabel="output")
        ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes[0, 1].axhline(d - 0.5, color=BLACK, lw=0.5)
    axes[0, 1].set_ylabel("positions | features")
    shares = axes[0, 2]
    shares.set_yscale("log")
    curve(shares, run, "other_value_share", "$W_V$", BLUE)
    curve(shares, run, "other_attention_share", "$W_{KQ}$", VERMILION)
    level(shares, 0.1)
    shares.legend()
    time_axis(shares, run, title="share of norm in other blocks")
    return figure


def kind(run: xr.Dataset) -> tuple[tuple[str, str], tuple[str, Any]]:
    """Name and colour of a run's teacher, name and line of its activation."""
    return TEACHERS[setting(run, "teacher")], ACTIVATIONS[setting(run, "activation")]


@figure(runs=theorems.SIX, claims=("excess_loss_in_T", "ood_excess_in_T", "value_direction_recovers"))
def figure_2(**runs: xr.Dataset) -> Canvas:
    """Excess loss, excess OOD loss with the teacher's labels, and cosine of W_V and V* for the six runs:
    median over seeds and range of seeds. The paper has slopes -1 and -1/2. Figure 2.
    """
    figure, axes = panels(1, 3, NARROW)
    names = {"excess_loss": r"$L - L_{\mathrm{opt}}$", "ood_excess": "excess OOD loss", "value_cosine": ""}
    for ax, (name, title) in zip(axes[0], names.items(), strict=True):
        ax.set_yscale("log" if title else "linear")
        for run in runs.values():
            (who, color), (bend, line) = kind(run)
            curve(ax, run, name, f"{who}, {bend}", color, line)
        for power, factor in {"excess_loss": {-1: 4}, "ood_excess": {-1: 4, -0.5: 120}}.get(name, {}).items():
            guide(ax, power, [run[name] for run in runs.values() if name in run], factor)
        time_axis(ax, *runs.values(), title=title or r"$\cos(W_V, V^\ast)$")
    axes[0, 2].set_ylim(min(0.9, axes[0, 2].get_ylim()[0]), 1.005)
    legend(figure)
    return figure


def attention_along(run: xr.Dataset) -> xr.DataArray:
    """K times S along training, first seed, from its two coefficients: exact on the line of Lemma D.2."""
    own = run.isel(seed=0)
    support = own["teacher_attention"] > 0
    scores = xr.where(support, own["C_2"], -own["C_3"]).transpose("step", "row", "column")
    scores = scores / setting(run, "D") ** 0.5
    weights = np.exp(scores - scores.max("row"))
    return setting(run, "K") * weights / weights.sum("row")


def heatmaps_along(**runs: xr.Dataset) -> Movie:
    """K S of all runs that stay on the line, at the steps that they share."""
    found = {}
    for run in runs.values():
        if "teacher_attention" in run and float(run["off_line"].isel(seed=0).max()) < ON_LINE:
            (who, _), (bend, _) = kind(run)
            found[f"{who}, {bend}"] = attention_along(run)
    shared = sorted(set.intersection(*(set(one["step"].values.tolist()) for one in found.values())))
    return Movie({name: one.sel(step=shared) for name, one in found.items()}, "magma_r", 0.0, 1.0)


@figure(runs=theorems.SIX, claims=("heatmap_matches_teacher",), moving=heatmaps_along)
def figure_3(**runs: xr.Dataset) -> Canvas:
    """Attention S after training above the teacher's S* for the six runs, one seed, times K. Figure 3."""
    figure, axes = panels(2, len(runs), (1.22, 1.3))
    for column, run in zip(axes.T, runs.values(), strict=True):
        (who, _), (bend, _) = kind(run)
        column[0].set_title(f"{who}\n{bend}")
        for ax, name in zip(column, ("attention", "teacher_attention"), strict=True):
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(True)
            if name in run:
                ax.imshow(setting(run, "K") * run[name].isel(seed=0).values, cmap="magma_r", vmin=0, vmax=1)
    axes[0, 0].set_ylabel("trained $S$")
    axes[1, 0].set_ylabel(r"teacher's $S^\ast$")
    if axes[0, -1].images:
        figure.colorbar(axes[0, -1].images[0], ax=axes, shrink=0.7, aspect=30, label="entry times $K$")
    return figure


# ---------------------------------------------------------------- one run


@figure(
    runs={"exact": {}, "online": theorems.ONLINE},
    claims=("value_direction_recovers", "heatmap_matches_teacher"),
)
def figure_online(exact: xr.Dataset, online: xr.Dataset) -> Canvas:
    """The paper's own algorithm, descent on fresh batches, beside the run with exact gradients: median over
    seeds and range of seeds, T* of the latter. Not in the paper.
    """
    figure, axes = panels(1, 3, NARROW)
    algorithms = {"population": "exact gradient", "flow": "gradient flow"}
    shown = (
        (exact, algorithms.get(setting(exact, "algorithm"), "long run"), BLUE, "-"),
        (online, f"fresh batches of {setting(online, 'batch')}", VERMILION, (0, (4, 1.5))),
    )
    names = {"excess_loss": r"$L - L_{\mathrm{opt}}$ over its start", "value_cosine": r"$\cos(W_V, V^\ast)$",
             "attention_error": r"$\|S - S^\ast\|_F$ over its start"}  # fmt: skip
    for ax, (name, title) in zip(axes[0], names.items(), strict=True):
        ax.set_yscale("linear" if name == "value_cosine" else "log")
        for run, label, color, line in shown:
            start = 1.0 if name == "value_cosine" else run[name].isel(step=0)
            curve(ax, run.assign({name: run[name] / start}), name, label, color, line)
        mark(ax, half_time(exact))
        time_axis(ax, exact, online, title=title)
    axes[0, 1].set_ylim(min(0.9, axes[0, 1].get_ylim()[0]), 1.005)
    legend(figure)
    return figure


@figure(claims=("ood_excess_in_T", "ood_bound_holds"))
def figure_ood(run: xr.Dataset) -> Canvas:
    """The excess OOD loss by kind of labels: the teacher's; these as the paper estimates it, on 100 noisy
    samples; unrelated to X, of mean zero; and the worst, of the teacher's own size, for which Theorem 3.2
    must hold too. Where a line dips, the excess changes sign. Not in the paper.
    """
    figure, axes = panels(1, 1, (4.6, 3.0))
    ax = axes[0, 0]
    ax.set_yscale("log")
    kinds = {
        "worst": ("worst labels", BLACK, "-"), "ood_excess_unrelated": ("unrelated to $X$", GREEN, "--"),
        "ood_excess": ("teacher's", BLUE, "-"),
        "ood_excess_100": ("teacher's, noisy, 100 samples", ORANGE, (0, (2, 3))),
    }  # fmt: skip
    if "teacher_ood_loss" in run:
        run = run.assign(worst=theorems.worst_case(run))
        run = run.assign({name: run[name] / run["teacher_ood_loss"] for name in kinds})
    for name, how in kinds.items():
        curve(ax, run, name, *how)
    for name, power, factor in (("worst", -0.5, 3.0), ("ood_excess", -1.0, 0.25)):
        guide(ax, power, [run[name]] if name in run else [], factor)
    mark(ax, half_time(run))
    ax.set_ylabel(r"|excess OOD loss| $/\ \frac{1}{2}E\|f^\ast\|_F^2$")
    time_axis(ax, run)
    legend(figure, columns=3)
    return figure


@figure(
    caption="What is left of the errors of Theorem 3.1 when the printed powers of eta T are divided out, "
    f"against T / T*, a line a seed: flat where the rate holds. Dashed: T*; {theorems.SETTLED} T*, from "
    f"where rates are read; {theorems.LATE} T*, where prefactors are. Not in the paper.",
    claims=("attention_recovers_in_T", "value_recovers_in_T", "excess_loss_in_T"),
)
def figure_rates(run: xr.Dataset) -> Canvas:
    """What is left of the three errors when their printed powers of eta T are divided out, seed by seed."""
    figure, axes = panels(1, 3, NARROW)
    steps = run["step"].values[1:].astype(float)
    for ax, color, (quantity, scaling) in zip(
        axes[0], (BLUE, GREEN, VERMILION), theorems.SCALINGS.items(), strict=False
    ):
        left = run[scaling.recorded].transpose("seed", "step").values[:, 1:]
        left = left * (setting(run, "eta") * steps) ** theorems.RATES[scaling.recorded]
        for values, time in zip(left, np.minimum(theorems.hitting_time(run), steps[-1]), strict=True):
            late = steps >= time / 30
            ax.loglog(steps[late] / time, values[late], color=color, lw=0.7, alpha=0.7)
        for multiple in {1, theorems.SETTLED, theorems.LATE}:
            mark(ax, multiple, "")
        ax.set(title=QUANTITIES[quantity][1], xlabel=r"$T / T^\ast$")
    return figure


@figure(runs={"run": {}, "all_weights": theorems.ALL_WEIGHTS}, claims=("parameters_stay_on_the_line",))
def figure_line(run: xr.Dataset, all_weights: xr.Dataset) -> Canvas:
    """The numbers of Lemma D.2 over time, with K C_2 = (D - K) C_3; and, with all weights trained, their
    largest relative distance from the lemma's form. Dotted: what the claim allows. Not in the paper.
    """
    figure, axes = panels(1, 3, NARROW)
    value, attention, off = axes[0]
    curve(value, run, "C_1", "$C_1$", BLACK)
    level(value, 1)
    curve(attention, run, "C_2", "$C_2$", BLUE)
    curve(attention, run, "C_3", "$C_3$", VERMILION)
    D, K = setting(run, "D"), setting(run, "K")
    if "C_3" in run:
        band(attention, run["C_3"] * (D - K) / K, "$C_3 (D - K)/K$", ORANGE, linestyle=(0, (2, 3)))
        attention.legend()
    off.set_yscale("log")
    curve(off, all_weights, "off_line", "off the line", PURPLE)
    level(off, 1e-9)
    for ax, one, title in (
        (value, run, r"$C_1$: $W_V$ over $V^\ast$"),
        (attention, run, r"$C_2$, $C_3$: entries of $P^\top W_{KQ} P$"),
        (off, all_weights, "all weights: distance from the line"),
    ):
        mark(ax, half_time(one), height=0.88)
        time_axis(ax, one, title=title)
    return figure


# ---------------------------------------------------------------- over sizes

ALL_SIZES = {name: cell for grid in theorems.GRIDS.values() for name, cell in grid.runs.items()}
OVER_SIZES = tuple(claim.name for claim in theorems.IN_SIZES.values())


def part(factor: str, runs: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The runs of one grid."""
    return {name: runs[name] for name in theorems.GRIDS[factor].runs}


def measured(quantity: str, factor: str, runs: Mapping[str, xr.Dataset]) -> Estimate | None:
    """What the claim on a quantity and a factor measures; None where nothing can be measured."""
    try:
        return theorems.IN_SIZES[quantity, factor](**part(factor, runs))
    except Broken:
        return None


@figure(
    caption="Exponents of Theorem 3.1 in D, K, |V*|_F and eta, printed and measured: of errors at "
    f"{theorems.LATE} T*, their power of eta T divided out, and of T*. An arrow: the interval goes on. "
    "Not in the paper.",
    runs=ALL_SIZES,
    claims=OVER_SIZES,
)
def figure_exponents(**runs: xr.Dataset) -> Canvas:
    """Printed and measured exponents, a panel for each factor; arrows where intervals go on."""
    figure, axes = panels(1, len(theorems.GRIDS), (1.85, 1.9), sharey=True)
    for ax, factor in zip(axes[0], theorems.GRIDS, strict=True):
        printed = [scaling.powers[factor] for scaling in theorems.SCALINGS.values()]
        found = [measured(quantity, factor, runs) for quantity in theorems.SCALINGS]
        known = [*printed, *(one.value for one in found if one is not None)]
        low, high = min(known) - 0.6, max(known) + 0.6
        ax.plot(printed, range(len(printed)), "o", mfc="none", mec=VERMILION, ms=7, label="printed")
        for y, one in enumerate(found):
            if one is not None:
                begin, end = one.interval()
                ax.plot([max(begin, low), min(end, high)], [y, y], color=BLUE, lw=1.5)
                for edge, marker in [(low, "<")] * bool(begin < low) + [(high, ">")] * bool(end > high):
                    ax.plot(edge, y, marker, color=BLUE, ms=5, clip_on=False)
                ax.plot(one.value, y, "o", color=BLUE, ms=3.2, label="measured, with its 95 % interval")
        ax.axvline(0, color=GREY, lw=0.8, ls=":", zorder=0)
        ax.set(xlim=(low, high), ylim=(len(found) - 0.5, -0.5), xlabel=f"exponent of {SYMBOLS[factor]}")
        ax.set_yticks(range(len(found)), [QUANTITIES[quantity][0] for quantity in theorems.SCALINGS])
        ax.grid(axis="y", lw=0.3)
    legend(figure)
    return figure


@figure(runs=ALL_SIZES, claims=OVER_SIZES)
def figure_sizes(**runs: xr.Dataset) -> Canvas:
    """The points behind the exponents, every seed, and lines of the printed and the measured slope through
    the size nearest to the theorem's regime. Against eta, quantities are without their power of eta. Not in
    the paper.
    """
    figure, axes = panels(len(theorems.SCALINGS), len(theorems.GRIDS), (1.85, 1.45), sharex="col")
    for row, (quantity, scaling) in zip(axes, theorems.SCALINGS.items(), strict=True):
        for ax, (factor, power) in zip(row, scaling.powers.items(), strict=True):
            own = part(factor, runs)
            x = np.array(theorems.sizes(factor, own))
            y = np.array([
                theorems.prefactor(scaling.recorded, factor, run)[0]
                if scaling.recorded
                else theorems.unit(factor, run) * theorems.hitting_time(run)
                for run in own.values()
            ])  # fmt: skip
            ax.loglog(x.ravel(), y.ravel(), "o", ms=2.5, color=BLACK, alpha=0.6, mew=0, label="every seed")
            ends = np.array([x.min(), x.max()])
            at_x, at_y = np.exp(np.log(x[-1]).mean()), np.exp(np.log(y[-1]).mean())
            estimate = measured(quantity, factor, runs)
            if estimate is not None:
                slope = at_y * (ends / at_x) ** estimate.value
                ax.plot(ends, slope, color=BLUE, lw=1, label="measured slope")
            slope = at_y * (ends / at_x) ** power
            ax.plot(ends, slope, color=VERMILION, ls="--", lw=1, label="printed slope")
            # What hardly moves shall look so.
            low, high = ax.get_ylim()
            if high < 20 * low:
                ax.set_ylim((low * high / 20) ** 0.5, (low * high * 20) ** 0.5)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_minor_formatter(NullFormatter())
            ax.set_xlabel(SYMBOLS[factor] if ax in axes[-1] else "")
        row[0].set_ylabel(QUANTITIES[quantity][1])
    figure.align_ylabels()
    legend(figure)
    return figure


@table(runs=ALL_SIZES, claims=OVER_SIZES)
def table_exponents(**runs: xr.Dataset) -> tuple[list[str], list[list[Any]]]:
    """Exponents of Theorem 3.1, printed and measured, and the law that the last size suggests with the
    nearest half-integer exponent, all else as in the preset. Not in the paper.
    """
    rows: list[list[Any]] = []
    for quantity, factor in theorems.IN_SIZES:
        scaling, one = theorems.SCALINGS[quantity], measured(quantity, factor, runs)
        cells = ["not measured", "–", "–"]
        if one is not None:
            low, high = one.interval()
            law = "{suggested_constant:.3g} {0}^{suggested_exponent:g}".format(
                theorems.FACTORS[factor], **one.notes
            )
            cells = [f"{one.value:.3f}", f"{low:.3f} to {high:.3f}", law]
        symbol = scaling.symbol.replace("eta T", "T" if factor == "eta" else "eta T")
        rows.append([symbol, theorems.FACTORS[factor], f"{scaling.powers[factor]:g}", *cells])
    return ["quantity", "factor", "printed", "measured", "95 % interval", "suggested law"], rows


@figure(runs=theorems.GRIDS["D"].runs, claims=("printed_bounds_fit_the_start",))
def figure_start(**runs: xr.Dataset) -> Canvas:
    """The right-hand sides of Theorem 3.1 at T = T*, constants left out, over what they bound can be at most,
    against D. Two-sided bounds from T* on would stay below a constant. Not in the paper.
    """
    figure, axes = panels(1, 1, (3.8, 2.8))
    ax, found = axes[0, 0], [theorems.start_quotients(run) for run in runs.values()]
    level(ax, 1)
    D = [setting(run, "D") for run in runs.values()]
    for name, label, color, marker in (
        ("attention", r"$\|S - S^\ast\|_F$, over the most that any $S$ gives", BLUE, "o"),
        ("value", r"$\|W_V - V^\ast\|_F$, over $\|V^\ast\|_F$", GREEN, "s"),
        ("loss", r"$L - L_{\mathrm{opt}}$, over its start", VERMILION, "^"),
    ):
        middle = [np.median(one[name]) or np.nan for one in found]
        ax.loglog(D, middle, f"{marker}-", color=color, ms=3.5, label=label)
    ax.set(xlabel="$D$", ylabel=r"printed at $T^\ast$ / possible")
    legend(figure, columns=1)
    return figure
