"""The house style of paper figures: small, quiet, readable in print and by the colour-blind.

Figures are matplotlib objects made without pyplot, so nothing global changes, nothing is shown and nothing
leaks. A drawing takes its figure from `panels`, fills it with the marks below, and hands it back:

    @style()
    def figure_2(run):
        figure, axes = panels(1, 2)
        band(axes[0, 0], run["training_loss"], "SignGD", BLUE)
        legend(figure)
        return figure

    band         median over seeds, and the range of all seeds
    threads      single trajectories as thin lines, as images where there are many
    points       a number against a setting, with its interval over seeds
    time_marks   named times as vertical lines
    legend       one for the whole figure, below the data
    side_legend  one for a panel, to its right
    save         to a file or buffer, the same bytes each time

`with width(WIDTHS["column"]):` has figures drawn for a column of a page: panels that do not fit beside each
other go below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from descentlab.estimate import Broken, mean

# Okabe and Ito's palette, which people with any common colour blindness tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#8C8C8C"

# Inches: four panels of the narrow kind fill the text width of a US letter or A4 page.
PANEL = (2.3, 1.75)
# How wide figures may be, by what they are for: as drawn, a column of two on a page, a page's text, a slide.
WIDTHS: dict[str, float | None] = {"drawn": None, "column": 3.4, "text": 6.8, "slide": 12.0}
NARROWEST = 1.5  # inches that a panel needs to be read
# What thin lines are drawn with as images, by format: a report embeds SVG, PDF goes to print.
DPI = {"svg": 150, "png": 200, "pdf": 300}
# More trajectories than this are an image inside the vector figure: as paths they would weigh megabytes.
MOST_PATHS = 12

STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.labelpad": 2,
    "axes.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": True,
    "axes.formatter.limits": (-3, 4),
    "axes.prop_cycle": cycler(color=[BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK]),
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.minor.width": 0.35,
    "ytick.minor.width": 0.35,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "lines.linewidth": 1.2,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    # Text as outlines in SVG looks the same in every browser; as TrueType in PDF it stays text.
    "svg.fonttype": "path",
    "svg.hashsalt": "descentlab",
    "pdf.fonttype": 42,
}


@contextmanager
def style() -> Iterator[None]:
    """The house style, in force inside a `with`, or in a function under `@style()`, and over after it."""
    with matplotlib.rc_context(STYLE):
        yield


_width: ContextVar[float | None] = ContextVar("width", default=None)


@contextmanager
def width(inches: float | None) -> Iterator[None]:
    """Figures drawn inside are at most so wide, where their panels come from `panels`."""
    token = _width.set(inches)
    try:
        yield
    finally:
        _width.reset(token)


def panels(
    rows: int,
    columns: int,
    size: tuple[float, float] = PANEL,
    *,
    sharex: bool | Literal["none", "all", "row", "col"] = False,
    sharey: bool | Literal["none", "all", "row", "col"] = False,
) -> tuple[Figure, np.ndarray]:
    """A figure and its panels, (rows, columns), of `size` inches each, or less where there is less room.

    A row that is too long for the width goes on in a next line; the panels are handed back as asked for.
    """
    most = _width.get() or size[0] * columns
    beside = min(columns, max(1, int(most / max(NARROWEST, 0.65 * size[0]))))
    across = min(size[0], most / beside)
    tall = size[1] * max(0.75, across / size[0])
    if beside == columns:
        figure = Figure(figsize=(across * columns, tall * rows), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    lines = -(-columns // beside)
    figure = Figure(figsize=(across * beside, tall * rows * lines), layout="constrained")
    drawn = figure.subplots(rows * lines, beside, squeeze=False)
    found = drawn.reshape(rows, lines * beside)
    for left_over in found[:, columns:].flat:
        left_over.remove()
    found = found[:, :columns]
    for (row, column), ax in np.ndenumerate(found):
        for share, kind in ((ax.sharex, sharex), (ax.sharey, sharey)):
            first = {
                "row": found[row, 0],
                "col": found[0, column],
                "all": found[0, 0],
                True: found[0, 0],
            }.get(kind)
            if first is not None and first is not ax:
                share(first)
    return figure, found


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
        ax.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)


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
    ax.errorbar(
        x,
        centres,
        errors,
        color=color,
        marker=marker,
        ms=3.5,
        lw=1.0,
        elinewidth=0.8,
        capsize=1.5,
        label=label,
    )


def _interval(samples: np.ndarray) -> tuple[float, float, float]:
    """The mean and the ends of its interval, which one seed leaves at the mean."""
    try:
        estimate = mean(samples)
    except Broken:
        return np.nan, np.nan, np.nan
    low, high = estimate.interval() if estimate.seeds > 1 else (estimate.value, estimate.value)
    return estimate.value, low, high


def time_marks(ax: Axes, times: Mapping[str, float], *, labels: bool = False, color: str = GREY) -> None:
    """Times as thin vertical lines, named above the panel if asked; infinite ones have not come."""
    for name, time in times.items():
        if np.isfinite(time):
            ax.axvline(time, color=color, lw=0.6, ls=(0, (4, 2)), zorder=0)
            if labels:
                ax.annotate(
                    name, (time, 1), (0, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
                    ha="center", va="bottom", fontsize=8, color=color, annotation_clip=True,
                )  # fmt: skip


def legend(figure: Figure, columns: int = 4) -> None:
    """One legend for all panels, below them; a label that several panels use is named once."""
    found: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        room = max(1, int(figure.get_size_inches()[0] / NARROWEST))
        figure.legend(
            list(found.values()),
            list(found),
            loc="outside lower center",
            ncols=min(columns, len(found), room),
        )


def side_legend(ax: Axes) -> None:
    """The legend of a panel, to its right."""
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), borderaxespad=0.6)


def save(figure: Figure, target: str | Path | BytesIO, format: str | None = None) -> None:
    """The figure in a file or buffer, as pdf, svg or png; the same figure gives the same bytes."""
    kind = format or ("png" if isinstance(target, BytesIO) else Path(target).suffix.removeprefix("."))
    # A date would make each file new.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with style():
        # The layout moves a little each time it is made; once made, it stays.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        figure.savefig(target, format=kind, metadata=metadata, dpi=DPI.get(kind, "figure"))
