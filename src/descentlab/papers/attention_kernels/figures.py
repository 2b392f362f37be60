"""The paper's architecture, and the figures that the laboratory adds, as functions of stored runs.

Vermilion is softmax attention, blue Gaussian attention. Losses are shown down to 1e-16 of the start's.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from scipy import stats

from descentlab.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    PURPLE,
    VERMILION,
    band,
    legend,
    panels,
    points,
    threads,
)
from descentlab.judging import Broken, Grid, setting
from descentlab.papers import Study, figure, table
from descentlab.papers.attention_kernels import PRESETS, Preset, map_axes, theorems

Data: TypeAlias = xr.Dataset
DOTTED, DASHED = (0, (1, 1.5)), (0, (4, 1.5))
KERNEL = {"softmax": ("softmax", VERMILION), "gaussian": ("Gaussian", BLUE)}
BLOCKS = {"$W^Q$": (GREEN, DASHED), "$W^K$": (PURPLE, DOTTED), "$W^V$": (BLACK, (0, (3, 1.5, 1, 1.5)))}
LEAST = 1e-16  # what is below is rounding, and not shown
LOSS = "$f_t/f_0$"


def level(ax: Axes, y: float, words: str) -> None:
    """A level that a claim names, with its name to the right of the panel."""
    ax.axhline(y, ls=":", color=GREY, lw=0.8, zorder=0)
    ax.text(1.01, y, words, transform=ax.get_yaxis_transform(), va="center", fontsize=7, color=GREY)


def over_steps(ax: Axes, title: str, ylabel: str = "") -> None:
    """Something positive against the step."""
    if not np.isfinite(ax.dataLim.get_points()).all():
        ax.plot(1, 1, alpha=0)  # A log axis of nothing has no limits.
    ax.set(title=title, xlabel="step $t$", ylabel=ylabel, xscale="log", yscale="log")


def relative(loss: xr.DataArray) -> xr.DataArray:
    """f_t/f_0."""
    return loss / loss.isel(step=0)


def later(series: xr.DataArray) -> xr.DataArray:
    """A series without its first record, which log axes have no room for, and without zeros."""
    return series.where(series > LEAST / 10).isel(step=slice(1, None))


def seeds(ax: Axes, series: xr.DataArray, kernel: str, median: bool = True) -> None:
    """All seeds as thin lines, and their median; what is below rounding is at rounding."""
    label, color = KERNEL[kernel]
    shown = np.maximum(series.transpose("seed", "step").values, LEAST / 10)[:, 1:]
    steps = series["step"].values[1:]
    threads(ax, steps, shown, color, linewidth=0.6, alpha=0.55, label="" if median else label)
    if median:
        ax.plot(steps, np.median(shown, axis=0), color=color, lw=1.4, label=label)


def compare(ax: Axes, title: str, **data: Data) -> None:
    """The losses of both kernels, each at its best step size."""
    for kernel, run in data.items():
        seeds(ax, relative(theorems.only(run)["losses"]), kernel)
    over_steps(ax, title, LOSS)
    ax.set_ylim(LEAST, 30)


def spread(values: np.ndarray) -> str:
    """The median over seeds and their range."""
    return f"{np.median(values):.3g} ({values.min():.3g} to {values.max():.3g})"


def shrink(run: Data, reading: int | None) -> np.ndarray:
    """eta beta at the start, in a reading, or eta gamma, by seed."""
    return run["rate"].values * theorems.constant(run, reading)


def pace(run: Data, reading: int | None) -> theorems.Pace | None:
    """The pace of a run against its bound with beta, or with gamma; None where there is no bound."""
    try:
        return theorems.pace(run, theorems.constant(run, reading))
    except Broken:
        return None


# ---------------------------------------------------------------- the architecture

TRAINED, SOMETIMES, FIXED, PLAIN = "#6FB1DB", "#D3E8F5", "#D0D0D0", "white"
Point: TypeAlias = tuple[float, float]


def box(ax: Axes, at: Point, size: Point, face: str, heads: bool, *words: str) -> None:
    """A block around a point, stacked if every head has one; of three lines two are in kernels' colours."""
    (x, y), (width, height) = at, size
    for i in (2, 1, 0) if heads else (0,):
        corner = x - width / 2 + 0.05 * i, y - height / 2 + 0.05 * i
        ax.add_patch(Rectangle(corner, width, height, fc=face, ec=BLACK, lw=0.6, zorder=3 - 0.1 * i))
    colors = [BLACK, *(color for _, color in KERNEL.values())] if len(words) == 3 else [BLACK] * len(words)
    for i, (line, color) in enumerate(zip(words, colors, strict=True)):
        up = (0.34 if len(words) == 3 else 0.22) * ((len(words) - 1) / 2 - i)
        ax.text(x, y + up, line, ha="center", va="center", color=color, zorder=4)


def arrow(ax: Axes, start: Point, end: Point, words: str = "") -> None:
    """An arrow, with words above its middle."""
    look = {"arrowstyle": "-|>", "mutation_scale": 7, "lw": 0.7, "color": BLACK, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=look)
    ax.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.06, words, ha="center", va="bottom")


@figure(runs={"run": theorems.ALL["softmax"]})
def figure_2(run: Data) -> Canvas:
    """One layer of multi-head attention, with the preset's shapes. The kernels differ in their scores, and
    rows of softmax attention sum to one. W^O gives one number a token. Figure 2.
    """
    N, n, D, d, H = (setting(run, name) for name in ("N", "n", "D", "d", "H"))
    figure = Canvas(figsize=(8.6, 3.4))
    ax = figure.add_axes((0, 0, 1, 1), xlim=(0, 8.6), ylim=(0, 3.4))
    ax.axis("off")

    def shape(rows: int, columns: int) -> str:
        return rf"${rows} \times {columns}$"

    box(ax, (0.55, 1.85), (0.8, 0.55), PLAIN, False, "$X_i$", shape(n, D))
    for y, name, face in ((2.75, "Q", TRAINED), (1.85, "K", SOMETIMES), (0.8, "V", SOMETIMES)):
        box(ax, (1.85, y), (0.8, 0.55), face, True, f"$W_h^{name}$", shape(D, d))
        arrow(ax, (0.95, 1.85 + 0.2 * (y - 1.85)), (1.45, y))
    arrow(ax, (2.35, 2.75), (2.9, 2.6), "$q_k$")
    arrow(ax, (2.35, 1.85), (2.9, 2.0), "$k_j$")
    box(ax, (3.7, 2.3), (1.6, 1.25), PLAIN, True, f"scores $C_{{ih}}$, {shape(n, n)}",
        r"softmax: $q_k \cdot k_j/\sqrt{d}$", r"Gaussian: $-|q_k - k_j|^2/2\sqrt{d}$")  # fmt: skip
    arrow(ax, (4.6, 2.3), (4.9, 2.3))
    box(ax, (5.75, 2.3), (1.7, 1.25), PLAIN, True, f"attention $S_{{ih}}$, {shape(n, n)}",
        r"softmax: $e^{C_{kj}}/\,\Sigma_l\, e^{C_{kl}}$", "Gaussian: $e^{C_{kj}}$")  # fmt: skip
    arrow(ax, (2.35, 0.8), (3.85, 0.8), f"$X_i W_h^V$, {shape(n, d)}")
    box(ax, (4.65, 0.8), (1.6, 0.55), PLAIN, True, r"$\mathrm{head}_h = S_{ih}X_iW_h^V$", shape(n, d))
    arrow(ax, (5.2, 1.675), (5.2, 1.175))
    for x, end in ((5.55, 5.8), (6.7, 6.95), (7.75, 7.98)):
        arrow(ax, (x, 0.8), (end, 0.8))
    box(ax, (6.25, 0.8), (0.9, 0.55), PLAIN, False, "all heads", shape(n, H * d))
    box(ax, (7.35, 0.8), (0.8, 0.55), FIXED, False, "$W^O$", shape(H * d, 1))
    ax.text(8.02, 0.8, r"$\mathrm{MH}(X_i)$" + "\n" + rf"$\in \mathbb{{R}}^{{{n}}}$", va="center")
    words = f"$N$ = {N} inputs, $n$ = {n} tokens, $D$ = {D}, $d$ = {d}, $H$ = {H} heads (stacked)"
    ax.text(0.15, 0.2, words, va="center")
    kinds = {"trained in Theorems 1 and 2": TRAINED, "trained in Theorem 1 only": SOMETIMES, "fixed": FIXED}
    patches = [Patch(fc=color, ec=BLACK, lw=0.6, label=name) for name, color in kinds.items()]
    ax.legend(handles=patches, loc="upper right", bbox_to_anchor=(0.995, 0.93))
    return figure


# ---------------------------------------------------------------- the theorems

RATES = (
    "all_weights_rate_bound_as_printed",
    *(f"{what}_rate_bound_{kernel}" for what in ("all_weights", "query_only") for kernel in KERNEL),
)


@figure(
    runs=theorems.named(all=theorems.ALL, generic=theorems.GENERIC_ALL, query=theorems.QUERY),
    claims=RATES,
)
def rate_bounds(**data: Data) -> Canvas:
    """Loss of every seed against the exponent of its bound in Theorems 1 (top) and 2 (bottom): beta = min_h
    |W_h^O|^2 sigma_min^2(B) at the start, the safe reading (dashed: |W^O|^2, as printed), and gamma =
    sigma_min^2(J_Q). Titles: the least log(f_0/f_t) over that of the bound, median over seeds and range;
    below one the bound fails.
    """
    figure, axes = panels(2, 2, (3.7, 2.1), sharey=True)
    for column, (kernel, (name, color)) in zip(axes.T, KERNEL.items(), strict=True):
        all_weights, generic, query = (data[f"{kernel}_{start}"] for start in ("all", "generic", "query"))
        against_bound(column[0], generic, 0, "generic start", GREEN, "")
        against_bound(column[0], all_weights, 0, name, color, f"{name}, all weights")
        against_bound(column[1], query, None, name, color, f"{name}, $W^Q$ alone")
        # |W^O|^2 is that of H heads of the same length.
        x, heads = np.array(column[0].get_xlim()), setting(all_weights, "H")
        column[0].plot(x, np.exp(-heads * x), color=BLACK, ls=DASHED, label="bound as printed")
    axes[0, 0].set_ylim(LEAST, 3)
    legend(figure, 5)
    return figure


def against_bound(ax: Axes, run: Data, reading: int | None, label: str, color: str, title: str) -> None:
    """Losses of all seeds against t log(1/(1 - eta beta)), or gamma, and the bound."""
    found, constant = pace(run, reading), r"\gamma" if reading is None else r"\beta"
    ax.plot([], [], color=color, label=label)
    ax.set(
        yscale="log", ylabel=LOSS, title=f"{title}: no bound", xlabel=rf"$t\,\log(1/(1 - \eta{constant}))$"
    )
    if found is not None:
        x = -np.log1p(-shrink(run, reading))[:, None] * run["step"].values
        ax.plot(x.T, relative(run["loss"]).transpose("step", "seed").values, color=color, lw=0.8, alpha=0.7)
        ends = np.array([0, min(float(x.max()), -np.log(LEAST))])
        ax.plot(ends, np.exp(-ends), color=BLACK, label="bound")
        ax.set(xlim=ends, title=f"{title}; slowest pace: {spread(found.slowest)}")


SIZES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of W_h^O


@figure(
    runs={
        f"{kernel}_{i}": {**run, "init": "paired", "output_scale": size}
        for kernel, run in theorems.QUERY.items()
        for i, size in enumerate(SIZES)
    },
    claims=RATES[3:],
)
def size_of_values(**data: Data) -> Canvas:
    """W^Q trained alone from paired heads, with values of several sizes. Left: log(f_0/f_t) over that of (1 -
    eta gamma)^t, the least of all records; below the dotted line the bound of Theorem 2 fails. Right: how far
    the weights go. Geometric means and 95 % intervals.
    """
    figure, axes = panels(1, 2, (3.7, 2.4))
    for (kernel, look), marker in zip(KERNEL.items(), "os", strict=True):
        own = [data[f"{kernel}_{i}"] for i in range(len(SIZES))]
        paces = [found.slowest if (found := pace(run, None)) else np.full(1, np.nan) for run in own]
        ends = [theorems.moved(run).isel(step=-1).values for run in own]
        names = "slowest pace over the bound's", r"$|M_T - M_0|\,/\,|M_0|$"
        for ax, samples, name in zip(axes[0], (paces, ends), names, strict=True):
            # A loss that rose has no pace.
            logs = [np.log10(np.maximum(one, theorems.SLOWEST)) for one in samples]
            points(ax, SIZES, logs, *look, marker)
            ax.set(xlabel="size $|W_h^O|$ of the values", ylabel=name, xscale="log")
            ax.yaxis.set_major_locator(MaxNLocator(integer=True))
            ax.yaxis.set_major_formatter("$10^{{{x:.0f}}}$")
    level(axes[0, 0], 0.0, "bound")
    legend(figure)
    return figure


@figure(
    runs={"run": theorems.QUERY["softmax"], "small": theorems.DIVIDED},
    claims=(
        "softmax_descent_as_printed",
        "softmax_descent_as_printed_in_other_units",
        "softmax_descent_squared",
    ),
)
def descent_inequalities(run: Data, small: Data) -> Canvas:
    """W^Q trained alone with softmax attention: how far the loss fell, and how far Theorem 2 has it fall at
    least, with gradient norms as printed, or half of their squares, by the descent lemma. The first depends
    on the units of labels and outputs. Right: the coefficients that hold at each step; 1 and 1/2 are claimed.
    Medians over seeds and their range.
    """
    figure, axes = panels(1, 3, (2.9, 2.4))
    ratios = axes[0, 2]
    units = {"divided by ten": (small, DASHED), "preset's units": (run, "-")}
    for ax, (words, (one, line)) in zip(axes[0, 1::-1], units.items(), strict=True):
        fallen, length, energy = map(later, (one["loss"][:, 0] - one["loss"], one["length"], one["energy"]))
        band(ax, fallen, "$f_0 - f_t$", VERMILION)
        band(ax, length, r"$\eta\,\Sigma\,|\nabla f\,|$", GREEN, linestyle=DASHED)
        band(ax, energy / 2, r"$(\eta/2)\,\Sigma\,|\nabla f\,|^2$", PURPLE, linestyle=DOTTED)
        over_steps(ax, words)
        band(ratios, fallen / length, rf"over $\eta\,\Sigma\,|\nabla f\,|$, {words}", GREEN, linestyle=line)
        band(ratios, fallen / energy, r"over $\eta\,\Sigma\,|\nabla f\,|^2$, both", PURPLE)
    over_steps(ratios, r"$f_0 - f_t$ over the sums")
    level(ratios, 1.0, "1")
    level(ratios, 0.5, "1/2")
    legend(figure, 3)
    return figure


@figure(
    runs=theorems.named(all=theorems.ALL, generic=theorems.GENERIC_ALL),
    claims=("start_is_near_convex", "weights_move_a_bit"),
)
def near_convex(**data: Data) -> Canvas:
    """All weights trained, from the theorem's start (W^V = 0, large W^O) and a generic one. Left: the least
    eigenvalue of the Hessian as a negative part of the largest. Middle and right: distance from the start, of
    all weights and by block. Medians over seeds and their range.
    """
    figure, axes = panels(1, 3, (2.9, 2.4))
    bend = axes[0, 0]
    for ax, (kernel, (name, color)) in zip(axes[0, 1:], KERNEL.items(), strict=True):
        run = data[f"{kernel}_all"]
        starts = (run, "theorem's start", "-"), (data[f"{kernel}_generic"], "generic start", DOTTED)
        for one, start, line in starts:
            look: dict[str, Any] = {"label": f"{name}, {start}", "color": color, "linestyle": line}
            band(bend, theorems.negative_curvature(one), **look)
            band(ax, later(theorems.moved(one)), **look)
        for i, (block, (shade, line)) in enumerate(BLOCKS.items()):
            part = run["moved"].isel(block=i) / theorems.total(run["start_size"])
            band(ax, later(part), f"{block}, theorem's start", shade, linestyle=line)
        over_steps(ax, rf"{name}: $|M_t - M_0|\,/\,|M_0|$")
        level(ax, 0.5, "half")
    over_steps(bend, r"$\max(-\lambda_{\min}, 0)/\lambda_{\max}$")
    bend.set_xscale("symlog", linthresh=1, linscale=0.3)
    bend.set_ylim(1e-5, 2)
    level(bend, 0.1, "a tenth")
    legend(figure, 4)
    return figure


@figure(
    runs={**theorems.named(rank=theorems.GENERIC_ALL), **theorems.FEW_HEADS},
    claims=("overparameterisation_is_needed", "few_heads_do_not_fit"),
)
def heads(softmax_rank: Data, gaussian_rank: Data, **few: Data) -> Canvas:
    """Left: the rank of B of the first h heads at a generic start, all seeds; beta > 0 takes rank Nn. Right:
    the loss of one head at each kernel's best step size, all seeds and their median.
    """
    figure, axes = panels(1, 2, (3.7, 2.4))
    ranks, losses = axes[0]
    N, n, D, H = (setting(softmax_rank, name) for name in ("N", "n", "D", "H"))
    heads = np.arange(1, H + 1)
    ranks.plot(heads, np.minimum(heads * D, N * n), color=BLACK, lw=0.8, ls=DASHED, label=r"$\min(hD, Nn)$")
    ranks.plot(heads, softmax_rank["ranks"].values.T, "o", color=VERMILION, ms=7, mfc="none")
    ranks.plot(heads, gaussian_rank["ranks"].values.T, "s", color=BLUE, ms=3.5)
    level(ranks, N * n, "$Nn$")
    ranks.set(xlabel="heads $h$", ylabel="rank of $B$ of $h$ heads", ylim=(0, 1.1 * N * n))
    ranks.set_title(f"$Nn$ = {N * n}, $D$ = {D}: circles softmax, squares Gaussian")
    ranks.locator_params(integer=True)
    compare(losses, "one head, all weights trained", **few)
    level(losses, 0.01, "a hundredth")
    legend(figure)
    return figure


# ---------------------------------------------------------------- kernels compared

# One couple of heads, as the construction was calibrated.
MAP = theorems.each(theorems.SEPARATING_TUNED, H=2, grid=12, steps=lambda steps: min(steps, 1000))


def over_map(values: xr.DataArray, of: Callable[..., Any] = np.asarray) -> np.ma.MaskedArray:
    """The mean over seeds, a row for each scale and a column for each delta; of the first start and step."""
    first = values.isel(start=0, multiple=0, missing_dims="ignore").transpose("seed", "scale", "delta")
    return np.ma.masked_invalid(of(first.values)).mean(0)


@figure(runs=MAP, claims=("gaussian_beats_softmax_constructed",))
def separation_map(softmax: Data, gaussian: Data) -> Canvas:
    """The construction that separates, one couple of heads, W^Q trained alone: what is left of the loss at
    the best step size, at least a millionth, over delta, the part of the values that softmax can use, and the
    scale of queries and keys; geometric means. Lines: the floor of softmax over f_0 (left), and where the
    kernels do equally well (right). At most 1000 steps. Star: the preset's own.
    """
    figure, axes = panels(1, 3, (2.9, 2.6), sharey=True)
    own = {name: setting(softmax, name) for name in ("grid", "delta", "scale", "init", "tokens")}
    delta, scale = map_axes(Preset(**own))
    logs = [over_map(theorems.left(run), np.log10) for run in (softmax, gaussian)]
    ratio, share = logs[0] - logs[1], over_map(softmax["floors"] / softmax["losses"].isel(step=0))
    left: dict[str, Any] = {"vmin": np.log10(theorems.SOLVED), "vmax": 0, "cmap": "viridis"}
    apart: dict[str, Any] = {"norm": CenteredNorm(), "cmap": "RdBu"}
    titles = "softmax", "Gaussian", "softmax over Gaussian"
    for ax, title, shown, look in zip(axes[0], titles, (*logs, ratio), (left, left, apart), strict=True):
        image = ax.pcolormesh(delta, np.log10(scale), shown, shading="nearest", rasterized=True, **look)
        ax.plot(own["delta"], np.log10(own["scale"]), "*", color="white", mec=BLACK, ms=8)
        ax.set(title=title, xlabel=r"$\delta$")
        ax.set_yticks(np.log10([0.1, 0.3, 1, 3]), ["0.1", "0.3", "1", "3"])
        if ax is not axes[0, 0]:
            beside, words = (ax, "of the ratio") if look is apart else (axes[0, :2], "$f_T/f_0$")
            figure.colorbar(image, ax=beside, aspect=28, label=rf"$\log_{{10}}$ {words}")
    for ax, values, levels in ((axes[0, 0], share, (0.01, 0.1, 0.5)), (axes[0, 2], ratio, (0.0,))):
        if inside := [one for one in levels if values.min() < one < values.max()]:
            lines = ax.contour(delta, np.log10(scale), values, inside, colors=BLACK, linewidths=0.9)
            ax.clabel(lines, fmt="%g" if ax is axes[0, 0] else "1", fontsize=7)
    axes[0, 0].set_ylabel("scale of $W^Q$ and $W^K$")
    return figure


STUDY = Study(
    "separation_map",
    "what is left of both kernels' losses over delta and scale, each at its best step size",
    PRESETS["quick"],
    {"": (Grid("kernel", list(MAP.values())),)},
    claims=("gaussian_beats_softmax_constructed",),
    figures=("separation_map",),
)

COMPARED = {
    "generic": theorems.GENERIC_TUNED, "paired": theorems.PAIRED_TUNED,
    "values": theorems.VALUES_TUNED, "constructed": theorems.SEPARATING_TUNED,
}  # fmt: skip


@figure(
    runs=theorems.named(**COMPARED),
    claims=("gaussian_beats_softmax_generic", "gaussian_beats_softmax_constructed"),
)
def kernels_compared(**data: Data) -> Canvas:
    """Loss of both kernels, each seed at its best step size: all seeds, and their median. Titles: start, what
    is trained, and the ratio of losses in the end, where a millionth of f_0 counts as solved.
    """
    figure, axes = panels(1, 4, (2.2, 2.3), sharey=True)
    titles = "generic, $W^Q$", "paired heads, $W^Q$", "generic, all weights", "construction, $W^Q$"
    for ax, where, title in zip(axes[0], COMPARED, titles, strict=True):
        couple = {kernel: data[f"{kernel}_{where}"] for kernel in KERNEL}
        ratio = theorems.advantage(**couple).mean().round(1) + 0.0
        compare(ax, f"{title}\nsoftmax/Gaussian: $10^{{{ratio:.1f}}}$", **couple)
        ax.label_outer()
    legend(figure)
    return figure


@figure(
    runs={**theorems.SEPARATING, **theorems.named(generic=theorems.GENERIC_TUNED)},
    claims=("softmax_respects_floor", "softmax_gradients_vanish"),
)
def floor_and_gradients(**data: Data) -> Canvas:
    """Left: the loss from the construction that separates over the floor below which no W^Q and W^K bring
    softmax attention, all seeds and their median. Right: the gradient's norm for the root of the loss, W^Q
    trained from a generic start at the best step, all seeds, down to rounding errors of the loss.
    """
    figure, axes = panels(1, 2, (3.7, 2.4))
    floors, slopes = axes[0]
    lowest = data["softmax"]["floor"].isel(kernel=0)
    for kernel, (_, color) in KERNEL.items():
        seeds(floors, data[kernel]["loss"] / lowest.where(lowest > 0), kernel)
        generic = data[f"{kernel}_generic"]
        f, g = (theorems.only(generic)[name] for name in ("losses", "slopes"))
        steep = g / np.sqrt(2 * f)
        seeds(slopes, steep.where(f > theorems.ROUNDING * f.isel(step=0)), kernel, median=False)
        slopes.axhline(stats.gmean(theorems.steepness(generic)), color=color, lw=1.0, ls=DASHED)
    slopes.plot([], [], color=BLACK, lw=1.0, ls=DASHED, label="geometric mean of the ends")
    over_steps(floors, "the construction", "$f_t$ over the floor of softmax")
    floors.set_ylim(1e-3, None)
    level(floors, 1.0, "floor")
    over_steps(slopes, "generic start, best step", r"$|\nabla_Q f\,|\,/\sqrt{2f}$")
    legend(figure)
    return figure


@figure(runs=theorems.STARTS, claims=("softmax_has_more_local_solutions",))
def local_solutions(**data: Data) -> Canvas:
    """W^Q trained from several generic starts of the same problem: the loss in the end of each, in order and
    at least 1e-16, by seed. Above: how many different outputs those that are solved or stationary end with; a
    chain of ends with steps below a twentieth of |y| counts as one.
    """
    figure, axes = panels(1, 2, (3.7, 2.5), sharey=True)
    for ax, (kernel, run) in zip(axes[0], data.items(), strict=True):
        name, color = KERNEL[kernel]
        f = relative(run["losses"]).isel(step=-1, delta=0, scale=0, multiple=0).transpose("seed", "start")
        at, count = np.arange(len(f)), f.sizes["start"]
        x, ends = at[:, None] + np.linspace(-0.28, 0.28, count), np.sort(np.maximum(f.values, LEAST), axis=1)
        ax.plot(x.ravel(), ends.ravel(), "o", color=color, ms=2.5, mew=0)
        for seed, number in zip(at, theorems.ends(run, -1).solutions, strict=True):
            ax.text(seed, 1.01, str(number), transform=ax.get_xaxis_transform(), ha="center", va="bottom")
        ax.set(xlabel="seed", ylabel="$f_T/f_0$", yscale="log", xticks=at, xticklabels=run["seed"].values)
        ax.set_title(f"{name}: different ends of {count} starts", pad=14)
    return figure


@table(
    runs=theorems.named(
        all_theorem=theorems.ALL,
        all_generic=theorems.GENERIC_ALL,
        query_paired=theorems.QUERY,
        query_generic=theorems.GENERIC_QUERY,
    ),
    claims=RATES,
)
def conservatism(**data: Data) -> tuple[list[str], list[list[Any]]]:
    """log(f_0/f_t) over that of the bound: the least of all records, in the end, and over the last half of
    steps, median over seeds and range; below one the bound fails. All weights are held against beta, safe or
    as printed, W^Q against gamma. L is the largest curvature of all steps and seeds.
    """
    header = ["kernel", "trained", "start", "slowest pace", "mean pace", "pace of the last half",
              "slowest, as printed", "eta beta or gamma", "largest eta L", "|M_T - M_0|/|M_0|"]  # fmt: skip
    found = []
    for name, run in data.items():
        kernel, weights, start = name.split("_")
        reading = 0 if weights == "all" else None
        own, printed = pace(run, reading), pace(run, 1) if weights == "all" else None
        paces = *(own[:3] if own else (None,) * 3), printed and printed.slowest
        words = ["–" if one is None else spread(one) for one in paces]
        moved = theorems.moved(run).isel(step=-1).median()
        numbers = np.median(shrink(run, reading)), theorems.eta_L(run), moved
        found.append([KERNEL[kernel][0], weights, start, *words, *(f"{float(x):.3g}" for x in numbers)])
    return header, found
