"""Figures that answer: a matplotlib figure as a Plotly one with the same panels, marks, axes and legend.

A paper draws once. What is printed and what moves under the pointer come from the same drawing, so they
cannot disagree; the numbers of every mark are also one table.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from descentlab.showing.report import looks
from descentlab.showing.report.panel import Panel
from descentlab.showing.report.panel import Plot as Plot

# A drawing of more numbers than this is thinned: every second, third, ... point of its lines.
MOST_NUMBERS = 120_000
ABOVE, BESIDE = 26, 4  # pixels around the drawing: for buttons, for room
FONT = {"family": "STIXGeneral, STIX Two Text, Times New Roman, serif", "size": 13, "color": "#000"}


def plot(canvas: Figure) -> Plot | None:
    """The figure as a Plot; None where it has no numbers, or 3-D panels, which a plane cannot show."""
    if any(ax.name == "3d" for ax in canvas.axes):
        return None
    canvas.draw_without_rendering()
    mappables = [one for ax in canvas.axes for one in (*ax.images, *ax.collections)]
    bars = {id(bar.ax) for one in mappables if (bar := getattr(one, "colorbar", None))}
    panels = [ax for ax in canvas.axes if id(ax) not in bars and ax.get_visible()]
    width, height = looks.ENLARGED * looks.PIXELS * canvas.get_size_inches()
    found = Plot(thinned=max(1, -(-_count(panels) // MOST_NUMBERS)))
    found.layout = {
        "width": round(float(width)) + 2 * BESIDE, "height": round(float(height)) + ABOVE, "font": FONT,
        "margin": {"l": BESIDE, "r": BESIDE, "t": ABOVE, "b": 0}, "annotations": [], "shapes": [],
        "paper_bgcolor": "#fff", "plot_bgcolor": "rgba(0,0,0,0)", "hovermode": "closest", "showlegend": False,
        "meta": {"fixed": []},
    }  # fmt: skip
    named: set[tuple[str, str]] = set()
    whole = _labels(canvas.legends[0]) if canvas.legends else []
    for number, ax in enumerate(panels, 1):
        own, name = ax.get_legend(), f"legend{number + 1}"
        legends = dict.fromkeys(whole, "legend") | (dict.fromkeys(_labels(own), name) if own else {})
        Panel(ax, number, found, legends, named).draw()
        if own is not None:
            found.layout |= {"showlegend": True, name: looks.legend(own, beside=True)}
    for text in canvas.texts:
        found.layout["annotations"].append(looks.words(text, *text.get_position(), "paper", "paper"))
    if canvas.legends:
        found.layout |= {"showlegend": True, "legend": looks.legend(canvas.legends[0], beside=False)}
        lacking = looks.legend_height(canvas.legends[0], float(width)) - found.layout["legend"]["y"] * height
        found.layout["margin"]["b"] = max(0, round(float(lacking)))
        found.layout["height"] += found.layout["margin"]["b"]
    return found if found.table else None


def _labels(legend: Legend) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]


def _count(panels: list[Axes]) -> int:
    """How many numbers the lines have."""
    lines = [np.size(line.get_xdata()) for ax in panels for line in ax.get_lines()]
    threads = [c for ax in panels for c in ax.collections if isinstance(c, LineCollection)]
    return 2 * sum(lines) + 2 * sum(len(segment) for c in threads for segment in c.get_segments())
