"""The laboratory's figures on decision lists, as functions of stored runs; the paper has none.

Matrices and the weights of single queries are those of the first seed, everything else is of all seeds.
A flow ends at its first certified time, and its curves end there.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

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
from descentlab.judging import setting
from descentlab.papers import figure, table
from descentlab.papers.decision_lists import Preset, masses, theorems
from descentlab.papers.decision_lists.lists import Rule

# ---------------------------------------------------------------- runs, as overrides of a preset

# The flow of W for sizes of its own.
FLOW = theorems.PLAIN | {
    "algorithm": "flow", "train": "attention", "start": "permutation", "eta": 1e-6, "steps": 10**12,
}  # fmt: skip

# The slack of the time bound over sizes, one size at a time around (24, 8, 3) for distinct tokens. With
# repeats there are many more orbits, so sequences are shorter.
SLACK = {
    f"{law}_L{L}_n{n}_M{M}": FLOW | {"L": L, "n": n, "M": M, "law": law}
    for law, sizes in {
        "distinct": [(12, 8, 3), (24, 8, 3), (48, 8, 3), (96, 8, 3), (24, 4, 3), (24, 16, 3), (24, 22, 3),
                     (24, 8, 2), (24, 8, 4), (24, 8, 6)],
        "iid": [(8, 4, 2), (16, 4, 2), (32, 4, 2), (8, 4, 3), (16, 4, 3), (32, 4, 3), (64, 4, 3)],
    }.items()
    for L, n, M in sizes
}  # fmt: skip

# The loss and the certified time against c, with and without repeats.
SCALES = {
    f"{law}_c{c:g}": FLOW | {"L": 16, "n": 4, "M": 3, "law": law, "c": c}
    for law in ("distinct", "iid")
    for c in (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
}

# W and V as matrices over time.
MATRICES = theorems.JOINT["zero"]["zero_iid_L10_n4_M4"] | {"detail": True}

# ---------------------------------------------------------------- marks

DOTTED, DASHED = (0, (1, 1.5)), (0, (4, 1.5))
LAW = {"distinct": ("distinct tokens", BLUE, DASHED), "iid": ("independent tokens", VERMILION, "-")}
# In the order of masses.GAMMAS.
GAMMA = (
    (r"$\gamma$: least $\Pr(a)$", "o", "-"),
    (r"$\gamma$: least $\Pr(a, a_j\ \mathrm{decides})$", "s", DASHED),
    (r"$\gamma$: least $\Pr(a)^2$", "D", DOTTED),
    (r"$\gamma$: rarest multiset", "P", (0, (3, 1.5, 1, 1.5))),
)
START = {"zero": ("from zero", BLUE, "-"), "random": ("from small random values", VERMILION, DASHED)}
PLACES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)


def certified_times(run: xr.Dataset) -> np.ndarray:
    """The first certified time of each seed, of a flow or of descent; +inf where there is none."""
    if "hit" not in run:
        return setting(run, "eta") * theorems.first_certified(run)
    # Below one step it is rounding that decides when a certificate is due.
    return np.maximum(theorems.hitting_times(run), setting(run, "eta"))


def known(run: xr.Dataset) -> str:
    """Whether certified times are within the first step ("once"), beyond the run ("never"), or exact."""
    times = certified_times(run)
    return "never" if np.isinf(times).any() else "once" if (times <= setting(run, "eta")).all() else "exact"


def middle_time(run: xr.Dataset) -> float:
    """The median first certified time, or the end of the run."""
    return float(np.median(np.minimum(certified_times(run), setting(run, "eta") * run["step"].values[-1])))


def until_certified(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The times of the first seed's records until it is certified, and the records' indices."""
    times, end = setting(run, "eta") * run["step"].values, certified_times(run)[0]
    kept = np.flatnonzero((times > 0) & (times < end))
    if np.isinf(end):
        return times[kept], kept
    # Flows stand still from the certified time on, so that the next record is that of this time.
    return np.append(times[kept], end), np.append(kept, np.searchsorted(times, end))


def mark(ax: Axes, x: Any, y: float, run: xr.Dataset, color: Any, marker: str, arrows: str) -> None:
    """A mark for what is known of a certified time: one of two open arrows if it is never or at once."""
    shape = {"never": arrows[0], "once": arrows[1], "exact": marker}[known(run)]
    ax.plot(x, y, shape, color=color, mfc=color if known(run) == "exact" else "white", ms=4.5, mew=0.9)


def explain(ax: Axes, label: str, marker: str = "", line: Any = "none", **options: Any) -> None:
    """An entry of the legend."""
    ax.plot([], [], marker=marker, ls=line, label=label, **{"color": GREY, "lw": 0.9, "ms": 4.5, **options})


# ---------------------------------------------------------------- the flow of W


def own_scale(run: xr.Dataset) -> float:
    """The theorem's c for the law and sizes of a run, with lists as long as they may be."""
    p = Preset(**{name: setting(run, name) for name in ("L", "n", "M", "law")})
    lists = (np.arange(p.L)[:, None] + np.arange(1 - p.M, 1)) % p.L
    delta, _ = masses.readings(Rule(p, jnp.arange(p.L), jnp.asarray(lists), jnp.full(p.L, p.M)))
    return float(masses.attention_scale(p.n, p.L, delta[masses.DELTAS.index(setting(run, "delta"))]))


@figure(runs=SCALES, claims=("flow_classifies_in_time",))
def scale_and_law(**runs: xr.Dataset) -> Canvas:
    """Gradient flow of W from V = cP. Left: population loss of the first seed, up to the first time when all
    sequences are certainly classified right (a disc; an arrow: within the first step). Right: that time
    against c, with the bounds 4M/(log(L) gamma) for all readings of gamma and, vertical, c = 4n log(L)/delta
    of the theorem. Open arrows: the time is earlier, or later than the run.
    """
    figure, axes = panels(1, 2, (3.7, 2.8))
    losses, times = axes[0]
    scales = [setting(run, "c") for run in runs.values()]
    shade = ScalarMappable(LogNorm(min(scales), max(scales) * 1.5), "viridis")
    for law, (name, color, line) in LAW.items():
        own = [run for run in runs.values() if setting(run, "law") == law]
        c, middle = [setting(run, "c") for run in own], [middle_time(run) for run in own]
        times.plot(c, middle, color=color, lw=1.0, ls=line, label=name)
        for run in own:
            mark(times, setting(run, "c"), middle_time(run), run, color, "o", "^v")
            (x, kept), tint = until_certified(run), shade.to_rgba(setting(run, "c"))
            losses.plot(x, run["loss"].values[0, kept], color=tint, lw=1.0, ls=line)
            if known(run) != "never":
                mark(losses, x[-1], run["loss"].values[0, kept[-1]], run, tint, "o", "^v")
        times.axvline(own_scale(own[0]), color=color, lw=0.8, ls=line, zorder=0)
        for bound, (_, _, dash) in zip(own[0]["time_bound"].values[0], GAMMA, strict=True):
            times.axhline(bound, color=GREY, lw=0.8, ls=dash, zorder=0)
    figure.colorbar(shade, ax=losses, label="$c$", aspect=30)
    losses.set(xlabel=r"time $\eta t$", ylabel="population loss", xscale="log", yscale="log")
    times.set(xlabel="$c$", ylabel="first certified time", xscale="log", yscale="log")
    explain(times, "theorem's own $c$", "|", ms=9)
    for reading, _, dash in GAMMA:
        explain(times, f"bound, {reading}", line=dash)
    explain(times, "within the first step", "v", mfc="white")
    explain(times, "not within the run", "^", mfc="white")
    legend(figure)
    return figure


def groups(runs: list[xr.Dataset], over: str) -> list[list[xr.Dataset]]:
    """Runs that differ in one size only, in its order."""
    found: dict[Any, list[xr.Dataset]] = {}
    for run in sorted(runs, key=lambda run: setting(run, over)):
        found.setdefault(tuple(setting(run, name) for name in "LnM" if name != over), []).append(run)
    return [cells for cells in found.values() if len(cells) > 1]


def median_slack(run: xr.Dataset, reading: int) -> float:
    """log10(bound / first certified time), median over seeds; the time is at most the end of the run."""
    return float(np.log10(np.median(run["time_bound"].values[:, reading]) / middle_time(run)))


@figure(runs={"run": {}, **SLACK}, claims=("flow_classifies_in_time",))
def slack(run: xr.Dataset, **runs: xr.Dataset) -> Canvas:
    """The slack of the time bound with the theorem's own c, for all readings of gamma: one size varies along
    a line, the others are fixed; right, the preset itself. Below zero the bound fails. Open arrows: the slack
    is larger (certified within the first step) or smaller (not within the run).
    """
    figure, axes = panels(1, 4, (1.9, 2.9), sharey=True)
    for ax, over in zip(axes[0], "LnM", strict=False):
        for law, (name, color, _) in LAW.items():
            for cells in groups([one for one in runs.values() if setting(one, "law") == law], over):
                x = [setting(one, over) for one in cells]
                for k, (_, marker, dash) in enumerate(GAMMA):
                    slacks = [median_slack(one, k) for one in cells]
                    ax.plot(x, slacks, color=color, lw=0.9, ls=dash)
                    for at, value, one in zip(x, slacks, cells, strict=True):
                        mark(ax, at, value, one, color, marker, "v^")
            explain(ax, name, line="-", color=color)
        ax.set(xlabel=f"${over}$", xscale="linear" if over == "M" else "log")
        ticks = sorted({setting(one, over) for one in runs.values()})
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
    own, sizes = axes[0, 3], ", ".join(f"${name}$ = {setting(run, name)}" for name in "LnM")
    for k, (_, marker, _) in enumerate(GAMMA):
        mark(own, k, median_slack(run, k), run, LAW.get(setting(run, "law"), ("", BLACK))[1], marker, "v^")
    own.set_xticks(range(4), [r"$\Pr(a)$", "decides", r"$\Pr(a)^2$", "rarest"])
    own.set(xlim=(-0.6, 3.6), xlabel=f"the preset: {sizes}")
    for ax in axes[0]:
        ax.axhline(0, color=BLACK, lw=0.6, zorder=0)
    for reading, marker, line in GAMMA:
        explain(own, reading, marker, line)
    explain(own, "at least (within the first step)", "^", mfc="white")
    explain(own, "at most (not within the run)", "v", mfc="white")
    axes[0, 0].set_ylabel(r"$\log_{10}$ (bound / certified time)")
    legend(figure)
    return figure


def chosen_lengths(run: xr.Dataset) -> list[int]:
    """The shortest list of several entries, and the longest."""
    several = [int(i) + 1 for i in np.flatnonzero(run["there"].values[0]) if i > 0] or [1]
    return sorted({min(several), max(several)})


@figure(
    runs={name: SLACK[name] for name in ("distinct_L24_n8_M6", "iid_L16_n4_M3")},
    claims=("flow_classifies_in_time",),
)
def ordering(**runs: xr.Dataset) -> Canvas:
    """How W[:, a] puts the list of a query a in order, until all sequences are certainly right (dashed).
    Above: weights of the list's entries less those of other tokens, over the largest. At first the query
    itself, which is always there, may be on top. Below: attention to a token that occurs once, over that to
    a_1. Of distinct tokens any difference is enough; a rival that occurs k times must get less than 1/k.
    """
    shown = [(run, m) for run in runs.values() for m in chosen_lengths(run)]
    figure, axes = panels(2, len(shown), (7.6 / len(shown), 1.7), sharex="col", sharey="row")
    for (run, m), column in zip(shown, axes.T, strict=True):
        x, kept = until_certified(run)
        # Of all other tokens, then of the list's entries.
        weights = run["entry_weights"].values[0, kept, m - 1, : m + 1]
        above = weights - weights[:, :1]
        relative = above / np.maximum(np.abs(above).max(axis=1, keepdims=True), 1e-300)
        attention = np.exp(weights - weights[:, 1:2])
        # What is certified at once has one record.
        dot = "." if len(x) == 1 else ""
        for ax, values in zip(column, (relative, attention), strict=True):
            ax.set(xscale="log", xlim=(x[0] / 1.5, max(1.5 * x[-1], 10 * x[0])))
            for place in range(m + 1):
                color = {0: GREY, m: BLACK}.get(place, PLACES[(place - 1) % len(PLACES)])
                ax.plot(x, values[:, place], color=color, lw=1.5 if place == m else 1.0, marker=dot)
            if known(run) != "never":
                ax.axvline(x[-1], color=GREY, lw=0.8, ls=DASHED, zorder=0)
        column[0].set_title(f"{LAW[setting(run, 'law')][0]},\nlist of {m}")
        column[1].set(xlabel=r"time $\eta t$", ylim=(0, 1.05))
    for place, color in zip(range(1, max(m for _, m in shown)), PLACES, strict=False):
        explain(axes[0, 0], f"$a_{place}$", line="-", color=color)
    explain(axes[0, 0], "$a$ itself, the last", line="-", color=BLACK, lw=1.5)
    explain(axes[0, 0], "tokens outside the list", line="-")
    explain(axes[0, 0], "certified", line=DASHED)
    axes[0, 0].set_ylabel("relative weight")
    axes[1, 0].set_ylabel("attention over that of $a_1$")
    figure.align_ylabels()
    legend(figure, columns=8)
    return figure


# ---------------------------------------------------------------- W and V


def heatmap(ax: Axes, matrix: np.ndarray) -> Any:
    """A matrix over its largest entry."""
    ax.spines[:].set_visible(True)
    ax.tick_params(length=0)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
    return ax.imshow(matrix / (np.abs(matrix).max() or 1.0), cmap="RdBu_r", vmin=-1, vmax=1)


def matrices_along(run: xr.Dataset) -> Movie:
    """W and V of the first seed, each over its largest entry at that step."""
    own = run.isel(seed=0)
    V = own["V"].isel(label=own["permutation"].values)

    def relative(matrix: xr.DataArray) -> xr.DataArray:
        largest = abs(matrix).max([d for d in matrix.dims if d != "step"])
        return matrix / largest.where(largest > 0, 1.0)

    found = {"W": relative(own["W"]), "V, labels in the order of π": relative(V)}
    return Movie(found, low=-1.0, high=1.0)


def outline(ax: Axes, row: Any, column: Any) -> None:
    """A frame around an entry of a matrix."""
    ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec=BLACK, lw=0.5))


@figure(runs={"run": MATRICES}, claims=("joint_training_classifies",), moving=matrices_along)
def matrices(run: xr.Dataset) -> Canvas:
    """W and V of the first seed in joint training from zero, each over its largest entry. Framed in W: the
    lists, column by column, numbered by place; their weights come to fall with the place. Labels of V are in
    the order of pi, so that P is the diagonal.
    """
    steps, first = run["step"].values, float(theorems.first_certified(run)[0])
    met = first if np.isfinite(first) else float(steps[-1]) ** 0.5
    moments = sorted({int(np.searchsorted(steps, t)) for t in (1, met**0.5, met, steps[-1])})
    figure, axes = panels(2, len(moments), (1.85, 2.0), sharex=True, sharey="row")
    pi, lists, sizes = (run[name].values[0] for name in ("permutation", "lists", "sizes"))
    for (above, below), i in zip(axes.T, moments, strict=True):
        W, V = (run[name].values[0, i] for name in "WV")
        for ax, X in ((above, W), (below, V[pi])):
            heatmap(ax, X)
            ax.set_xlabel(f"largest: {np.abs(X).max():.2g}", fontsize=8)
        for a, (entries, m) in enumerate(zip(lists, sizes, strict=True)):
            outline(below, a, a)
            for place, t in enumerate(entries[:m]):
                outline(above, t, a)
                color = "white" if abs(W[t, a]) > 0.6 * np.abs(W).max() else BLACK
                above.text(a, t, str(place + 1), ha="center", va="center_baseline", fontsize=6, color=color)
        sure = " (certified)" if run["certified"].values[0, i] else ""
        above.set_title(f"step {steps[i]}{sure}")
    axes[0, 0].set_ylabel("$W$: token (row), query (column)")
    axes[1, 0].set_ylabel(r"$V$: label $\pi(t)$ (row), token (column)")
    scale = axes[0, 0].images[0]
    figure.colorbar(scale, ax=axes, shrink=0.6, aspect=35, label="entry over the largest", ticks=[-1, 0, 1])
    return figure


# ---------------------------------------------------------------- descent


def spread(values: np.ndarray) -> str:
    """The least and the largest of some numbers."""
    return " to ".join(f"{x:.4g}" for x in np.unique([values.min(), values.max()]))


def power(x: float) -> str:
    """A number as a power of ten."""
    mantissa, _, exponent = f"{x:.2e}".partition("e")
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$" if exponent else mantissa


@figure(runs={"run": theorems.WINDOW}, claims=("descent_classifies_in_window",))
def window(run: xr.Dataset) -> Canvas:
    """Gradient descent on W and V from near cP, every seed: population loss, certified margin (above zero all
    sequences are right), and eta lambda_max, which the theorem wants at most 1. Vertical: first certified
    step, and the theorem's window, 2 m L_0/(A^2 eta) to epsilon/(2 eta), medians over seeds. A window that
    ends before it begins is empty: the theorem's conditions are not met.
    """
    figure, axes = panels(1, 3, (2.5, 2.3))
    names = {"loss": "population loss", "margin": "certified margin", "curvature": r"$\eta\,\lambda_{\max}$"}
    # Without a solution c there is no window.
    solved = np.isfinite(run["c"].values).all()
    begin, end = (float(np.median(t)) if solved else np.nan for t in theorems.window_of(run)[:2])
    first = theorems.first_certified(run)
    marks = {
        f"first certified: step {spread(first)}": (float(np.median(first)), GREEN, DASHED),
        f"window begins: step {power(begin)}": (begin, VERMILION, "-"),
        f"window ends: step {power(end)}": (end, VERMILION, DOTTED),
    }
    last = max([float(run["step"].values[-1]), *(t for t, _, _ in marks.values() if np.isfinite(t))])
    for ax, (name, title) in zip(axes[0], names.items(), strict=True):
        ax.set_xscale("symlog", linthresh=1, linscale=0.3)
        ax.set(title=title, xlabel="step $t$", xlim=(0, 10 ** np.ceil(np.log10(last) + 0.3)))
        decades = np.arange(0, np.log10(ax.get_xlim()[1]) + 0.5, 2)
        ax.set_xticks([0, *10**decades], ["0", "1", *(f"$10^{{{k:.0f}}}$" for k in decades[1:])])
        ax.xaxis.set_minor_locator(NullLocator())
        if name in run:
            values = run[name].values * (run["rate"].values[:, None] if name == "curvature" else 1.0)
            ax.plot(run["step"].values, values.T, color=BLUE, lw=0.8, alpha=0.7)
        if begin < end:
            ax.axvspan(begin, end, color=VERMILION, lw=0, alpha=0.25)
        for label, (t, color, line) in marks.items():
            if np.isfinite(t):
                ax.axvline(t, color=color, lw=0.9, ls=line, label=label)
    loss, margin, curvature = axes[0]
    loss.set_yscale("log")
    explain(loss, "every seed", line="-", color=BLUE)
    margin.axhline(0, color=BLACK, lw=0.6, zorder=0)
    curvature.axhline(1, color=BLACK, lw=0.6, zorder=0)
    curvature.set_ylim(0, None)
    if not solved:
        explain(loss, "no window: the equation for $c$ has no solution")
    legend(figure)
    return figure


@figure(runs=theorems.UNIFORM, claims=("uniform_attention_learns_permutation", "attention_is_needed"))
def uniform(**runs: xr.Dataset) -> Canvas:
    """V trained under uniform attention (W = 0): cosine of V and P - 1/L, share of tokens t whose pi(t) tops
    V[:, t], and probability that a position is misclassified, which stays away from 0 since some sequences
    have two labels and all their positions one output; median and range of seeds. Right: V of the first seed
    over its largest entry, labels in the order of pi, so that P is the diagonal.
    """
    figure, axes = panels(1, 4, (1.95, 2.2))
    names = {"cosine": r"$\cos(V,\ P - 1/L)$", "decoded": "columns decoded", "error": "error"}
    for ax, (name, title) in zip(axes[0], names.items(), strict=False):
        for start, run in runs.items():
            (label, color, line), later = START[start], run[name].isel(step=run["step"].values > 0)
            band(ax, later, label, color, linestyle=line)
            ax.set_xlim(1, max(2.0, float(run["step"].values[-1])))
        low = min(-0.03, ax.get_ylim()[0])
        ax.set(title=title, xlabel="step $t$", xscale="log", ylim=(low, 1.03))
    start, run = next(iter(runs.items()))
    pairs = spread(100 * run["disagreeing_pairs"].values.round(3))
    words = f"two labels in one sequence:\n{pairs} % of pairs"
    axes[0, 2].text(0.05, 0.06, words, transform=axes[0, 2].transAxes, fontsize=7, color=GREY)
    image = heatmap(axes[0, 3], run["final_V"].values[0][run["permutation"].values[0]])
    axes[0, 3].set(title=f"$V$ at the end,\n{START[start][0]}", xlabel="token $t$", ylabel=r"label $\pi(t)$")
    figure.colorbar(image, ax=axes[0, 3], shrink=0.6, aspect=15, ticks=[-1, 0, 1])
    legend(figure)
    return figure


# ---------------------------------------------------------------- joint training

BOTH_STARTS = {**theorems.JOINT["zero"], **theorems.JOINT["random"]}


def cell(run: xr.Dataset) -> tuple[str, int, int]:
    """Law, L and n of a run."""
    return setting(run, "law"), setting(run, "L"), setting(run, "n")


@figure(runs=BOTH_STARTS, claims=("joint_training_classifies",))
def joint(**runs: xr.Dataset) -> Canvas:
    """Joint training of W and V: the share of seeds whose last W and V classify all sequences right, by exact
    certificate, and the median first certified step. From zero, sequences that hold every token (n = L) keep
    all columns of V equal, so that no training helps.
    """
    figure, axes = panels(1, len(theorems.JOINT), (3.5, 3.6), sharey=True)
    for ax, start in zip(axes[0], theorems.JOINT, strict=True):
        own = {(cell(run), setting(run, "M")): run for run in runs.values() if setting(run, "start") == start}
        rows, columns = list(dict.fromkeys(c for c, _ in own)), sorted({M for _, M in own})
        shares = np.full((len(rows), len(columns)), np.nan)
        for (row, M), run in own.items():
            i, j = rows.index(row), columns.index(M)
            shares[i, j] = np.mean([bool(one) for one in theorems.certificates(run)])
            time = float(np.median(theorems.first_certified(run)))
            words = f"{100 * shares[i, j]:.0f} %" + (f", step {time:g}" if np.isfinite(time) else "")
            ax.text(j, i, words, ha="center", va="center", color="white" if shares[i, j] > 0.6 else BLACK)
        ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        ax.set(title=START[start][0], xlabel="longest list $M$")
        ax.set_xticks(range(len(columns)), [str(M) for M in columns])
        ax.set_yticks(range(len(rows)), [f"{LAW[law][0]}, $L$ = {L}, $n$ = {n}" for law, L, n in rows])
        ax.tick_params(which="both", length=0)
        ax.spines[:].set_visible(False)
        for axis, count in ((ax.xaxis, len(columns)), (ax.yaxis, len(rows))):
            axis.set_minor_locator(FixedLocator([i - 0.5 for i in range(1, count)]))
        ax.grid(which="minor", color="white", lw=1.5)
    scale = axes[0, 0].images[0]
    figure.colorbar(scale, ax=axes, shrink=0.7, aspect=30, label="share of seeds certified at the end")
    return figure


@table(runs=BOTH_STARTS, claims=("joint_training_classifies",))
def joint_failures(**runs: xr.Dataset) -> tuple[list[str], list[list[Any]]]:
    """Every run of joint training that does not end perfect, with its probability of error and a sequence
    that it misclassifies: at this token, the rival's logit is not below that of the right label.
    """
    header = ["start", "law", "L", "n", "M", "seed", "error", "sequence", "at token", "right label",
              "rival label"]  # fmt: skip
    found = []
    for run in runs.values():
        for seed, one in enumerate(theorems.certificates(run)):
            if not one:
                where = [setting(run, "start"), *cell(run), setting(run, "M"), int(run["seed"].values[seed])]
                error, query = float(run["error"].values[seed, -1]), one.sequence[one.position]
                text = " ".join(map(str, one.sequence))
                found.append([*where, f"{error:.3g}", text, query, one.right, one.rival])
    return header, found or [["all starts end certified", *["–"] * (len(header) - 1)]]
