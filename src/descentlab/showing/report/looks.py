"""How matplotlib's axes, words and strokes look in Plotly's terms."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import Normalize, to_rgba
from matplotlib.lines import Line2D

from descentlab.showing.report.tex import html

PIXELS = 96.0
ENLARGED = 1.25  # of print sizes, on a screen
POINT = ENLARGED * PIXELS / 72
DIGITS = 5
SHADES = 33
MARKERS = {
    "o": "circle", ".": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "D": "diamond",
    "d": "diamond", "x": "x-thin-open", "+": "cross-thin-open", "|": "line-ns-open", "_": "line-ew-open",
    "*": "star", "<": "triangle-left", ">": "triangle-right", "P": "cross", "X": "x",
}  # fmt: skip
UP = {"top": "top", "center": "middle", "center_baseline": "middle", "baseline": "bottom", "bottom": "bottom"}


def axis(axis: Any, domain: Any, anchor: str, mirror: bool) -> dict[str, Any]:
    """An axis with its scale, range and ticks."""
    scale, limits = axis.get_scale(), axis.get_view_interval()
    ends = np.log10(limits) if scale == "log" else place(axis, limits)
    shown: dict[str, Any] = {
        "domain": [round(float(d), 5) for d in domain], "anchor": anchor,
        "type": "log" if scale == "log" else "linear",
        "range": sorted((float(e) for e in ends), reverse=axis.get_inverted()),
        "showgrid": False, "zeroline": False, "showline": True, "linecolor": "#000", "linewidth": 0.8,
        "ticks": "outside", "ticklen": 4, "tickwidth": 0.8, "exponentformat": "power", "nticks": 7,
        "tickfont": {"size": tick_size(axis)}, "tickangle": 0, "mirror": mirror, "automargin": False,
    }  # fmt: skip
    found = ticks(axis)
    if not found:
        return shown | {"ticks": "", "showticklabels": False}
    labelled = axis.get_tick_params().get("labelleft" if axis.axis_name == "y" else "labelbottom", True)
    if not labelled or not any(found.values()):
        shown["showticklabels"] = False
    where = [float(x) for x in place(axis, list(found))]
    return shown | {"tickmode": "array", "tickvals": where, "ticktext": [html(t) for t in found.values()]}


def ticks(axis: Any) -> dict[float, str]:
    """The ticks in view with their words: the major ones, and minor ones that have words."""
    low, high = sorted(axis.get_view_interval())
    room = 1e-9 * (high - low)
    found: dict[float, str] = {}
    for minor, formatter in ((False, axis.get_major_formatter()), (True, axis.get_minor_formatter())):
        inside = [float(t) for t in axis.get_ticklocs(minor=minor) if low - room <= t <= high + room]
        words = dict(zip(inside, map(str, formatter.format_ticks(inside)), strict=True))
        found |= {t: word for t, word in words.items() if word or not minor}
    return found


def tick_size(axis: Any) -> float:
    """The size of an axis' words in pixels."""
    labels = axis.get_majorticklabels()
    return size(labels[0]) if labels else round(POINT * 8, 1)


def place(axis: Any, values: Any) -> np.ndarray:
    """Coordinates as Plotly wants them: as they are on its own kinds of axes, otherwise where they lie."""
    values = np.asarray(values, float)
    return values if axis.get_scale() in ("linear", "log") else axis.get_transform().transform(values)


def words(text: Any, x: Any, y: Any, xref: str, yref: str) -> dict[str, Any]:
    """A text at a place."""
    return {
        "text": html(text.get_text()), "x": plain(x), "y": plain(y), "xref": xref, "yref": yref,
        "xanchor": text.get_ha(), "yanchor": UP[text.get_va()], "showarrow": False,
        "textangle": -float(text.get_rotation()),
        "font": {"size": size(text), "color": css(text.get_color())},
    }  # fmt: skip


def printed(text: Any) -> dict[str, Any]:
    """A text where the figure has it, as shares of the figure."""
    box = text.get_window_extent().transformed(text.get_figure().transFigure.inverted())
    found = words(text, (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2, "paper", "paper")
    return found | {"xanchor": "center", "yanchor": "middle"}


def legend(legend: Any, *, beside: bool) -> dict[str, Any]:
    """A legend where the figure has it: of a panel, one entry below another, or of the figure, in lines."""
    box = legend.get_window_extent().transformed(legend.get_figure(root=True).transFigure.inverted())
    across = {"x": plain(box.x0), "xanchor": "left"} if beside else {"x": 0.5, "xanchor": "center"}
    return {
        "orientation": "v" if beside else "h", **across, "y": plain(box.y1), "yanchor": "top",
        "font": {"size": size(legend.get_texts()[0])}, "bgcolor": "rgba(0,0,0,0)", "itemwidth": 30,
        "tracegroupgap": 0,
    }  # fmt: skip


def legend_height(legend: Any, width: float) -> float:
    """The pixels that a legend in lines takes below a drawing so many pixels wide."""
    texts = legend.get_texts()
    scale = ENLARGED * PIXELS / legend.get_figure(root=True).dpi
    entries = [scale * text.get_window_extent().width + 50 for text in texts]
    # Plotly gives all entries the room of the longest once they need more than a line.
    beside = len(entries) if sum(entries) < width else max(1, int(width / max(entries)))
    return -(-len(entries) // beside) * (size(texts[0]) + 7) + 10


def colorbar(bar: Any, mappable: Any) -> dict[str, Any]:
    """A colour bar where the figure has it."""
    box, upright = bar.ax.get_position(), bar.orientation == "vertical"
    label = bar.ax.get_ylabel() if upright else bar.ax.get_xlabel()
    found: dict[str, Any] = {
        "orientation": "v" if upright else "h", "thickness": 9, "outlinewidth": 0.5,
        "xref": "paper", "yref": "paper", "xpad": 0, "ypad": 0,
        "len": float(box.height if upright else box.width), "lenmode": "fraction",
        "x": float(box.x0 if upright else (box.x0 + box.x1) / 2), "xanchor": "left" if upright else "center",
        "y": float((box.y0 + box.y1) / 2 if upright else box.y1), "yanchor": "middle" if upright else "top",
        "tickfont": {"size": tick_size(bar.ax.yaxis)}, "nticks": 5,
        "title": {"text": html(label), "side": "right" if upright else "bottom"},
    }  # fmt: skip
    if type(mappable.norm) is not Normalize:
        ticks = [t for t in bar.get_ticks() if mappable.norm.vmin <= t <= mappable.norm.vmax]
        found |= {"tickvals": numbers(mappable.norm(ticks)), "ticktext": [f"{t:.3g}" for t in ticks]}
    return found


def colours(cmap: Any) -> list[list[Any]]:
    """A colour map."""
    return [[round(i / (SHADES - 1), 5), css(c)] for i, c in enumerate(cmap(np.linspace(0, 1, SHADES)))]


def stroke(line: Line2D) -> dict[str, Any]:
    """Colour, width and dashes of a line."""
    width = 0.0 if line.get_linestyle() in ("None", "", " ", "none") else float(line.get_linewidth())
    _, pattern = getattr(line, "_unscaled_dash_pattern", (0, None))
    return pen(to_rgba(line.get_color(), line.get_alpha()), width, pattern, max(width, 0.5))


def stroke_of(collection: Any) -> dict[str, Any]:
    """Colour, width and dashes of lines that belong together."""
    _, pattern = collection.get_linestyle()[0]  # already in units of the width
    return pen(collection.get_edgecolor()[0], np.atleast_1d(collection.get_linewidth())[0], pattern)


def pen(colour: Any, width: Any, dashes: Any = None, unit: float = 1.0) -> dict[str, Any]:
    """A line by its colour, its width in points, and the lengths of its dashes in units of points."""
    found: dict[str, Any] = {"color": css(colour), "width": round(POINT * float(width), 2)}
    if dashes is not None:
        found["dash"] = ",".join(f"{POINT * part * unit:.1f}px" for part in dashes)
    return found


def marker(line: Line2D) -> dict[str, Any] | None:
    """The dots of a line, if it has any."""
    if (kind := MARKERS.get(str(line.get_marker()))) is None:
        return None
    rim = css(line.get_markeredgecolor())
    # matplotlib's point is smaller than its size says.
    points = float(line.get_markersize()) * (0.6 if line.get_marker() == "." else 1.0)
    return {
        "symbol": kind, "size": round(POINT * points, 2),
        "color": rim if kind.endswith("open") else css(line.get_markerfacecolor()),
        "line": {"width": round(float(line.get_markeredgewidth()), 2), "color": rim},
    }  # fmt: skip


def size(text: Any) -> float:
    """The size of a text in pixels."""
    return round(POINT * float(text.get_fontsize()), 1)


def css(colour: Any) -> str:
    """A colour; none is transparent.

    >>> css("white"), css((0, 0, 0, 0.5))
    ('rgb(255,255,255)', 'rgba(0,0,0,0.5)')
    """
    *rgb, alpha = to_rgba(colour)
    whole = ",".join(str(round(255 * c)) for c in rgb)
    return f"rgb({whole})" if alpha >= 1 else f"rgba({whole},{alpha:.3g})"


def plain(x: Any) -> float | None:
    """A number in a few digits; null where it is not finite."""
    x = float(x)
    return float(f"{x:.{DIGITS}g}") if np.isfinite(x) else None


def numbers(values: Any) -> list[float | None]:
    """Several of them."""
    return [plain(x) for x in np.asarray(values, float).ravel()]
