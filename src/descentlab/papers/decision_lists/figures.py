"""The laboratory's figures on decision lists, as functions of stored runs; the paper has none.

Matrices and the weights of single queries are those of the first seed, everything else is of all seeds.
A flow ends at its first certified time, and its curves end there.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator

from descentlab.paper import Figure, Table
from descentlab.papers.decision_lists import measures
from descentlab.papers.decision_lists.masses import attention_scale, masses
from descentlab.papers.decision_lists.runs import JOINT, MATRICES, SCALES, SLACK, UNIFORM, WINDOW
from descentlab.papers.decision_lists.setting import DELTAS, Preset, Rule
from descentlab.plot import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION, band, legend, panels, style
from descentlab.scaling import setting

DOTTED, DASHED = (0, (1, 1.5)), (0, (4, 1.5))
LAW = {"distinct": ("distinct tokens", BLUE, DASHED), "iid": ("independent tokens", VERMILION, "-")}
# In the order of GAMMAS.
GAMMA = (
    (r"$\gamma$: least $\Pr(a)$", "o", "-"),
    (r"$\gamma$: least $\Pr(a, a_j\ \mathrm{decides})$", "s", DASHED),
    (r"$\gamma$: least $\Pr(a)^2$", "D", DOTTED),
)
START = {"zero": ("from zero", BLUE, "-"), "random": ("from small random values", VERMILION, DASHED)}
PLACES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)


def unit(run: xr.Dataset) -> float:
    """The time of one step."""
    return float(setting(run, "eta"))


def horizon(run: xr.Dataset) -> float:
    """The time at which a run ends."""
    return unit(run) * float(run["step"].values[-1])


def certified_times(run: xr.Dataset) -> np.ndarray:
    """The first certified time of each seed, of a flow or of descent; +inf where there is none."""
    return measures.hitting_times(run) if "hit" in run else unit(run) * measures.first_certified(run)


def known(run: xr.Dataset) -> str:
    """What is known of the first certified times: they are within the first step, beyond the run, or exact."""
    times = certified_times(run)
    return "never" if np.isinf(times).any() else "once" if (times <= unit(run)).all() else "exact"


def middle_time(run: xr.Dataset) -> float:
    """The median first certified time, or the end of the run."""
    return float(np.median(np.minimum(certified_times(run), horizon(run))))


def heatmap(ax: Axes, matrix: np.ndarray) -> Any:
    """A matrix over its largest entry, blue and red as people with any colour blindness tell apart."""
    ax.spines[:].set_visible(True)
    ax.tick_params(length=0)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
    return ax.imshow(matrix / (np.abs(matrix).max() or 1.0), cmap="RdBu_r", vmin=-1, vmax=1)


def by_permutation(V: np.ndarray, run: xr.Dataset) -> np.ndarray:
    """V of the first seed with its labels in the order pi(0), pi(1), ..., so that P is the diagonal."""
    return V[run["permutation"].values[0]]


def note(ax: Axes, text: str, y: float, **options: Any) -> None:
    """Small grey text inside a panel, at its left."""
    ax.text(0.03, y, text, transform=ax.transAxes, fontsize=7, color=GREY, va="center", **options)


# ---------------------------------------------------------------- the flow of W


def own_scale(run: xr.Dataset) -> float:
    """The theorem's c for the law and sizes of a run, with lists as long as they may be."""
    p = Preset(**{name: setting(run, name) for name in ("L", "n", "M", "law")})
    lists = (np.arange(p.L)[:, None] + np.arange(1 - p.M, 1)) % p.L
    rule = Rule(p, jnp.arange(p.L), jnp.asarray(lists), jnp.full(p.L, p.M))
    return float(attention_scale(p.n, p.L, masses(rule).delta[DELTAS.index(setting(run, "delta"))]))


@style()
def draw_scale_and_law(**runs: xr.Dataset) -> Canvas:
    """The loss over time by c and law, and the first certified time against c."""
    figure, axes = panels(1, 2, (3.7, 2.8))
    losses, times = axes[0]
    scales = [setting(run, "c") for run in runs.values()]
    shade = ScalarMappable(LogNorm(min(scales), max(scales) * 1.5), "viridis")
    for law, (name, color, line) in LAW.items():
        own = [run for run in runs.values() if setting(run, "law") == law]
        for run in own:
            draw_loss(losses, run, shade.to_rgba(setting(run, "c")), line)
        x, y = [setting(run, "c") for run in own], [middle_time(run) for run in own]
        times.plot(x, y, color=color, lw=1.0, ls=line, label=name)
        for run, c, time in zip(own, x, y, strict=True):
            arrow(times, c, time, run, color, "o")
        times.axvline(own_scale(own[0]), color=color, lw=0.8, ls=line, zorder=0)
        for bound, (_, _, dash) in zip(own[0]["time_bound"].values[0], GAMMA, strict=True):
            times.axhline(bound, color=GREY, lw=0.8, ls=dash, zorder=0)
    figure.colorbar(shade, ax=losses, label="$c$", aspect=30)
    losses.set(xlabel=r"time $\eta t$", ylabel="population loss", xscale="log", yscale="log")
    times.set(xlabel="$c$", ylabel="first certified time", xscale="log", yscale="log")
    times.plot([], [], "|", color=GREY, ms=9, label="theorem's own $c$")
    for reading, _, dash in GAMMA:
        times.plot([], [], color=GREY, lw=0.8, ls=dash, label=f"bound, {reading}")
    for label, marker in {"within the first step": "v", "not within the run": "^"}.items():
        times.plot([], [], marker, color=GREY, mfc="white", ms=4.5, label=label)
    legend(figure)
    return figure


def arrow(ax: Axes, x: Any, y: float, run: xr.Dataset, color: str, marker: str, up: str = "^v") -> None:
    """A mark, or an open arrow towards later or earlier times where the certified time is not exact."""
    shape = {"never": up[0], "once": up[1], "exact": marker}[known(run)]
    ax.plot(x, y, shape, color=color, mfc=color if known(run) == "exact" else "white", ms=4.5, mew=0.9)


def draw_loss(ax: Axes, run: xr.Dataset, color: Any, line: Any) -> None:
    """The loss of the first seed until it is certified, which ends it in a mark."""
    steps, loss = run["step"].values.astype(float), run["loss"].values[0]
    end = certified_times(run)[0] / unit(run)
    shown = (steps > 0) & (steps < end)
    x, y = steps[shown], loss[shown]
    if np.isfinite(end):
        # Flows stand still from there on, so that the next record is that of the certified time.
        x, y = np.append(x, end), np.append(y, loss[np.searchsorted(steps, end)])
        marker = "v" if known(run) == "once" else "o"
        ax.plot(unit(run) * end, y[-1], marker, color=color, ms=4.5, mfc="white", zorder=3)
    ax.plot(unit(run) * x, y, color=color, lw=1.0, ls=line)


@style()
def draw_slack(run: xr.Dataset, **runs: xr.Dataset) -> Canvas:
    """log10(bound / first certified time) over L, n and M, and for the preset itself."""
    figure, axes = panels(1, 4, (1.9, 2.9), sharey=True)
    for ax, over in zip(axes[0], "LnM", strict=False):
        for law, (name, color, _) in LAW.items():
            for cells in groups([one for one in runs.values() if setting(one, "law") == law], over):
                draw_slacks(ax, [setting(one, over) for one in cells], cells, color)
            ax.plot([], [], color=color, label=name)
        ax.set(xlabel=f"${over}$", xscale="linear" if over == "M" else "log")
        ticks = sorted({setting(one, over) for one in runs.values()})
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
    own, sizes = axes[0, 3], ", ".join(f"${name}$ = {setting(run, name)}" for name in "LnM")
    draw_slacks(own, [0], [run], LAW.get(setting(run, "law"), ("", BLACK))[1])
    own.set(xlim=(-1, 1), xlabel=f"the preset itself\n{sizes}")
    own.xaxis.set_major_locator(NullLocator())
    for ax in axes[0]:
        ax.axhline(0, color=BLACK, lw=0.6, zorder=0)
    for reading, marker, line in GAMMA:
        own.plot([], [], marker=marker, color=GREY, ls=line, lw=0.9, ms=4.5, label=reading)
    for label, marker in {"at least (within the first step)": "^", "at most (not within the run)": "v"}.items():
        own.plot([], [], marker, color=GREY, mfc="white", ms=4.5, label=label)
    axes[0, 0].set_ylabel(r"$\log_{10}$ (bound / certified time)")
    legend(figure)
    return figure


def groups(runs: list[xr.Dataset], over: str) -> list[list[xr.Dataset]]:
    """Runs that differ in one size only, in its order."""
    found: dict[Any, list[xr.Dataset]] = {}
    for run in sorted(runs, key=lambda run: setting(run, over)):
        found.setdefault(tuple(setting(run, name) for name in "LnM" if name != over), []).append(run)
    return [cells for cells in found.values() if len(cells) > 1]


def draw_slacks(ax: Axes, x: list[Any], runs: list[xr.Dataset], color: str) -> None:
    """The slacks of some runs, by reading of gamma."""
    for k, (_, marker, line) in enumerate(GAMMA):
        y = [float(np.log10(np.median(run["time_bound"].values[:, k]) / middle_time(run))) for run in runs]
        ax.plot(x, y, color=color, lw=0.9, ls=line)
        for one_x, one_y, run in zip(x, y, runs, strict=True):
            arrow(ax, one_x, one_y, run, color, marker, up="v^")


@style()
def draw_ordering(**runs: xr.Dataset) -> Canvas:
    """The weights of list entries above those of other tokens, and the attention that they get."""
    shown = [(run, m) for run in runs.values() for m in chosen_lengths(run)]
    figure, axes = panels(2, len(shown), (7.6 / len(shown), 1.7), sharex="col", sharey="row")
    for (run, m), column in zip(shown, axes.T, strict=True):
        end, times = certified_times(run)[0], unit(run) * run["step"].values
        # Flows stand still from the certified time on, so that the next record is that of this time.
        kept = np.flatnonzero((times > 0) & (times < end))
        x, weights = times[kept], weights_of(run, m)
        if np.isfinite(end):
            x, kept = np.append(x, end), np.append(kept, np.searchsorted(times, end))
        above = weights[kept] - weights[kept, :1]
        relative = above / above.max(axis=1, keepdims=True)
        attention = np.exp(weights[kept] - weights[kept, 1:2])
        for ax, values in zip(column, (relative, attention), strict=True):
            for place in range(m + 1):
                kind = {0: ("other tokens", GREY), m: ("the query itself", BLACK)}
                label, color = kind.get(place, (f"$a_{place}$", PLACES[(place - 1) % len(PLACES)]))
                ax.plot(x, values[:, place], color=color, lw=1.5 if place == m else 1.0, label=label)
            if np.isfinite(end):
                ax.axvline(end, color=GREY, lw=0.8, ls=DASHED, zorder=0, label="certified")
        column[0].set_title(f"{LAW[setting(run, 'law')][0]},\nlist of {m}")
        column[1].set(xscale="log", xlabel=r"time $\eta t$", ylim=(0, None))
    axes[0, 0].set_ylabel("relative weight")
    axes[1, 0].set_ylabel("attention over that of $a_1$")
    figure.align_ylabels()
    legend(figure, columns=8)
    return figure


def chosen_lengths(run: xr.Dataset) -> list[int]:
    """The shortest list of several entries, and the longest."""
    lengths = np.flatnonzero(run["there"].values[0]) + 1 if "there" in run else np.unique(run["sizes"].values[0])
    several = [int(m) for m in lengths if m > 1] or [1]
    return sorted({several[0], several[-1]})


def weights_of(run: xr.Dataset, m: int) -> np.ndarray:
    """W of all other tokens and of the m list entries over time, for a query with a list of m."""
    weights = run["entry_weights"].isel(seed=0).values
    index = m - 1 if "there" in run else int(np.argmax(run["sizes"].values[0] == m))
    return weights[:, index, : m + 1]


# ---------------------------------------------------------------- descent


@style()
def draw_window(run: xr.Dataset) -> Canvas:
    """Loss, margin and eta lambda_max over the steps, and the window."""
    titles = {"loss": "population loss", "margin": "certified margin", "curvature": r"$\eta\,\lambda_{\max}$"}
    figure, axes = panels(1, 3, (2.5, 2.2))
    begin, end = (float(np.median(one)) for one in measures.window(run))
    steps = run["step"].values
    for ax, (name, title) in zip(axes[0], titles.items(), strict=True):
        ax.set_title(title)
        ax.set_xscale("symlog", linthresh=1, linscale=0.4)
        ax.set(xlabel="$t$", xlim=(0, 30 * max([steps[-1], *(t for t in (begin, end) if np.isfinite(t))])))
        if name in run:
            values = run[name].values * (run["rate"].values[:, None] if name == "curvature" else 1.0)
            ax.plot(steps, values.T, color=BLUE, lw=0.7, alpha=0.7)
    loss, margin, curvature = axes[0]
    return figure


FIGURES: tuple[Figure | Table, ...] = (
    Figure("scale_and_law", "", draw_scale_and_law, SCALES, ("flow_classifies_in_time",)),
    Figure("slack", "", draw_slack, {"run": {}, **SLACK}, ("flow_classifies_in_time",)),
    Figure("ordering", "", draw_ordering, {name: SLACK[name] for name in ("distinct_L24_n8_M6", "iid_L16_n4_M3")},
           ("flow_classifies_in_time",)),
)
