"""Marks in the house style of paper figures: small, quiet, readable in print and by the colour-blind.

A drawing takes its figure from `panels` in `_style`, fills it with these marks, and hands it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from descentlab.drawing._style import GREY, NARROWEST
from descentlab.judging import Broken, mean

# More trajectories than this are an image inside the vector figure: as paths they would weigh megabytes.
MOST_PATHS = 12
# How the area of a band names its line; a label that begins so is in no legend.
RANGE = "_range of "


def band(
    ax: Axes,
    series: xr.DataArray,
    label: str,
    color: str,
    *,
    linestyle: Any = "-",
    linewidth: float = 1.2,
) -> None:
    """The median over seeds against the step, over the range of all seeds; values not finite are gaps."""
    values = series.transpose("seed", "step").values.astype(float)
    steps = series["step"].values
    finite = np.ma.masked_invalid(values)
    ax.plot(steps, np.ma.median(finite, axis=0), color=color, label=label, ls=linestyle, lw=linewidth)
    if values.shape[0] > 1:
        low, high = np.ma.min(finite, axis=0), np.ma.max(finite, axis=0)
        area = ax.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
        area.set_label(RANGE + label)


def threads(
    ax: Axes,
    steps: np.ndarray,
    values: np.ndarray,
    color: str,
    *,
    most: int = 60,
    linestyle: Any = "-",
    linewidth: float = 0.5,
    alpha: float = 0.6,
    label: str = "",
) -> None:
    """Trajectories, one per row of `values`, as thin lines: at most so many, evenly chosen."""
    if values.shape[0] == 0:
        return
    chosen = np.unique(np.linspace(0, values.shape[0] - 1, min(most, values.shape[0])).round().astype(int))
    lines = [np.column_stack([steps, values[i]]) for i in chosen]
    ax.add_collection(
        LineCollection(
            lines, colors=color, linestyles=linestyle, linewidths=linewidth, alpha=alpha,
            rasterized=len(lines) > MOST_PATHS,
        )
    )  # fmt: skip
    ax.autoscale_view()
    if label:
        # The legend shows a line that can be seen, not one of the thin ones.
        ax.plot([], [], color=color, ls=linestyle, lw=1.0, label=label)


def points(
    ax: Axes, x: Sequence[float], samples: Sequence[np.ndarray], label: str, color: str, marker: str = "o"
) -> None:
    """The mean over seeds against x, with its 95 % interval; what is not finite is left out."""
    centres, lows, highs = np.array([_interval(one) for one in samples]).T
    errors = np.clip([centres - lows, highs - centres], 0, None)
    look: Any = {"ms": 3.5, "lw": 1.0, "elinewidth": 0.8, "capsize": 1.5}
    ax.errorbar(x, centres, errors, color=color, marker=marker, label=label, **look)


def _interval(samples: np.ndarray) -> tuple[float, float, float]:
    """The mean and the ends of its interval, which one seed leaves at the mean."""
    try:
        estimate = mean(samples)
    except Broken:
        return np.nan, np.nan, np.nan
    low, high = estimate.interval() if estimate.seeds > 1 else (estimate.value, estimate.value)
    return estimate.value, low, high


def time_marks(ax: Axes, times: Mapping[str, float], *, labels: bool = False) -> None:
    """Times as thin vertical lines, named above the panel if asked; infinite ones have not come."""
    for name, time in times.items():
        if np.isfinite(time):
            ax.axvline(time, color=GREY, lw=0.6, ls=(0, (4, 2)), zorder=0)
            if labels:
                ax.annotate(
                    name, (time, 1), (0, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
                    ha="center", va="bottom", fontsize=8, color=GREY, annotation_clip=True,
                )  # fmt: skip


def legend(figure: Figure, columns: int = 4) -> None:
    """One legend for all panels, below them; a label that several panels use is named once."""
    found: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        room = max(1, int(figure.get_size_inches()[0] / NARROWEST))
        beside = min(columns, len(found), room)
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=beside)


def side_legend(ax: Axes) -> None:
    """The legend of a panel, to its right."""
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), borderaxespad=0.6)
