"""Figures that answer: a matplotlib figure as a Plotly one with the same panels, marks, axes and legend.

A paper draws once. What is printed and what moves under the pointer come from the same drawing, so they
cannot disagree; the numbers of every mark are also one table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from descentlab.report import looks
from descentlab.report.panel import Panel
from descentlab.report.plotted import Plot as Plot

# A drawing of more numbers than this is thinned: every second, third, ... point of its lines.
MOST_NUMBERS = 120_000
ABOVE, BESIDE, LEGEND = 26, 4, 40  # pixels around the drawing: for buttons, for room, for the legend
FONT = {"family": "STIX Two Text, STIXGeneral, Times New Roman, serif", "size": 15, "color": "#000"}


def plot(canvas: Figure) -> Plot | None:
    """The figure as a Plot; None where it has no numbers, or 3-D panels, which a plane cannot show."""
    if any(ax.name == "3d" for ax in canvas.axes):
        return None
    canvas.draw_without_rendering()
    bars = {id(bar.ax) for ax in canvas.axes for bar in _colorbars(ax)}
    panels = [ax for ax in canvas.axes if id(ax) not in bars and ax.get_visible()]
    width, height = looks.ENLARGED * looks.PIXELS * canvas.get_size_inches()
    found = Plot(thinned=max(1, -(-_count(panels) // MOST_NUMBERS)))
    found.layout = {
        "width": round(float(width)) + 2 * BESIDE, "height": round(float(height)) + ABOVE, "font": FONT,
        "margin": {"l": BESIDE, "r": BESIDE, "t": ABOVE, "b": 0}, "annotations": [], "shapes": [],
        "paper_bgcolor": "#fff", "plot_bgcolor": "rgba(0,0,0,0)", "hovermode": "closest", "showlegend": False,
    }  # fmt: skip
    named: set[str] = set()
    for number, ax in enumerate(panels, 1):
        Panel(ax, number, found, named).draw()
    for text in canvas.texts:
        found.layout["annotations"].append(looks.words(text, *text.get_position(), "paper", "paper"))
    if named and (canvas.legends or any(ax.get_legend() for ax in canvas.axes)):
        # Legends of panels are joined below the figure.
        found.layout |= {"showlegend": True, "height": found.layout["height"] + LEGEND}
        found.layout["margin"]["b"] = LEGEND
        found.layout["legend"] = {
            "orientation": "h", "x": 0.5, "xanchor": "center", "y": 0.0, "yanchor": "top",
            "font": {"size": 14},
        }  # fmt: skip
    return found if found.table else None


def _count(panels: list[Axes]) -> int:
    """How many numbers the lines have."""
    lines = [np.size(line.get_xdata()) for ax in panels for line in ax.get_lines()]
    threads = [c for ax in panels for c in ax.collections if isinstance(c, LineCollection)]
    return 2 * sum(lines) + 2 * sum(len(segment) for c in threads for segment in c.get_segments())


def _colorbars(ax: Axes) -> Iterator[Any]:
    for mappable in (*ax.images, *ax.collections):
        if (bar := getattr(mappable, "colorbar", None)) is not None:
            yield bar
