"""A panel of a matplotlib figure as axes, words, traces and shapes of a Plotly one, mark by mark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from matplotlib.colors import Normalize
from matplotlib.contour import ContourSet
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text

from descentlab.drawing import RANGE
from descentlab.showing.report import looks
from descentlab.showing.report.looks import css, numbers, place, plain
from descentlab.showing.report.tex import html
from descentlab.words import csv_table

GAP = np.full((1, 2), np.nan)


@dataclass
class Plot:
    """A figure for Plotly, the table of its numbers, and how much of its lines is shown (one in so many)."""

    data: list[dict[str, Any]] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    table: list[tuple[Any, ...]] = field(default_factory=list)
    thinned: int = 1

    def as_json(self) -> dict[str, Any]:
        """What Plotly takes."""
        return {"data": self.data, "layout": self.layout}

    def table_as_csv(self) -> str:
        """All numbers, not thinned."""
        return csv_table([("panel", "series", "x", "y", "value"), *self.table])


@dataclass
class Panel:
    """One panel on its way into a plot."""

    ax: Axes
    number: int
    into: Plot
    legends: Mapping[str, str]  # by label, the name of the legend that has it
    named: set[tuple[str, str]]

    def __post_init__(self) -> None:
        suffix = "" if self.number == 1 else str(self.number)
        self.x, self.y = f"x{suffix}", f"y{suffix}"
        self.title = html(self.ax.get_title())
        self.axes = (self.ax.xaxis, self.ax.yaxis)
        box, mirror = self.ax.get_position(), bool(self.ax.spines["top"].get_visible())
        ends = ((box.intervalx, self.y), (box.intervaly, self.x))
        for axis, (domain, anchor) in zip(self.axes, ends, strict=True):
            name = f"{axis.axis_name}axis{suffix}"
            self.into.layout[name] = looks.axis(axis, domain, anchor, mirror)
            if axis.get_scale() not in ("linear", "log"):
                self.into.layout["meta"]["fixed"].append(name)
            # A power of ten that all ticks of the axis share is printed beside it.
            self.printed(axis.get_offset_text(), name=f"power of {name}")
        for text in (self.ax.title, *(axis.label for axis in self.axes)):
            self.printed(text)
        self.ranges: dict[str, list[np.ndarray]] = {}

    def draw(self) -> None:
        """Adds the marks of the panel, from behind to the front."""
        kinds = {
            QuadMesh: self.mesh, ContourSet: self.contours, LineCollection: self.threads,
            PolyCollection: self.fill,
        }  # fmt: skip
        for image in self.ax.images:
            self.image(image)
        for patch in self.ax.patches:
            self.patch(patch)
        for collection in self.ax.collections:
            for kind, add in kinds.items():
                if isinstance(collection, kind):
                    add(collection)
                    break
        for line in self.ax.get_lines():
            self.line(line)
        for text in self.ax.texts:
            self.text(text)

    # ------------------------------------------------------------ frame

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
            for name, own, axis in zip("xy", inside, self.axes, strict=True)
        ]
        words = looks.words(text, at[0], at[1], where["xref"], where["yref"])
        self.into.layout["annotations"].append(words | {"xshift": shift[0], "yshift": shift[1]})

    def corners(self, x: np.ndarray, y: np.ndarray, inside: Any) -> dict[str, Any]:
        """Two points, by coordinates or as shares of the panel."""
        found: dict[str, Any] = {}
        for name, axis, values, own in zip("xy", self.axes, (x, y), inside, strict=True):
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

    # ------------------------------------------------------------ lines

    def line(self, line: Line2D) -> None:
        """A curve, or a straight line across the panel."""
        x, y = (
            np.atleast_1d(np.ma.filled(np.ma.asarray(v, float), np.nan)) for v in line.get_data(orig=False)
        )
        inside = line.get_transform().contains_branch_seperately(self.ax.transData)
        # Dots with error bars have their name from what holds both.
        bars = {id(one[0]): one.get_label() for one in self.ax.containers if len(one)}
        label = str(bars.get(id(line), line.get_label()))
        if all(inside):
            self.series(x, y, "" if label.startswith("_") else label, looks.stroke(line), looks.marker(line))
        else:
            ends = self.corners(x[[0, -1]], y[[0, -1]], inside)
            self.into.layout["shapes"].append(
                ends | {"type": "line", "layer": "below", "line": looks.stroke(line)}
            )

    def series(self, x: Any, y: Any, name: str, stroke: Any, marker: Any = None, **further: Any) -> None:
        """A line, dots or both, in the table too; a median over seeds tells their range."""
        self.note(html(name) or f"line {len(self.into.data)}", x, y)
        kept = _every(self.into.thinned, len(x))
        modes = (("lines", stroke["width"] > 0), ("markers", marker is not None))
        legend = self.legends.get(name, "")
        words = "%{x:.5~g}, %{y:.4~g}"
        if (found := self.range_of(name, x, y)) is not None:
            further["customdata"] = [numbers(ends) for ends in found[kept, 1:]]
            words += "<br>seeds %{customdata[0]:.4~g} to %{customdata[1]:.4~g}"
        self.add(
            "scatter",
            x=numbers(place(self.ax.xaxis, x[kept])) or [None],
            y=numbers(place(self.ax.yaxis, y[kept])) or [None],
            mode="+".join(mode for mode, on in modes if on) or "none", line=stroke, connectgaps=False,
            name=html(name), legendgroup=name, legend=legend or "legend",
            showlegend=bool(legend) and (legend, name) not in self.named,
            hovertemplate=f"{words}<extra>{html(name)}</extra>",
            **({"marker": marker} if marker is not None else {}), **further,
        )  # fmt: skip
        self.named |= {(legend, name)} if legend else set()

    def range_of(self, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        """The range of seeds around a median, (x, low, high); None where the panel has none of that name."""
        for i, found in enumerate(self.ranges.get(name, [])):
            if len(found) == len(x) and np.array_equal(found[:, 0], x):
                inside = (found[:, 1] <= y) & (y <= found[:, 2])
                if np.all(inside | np.isnan(y)):
                    return self.ranges[name].pop(i)
        return None

    def threads(self, collection: LineCollection) -> None:
        """Many thin lines as one trace, each apart in the table."""
        # A line with no finite point has no segment to show.
        segments = [np.asarray(segment) for segment in collection.get_segments() if np.size(segment) > 0]
        if not segments or not collection.get_transform().contains_branch(self.ax.transData):
            return
        label = str(collection.get_label()).lstrip("_")
        for i, segment in enumerate(segments):
            self.note(f"{label} {i}".strip(), *segment.T)
        kept = [
            part for segment in segments for part in (segment[_every(self.into.thinned, len(segment))], GAP)
        ]
        self.outline(
            np.concatenate(kept),
            line=looks.stroke_of(collection),
            hovertemplate="%{x:.5~g}, %{y:.4~g}<extra></extra>",
        )

    def fill(self, collection: PolyCollection) -> None:
        """An area such as the range of seeds, whose ends go into the table."""
        polygons = [
            np.asarray(p) for path in collection.get_paths() for p in path.to_polygons(closed_only=False)
        ]
        label = str(collection.get_label())
        if polygons and label.startswith(RANGE):
            name = label.removeprefix(RANGE)
            found = [_ends(polygon) for polygon in polygons]
            self.ranges.setdefault(name, []).append(np.concatenate(found))
            for words, column in (("lowest seed", 1), ("highest seed", 2)):
                series = f"{html(name)}, {words}" if name.strip("_") else words
                for ends in found:
                    self.note(series, ends[:, 0], ends[:, column])
            thin = [ends[_every(self.into.thinned, len(ends))] for ends in found]
            polygons = [np.concatenate([ends[:, [0, 1]], ends[::-1][:, [0, 2]]]) for ends in thin]
        if polygons:
            joined = np.concatenate([part for polygon in polygons for part in (polygon, GAP)])
            colour = css(collection.get_facecolor()[0])
            self.outline(joined, line={"width": 0}, fill="toself", fillcolor=colour, hoverinfo="skip")

    def outline(self, points: np.ndarray, **look: Any) -> None:
        """Points joined by lines, with gaps where they are NaN."""
        x, y = place(self.ax.xaxis, points[:, 0]), place(self.ax.yaxis, points[:, 1])
        self.add(
            "scatter", x=numbers(x), y=numbers(y), mode="lines", showlegend=False, connectgaps=False, **look
        )

    def contours(self, contours: ContourSet) -> None:
        """Lines of equal height."""
        for path, level in zip(contours.get_paths(), contours.levels, strict=False):
            for polygon in path.to_polygons(closed_only=False):
                x, y = np.asarray(polygon).T
                self.series(x, y, "", looks.stroke_of(contours), text=f"level {level:.4g}")

    # ------------------------------------------------------------ areas

    def image(self, image: AxesImage) -> None:
        """A matrix on a regular grid."""
        z = np.ma.asarray(image.get_array())
        if z.ndim == 2:
            left, right, bottom, top = image.get_extent()
            first, last = (top, bottom) if image.origin == "upper" else (bottom, top)
            x, y = (
                a + (np.arange(n) + 0.5) * (b - a) / n
                for a, b, n in ((left, right, z.shape[1]), (first, last, z.shape[0]))
            )
            self.heat(image, x, y, z)

    def mesh(self, mesh: QuadMesh) -> None:
        """A matrix on a grid of its own."""
        corners = np.asarray(mesh.get_coordinates())
        z = np.ma.asarray(mesh.get_array()).reshape(corners.shape[0] - 1, corners.shape[1] - 1)
        self.heat(mesh, corners[0, :, 0], corners[:, 0, 1], z)

    def heat(self, mappable: Any, x: np.ndarray, y: np.ndarray, z: np.ma.MaskedArray) -> None:
        """A matrix in colours; under another scale than a linear one, its entries' places on it."""
        values = np.ma.filled(z.astype(float), np.nan)
        shown, (low, high), entry = values, mappable.get_clim(), "%{z:.4g}"
        further: dict[str, Any] = {}
        if type(mappable.norm) is not Normalize:
            shown, entry = np.ma.filled(mappable.norm(z), np.nan), "%{customdata:.4g}"
            low, high = 0.0, 1.0
            further["customdata"] = [numbers(row) for row in values]
        if (bar := getattr(mappable, "colorbar", None)) is not None:
            further["colorbar"] = looks.colorbar(bar, mappable)
        for at, row in zip(y, values, strict=False):
            self.note("cells", x, np.full(len(x), at), row)
        self.add(
            "heatmap", x=numbers(place(self.ax.xaxis, x)), y=numbers(place(self.ax.yaxis, y)),
            z=[numbers(row) for row in shown], zmin=plain(low), zmax=plain(high), showscale=bar is not None,
            colorscale=looks.colours(mappable.cmap),
            hovertemplate=f"%{{x}}, %{{y}}: {entry}<extra></extra>", **further,
        )  # fmt: skip

    def patch(self, patch: Any) -> None:
        """A rectangle."""
        points = patch.get_bbox().get_points() if hasattr(patch, "get_bbox") else patch.get_path().vertices
        x, y = np.array([points.min(axis=0), points.max(axis=0)]).T
        inside = patch.get_transform().contains_branch_seperately(self.ax.transData)
        filled = patch.get_fill()
        self.into.layout["shapes"].append({
            **self.corners(x, y, inside), "type": "rect", "layer": "below" if filled else "above",
            "line": looks.pen(patch.get_edgecolor(), patch.get_linewidth()),
            "fillcolor": css(patch.get_facecolor()) if filled else "rgba(0,0,0,0)",
        })  # fmt: skip


def _every(step: int, count: int) -> np.ndarray:
    """Every so many of some points, the first and the last among them."""
    step = step if count > 2 * step else 1
    return np.unique(np.r_[np.arange(0, count, step), count - 1]) if count else np.arange(0)


def _ends(polygon: np.ndarray) -> np.ndarray:
    """The lower and the upper end of an area at every x, (x, low, high)."""
    x, where = np.unique(polygon[:, 0], return_inverse=True)
    low, high = np.full(len(x), np.inf), np.full(len(x), -np.inf)
    np.minimum.at(low, where, polygon[:, 1])
    np.maximum.at(high, where, polygon[:, 1])
    return np.column_stack([x, low, high])
