"""A panel of a matplotlib figure as traces and shapes of a Plotly one, mark by mark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from matplotlib.colors import Normalize
from matplotlib.contour import ContourSet
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from descentlab.drawing import RANGE
from descentlab.showing.report import looks
from descentlab.showing.report.frame import Frame
from descentlab.showing.report.looks import css, numbers, place, plain
from descentlab.showing.report.tex import html

GAP = np.full((1, 2), np.nan)


@dataclass
class Panel(Frame):
    """One panel on its way into a plot."""

    legends: Mapping[str, str]  # by label, the name of the legend that has it
    named: set[tuple[str, str]]

    def __post_init__(self) -> None:
        super().__post_init__()
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
            shown, (low, high), entry = (
                np.ma.filled(mappable.norm(z), np.nan),
                (0.0, 1.0),
                "%{customdata:.4g}",
            )
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
        low, high = points.min(axis=0), points.max(axis=0)
        inside = patch.get_transform().contains_branch_seperately(self.ax.transData)
        filled = patch.get_fill()
        self.into.layout["shapes"].append({
            **self.corners(np.array([low[0], high[0]]), np.array([low[1], high[1]]), inside), "type": "rect",
            "layer": "below" if filled else "above", "line": looks.edge(patch),
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
