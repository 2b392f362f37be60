"""The laboratory's figures on decision lists, as functions of stored runs; the paper has none.

Matrices and the weights of single queries are those of the first seed, everything else shows every seed.
A flow ends at its first certified time, so its curves do too.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator

from descentlab.paper import Figure, Table
from descentlab.papers.decision_lists import measures
from descentlab.papers.decision_lists.masses import attention_scale, masses
from descentlab.papers.decision_lists.runs import JOINT, MATRICES, SCALES, SLACK, UNIFORM, WINDOW
from descentlab.papers.decision_lists.setting import DELTAS, GAMMAS, Preset, Rule
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
    style,
)
from descentlab.scaling import setting

LAW = {"distinct": ("distinct tokens", BLUE), "iid": ("independent tokens", VERMILION)}
READING = {
    "token": (r"$\gamma = \min_a \Pr(a)$", "o", "-"),
    "event": (r"$\gamma = \min \Pr(a,\ a_j\ \mathrm{decides})$", "s", (0, (4, 1.5))),
    "token_squared": (r"$\gamma = \min_a \Pr(a)^2$", "D", (0, (1, 1.5))),
}
START = {"zero": ("from zero", BLUE, "-"), "random": ("from small random values", VERMILION, (0, (4, 1.5)))}
PLACES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
DIVERGING = "RdBu_r"


def certified_times(run: xr.Dataset) -> np.ndarray:
    """The first certified time of each seed, of a flow or of descent; +inf where there is none."""
    return measures.hitting_times(run) if "hit" in run else measures.first_certified(run) * _unit(run)


def _unit(run: xr.Dataset) -> float:
    """The time that a step is."""
    return float(setting(run, "eta"))


def _horizon(run: xr.Dataset) -> float:
    return _unit(run) * float(run["step"].values[-1])


def limit(run: xr.Dataset) -> str:
    """Whether the first certified time is within the first step ("once"), beyond the run ("never"), or known."""
    times = certified_times(run)
    return "never" if np.isinf(times).any() else "once" if (times <= _unit(run)).all() else ""


def of_law(runs: Mapping[str, xr.Dataset]) -> dict[str, list[xr.Dataset]]:
    """The runs by law."""
    return {law: [run for run in runs.values() if setting(run, "law") == law] for law in LAW}


def framed(ax: Axes) -> None:
    """A panel for a matrix of tokens."""
    ax.spines[:].set_visible(True)
    ax.tick_params(length=0)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))


def heatmap(ax: Axes, matrix: np.ndarray) -> Any:
    """A matrix over its largest entry, in diverging colours."""
    framed(ax)
    return ax.imshow(matrix / (np.abs(matrix).max() or 1.0), cmap=DIVERGING, vmin=-1, vmax=1)


# ---------------------------------------------------------------- the flow of W


def own_scale(run: xr.Dataset) -> float:
    """The theorem's c for the sizes and the law of a run, whose lists are as long as they may be."""
    p = Preset(**{name: setting(run, name) for name in ("L", "n", "M", "law")})
    lists = (np.arange(p.L)[:, None] + np.arange(1, p.M + 1) - p.M) % p.L
    rule = Rule(p, jnp.arange(p.L), jnp.asarray(lists), jnp.full(p.L, p.M))
    return float(attention_scale(p.n, p.L, masses(rule).delta[DELTAS.index(setting(run, "delta"))]))


@style()
def draw_scale_and_law(**runs: xr.Dataset) -> Canvas:
    """The loss over time by c, for each law, and the first certified time against c."""
    figure, axes = panels(1, 3, (2.5, 2.3))
    losses, times = dict(zip(LAW, axes[0], strict=False)), axes[0, 2]
    scales = sorted({setting(run, "c") for run in runs.values()})
    shade = dict(zip(scales, mpl.colormaps["viridis"](np.linspace(0, 0.9, len(scales))), strict=True))
    for law, own in of_law(runs).items():
        (name, color), ax = LAW[law], losses[law]
        for run in own:
            draw_loss(ax, run, shade[setting(run, "c")])
        ax.set(title=name, xlabel=r"time $\eta t$", xscale="log", yscale="log")
        ax.set_xlim(0.5 * _unit(own[0]), max(map(_horizon, own)))
        x, (y, marks) = [setting(run, "c") for run in own], zip(*map(time_point, own), strict=True)
        times.loglog(x, y, color=color, lw=1.0, label=name)
        for one_x, one_y, mark in zip(x, y, marks, strict=True):
            times.plot(one_x, one_y, mark, color=color, mfc=color if mark == "o" else "white", ms=4.5)
        times.axvline(own_scale(own[0]), color=color, lw=0.8, ls=(0, (1, 1.5)), zorder=0)
        draw_bounds(times, own, color)
    times.set(title="first certified time", xlabel="$c$")
    low, high = (
        min(ax.get_ylim()[0] for ax in losses.values()),
        max(ax.get_ylim()[1] for ax in losses.values()),
    )
    for ax in losses.values():
        ax.set_ylim(low, high)
    axes[0, 0].set_ylabel("population loss")
    for c, color in shade.items():
        axes[0, 0].plot([], [], color=color, label=f"$c$ = {c:g}")
    legend(figure)
    return figure


def draw_loss(ax: Axes, run: xr.Dataset, color: Any) -> None:
    """The loss of the first seed until it is certified, where it ends in a mark."""
    end, steps = certified_times(run)[0] / _unit(run), run["step"].values.astype(float)
    loss = run["loss"].values[0]
    shown = (steps > 0) & (steps <= end)
    last = loss[np.searchsorted(steps, end)] if np.isfinite(end) else np.nan
    x, y = np.append(steps[shown], end), np.append(loss[shown], last)
    ax.plot(_unit(run) * x, y, color=color, lw=1.0)
    if np.isfinite(end):
        ax.plot(_unit(run) * end, last, "<" if limit(run) == "once" else "o", color=color, ms=4, mfc="white")


def time_point(run: xr.Dataset) -> tuple[float, str]:
    """The median first certified time and its mark: an arrow down is within one step, one up is never."""
    mark = {"once": "v", "never": "^", "": "o"}[limit(run)]
    return float(np.median(np.minimum(certified_times(run), _horizon(run)))), mark


def draw_bounds(ax: Axes, own: list[xr.Dataset], color: Any) -> None:
    pass


FIGURES: tuple[Figure | Table, ...] = (
    Figure("scale_and_law", "", draw_scale_and_law, SCALES, ("flow_classifies_in_time",)),
)
