"""Figures and tables of a paper as HTML, each by itself: one that fails says so and costs no other."""

import base64
import io
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import xarray as xr
from markupsafe import Markup, escape

from descentlab.experiment import Run, datasets
from descentlab.paper import Figure, Paper, Table
from descentlab.preset import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LARGEST_SVG = 400_000
DPI = 160


@dataclass(frozen=True)
class Drawing:
    """A figure as it stands on the page: its picture, or its header and rows, or what went wrong."""

    figure: Figure | Table
    anchor: str
    picture: Markup | None = None
    header: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    error: str = ""


def drawing(
    paper: Paper, figure: Figure | Table, preset: Settings, runs: Mapping[Settings, Run], anchor: str
) -> Drawing:
    """A figure or table drawn from its runs; an error becomes part of the result and a line on stderr."""
    try:
        data = datasets(figure, preset, runs)
        if isinstance(figure, Table):
            header, rows = figure.rows(**data)
            cells = tuple(tuple(row) for row in rows)
            return Drawing(figure, anchor, header=tuple(str(name) for name in header), rows=cells)
        return Drawing(figure, anchor, picture=_drawn(figure, data, anchor))
    except Exception as error:
        # A paper's drawing may raise anything, and the verdicts must still reach the reader.
        print(f"{paper.name}: {figure.name} could not be drawn.", file=sys.stderr)
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Drawing(figure, anchor, error=what)


def _drawn(figure: Figure, data: Mapping[str, xr.Dataset], anchor: str) -> Markup:
    canvas = figure.draw(**data)
    try:
        return picture(canvas, figure.caption, anchor)
    finally:
        # Figures made by pyplot stay in its list until closed; others are not in it.
        if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
            pyplot.close(canvas)


def picture(canvas: "Canvas", caption: str, prefix: str, largest: int = LARGEST_SVG) -> Markup:
    """A matplotlib figure inside the page: SVG while that is small, otherwise PNG."""
    # Glyphs as paths look the same on every machine; the salt makes the same figure the same text.
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "descentlab"}):
        vector = io.BytesIO()
        canvas.savefig(vector, format="svg", bbox_inches="tight")
        if vector.tell() < largest:
            return _inline(vector.getvalue().decode(), caption, prefix)
        raster = io.BytesIO()
        canvas.savefig(raster, format="png", dpi=DPI, bbox_inches="tight")
    source = f"data:image/png;base64,{base64.b64encode(raster.getvalue()).decode()}"
    width = round(96 * canvas.get_size_inches()[0])
    return Markup('<img style="max-width: {}px" src="{}" alt="{}">').format(width, source, caption)


def _inline(svg: str, caption: str, prefix: str) -> Markup:
    """The svg element alone, its ids made unique on the page and its style sheet left to the page's own."""
    svg = svg[svg.index("<svg") :]
    for needless in (r"<metadata>.*?</metadata>", r"<!--.*?-->", r"<style\b.*?</style>"):
        svg = re.sub(needless, "", svg, flags=re.DOTALL)
    for reference in (' id="', 'href="#', "url(#"):
        svg = svg.replace(reference, f"{reference}{escape(prefix)}-")
    opening, rest = svg[: svg.index(">") + 1], svg[svg.index(">") + 1 :]
    match = re.search(r'viewBox="([^"]*)"', opening)
    assert match is not None, "matplotlib gives every svg a viewBox"
    width = round(float(match[1].split()[2]) * 4 / 3)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{match[1]}" style="max-width: {width}px" role="img" aria-label="{escape(caption)}">'
    )
    return Markup(opening + re.sub(r">\s+<", "><", rest.strip()))
