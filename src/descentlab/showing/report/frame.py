"""The frame of a panel in Plotly's terms: axes, titles, words, and how coordinates become places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation, Text

from descentlab.showing.report import looks
from descentlab.showing.report.looks import place, plain
from descentlab.showing.report.plotted import Plot
from descentlab.showing.report.tex import html


@dataclass
class Frame:
    """A panel's axes, titles and words, and where its marks go."""

    ax: Axes
    number: int
    into: Plot

    def __post_init__(self) -> None:
        suffix = "" if self.number == 1 else str(self.number)
        self.x, self.y = f"x{suffix}", f"y{suffix}"
        self.title = html(self.ax.get_title())
        box, mirror = self.ax.get_position(), bool(self.ax.spines["top"].get_visible())
        axes = ((self.ax.xaxis, (box.x0, box.x1), self.y), (self.ax.yaxis, (box.y0, box.y1), self.x))
        for axis, ends, anchor in axes:
            name = f"{axis.axis_name}axis{suffix}"
            self.into.layout[name] = looks.axis(axis, ends, anchor, mirror)
            if axis.get_scale() not in ("linear", "log"):
                self.into.layout["meta"]["fixed"].append(name)
            # A power of ten that all ticks of the axis share is printed beside it.
            self.printed(axis.get_offset_text(), name=f"power of {name}")
        for text in (self.ax.title, self.ax.xaxis.label, self.ax.yaxis.label):
            self.printed(text)

    def printed(self, text: Text, **further: Any) -> None:
        """Words of the frame, if there are any, where the figure has them."""
        if text.get_text() and text.get_visible():
            self.into.layout["annotations"].append(looks.printed(text) | further)

    def text(self, text: Text) -> None:
        """Words where the figure has them."""
        shift = (0.0, 0.0)
        if isinstance(text, Annotation):
            (x, y), by = text.xy, text.xycoords
            inside = tuple(one == "data" for one in (by if isinstance(by, tuple) else (by, by)))
            if text.anncoords == "offset points":
                shift = tuple(looks.POINT * float(v) for v in text.xyann)
        else:
            x, y = text.get_position()
            inside = text.get_transform().contains_branch_seperately(self.ax.transData)
        where = self.corners(np.array([x, x], float), np.array([y, y], float), inside)
        # Words, unlike shapes, have their places on a log axis in decades.
        at = [
            float(np.log10(where[f"{name}0"])) if own and axis.get_scale() == "log" else where[f"{name}0"]
            for name, own, axis in (("x", inside[0], self.ax.xaxis), ("y", inside[1], self.ax.yaxis))
        ]
        words = looks.words(text, at[0], at[1], where["xref"], where["yref"])
        self.into.layout["annotations"].append(words | {"xshift": shift[0], "yshift": shift[1]})

    def corners(self, x: np.ndarray, y: np.ndarray, inside: Any) -> dict[str, Any]:
        """Two points, by coordinates or as shares of the panel."""
        found: dict[str, Any] = {}
        for name, axis, values, own in (
            ("x", self.ax.xaxis, x, inside[0]),
            ("y", self.ax.yaxis, y, inside[1]),
        ):
            shown = place(axis, values) if own else values
            found |= {f"{name}0": plain(shown[0]), f"{name}1": plain(shown[-1])}
            found[f"{name}ref"] = getattr(self, name) + ("" if own else " domain")
        return found

    def add(self, kind: str, **trace: Any) -> None:
        """A trace of this panel."""
        self.into.data.append({"type": kind, "xaxis": self.x, "yaxis": self.y} | trace)

    def note(self, series: str, x: Any, y: Any, value: Any = None) -> None:
        """Rows of the table, with all digits."""
        panel, values = self.title or f"panel {self.number}", [""] * len(x) if value is None else value
        self.into.table += [(panel, series, *row) for row in zip(x, y, values, strict=False)]
