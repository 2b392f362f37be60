"""What figures are drawn on: colours, type, widths for print, panels, and files.

Figures are matplotlib objects made without pyplot, so nothing global changes, nothing is shown and nothing
leaks. `with width(WIDTHS["column"]):` has figures drawn for a column of a page: panels that do not fit beside
each other go below.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

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

TICKS = {"labelsize": 8, "major.width": 0.5, "minor.width": 0.35, "major.size": 3, "minor.size": 1.5}
STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "axes.labelpad": 2,
    "axes.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": True,
    "axes.formatter.limits": (-3, 4),
    "axes.prop_cycle": cycler(color=[BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK]),
    **{f"{axis}tick.{name}": size for axis in "xy" for name, size in TICKS.items()},
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
        first = {"row": found[row, 0], "col": found[0, column], "all": found[0, 0], True: found[0, 0]}
        for share, kind in ((ax.sharex, sharex), (ax.sharey, sharey)):
            if first.get(kind, ax) is not ax:
                share(first[kind])
    return figure, found


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


def rendered(figure: Figure, kind: str) -> bytes:
    """What `save` writes, as pdf, svg or png."""
    buffer = BytesIO()
    save(figure, buffer, kind)
    return buffer.getvalue()
